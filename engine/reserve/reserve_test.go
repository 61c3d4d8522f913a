package reserve

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/speed"
)

// room is a cluster of two nodes with four GPUs each, without an engine.
type room struct {
	Book
	t     *testing.T
	st    inventory.Store
	world sched.World
	find  placement.Finder
	table shape.Table
	jobs  []*job.State
	ends  order.List
	keys  order.List
}

func newRoom(t *testing.T) *room {
	r := &room{t: t}
	names := map[string]int32{}
	for i, name := range []string{"n1", "n2"} {
		names[name] = int32(i)
		n := cluster.Node{Name: name, Model: "T4", GPUs: 4}
		if _, err := r.st.Add(n, cluster.GPUModel{Name: "T4"}, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.table = shape.NewTable(&r.st, names, false)
	r.world = sched.World{Store: &r.st, Shapes: &r.table}
	r.find = placement.Finder{World: &r.world, Around: r, Speeds: &speed.Book{World: &r.world}}
	r.Book = Book{World: &r.world, Find: &r.find, Around: r, Placer: fullest{}}
	return r
}

// fullest places each task on the fullest node with room.
type fullest struct{}

func (fullest) Name() string { return "fullest" }

func (fullest) Place(s *placement.Site) bool {
	for range s.Sets()[0].Count {
		node := s.Find(0, 1, placement.Fullest)
		if node < 0 {
			return false
		}
		s.Take(node, 0, 1)
	}
	return true
}

func (r *room) Jobs() []*job.State                { return r.jobs }
func (r *room) Running() *order.List              { return &r.keys }
func (r *room) Company(*job.State) *links.Company { return nil }
func (r *room) Ends() *order.List                 { return &r.ends }
func (r *room) Moving() []cluster.JobID           { return nil }

// add makes a job of so many tasks of so many GPUs that is to run for so long.
func (r *room) add(tasks, gpus int, run time.Duration, named string) *job.State {
	spec := &cluster.Job{ID: cluster.JobID(len(r.jobs)), Estimate: run, Reservation: named,
		Tasks: []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: gpus}}}}
	j := &job.State{Tenure: &job.Tenure{}, Spec: spec, Promise: cluster.Never}
	j.Shape, _ = r.table.Of(spec)
	r.jobs = append(r.jobs, j)
	return j
}

// start has a job run on a node.
func (r *room) start(node int32, gpus uint64, run time.Duration, named string) {
	j := r.add(1, 1, run, named)
	j.State, j.Rate, j.Started = job.Running, job.Million, r.world.Now
	j.Allocs = []inventory.Alloc{{Node: node, Tasks: 1, GPUs: gpus}}
	r.st.TakeAll(j.Allocs)
	r.st.Commit()
	r.keys.Insert(order.Item{ID: int32(j.Spec.ID)})
	r.ends.Insert(order.Item{Key: order.Key{int64(r.world.Now.Add(run))}, ID: int32(j.Spec.ID)})
}

// A blocked job is promised the earliest place; the inventory is as before. Jobs that are over by then, and jobs on
// what is left beside it, are not limited.
func TestPromise(t *testing.T) {
	r := newRoom(t)
	r.start(0, 0b1111, time.Hour, "")
	r.start(1, 0b0011, 3*time.Hour, "")
	wide := r.add(2, 3, time.Hour, "")
	mark := r.st.Mark()
	w, ok := r.Earliest(wide, false)
	if !ok || w.At != cluster.Time(3*time.Hour) || w.Until != cluster.Time(4*time.Hour) || r.st.Mark() != mark {
		t.Fatalf("promised %v, %+v, on %+v", ok, w, r.st.Mark())
	}
	r.Promise(w)
	long, short := r.add(1, 2, 5*time.Hour, ""), r.add(1, 2, 2*time.Hour, "")
	fits := func(j *job.State) bool {
		q := r.anywhere()
		q.Reserved = r.Limits(j, placement.Candidate)
		_, ok := r.find.Place(q, j, r.table.At(j.Shape), 1)
		r.st.Rollback(mark)
		return ok
	}
	if fits(long) || !fits(short) {
		t.Errorf("a long job fits: %v, a short one: %v", fits(long), fits(short))
	}
	one := r.add(1, 1, 5*time.Hour, "") // each node has one GPU beside the promise
	if !fits(one) {
		t.Error("a job finds no room beside a promise")
	}
	on := []inventory.Alloc{{Node: 1, Tasks: 1, GPUs: 0b0100}}
	if r.Take(one, on, 1); fits(one) {
		t.Error("what is left beside a promise is used twice")
	}
	if r.Take(one, on, -1); !fits(one) {
		t.Error("what was given back is not there")
	}
	restore := r.Aside()
	if len(r.Windows()) != 0 || !fits(long) {
		t.Error("windows that were put aside limit a job")
	}
	if restore(); !r.Meets(r.table.At(long.Shape)) || r.OpenEnded(r.table.At(long.Shape)) {
		t.Error("windows that were put aside are gone")
	}
}

