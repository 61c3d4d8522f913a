package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// store makes an engine's node store with nodes of one model.
func store(t testing.TB, model string, nodes ...cluster.Node) *Engine {
	t.Helper()
	m, ok := cluster.FindModel(model)
	if !ok {
		t.Fatal(model)
	}
	for i := range nodes {
		nodes[i].Name, nodes[i].Model = fmt.Sprintf("n%d", i), m.Name
	}
	e, err := New(Config{Spec: cluster.Spec{Nodes: nodes}, Policy: nobody{}, Placer: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

type nobody struct{}

func (nobody) Name() string                            { return "nobody" }
func (nobody) Traits() sched.Traits                    { return sched.Traits{} }
func (nobody) Key(sched.View, sched.JobView) order.Key { return order.Key{} }

type nowhere struct{}

func (nowhere) Name() string               { return "nowhere" }
func (nowhere) Place(*placement.Site) bool { return false }

// siteFor makes a site for one task set on all classes.
func siteFor(e *Engine, r cluster.Request, count int) *probe {
	var classes []int32
	for ci := range e.st.Classes() {
		classes = append(classes, int32(ci))
	}
	return siteOn(e, r, count, classes)
}

// siteOn is siteFor on some classes.
func siteOn(e *Engine, r cluster.Request, count int, classes []int32) *probe {
	j := &job.State{Tenure: &job.Tenure{}, Spec: &cluster.Job{Tasks: []cluster.TaskSet{{Count: count, Request: r}}}}
	s := &shape.Shape{Sets: j.Spec.Tasks}
	return &probe{e.find.Look(e.anywhere(), j, s, inventory.Domain{}, &shape.Stage{Classes: classes}), e, classes,
		inventory.Domain{}}
}

// probe is a site, and what it was made of.
type probe struct {
	placement.Site
	e       *Engine
	classes []int32
	within  inventory.Domain
}

func snapshot(st *inventory.Store) string {
	s := ""
	for i := range st.Nodes() {
		n := &st.Nodes()[i]
		s += fmt.Sprintln(n.Free(), n.FreeGPUs(), n.CPU(), n.RAM(), n.Devices())
	}
	for i := range st.Classes() {
		c := &st.Classes()[i]
		s += fmt.Sprintln(c.Free(), c.Buckets(), *c.Partial())
	}
	return s
}

// TestCommittedStays: what was committed cannot be taken back by accident.
func TestCommittedStays(t *testing.T) {
	e := store(t, "A100-80GB", cluster.Node{GPUs: 4})
	mark := e.st.Mark()
	e.st.Commit() // of nothing
	e.st.Rollback(mark)
	e.st.Take(&inventory.Alloc{GPUs: 1, Tasks: 1})
	e.st.Commit()
	defer func() {
		if recover() == nil {
			t.Error("a rollback went past a commit")
		}
	}()
	e.st.Rollback(mark)
}

// TestStoreTwin books and releases at random, with marks and rollbacks: a
// rollback restores every bit, also of what queues were charged, and the books and the index hold throughout.
func TestStoreTwin(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		e := store(t, "A100-80GB", cluster.Node{GPUs: 4, CPU: 16000}, cluster.Node{GPUs: 8, RAM: 9000},
			cluster.Node{GPUs: 2, CPU: 8000, RAM: 8000}, cluster.Node{GPUs: 4, CPU: 16000})
		requests := []cluster.Request{{GPUs: 1}, {GPUs: 2, CPU: 3000}, {GPUs: 1, Share: 300, Memory: 20000},
			{GPUs: 2, Share: 500, RAM: 1000},
			{GPUs: 1, Profile: "1g"}, {GPUs: 1, Profile: "3g"}, {GPUs: 1, Profile: "1g.10gb+me"}, {CPU: 1000, RAM: 500}}
		var held [][]inventory.Alloc
		charged := map[int32]int64{} // by job, how often more than it was taken back
		e.st.BillWith(func(job int32, sign int64) { charged[job] += sign })
		step := func() {
			if r.IntN(3) == 0 {
				job, sign := int32(r.IntN(4)), int64(1-2*r.IntN(2))
				e.st.Note(cluster.JobID(job), sign)
				charged[job] += sign
			}
			if len(held) > 0 && r.IntN(5) < 2 {
				k := r.IntN(len(held))
				for i := range held[k] {
					e.st.Release(&held[k][i])
				}
				held = slices.Delete(held, k, k+1)
				return
			}
			s := siteFor(e, requests[r.IntN(len(requests))], 3)
			node, n := r.IntN(4), 1+r.IntN(3)
			if n = min(n, s.Room(node, 0, n)); n > 0 {
				s.TakeOn(node, 0, n, placement.Pick(r.IntN(3)))
				held = append(held, s.Bound())
			}
		}
		for range 60 {
			for range r.IntN(6) {
				step()
			}
			before, kept, owed := snapshot(&e.st), slices.Clone(held), maps.Clone(charged)
			mark := e.st.Mark()
			for range r.IntN(8) {
				step()
			}
			if r.IntN(2) == 0 {
				e.st.Rollback(mark)
				held = kept
				if after := snapshot(&e.st); after != before {
					t.Fatalf("seed %d: rolled back to\n%s\nfrom\n%s", seed, after, before)
				}
				for job := range int32(4) {
					if charged[job] != owed[job] {
						t.Fatalf("seed %d: job %d is charged %d times, %d before", seed, job, charged[job], owed[job])
					}
				}
			}
			e.st.Commit()
			e.jobs = e.jobs[:0]
			for i, allocs := range held { // so that the books can be recomputed
				e.jobs = append(e.jobs,
					&job.State{Spec: &cluster.Job{ID: cluster.JobID(i)}, Facts: job.Facts{State: job.Running},
						Tenure: &job.Tenure{Holdings: job.Holdings{Allocs: allocs}}})
			}
			if err := e.books().Free(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := e.rooms().Capacity(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for i := range held {
			for k := range held[i] {
				e.st.Release(&held[i][k])
			}
		}
		for i := range e.st.Nodes() {
			if n := &e.st.Nodes()[i]; int(n.FreeGPUs()) != n.Spec().GPUs {
				t.Fatalf("seed %d: node %d has %d free GPUs in the end", seed, i, n.FreeGPUs())
			}
		}
	}
}
