package engine

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/internal/shared"
)

// migWorld plays the driver to an engine whose GPUs of two models are partitioned as jobs ask:
// it makes instances when jobs start, destroys idle ones that are in the way, and keeps
// the others, used or not, where they are.
type migWorld struct {
	t       *testing.T
	r       *rand.Rand
	e       *Engine
	now     int
	gpus    map[[2]int]*migGPU // by node and device; looked up only
	on      map[cluster.JobID]inventory.Alloc
	waits   []cluster.JobID // in line
	runs    []cluster.JobID
	leave   []cluster.JobID // jobs that were told to
	jobs    int
	legal   map[string]map[string]bool // sets of instances by model; looked up only
	places  int
	frees   int
	moves   int
	destroy int // instances that made room for others
}

// migGPU is a GPU as the driver has it.
type migGPU struct {
	model cluster.GPUModel
	whole cluster.JobID
	list  []migInstance
}

type migInstance struct {
	instance
	job cluster.JobID // NoJob: idle
}

// mig2 are the clusters of the test: two models each, some GPUs always in MIG mode.
var mig2 = [][]cluster.Node{
	{{Model: "H100-80GB", GPUs: 2}, {Model: "A30-24GB", GPUs: 2}},
	{{Model: "A100-40GB", GPUs: 2, MIG: "1:*"}, {Model: "A30-24GB", GPUs: 1}, {Model: "A100-40GB", GPUs: 1}},
	{{Model: "H200-141GB", GPUs: 1, MIG: "0:*"}, {Model: "A100-80GB", GPUs: 3}},
}

