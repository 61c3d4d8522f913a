package speed

import (
	"cmp"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// table states speeds by GPU model and what is left beside others by pair of models, in ppm; a million where it
// states nothing.
type table struct {
	gpus  map[string]int64
	pairs map[[2]string]int64
	sched.Speeds
}

func (t *table) Speed(j *cluster.Job, gpu string, tasks int) int64 {
	return cmp.Or(t.gpus[gpu], job.Million) * int64(tasks) / int64(j.Tasks[0].Count)
}

func (t *table) Pair(model, beside string) int64 {
	return cmp.Or(t.pairs[[2]string{model, beside}], job.Million)
}

// Completes takes a GPU model that was not measured to be twice as fast as the fastest.
func (t *table) Completes(_ string, known map[string]int64) map[string]int64 {
	most := int64(0)
	for _, v := range known {
		most = max(most, v)
	}
	return map[string]int64{"new": 2 * most}
}

// bench is a book of jobs on nodes of 4 GPUs, each of a model of its own.
type bench struct {
	Book
	st    inventory.Store
	world sched.World
	jobs  []*job.State
}

func newBench(t *testing.T, speeds *table, models ...string) *bench {
	t.Helper()
	b := &bench{}
	b.world = sched.World{Store: &b.st, Speeds: speeds}
	shapes := shape.NewTable(&b.st, map[string]int32{}, false)
	b.world.Shapes = &shapes
	for _, m := range models {
		model := cluster.GPUModel{Name: m, Memory: 80_000}
		if _, err := b.st.Add(cluster.Node{Name: m, Model: m, GPUs: 4}, model, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	b.Book = New(&b.world, &cluster.Spec{}, false, func() []*job.State { return b.jobs })
	return b
}

// run adds a running job of a model with so many tasks on a node: on whole GPUs, or with a share of its first one.
func (b *bench) run(model string, tasks int, node int32, share int64) *job.State {
	id := cluster.JobID(len(b.jobs))
	j := &job.State{Tenure: &job.Tenure{}, Spec: &cluster.Job{ID: id, Model: model,
		Tasks: []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: 1, Share: share}}}}}
	j.State, j.Tasks = job.Running, int32(tasks)
	a := inventory.Alloc{Node: node, Tasks: int32(tasks)}
	if share == 0 {
		a.GPUs = b.st.Nodes()[node].PickWhole(tasks, inventory.AnyDevice)
	}
	if share > 0 {
		a.GPUs, a.Share, a.Tenant = 1, int32(share), j.Tenant()
	}
	b.st.Take(&a)
	b.st.Commit()
	j.Allocs = []inventory.Alloc{a}
	b.jobs = append(b.jobs, j)
	return j
}

const unit = 1_000_000 // of a pace: one unit of work per second

// One measurement says nothing; two say how the GPUs compare, and the geometric mean stays what is stated. The mean of
// several runs counts, a report of the same run replaces the last one; changes of less than a fiftieth do not count.
func TestPace(t *testing.T) {
	b := newBench(t, &table{gpus: map[string]int64{"slow": 500_000}}, "slow", "fast")
	slow, fast := b.run("m", 2, 0, 0), b.run("m", 2, 1, 0)
	of := func(when string, gpu string, want int64) {
		t.Helper()
		if got := b.Of(slow, gpu, 2); max(got-want, want-got) > 1 {
			t.Errorf("%s: %d on %s, want %d", when, got, gpu, want)
		}
	}
	if b.Pace(slow, 10*unit, job.PaceSteps) || !b.Measured() {
		t.Error("one measurement changes what is believed, or is not one")
	}
	of("one measurement", "slow", 500_000)
	if !b.Pace(fast, 80*unit, job.PaceSteps) {
		t.Error("a second measurement changes nothing")
	}
	of("two measurements", "slow", 250_000)
	of("two measurements", "fast", 2_000_000)
	of("two measurements", "new", 4_000_000)
	of("two measurements", "other", 1_000_000)
	if b.Pace(fast, 79*unit, job.PaceSteps) || b.PaceRecords()[0].Pace != 80*unit {
		t.Errorf("a change of a hundredth counts: %+v", b.PaceRecords())
	}
	again := b.run("m", 2, 1, 0)
	again.Started = 1
	if !b.Pace(again, 40*unit, job.PaceSteps) {
		t.Error("another run changes nothing")
	}
	if r := b.PaceRecords()[0]; r.GPU != "fast" || r.Pace != 60*unit || r.Runs != 2 || r.Last != again.Spec.ID {
		t.Errorf("the mean of two runs: %+v", r)
	}
	other := newBench(t, &table{gpus: map[string]int64{"slow": 500_000}}, "slow", "fast")
	other.Restore(nil, b.PaceRecords())
	if got, want := other.Of(other.run("m", 2, 0, 0), "fast", 2), b.Of(slow, "fast", 2); got != want {
		t.Errorf("restored: %d, want %d", got, want)
	}
}

