package look

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/show"
)

// A gang waits, runs, grows, has to leave and comes back: its book says how long it waited and ran, what of GPUs it
// had, and goes on where it stopped; hours say how much of the GPUs was held.
func TestBook(t *testing.T) {
	at := func(m int) cluster.Time { return cluster.Time(100 * time.Hour).Add(time.Duration(m) * time.Minute) }
	var r Records
	r.Sample(at(0), 8, show.Sample{})
	b := r.Open("a", at(0), at(1))
	b.Begin(at(10), 2, []string{"n1"})
	r.Hold(at(10), 2)
	b.Resize(at(20), 4, []string{"n1", "n2"})
	r.Hold(at(20), 2)
	b.End(at(30))
	r.Hold(at(30), -4)
	b.Outcome = engine.Preempted
	state, _ := b.Close(at(30), "")
	row := b.AsRow()
	row.Key, row.State, row.Ended = "a", state, at(30)
	r.Keep(row)
	if state != show.StatePreempted || b.Waited != 10*time.Minute || b.Ran != 20*time.Minute ||
		b.GPUTime != 60*time.Minute {
		t.Errorf("%s: it waited %s and ran %s, %s of GPUs", state, b.Waited, b.Ran, b.GPUTime)
	}
	again := r.Open("a", at(30), at(40))
	if again.Number != 1 || again.Runs != 1 || again.Ended != 0 || again.Over || len(again.Moments) != 3 {
		t.Errorf("its pods are there again: %+v", again)
	}
	if other := r.Open("b", at(41), at(41)); other.Number != 2 {
		t.Errorf("another is number %d", other.Number)
	}
	s := r.Sight(at(60), show.Sample{})
	if len(s.Past) != 0 || len(s.Hours) != 1 || s.Hours[0].Held != 60*time.Minute || s.Hours[0].Total != 8*time.Hour {
		t.Errorf("%+v", s)
	}
}
