package progress

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// What a job says of its iterations is taken over as far as it makes sense, and told to the engine.
func TestIterations(t *testing.T) {
	var l Lines
	text := `{"step": 1, "iteration_s": 0.25, "comm_s": 0.092, "bytes": 2097152, "slots": "held"}
{"iteration_s": -1, "bytes": 7}
{"iteration_s": 1e9}
{"iteration_s": NaN, "slots": "too-short"}
{"step": 2}
`
	if _, heard, _ := l.Take([]byte(text), false); !heard {
		t.Fatal("nothing was heard")
	}
	want := show.Progress{Step: 2, IterationSec: .25, CommSec: .092, Bytes: 2 << 20, Slots: show.SlotsHeld}
	if l.Last != want {
		t.Errorf("heard %+v, want %+v", l.Last, want)
	}
	h := &Heard{Job: &engine.JobRecord{Spec: &cluster.Job{ID: 7}}}
	ev := (&Pace{}).Event(h, &l.Last)
	if x := ev.Traffic; x == nil || x.Bytes != 2<<20 || x.Compute != 158*time.Millisecond || x.Pattern != 0 {
		t.Errorf("the engine is told %+v", x)
	}
	if ev.Slots != cluster.SlotsHeld || ev.Iteration != 0 {
		t.Errorf("the engine is told of slots %q, of an iteration %v", ev.Slots, ev.Iteration)
	}
	l.Take([]byte(`{"iteration_s": 0.2, "comm_s": 3, "bytes": 1e300, "slots": "`+"\x1b"+`"}`+"\n{\"iteration_s\": 0.2, \"comm_s\": 3, \"bytes\": 1e300, \"slots\": \"x\"}\n"), false)
	if p := l.Last; p.IterationSec != .2 || p.CommSec != 0 || p.Bytes != 0 || p.Slots != "" {
		t.Errorf("heard %+v", p)
	}
	if ev = (&Pace{}).Event(h, &l.Last); ev.Traffic != nil || ev.Slots != cluster.SlotsCalled ||
		ev.Iteration != 200*time.Millisecond {
		t.Errorf("of a job that tells of iterations alone the engine is told %+v", ev)
	}
}