// Where no end is known, the nodes with the fewest busy GPUs are held.
func TestHold(t *testing.T) {
	r := newRoom(t)
	r.start(0, 0b0111, cluster.MaxDuration, "")
	r.start(1, 0b0001, cluster.MaxDuration, "")
	big := r.add(1, 4, time.Hour, "")
	if w, ok := r.Earliest(big, false); ok && !OutOfSight(0, w.At) {
		t.Fatalf("promised a start at %v", w.At)
	}
	w, ok := r.Hold(big)
	if !ok || !w.Hold || w.Until != cluster.Never || len(w.nodes) != 1 || w.nodes[0].node != 1 {
		t.Fatalf("holds %v %+v", ok, w)
	}
	w.Each(func(node int32, gpus int) {
		if node != 1 || gpus != 4 {
			t.Errorf("takes %d GPUs of node %d", gpus, node)
		}
	})
}

// An advance reservation comes again and again. It lacks what others hold when it begins.
func TestAdvance(t *testing.T) {
	r := newRoom(t)
	class := cluster.Reservation{Name: "class", Nodes: []string{"n2"}, Start: cluster.Time(time.Hour),
		End: cluster.Time(2 * time.Hour), Every: 24 * time.Hour, Users: []string{"ann"}}
	if err := r.AddAdvance(class, map[string]int32{"n2": 1}); err != nil {
		t.Fatal(err)
	}
	r.start(1, 0b0001, 5*time.Hour, "")
	r.start(1, 0b0010, 5*time.Hour, "class")
	for _, step := range []struct {
		at           time.Duration
		ended, begun int
		next         time.Duration
	}{{0, 0, 0, time.Hour}, {time.Hour, 0, 1, 2 * time.Hour}, {90 * time.Minute, 0, 0, 2 * time.Hour},
		{2 * time.Hour, 1, 0, 25 * time.Hour}, {49*time.Hour + time.Minute, 1, 1, 50 * time.Hour}} {
		r.world.Now = cluster.Time(step.at)
		ended, begun := r.Tick()
		if ended != step.ended || len(begun) != step.begun || r.NextChange() != cluster.Time(step.next) {
			t.Errorf("at %v %d end and %d begin, the next change is at %v", step.at, ended, len(begun), r.NextChange())
		}
	}
	a := &r.Advance()[0]
	if !r.Lacks(a, 0) {
		t.Error("a job of others is not in the way")
	}
	r.st.Release(&r.jobs[0].Allocs[0])
	if r.st.Commit(); r.Lacks(a, 0) {
		t.Error("its own job is in the way")
	}
	if records := r.Records(); len(records) != 1 || !records[0].Begun {
		t.Errorf("records %+v", records)
	}
	other := newRoom(t)
	if err := other.AddAdvance(class, map[string]int32{"n2": 1}); err != nil {
		t.Fatal(err)
	}
	if other.Restore(r.Records()); other.Records()[0] != r.Records()[0] {
		t.Errorf("restored %+v", other.Records())
	}
	if text := r.WhyNot(&cluster.Job{Reservation: "class", User: "bob"}); text == "" ||
		r.WhyNot(&cluster.Job{Reservation: "class", User: "ann"}) != "" {
		t.Errorf("bob may not: %q", text)
	}
}