func newMIGWorld(t *testing.T, seed uint64, legal map[string]map[string]bool) *migWorld {
	w := &migWorld{t: t, r: rand.New(rand.NewPCG(seed, 11)), gpus: map[[2]int]*migGPU{},
		on: map[cluster.JobID]inventory.Alloc{}, legal: legal}
	spec := cluster.Spec{Nodes: slices.Clone(mig2[seed%uint64(len(mig2))])}
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		n.Name = fmt.Sprintf("n%d", i)
		for dev := range n.GPUs {
			m, _ := cluster.FindModel(n.Model)
			w.gpus[[2]int{i, dev}] = &migGPU{model: m, whole: cluster.NoJob}
		}
	}
	var err error
	w.e, err = New(Config{Spec: spec, Policy: nobody{}, Placer: anyPlacer(), Defrag: &Defrag{PerHour: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run plays about so many events; then all jobs are where the engine has them.
func (w *migWorld) run(events int) {
	for w.places+w.frees+w.moves+w.destroy < events {
		w.now += 20
		w.step(w.draw()...)
	}
	if err := w.e.CheckInvariants(); err != nil {
		w.t.Fatal(err)
	}
}

// draw is what happens next.
func (w *migWorld) draw() (evs []Event) {
	r := w.r
	pop := func(list *[]cluster.JobID) cluster.JobID {
		k := r.IntN(len(*list))
		id := (*list)[k]
		*list = slices.Delete(*list, k, k+1)
		return id
	}
	if len(w.leave) > 0 && r.IntN(2) == 0 {
		id := pop(&w.leave)
		w.free(id)
		return append(evs, Event{Type: Stopped, Job: id, Reason: job.Preempted})
	}
	switch k := r.IntN(20); {
	case k < 10 && len(w.waits) < 4:
		q := cluster.Request{GPUs: 1,
			Profile: []string{"1g", "1g", "1g", "1g", "2g", "2g", "3g", "4g", "7g", "1g.20gb", "1g.10gb+me",
				""}[r.IntN(12)]}
		j := &cluster.Job{ID: cluster.JobID(w.jobs), Submit: cluster.Time(seconds2(w.now)), Tier: cluster.Standard,
			Estimate: time.Hour, Tasks: []cluster.TaskSet{{Count: 1, Request: q}}}
		w.jobs++
		w.waits = append(w.waits, j.ID)
		return append(evs, Event{Type: Submitted, Job: j.ID, Spec: j})
	case k < 18 && len(w.runs) > 0:
		id := pop(&w.runs)
		w.free(id)
		return append(evs, Event{Type: Stopped, Job: id, Reason: job.Completed})
	case k < 19 && len(w.waits) > 0:
		return append(evs, Event{Type: Cancelled, Job: pop(&w.waits)})
	}
	return append(evs, Event{Type: Defragment, Job: cluster.NoJob})
}

func seconds2(n int) time.Duration { return time.Duration(n) * time.Second }

func (w *migWorld) step(evs ...Event) {
	d := w.e.Step(Batch{Now: cluster.Time(seconds2(w.now)), Events: evs})
	var begun []Event
	for i := range d.Actions {
		switch a := &d.Actions[i]; a.Type {
		case Start:
			w.start(a.Job, a.Allocs)
			begun = append(begun, Event{Type: Started, Job: a.Job})
		case Preempt:
			w.runs = slices.DeleteFunc(w.runs, func(id cluster.JobID) bool { return id == a.Job })
			w.leave = append(w.leave, a.Job)
			if w.e.Record(a.Job).Dest == nil {
				w.t.Fatalf("job %d has to leave, and is not moved", a.Job)
			}
			w.moves++
		case Reject:
			w.waits = slices.DeleteFunc(w.waits, func(id cluster.JobID) bool { return id == a.Job })
		default:
			w.t.Fatalf("%+v", a)
		}
	}
	for _, id := range w.runs { // a job that runs stays where it is
		if r := w.e.jobs[id]; r.Allocs[0] != w.on[id] {
			w.t.Fatalf("job %d began on %+v and is on %+v", id, w.on[id], r.Allocs[0])
		}
	}
	if begun != nil {
		w.step(begun...)
	}
}

// start makes what a job starts on; nothing that is used may be in the way.
func (w *migWorld) start(id cluster.JobID, allocs []inventory.Alloc) {
	a := allocs[0]
	g := w.gpus[[2]int{int(a.Node), bits.TrailingZeros64(a.GPUs)}]
	w.places++
	w.waits = slices.DeleteFunc(w.waits, func(x cluster.JobID) bool { return x == id })
	w.runs, w.on[id] = append(w.runs, id), a
	mask, was := a.Slots, len(g.list)
	if a.Slots == 0 {
		mask = 0xff
	}
	overlaps := func(in migInstance) bool { return g.model.Profiles[in.profile].Mask(in.start)&mask != 0 }
	for _, in := range g.list {
		if overlaps(in) && in.job != cluster.NoJob || g.whole != cluster.NoJob {
			w.t.Fatalf("job %d starts on %+v, and job %d is there: %+v", id, a, max(in.job, g.whole), g.list)
		}
	}
	if a.Slots == 0 {
		w.destroy += len(g.list)
		g.list, g.whole = nil, id
		return
	}
	p, start, ok := g.model.Held(a.Slots, int(a.Compute), a.Media)
	if !ok {
		w.t.Fatalf("job %d starts on %+v, which %s does not have", id, a, g.model.Name)
	}
	number := slices.IndexFunc(g.model.Profiles, func(q cluster.SliceProfile) bool { return q.Name == p.Name })
	mine := migInstance{instance{number, start}, id}
	g.list = slices.DeleteFunc(g.list, overlaps)
	g.list = append(g.list, mine)
	for w.legalSet(g) == "" { // compute slices, or the media engines: an idle instance goes
		k := slices.IndexFunc(g.list, func(in migInstance) bool { return in.job == cluster.NoJob })
		if k < 0 {
			w.t.Fatalf("job %d starts on %+v beside %+v: no legal geometry", id, a, g.list)
		}
		g.list = slices.Delete(g.list, k, k+1)
	}
	w.destroy += was + 1 - len(g.list)
}

// legalSet is the instances of a GPU as the twin writes them; "": they cannot be together.
func (w *migWorld) legalSet(g *migGPU) string {
	var set []instance
	media := 0
	for _, in := range g.list {
		set = append(set, in.instance)
		if g.model.Profiles[in.profile].Media() {
			media++
		}
	}
	slices.SortFunc(set, func(a, b instance) int { return (a.start*16 + a.profile) - (b.start*16 + b.profile) })
	if key := fmt.Sprint(set); media < 2 && w.legal[g.model.Name][key] {
		return key
	}
	return ""
}

// free leaves a job's instance idle: it stays until it is in the way.
func (w *migWorld) free(id cluster.JobID) {
	a := w.on[id]
	g := w.gpus[[2]int{int(a.Node), bits.TrailingZeros64(a.GPUs)}]
	w.frees++
	delete(w.on, id)
	if g.whole == id {
		g.whole = cluster.NoJob
		return
	}
	for i := range g.list {
		if g.list[i].job == id {
			g.list[i].job = cluster.NoJob
			return
		}
	}
	w.t.Fatalf("job %d leaves %+v, which it does not have: %+v", id, a, g.list)
}

// TestMIGRepartitions has jobs come, go and be moved on GPUs of two models that are partitioned as
// they ask: thousands of times that a job starts, ends, is moved, or an idle instance makes room (a million
// and more with MUSTER_SOAK=1000000). Every start is legal by a list of all geometries, an instance
// that is used is never in the way, and a job that runs keeps its start.
func TestMIGRepartitions(t *testing.T) {
	t.Parallel()
	total := max(shared.Soak(6_000, 100_000), shared.Soaking(t, 0))
	legal := map[string]map[string]bool{}
	for _, nodes := range mig2 {
		for _, n := range nodes {
			m, _ := cluster.FindModel(n.Model)
			if legal[m.Name] != nil {
				continue
			}
			legal[m.Name] = map[string]bool{}
			var all []int
			for p := range m.Profiles {
				all = append(all, p)
			}
			for key := range geometries(&m, all) {
				legal[m.Name][key] = true
			}
		}
	}
	places, frees, moves, destroyed := 0, 0, 0, 0
	for seed := uint64(0); places+frees+moves+destroyed < total; seed++ {
		w := newMIGWorld(t, seed, legal)
		w.run(5000)
		places, frees, moves, destroyed = places+w.places, frees+w.frees, moves+w.moves, destroyed+w.destroy
	}
	if t.Logf("%d starts, %d ends, %d moves, %d instances made room", places, frees, moves,
		destroyed); moves*100 < total || destroyed*20 < total {
		t.Error("too few of some")
	}
}
