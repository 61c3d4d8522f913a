package engine_test

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
)

// cutter is a policy that has jobs on instances, by number.
type cutter struct {
	at    map[cluster.JobID]engine.Slice
	only  bool // it says nothing of other jobs
	shown []cluster.JobID
}

func (c *cutter) Name() string { return "cutter" }
func (c *cutter) Traits() sched.Traits {
	return sched.Traits{Backfill: engine.Skip, Divides: true, OnlyDivides: c.only, Gated: true}
}
func (c *cutter) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }
func (c *cutter) Plan(_ sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: cluster.Never}
	for _, j := range jobs {
		c.shown = append(c.shown, j.Spec().ID)
		t := engine.Target{}
		if s, ok := c.at[j.Spec().ID]; ok {
			t.Slice = &s
		}
		p.Targets = append(p.Targets, t)
	}
	return p
}

func part(profile string, start int) engine.Slice {
	return engine.Slice{Profile: profile, Start: start}
}

// Jobs that ask for a GPU run on the instances of it that a plan names; one that is to be
// on another stops, and starts there when that is free. A restored engine knows all that.
func TestSlices(t *testing.T) {
	var cfg engine.Config
	pol := &cutter{at: map[cluster.JobID]engine.Slice{0: part("7g.80gb", 0), 1: part("3g.40gb", 4),
		2: part("3g.40gb", 4)}}
	h := newHand(t, "1x1xA100-80GB", "fifo", func(c *engine.Config) { c.Policy = pol; cfg = *c })
	h.want(0, "start 0", submit(job(0, 1, 1000)))
	h.want(1, "", ev(engine.Started, 0), submit(job(1, 1, 1000)))
	pol.at[0] = part("4g.40gb", 0)
	h.want(2, "preempt 0", submit(job(2, 1, 1000)))
	if use := h.e.QueueUse(); use[0].Used != 428 {
		t.Errorf("%d milli-GPU count for a 3g that waits for its predecessor; want 428", use[0].Used)
	}
	for _, o := range h.andRestored(cfg) {
		e := o.e
		pol.at[1] = part("3g.40gb", 4)
		o.want(3, "start 1, start 0", stopped(0, engine.Preempted))
		if r := e.Record(0).Allocs[0]; r.Slots != 0b1111 || r.Compute != 4 || r.Share != 571 || r.Mem != 40_192 {
			t.Errorf("job 0 holds %+v, not a 4g", r)
		}
		o.want(4, "", ev(engine.Started, 0), ev(engine.Started, 1))
		o.want(5, "start 2", stopped(1, engine.Completed))
		o.want(6, "", ev(engine.Started, 2))
		delete(pol.at, 0) // it gets the GPU that it asks for when that is free
		o.want(7, "preempt 0", submit(job(3, 1, 1000)))
		o.want(8, "", stopped(0, engine.Preempted))
		if err := e.CheckInvariants(); err != nil {
			t.Error(err)
		}
		pol.at[0] = part("4g.40gb", 0)
	}
}

// Plans that only divide GPUs are not shown jobs that none suits which can be divided, and
// these wait for no plan: until their specification changes, or a node comes that suits them.
func TestOnlyDivides(t *testing.T) {
	pol := &cutter{only: true, at: map[cluster.JobID]engine.Slice{
		1: {Node: 1, Profile: "3g.40gb"},
		2: {Node: 1, Profile: "3g.40gb", Start: 4},
	}}
	h := newHand(t, "1x1xV100-32GB", "fifo", func(c *engine.Config) { c.Policy = pol })
	whole := job(2, 1, 1000)
	whole.GPUTypes = []string{"V100"}
	h.want(0, "start 0", submit(job(0, 1, 1000)))
	h.want(1, "", submit(job(1, 1, 1000)), submit(whole), ev(engine.Started, 0))
	if len(pol.shown) > 0 {
		t.Fatalf("plans are shown jobs %v, though no GPU can be divided", pol.shown)
	}
	h.want(2, "start 1",
		engine.Event{Type: engine.NodeUp, Node: "more",
			Spare: &cluster.Node{Name: "more", GPUs: 1, Model: "A100-80GB"}})
	if pol.shown = nil; h.e.CheckInvariants() != nil {
		t.Error(h.e.CheckInvariants())
	}
	changed := job(2, 1, 1000)
	h.want(3, "start 2", engine.Event{Type: engine.Updated, Job: 2, Spec: &changed}, ev(engine.Started, 1))
	if r := h.e.Record(2).Allocs[0]; r.Node != 1 || r.Share == 0 {
		t.Errorf("job 2 holds %+v, not an instance", r)
	}
}

// Where instances stay as they are, only those that there are can be had; a job for
// which there is one is not refused although no GPU is whole, a critical one is.
func TestSlicesFixed(t *testing.T) {
	pol := &cutter{at: map[cluster.JobID]engine.Slice{0: part("3g.40gb", 0), 1: part("2g.20gb", 4),
		2: part("2g.20gb", 4)}}
	h := newHand(t, "1x1xA100-80GB", "fifo", func(c *engine.Config) {
		c.Policy, c.Spec.Nodes[0].MIG = pol, "0:3g.40gb@0,2g.20gb@4"
	})
	h.want(0, "start 0", submit(job(0, 1, 1000)))
	h.want(1, "start 1", submit(job(1, 1, 1000)))
	large, critical := job(2, 1, 1000), job(3, 1, 1000)
	large.Tasks[0].Request.Memory, critical.Tier = 50*1024, cluster.Critical
	h.want(2, "reject 2", submit(large))
	h.want(3, "reject 3", submit(critical))
	if err := h.e.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// Where instances cannot be made, jobs get the GPUs that they ask for.
func TestSlicesUnshared(t *testing.T) {
	pol := &cutter{at: map[cluster.JobID]engine.Slice{0: part("3g.40gb", 0), 1: part("3g.40gb", 4)}}
	h := newHand(t, "1x1xA100-80GB", "fifo", func(c *engine.Config) { c.Policy, c.Unshared = pol, true })
	h.want(0, "start 0", submit(job(0, 1, 1000)))
	h.want(1, "", submit(job(1, 1, 1000)))
	if r := h.e.Record(0).Allocs[0]; r.Share != 0 {
		t.Errorf("job 0 holds %+v, not a whole GPU", r)
	}
}
