package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/admission"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

const minute = cluster.Time(time.Minute)

// scripted gives jobs the targets that it was told, all others nothing, and is asked again after an hour.
type scripted struct {
	targets map[cluster.JobID]job.Target
	shown   []cluster.JobID // the jobs of the last plan
}

func (p *scripted) Name() string                                { return "scripted" }
func (p *scripted) Traits() sched.Traits                        { return sched.Traits{Gated: true} }
func (p *scripted) Key(sched.View, sched.JobView) (k sched.Key) { return k }

func (p *scripted) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	out := sched.Plan{Next: v.Now().Add(time.Hour)}
	p.shown = nil
	for _, j := range jobs {
		t, ok := p.targets[j.Spec().ID]
		if !ok {
			t.Idle = true
		}
		p.shown, out.Targets = append(p.shown, j.Spec().ID), append(out.Targets, t)
	}
	return out
}

// room is two nodes, with four T4s and four V100s, and a plan, without an engine.
type room struct {
	Book
	policy  *scripted
	st      inventory.Store
	table   shape.Table
	world   sched.World
	admit   admission.Checker
	all     []*job.State
	touched []cluster.JobID
}

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{policy: &scripted{targets: map[cluster.JobID]job.Target{}}}
	spec, names := &cluster.Spec{}, map[string]int32{}
	for i, n := range []cluster.Node{{Name: "a", Model: "T4-16GB", GPUs: 4}, {Name: "b", Model: "V100-16GB", GPUs: 4}} {
		names[n.Name] = int32(i)
		model, _ := spec.Model(n.Model)
		if _, err := r.st.Add(n, model, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.table = shape.NewTable(&r.st, names, false)
	r.world = sched.World{Store: &r.st, Shapes: &r.table, Traits: r.policy.Traits(), Plan: &r.PlanMemory,
		Pools: &r.Pools}
	r.admit = admission.New(&placement.Finder{World: &r.world}, spec, nil, nil, nil, names, false)
	r.Book = New(&r.world, r.policy, &r.admit, func() []*job.State { return r.all },
		func(j *job.State) { r.touched = append(r.touched, j.Spec.ID) })
	return r
}

// add makes a job that waits for between so many tasks of a GPU each.
func (r *room) add(least, most int) *job.State {
	spec := &cluster.Job{ID: cluster.JobID(len(r.all)), Tier: cluster.Standard,
		Tasks: []cluster.TaskSet{{Count: least, Request: cluster.Request{GPUs: 1}}}}
	if least < most {
		spec.Elastic = cluster.Elastic{Min: least, Max: most}
	}
	j := &job.State{Spec: spec, Tenure: &job.Tenure{}, Facts: job.Facts{Parked: job.ParkedPlan}}
	j.Shape = r.admit.ShapeOf(spec)
	j.Base, j.Narrow = j.Shape, j.Shape
	r.table.At(j.Base).Judged = len(r.st.Nodes())
	r.all = append(r.all, j)
	r.Include(j)
	return j
}

// run has a job run on GPUs of a node.
func (r *room) run(j *job.State, node int32, gpus uint64, tasks int32) {
	j.State, j.Parked, j.Tasks = job.Running, job.NotParked, tasks
	j.Allocs = []inventory.Alloc{{Node: node, GPUs: gpus, Tasks: tasks}}
}

// TestDue: the policy plans when jobs have changed, and when it said so itself.
func TestDue(t *testing.T) {
	r := newRoom(t)
	if r.Due() || r.Wake() != cluster.Never {
		t.Fatal("there is something to plan")
	}
	r.add(1, 1)
	if r.JobsChanged(); !r.Due() || r.Wake() != 0 {
		t.Fatal("a job has come and nothing is to be planned")
	}
	if _, _, ok := r.Make(); !ok || r.Due() || r.Wake() != 60*minute {
		t.Fatalf("planned: %v; next at %v", ok, r.Wake())
	}
	if r.world.Now = 60 * minute; !r.Due() {
		t.Error("the time that the policy named has come")
	}
	r.world.Traits.Round = 45 * time.Minute
	r.Last = 50 * minute
	if r.Due() || r.Wake() != 90*minute {
		t.Errorf("due within a round: %v; next at %v", r.Due(), r.Wake())
	}
}

// TestMake: jobs that wait or run are shown, those that are over or stop for good are not.
func TestMake(t *testing.T) {
	r := newRoom(t)
	waits, runs, over, held := r.add(1, 1), r.add(1, 1), r.add(1, 1), r.add(1, 1)
	r.run(runs, 0, 1, 1)
	over.State, held.Parked = job.Done, job.ParkedHold
	r.policy.targets[0], r.policy.targets[1] = job.Target{Rank: 3}, job.Target{Move: true, Beside: 1}
	jobs, targets, ok := r.Make()
	if !ok || !slices.Equal(r.policy.shown, []cluster.JobID{0, 1}) || len(jobs) != 2 || jobs[0] != waits ||
		targets[0].Rank != 3 {
		t.Fatalf("%v are shown, %+v", r.policy.shown, targets)
	}
	for i := range jobs {
		r.SetTarget(jobs[i], &targets[i])
	}
	if r.ListMoves(); !slices.Equal(r.Moves(), []cluster.JobID{1}) || len(r.Joining()) != 2 {
		t.Errorf("%v move, %d join", r.Moves(), len(r.Joining()))
	}
	if !r.Gated(held) || r.Gated(waits) {
		t.Error("a job starts without a target, or not with one")
	}
}

// TestTidy: what does not concern a job is taken out of its target.
func TestTidy(t *testing.T) {
	r := newRoom(t)
	elastic, rigid := r.add(2, 4), r.add(1, 1)
	for _, x := range []struct {
		j          *job.State
		give, want job.Target
	}{
		{rigid, job.Target{Tasks: 3}, job.Target{}},
		{elastic, job.Target{Tasks: 9}, job.Target{Tasks: 4, Least: 4}},
		{elastic, job.Target{Tasks: 3, Least: 1}, job.Target{Tasks: 3, Least: 2}},
		{elastic, job.Target{Tasks: -1}, job.Target{}},
		{rigid, job.Target{Partition: "none"}, job.Target{}},
		{elastic, job.Target{Tasks: 2, Within: cluster.LevelNVLink}, job.Target{Tasks: 2, Least: 2}},
	} {
		got := x.give
		if r.Tidy(x.j, &got); !got.Same(&x.want) {
			t.Errorf("of %+v is left %+v, want %+v", x.give, got, x.want)
		}
	}
}

// TestAstray: a job is astray where it has another model than its target says, or is a guest and is to be alone.
func TestAstray(t *testing.T) {
	r := newRoom(t)
	j := r.add(1, 1)
	r.run(j, 0, 1, 1)
	for _, x := range []struct {
		t    *job.Target
		want bool
	}{
		{nil, false}, {&job.Target{}, false},
		{&job.Target{GPU: "T4-16GB"}, false}, {&job.Target{GPU: "V100-16GB"}, true},
	} {
		if j.Target = x.t; r.Astray(j) != x.want {
			t.Errorf("%+v: astray is %v", x.t, !x.want)
		}
	}
	j.Target, j.GuestOf = &job.Target{Alone: true}, 4
	if !r.Astray(j) {
		t.Error("it is to be alone, and is a guest")
	}
}

// TestBounds: an elastic job grows and shrinks towards its target, within its own bounds.
func TestBounds(t *testing.T) {
	r := newRoom(t)
	j := r.add(1, 4)
	if least, most := r.Bounds(j); least != 1 || most != 4 {
		t.Errorf("without a target %d to %d", least, most)
	}
	j.Target = &job.Target{Tasks: 3, Least: 2}
	if least, most := r.Bounds(j); least != 2 || most != 3 {
		t.Errorf("with one %d to %d", least, most)
	}
}

// TestServedAt: the time for which a job holds GPUs of a model counts up to the instant that is asked for.
func TestServedAt(t *testing.T) {
	r := newRoom(t)
	j := r.add(1, 1)
	r.run(j, 1, 1, 1)
	j.Served, j.Acc = []job.Served{{GPU: "T4-16GB", Time: time.Hour}}, minute
	got := r.ServedAt(j, 3*minute)
	if len(got) != 2 || got[1] != (job.Served{GPU: "V100-16GB", Time: 2 * time.Minute}) || len(j.Served) != 1 {
		t.Errorf("%+v", got)
	}
	if got = r.ServedAt(j, minute); len(got) != 1 {
		t.Errorf("at once: %+v", got)
	}
}

// TestRecord: a restarted policy plans when it would have; another one at once.
func TestRecord(t *testing.T) {
	r := newRoom(t)
	r.add(1, 1)
	r.JobsChanged()
	r.Make()
	next := newRoom(t)
	if next.Restore(r.Record()); next.Due() || next.Wake() != r.Wake() {
		t.Errorf("it plans at %v, not at %v", next.Wake(), r.Wake())
	}
	if next.Restore(nil); !next.Due() {
		t.Error("what another policy planned stays")
	}
}
