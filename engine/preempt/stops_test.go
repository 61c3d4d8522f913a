package preempt

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// TestStops: a job is suspended where its memory may stay; elsewhere it writes a checkpoint, if it can.
func TestStops(t *testing.T) {
	var st inventory.Store
	a100, _ := cluster.FindModel("A100-40GB")
	for i, model := range []cluster.GPUModel{{Name: "T4"}, a100} {
		n := cluster.Node{Name: string(rune('a' + i)), Model: model.Name, GPUs: 2}
		if _, err := st.Add(n, model, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	on := func(node int32, slots uint8) *job.State {
		j := &job.State{Spec: &cluster.Job{Tier: cluster.BestEffort}, Tenure: &job.Tenure{}}
		j.Allocs = []inventory.Alloc{{Node: node, GPUs: 1, Slots: slots}}
		return j
	}
	suspend := DefaultStop
	suspend[cluster.BestEffort].How = job.Suspend
	for _, x := range []struct {
		name string
		spec cluster.Spec
		j    *job.State
		want job.How
	}{
		{"whole GPU", cluster.Spec{}, on(0, 0), job.Suspend},
		{"whole GPU that is never partitioned", cluster.Spec{MIG: cluster.DynamicMIG}, on(0, 0), job.Suspend},
		{"whole GPU that may be partitioned", cluster.Spec{MIG: cluster.DynamicMIG}, on(1, 0), job.Checkpoint},
		{"slice", cluster.Spec{MIG: cluster.DynamicMIG}, on(1, 1), job.Checkpoint},
		{"MPS", cluster.Spec{Sharing: cluster.MPS}, on(0, 0), job.Checkpoint},
	} {
		s := Stops{Rules: suspend, Spec: &x.spec, Store: &st}
		if how := s.How(x.j); how != x.want {
			t.Errorf("%s: %v, want %v", x.name, how, x.want)
		}
		if how := s.HowToLeave(x.j); how != job.Checkpoint {
			t.Errorf("%s: it leaves the node by %v", x.name, how)
		}
		x.j.Spec.Checkpoint.None = true
		if how := s.HowToLeave(x.j); how != job.Kill {
			t.Errorf("%s: it leaves the node by %v, and writes no checkpoints", x.name, how)
		}
	}
	s := Stops{Rules: DefaultStop, Spec: &cluster.Spec{}, Store: &st}
	if s.Any() || s.How(on(0, 0)) != job.Kill {
		t.Error("best-effort jobs are killed unless something else is configured")
	}
	if s.Rules = suspend; !s.Any() || s.Suspends() != [3]bool{false, false, true} {
		t.Errorf("%v are suspended", s.Suspends())
	}
}