// What says nothing of other jobs is not kept: a job in a share, one on more nodes than it needs, one that is resized,
// stopped or disturbed by guests, and one of no model.
func TestPaceNotKept(t *testing.T) {
	b := newBench(t, &table{}, "a", "b")
	for what, change := range map[string]func(j *job.State){
		"a share":   func(j *job.State) { j.Spec.Tasks[0].Request.Share = 500 },
		"two nodes": func(j *job.State) { j.Allocs = []inventory.Alloc{{GPUs: 1}, {Node: 1, GPUs: 1}} },
		"resizing":  func(j *job.State) { j.Resizing = true },
		"stopping":  func(j *job.State) { j.State = job.Stopping },
		"guests":    func(j *job.State) { j.Guests = []cluster.JobID{7} },
		"a guest":   func(j *job.State) { j.GuestOf = 1 },
		"no model":  func(j *job.State) { j.Spec.Model = "" },
		"two sets":  func(j *job.State) { j.Spec.Tasks = append(j.Spec.Tasks, j.Spec.Tasks[0]) },
	} {
		j := b.run("m", 2, 0, 0)
		b.st.ReleaseAll(j.Allocs)
		if change(j); b.Pace(j, unit, job.PaceSteps) || b.Measured() {
			t.Fatalf("%s: %+v", what, b.PaceRecords())
		}
	}
}

// A job goes beside others unless it, or one of them, would have less than it accepts, or does less than they lose.
func TestDisturbs(t *testing.T) {
	stated := &table{pairs: map[[2]string]int64{{"a", "b"}: 600_000, {"b", "a"}: 700_000, {"c", "a"}: 300_000,
		{"a", "c"}: 600_000}}
	for _, c := range []struct {
		what           string
		model          string
		asks, accepted int64 // of the job, and of the one that is there
		who            int   // 0: none; 1: the job; 2: the other; 3: together they lose
	}{
		{"both gain", "b", 0, 0, 0},
		{"as much as it asks for", "b", 700_000, 0, 0},
		{"less than it asks for", "b", 700_001, 0, 1},
		{"the other has as much as it asks for", "b", 0, 600_000, 0},
		{"the other has less than it asks for", "b", 0, 600_001, 2},
		{"it does less than the other loses", "c", 0, 0, 3},
	} {
		b := newBench(t, stated, "g")
		there := b.run("a", 1, 0, 250)
		there.Spec.MinSpeed = c.accepted
		j := &job.State{Spec: &cluster.Job{ID: 9, Model: c.model, MinSpeed: c.asks,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Share: 250}}}}}
		d, yes := b.Disturbs(j, []*job.State{there})
		who := 0
		switch {
		case yes && d.Job == nil:
			who = 3
		case yes && d.Job == there:
			who = 2
		case yes:
			who = 1
		}
		shunned := uint64(0)
		if yes {
			shunned = 1
		}
		if got := b.Shunned(&b.st.Nodes()[0], j); who != c.who || got != shunned {
			t.Errorf("%s: %+v, %d, devices %b", c.what, d, who, got)
		}
	}
}

// What is believed of a pair goes a fifth of the way to what is measured, by at least a hundredth, to no more than
// twice and no less than half of what is stated; once a job had to leave for it, it does not rise.
func TestCorrect(t *testing.T) {
	b := newBench(t, &table{pairs: map[[2]string]int64{{"a", "b"}: 400_000}}, "g")
	x, y := b.run("a", 1, 0, 250), b.run("b", 1, 0, 250)
	for i, step := range []struct {
		seen, want int64
		changed    bool
	}{
		{440_000, 400_000, false}, {500_000, 420_000, true}, {1_000_000, 536_000, true}, {0, 428_800, true},
		{0, 343_040, true}, {0, 274_432, true}, {0, 219_545, true}, {0, 200_000, true}, {0, 200_000, false},
		{10_000_000, 800_000, true},
	} {
		changed := b.Correct(x, y, step.seen)
		if got := b.Left(x, y); changed != step.changed || max(got-step.want, step.want-got) > 1 {
			t.Errorf("step %d: changed %v to %d, want %v to %d", i, changed, got, step.changed, step.want)
		}
	}
	x.Solo, x.Rate = job.Million, 100_000
	x.Among = b.Company(x.Spec.ID)
	b.Blame(x, y, x.Among)
	if got := b.Left(x, y); got != 100_000 {
		t.Errorf("blamed: %d is left", got)
	}
	if b.Correct(x, y, job.Million) {
		t.Errorf("it rises to %d, and both would come and go", b.Left(x, y))
	}
	if list := b.PairRecords(); len(list) != 1 || list[0] != (PairRecord{"a", "b", 100_000, true}) {
		t.Errorf("%+v", list)
	}
}

// A job is measured to be too slow, or to do less than those beside it lose; one that has no model is not judged.
func TestSlowAndHarmful(t *testing.T) {
	b := newBench(t, &table{}, "g")
	x, y := b.run("a", 1, 0, 250), b.run("b", 1, 0, 250)
	x.Spec.MinSpeed, x.Solo, x.Rate = 800_000, job.Million, 760_000 // 0.95 of it
	x.Among = b.Company(x.Spec.ID)
	if b.TooSlow(x) || b.Kept(x) != 760_000 {
		t.Errorf("too slow at the limit: %d is left", b.Kept(x))
	}
	if x.Rate--; !b.TooSlow(x) {
		t.Error("not too slow below the limit")
	}
	if b.Harms(y) {
		t.Error("one that loses nothing harms another that loses a quarter")
	}
	y.Solo, y.Among = job.Million, b.Company(y.Spec.ID)
	x.Rate = 300_000
	for rate, want := range map[int64]bool{649_999: true, 650_000: false} { // x loses 0.7, of which 0.05 do not count
		if y.Rate = rate; b.Harms(y) != want {
			t.Errorf("at %d: harms %v", rate, !want)
		}
	}
}
