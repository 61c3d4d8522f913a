package engine_test

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// A job that is to be suspended is asked for a checkpoint instead where its memory would keep a GPU
// from shares under MPS, or from being partitioned again; one that saves nothing then keeps
// its GPU under policies that let jobs take turns.
func TestWhereToFreeze(t *testing.T) {
	share, slice := cluster.Request{GPUs: 1, Share: 500}, cluster.Request{GPUs: 1, Profile: "7g.80gb"}
	whole, none := cluster.Request{GPUs: 1}, cluster.Request{CPU: 1000}
	for _, c := range []struct {
		model   string
		sharing cluster.Sharing
		mig     cluster.MIGWay
		node    string // its geometry
		asks    cluster.Request
		want    engine.How
	}{
		{"A100-80GB", cluster.TimeSlicing, cluster.StaticMIG, "none", whole, engine.Suspend},
		{"A100-80GB", cluster.TimeSlicing, cluster.StaticMIG, "none", share, engine.Suspend},
		{"A100-80GB", cluster.TimeSlicing, cluster.StaticMIG, "0:7g.80gb@0", slice, engine.Suspend},
		{"A100-80GB", cluster.MPS, cluster.StaticMIG, "0:7g.80gb@0", slice, engine.Suspend},
		{"A100-80GB", cluster.MPS, cluster.StaticMIG, "none", share, engine.Checkpoint},
		{"A100-80GB", cluster.MPS, cluster.StaticMIG, "none", whole, engine.Checkpoint},
		{"A100-80GB", cluster.MPS, cluster.StaticMIG, "none", none, engine.Suspend},
		{"A100-80GB", cluster.TimeSlicing, cluster.InstancesMIG, "0:*", slice, engine.Checkpoint},
		{"A100-80GB", cluster.TimeSlicing, cluster.InstancesMIG, "none", whole, engine.Suspend},
		{"A100-80GB", cluster.TimeSlicing, cluster.DynamicMIG, "", slice, engine.Checkpoint},
		{"A100-80GB", cluster.TimeSlicing, cluster.DynamicMIG, "", share, engine.Checkpoint},
		{"A100-80GB", cluster.TimeSlicing, cluster.DynamicMIG, "", whole, engine.Checkpoint},
		{"A100-80GB", cluster.TimeSlicing, cluster.DynamicMIG, "", none, engine.Suspend},
		{"V100-32GB", cluster.TimeSlicing, cluster.DynamicMIG, "", whole, engine.Suspend}, // it cannot be partitioned
		{"A100-80GB", cluster.TimeSlicing, cluster.StaticMIG, "", whole, engine.Suspend},
		{"A100-80GB", cluster.TimeSlicing, cluster.StaticMIG, "", slice, engine.Checkpoint},
	} {
		h := newHand(t, "1x1x"+c.model, "srtf", func(e *engine.Config) {
			e.Stop = &[3]engine.StopRule{} // all are suspended
			e.Spec.Sharing, e.Spec.MIG, e.Spec.Nodes[0].MIG, e.Spec.Nodes[0].CPU = c.sharing, c.mig, c.node, 1000
		})
		asks := func(j *cluster.Job) { j.Tasks[0].Request = c.asks }
		h.want(0, "start 0", submit(job(0, 1, 1000, asks)))
		h.want(1, "", ev(engine.Started, 0))
		h.at(2, submit(job(1, 1, 10, asks)), submit(job(2, 1, 10, asks))) // two shares fit
		if a := h.d.Actions; len(a) == 0 || a[len(a)-1].Type != engine.Preempt || a[len(a)-1].How != c.want {
			t.Errorf("%+v: %+v", c, a)
			continue
		}
		h.at(3, stopped(0, engine.Preempted))
		if frozen := h.e.Record(0).Home != nil; frozen != (c.want == engine.Suspend) {
			t.Errorf("%+v: its memory stays: %v", c, frozen)
		}
	}
}

// GPUs that are shared in another way after a restart have no memory of suspended jobs: those
// begin again from what they had saved.
func TestSharedOtherwise(t *testing.T) {
	var cfg engine.Config
	start := func() *hand {
		h := newHand(t, "1x1xA100-80GB", "srtf", func(c *engine.Config) { c.Stop = &[3]engine.StopRule{}; cfg = *c })
		h.want(0, "start 0", submit(job(0, 1, 1000)))
		h.want(1, "", ev(engine.Started, 0))
		h.want(50, "", engine.Event{Type: engine.Progress, Job: 0, Saved: seconds(30)})
		h.want(100, "preempt 0 for 1", submit(job(1, 1, 10)))
		return h
	}
	h := start()
	h.at(101, stopped(0, engine.Preempted))
	for _, h := range []*hand{h, start()} { // it is frozen, or about to be
		s := h.e.Snapshot()
		other := cfg
		other.Spec.Sharing = cluster.MPS
		e, err := engine.Restore(other, &s)
		if err != nil {
			t.Fatal(err)
		}
		o := &hand{t: t, e: e}
		if e.StateOf(0) == engine.Stopping {
			if r := e.Record(0); r.How != engine.Checkpoint {
				t.Errorf("it is told to stop by %s", r.How)
			}
			o.at(101, engine.Event{Type: engine.Stopped, Job: 0, Reason: engine.Preempted, Done: seconds(30)})
		}
		if r := e.Record(0); r.Home != nil || r.Frozen != nil || r.Done != seconds(30) {
			t.Errorf("its memory is on %v, it has done %v", r.Home, r.Done)
		}
		if err := e.CheckInvariants(); err != nil {
			t.Error(err)
		}
	}
}
