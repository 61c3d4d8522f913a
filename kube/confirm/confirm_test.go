package confirm

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// running is an engine in which job 1 runs, of two tasks of two GPUs.
func running(t *testing.T) *engine.Engine {
	t.Helper()
	spec := cluster.Spec{Nodes: []cluster.Node{{Name: "n0", Model: "T4-16GB", GPUs: 8}}}
	e := shared.Must(engine.New(engine.Config{Spec: spec, Policy: shared.Must(policy.New("fifo")),
		Placer: shared.Must(place.New("best-fit"))}))
	j := &cluster.Job{ID: 1, Name: "j", User: "ann",
		Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 2}}}}
	e.Step(engine.Batch{Seq: 1, Events: []engine.Event{{Type: engine.Submitted, Job: 1, Spec: j}}})
	e.Step(engine.Batch{Seq: 2, Events: []engine.Event{{Type: engine.Started, Job: 1}}})
	if r := e.Record(1); r == nil || r.State != engine.Running {
		t.Fatalf("%+v", r)
	}
	return e
}

// smaller is the job's record without one of its tasks.
func smaller(e *engine.Engine) *engine.JobRecord {
	r := e.Record(1)
	spec := *r.Spec
	spec.Tasks = []cluster.TaskSet{{Count: 1, Request: spec.Tasks[0].Request}}
	r.Spec, r.Tasks = &spec, 1
	a := r.Allocs[0]
	a.Tasks, a.GPUs = 1, 0b11
	r.Allocs = []engine.Alloc{a}
	return r
}

// What the engine is told of a job counts at once; what it took over is confirmed, and the rest is listed.
func TestStep(t *testing.T) {
	e := running(t)
	var s Step
	if r := s.Record(e, 1); r.Spec.Tasks[0].Count != 2 || s.Kept() != 0 {
		t.Fatalf("it was told nothing: %+v", r)
	}
	ev := s.Reshaped(smaller(e))
	if r := s.Record(e, 1); r.Spec.Tasks[0].Count != 1 || e.Record(1).Spec.Tasks[0].Count != 2 {
		t.Errorf("it is %+v", r.Spec.Tasks)
	}
	if r := s.Record(e, 2); r != nil {
		t.Errorf("nothing is known of job 2, and it is %+v", r)
	}
	if list := s.Refused(e, nil); len(list) != 1 || list[0].Type != engine.JobReshaped {
		t.Errorf("the engine has yet to hear of it, and refuses %v", list)
	}
	e.Step(engine.Batch{Seq: 3, Events: []engine.Event{ev}})
	if list := s.Refused(e, nil); len(list) != 0 {
		t.Errorf("it took that over, and refuses %v", list)
	}
	other := smaller(e)
	spec := *other.Spec
	spec.ID = 2
	other.Spec = &spec
	s = Step{}
	s.Adopted(other)
	again := *e.Record(1).Spec
	again.NoRequeue = !again.NoRequeue
	s.Must(engine.Event{Type: engine.Updated, Job: 1, Spec: &again})
	s.Must(engine.Event{Type: engine.Updated, Job: 3, Spec: &again})
	if list := s.Refused(e, nil); len(list) != 2 || list[0].Type != engine.Adopted || list[1].Job != 1 {
		t.Errorf("of a job that is not there, one that is another and one that is gone, it refuses %v", list)
	}
	e.Step(engine.Batch{Seq: 4, Events: []engine.Event{{Type: engine.Stopped, Job: 1, Reason: engine.Completed}}})
	if list := s.Refused(e, nil); len(list) != 1 {
		t.Errorf("one that is over has nothing to take over, and it refuses %v", list)
	}
}
