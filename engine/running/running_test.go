package running

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// shortest orders jobs by their estimates.
type shortest struct{}

func (shortest) Name() string         { return "shortest" }
func (shortest) Traits() sched.Traits { return sched.Traits{} }
func (shortest) Key(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{int64(j.Spec().Estimate)}
}

// room is jobs that hold devices, without an engine.
type room struct {
	Jobs
	world   sched.World
	victims preempt.Finder
	all     []*job.State
	touched int
}

func newRoom() *room {
	r := &room{}
	st := &inventory.Store{}
	table := shape.NewTable(st, nil, false)
	r.world = sched.World{Store: st, Shapes: &table}
	r.victims = preempt.New(preempt.Rules{}, &placement.Finder{World: &r.world}, &limits.Book{}, &r.Jobs)
	r.Jobs = New(&r.world, shortest{}, &r.victims, &r.all, func(*job.State) { r.touched++ })
	return r
}

// add makes a job that runs for so long from now on.
func (r *room) add(state job.Phase, tier cluster.Tier, estimate time.Duration) *job.State {
	spec := &cluster.Job{ID: cluster.JobID(len(r.all)), Tier: tier, Estimate: estimate,
		Tasks: []cluster.TaskSet{{Count: 1}}}
	j := &job.State{Spec: spec, Tenure: &job.Tenure{}, Facts: job.Facts{State: state}}
	j.Acc, j.Started, j.Rate, j.LimitAt = r.world.Now, r.world.Now, job.Million, cluster.Never
	j.Shape, _ = r.world.Shapes.Of(spec)
	r.all = append(r.all, j)
	r.Add(j)
	return j
}

func ids(l *order.List) (list []int32) {
	l.Walk(func(it order.Item) bool {
		list = append(list, it.ID)
		return true
	})
	return list
}

// TestLists: jobs are listed by key, by expected end, by tier and, while they wait for their devices, apart.
func TestLists(t *testing.T) {
	r := newRoom()
	r.add(job.Running, cluster.Standard, 3*time.Hour)
	placed := r.add(job.Placed, cluster.BestEffort, time.Hour)
	r.world.Now = cluster.Time(90 * time.Minute)
	late := r.add(job.Starting, cluster.Standard, 2*time.Hour)
	if got := ids(r.ByKey()); !slices.Equal(got, []int32{1, 2, 0}) {
		t.Errorf("by key: %v", got)
	}
	if got := ids(r.ByEnd()); !slices.Equal(got, []int32{1, 0, 2}) {
		t.Errorf("by end: %v", got)
	}
	if *r.Booked() != [3]int{0, 2, 1} || r.Count() != 3 || r.touched != 3 {
		t.Errorf("%v are booked, %d, %d times touched", *r.Booked(), r.Count(), r.touched)
	}
	if got := r.Started(); len(got) != 2 || got[0] != r.all[0] || got[1] != late {
		t.Errorf("started: %v", got)
	}
	if got := r.Placed(); len(got) != 1 || got[0] != placed {
		t.Errorf("placed: %v", got)
	}
	spec := *late.Spec
	spec.Estimate = 30 * time.Minute
	late.Spec = &spec
	r.Update(late)
	if !slices.Equal(ids(r.ByKey()), []int32{2, 1, 0}) || !slices.Equal(ids(r.ByEnd()), []int32{1, 2, 0}) {
		t.Errorf("when one is shorter: %v by key, %v by end", ids(r.ByKey()), ids(r.ByEnd()))
	}
	if r.Remove(placed); len(r.Placed()) != 0 || r.Booked()[cluster.BestEffort] != 0 {
		t.Errorf("when one has left: %v, %v", r.Placed(), *r.Booked())
	}
}

// TestRestore: a job that is listed again has the place that it had, whatever its key would be now.
func TestRestore(t *testing.T) {
	r := newRoom()
	r.add(job.Running, cluster.Standard, time.Hour)
	j := r.add(job.Running, cluster.Standard, 2*time.Hour)
	r.Restore(j, order.Key{1}, 2)
	if !slices.Equal(ids(r.ByKey()), []int32{1, 0}) || !slices.Equal(ids(r.ByEnd()), []int32{1, 0}) {
		t.Errorf("%v by key, %v by end", ids(r.ByKey()), ids(r.ByEnd()))
	}
}

// TestRefreshEnds: a job that runs longer than was expected is expected to end later, at least a minute from now.
func TestRefreshEnds(t *testing.T) {
	r := newRoom()
	overdue := r.add(job.Running, cluster.Standard, time.Hour)
	r.add(job.Running, cluster.Standard, 3*time.Hour)
	r.world.Now = cluster.Time(2 * time.Hour)
	if r.RefreshEnds(); overdue.EndKey.Key[0] != int64(2*time.Hour+6*time.Minute) {
		t.Errorf("it is expected to end at %v", time.Duration(overdue.EndKey.Key[0]))
	}
}

// TestRandomLists: after any changes the lists are those of the jobs.
func TestRandomLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := newRoom()
	var listed []*job.State
	for range 400 {
		r.world.Now += cluster.Time(rng.Int64N(int64(time.Minute)))
		state := []job.Phase{job.Placed, job.Starting, job.Running}[rng.IntN(3)]
		switch k := rng.IntN(5); {
		case k < 2 || len(listed) == 0:
			listed = append(listed, r.add(state, cluster.Tier(rng.IntN(3)), time.Duration(1+rng.IntN(90))*time.Minute))
		case k == 2:
			i := rng.IntN(len(listed))
			r.Remove(listed[i])
			listed[i].State = job.Done
			listed = slices.Delete(listed, i, i+1)
		case k == 3:
			r.Update(listed[rng.IntN(len(listed))])
		default:
			r.RefreshEnds()
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if r.Count() != len(listed) || len(ids(r.ByKey())) != len(listed) {
			t.Fatalf("%d jobs are counted, %d listed, of %d", r.Count(), len(ids(r.ByKey())), len(listed))
		}
	}
}
