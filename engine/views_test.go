package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/place"
)

// anyPlacer is for tests in which jobs have one task on a node or two.
func anyPlacer() placement.Placer {
	p, err := place.New("best-fit")
	if err != nil {
		panic(err)
	}
	return p
}

// What policies are shown is read only as far as can be told: after they have looked at everything, the engine is
// in the same state, and decides the same.
func TestViewsChangeNothing(t *testing.T) {
	build := func() *Engine {
		e, err := New(Config{Policy: nobody{}, Placer: anyPlacer(), Spec: cluster.Spec{
			Nodes: []cluster.Node{{Name: "a", Model: "H100-80GB", GPUs: 4}, {Name: "b", Model: "A100-80GB", GPUs: 4}},
			Partitions: []cluster.Partition{{Name: "p", Nodes: []string{"a"}},
				{Name: "q", Nodes: []string{"b"}, PriorityTier: 2}}}})
		if err != nil {
			t.Fatal(err)
		}
		for id := range cluster.JobID(6) {
			spec := &cluster.Job{ID: id, User: "ann", Tier: cluster.Standard, Estimate: time.Hour,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 2}}}}
			evs := []Event{{Type: Submitted, Job: id, Spec: spec}}
			if id < 3 {
				evs = append(evs, Event{Type: Started, Job: id})
			}
			e.Step(Batch{Now: cluster.Time(id) * cluster.Time(time.Second), Events: evs})
		}
		return e
	}
	state := func(e *Engine) string {
		text, err := json.Marshal(e.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	e, untouched := build(), build()
	before := state(e)
	v := e.w.View()
	_, _, _, _ = v.Kinds(), v.NodeRooms(nil), v.Devices(), v.Homes()
	_, _, _ = v.UsedShare(1), v.DominantShare(1), v.Past()
	for _, s := range e.jobs {
		j := e.w.Job(s)
		for _, kind := range v.Kinds() {
			_, _, _ = v.Speed(j, kind.GPU, 1), v.Losses(j, kind.GPU), v.SpeedBeside(j, kind.GPU, []sched.JobView{j})
			_, _ = j.Accepts(kind.GPU), j.Served(kind.GPU)
		}
		_, _, _, _ = j.MayEnter("p"), j.MayEnter("q"), j.Within("p"), j.Loses()
		_, _, _, _ = j.Remaining(), j.Until(1), j.SwitchTakes(), j.GPU()
		j.PriorityTier()
		j.Slice()
	}
	if after := state(e); after != before {
		t.Errorf("looking changed the state from\n%s\nto\n%s", before, after)
	}
	end := Batch{Now: cluster.Time(time.Minute), Events: []Event{{Type: Stopped, Job: 0, Reason: Completed}}}
	a, b := e.Step(end), untouched.Step(end)
	if a.Hash != b.Hash || len(a.Actions) == 0 {
		t.Errorf("after a look it decides %+v, without one %+v", a, b)
	}
	if err := e.CheckInvariants(); err != nil {
		t.Error(err)
	}
}
