package relocations

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/kube/gang"
)

// found is what the engine found.
type found []engine.Moves

func (f found) Moved() []engine.Moves { return f }

// The engine has answered after the step that began with what it was asked; gangs that it does not move stay. People
// read the numbers that they know.
func TestAnswered(t *testing.T) {
	r, q := New(time.Minute), NewRequest(7, engine.NoCompact)
	if r.Asked() || q.Event.Type != engine.Defragment || q.Event.Job != 7 {
		t.Errorf("%+v", q.Event)
	}
	stays := running(1, pod("a", "r", 1, 1))
	leaves, moved := running(2, pod("b", "r", 1, 1)), running(3, pod("c", "r", 1, 1))
	leaves.Phase, moved.Relocation = gang.Stopping, &gang.Relocation{}
	stays.Book.Number = 40
	byID := map[cluster.JobID]*gang.Gang{1: stays}
	e := found{{Job: 1, Moves: []defrag.Move{{Job: 8}}}}
	r.StepBegins()
	r.Ask(q, []*gang.Gang{leaves, stays, moved})
	if got := r.Answered(e, byID); got != nil || len(q.Answer) > 0 || !r.Asked() || !r.Busy() {
		t.Error("it has not heard of it yet")
	}
	r.StepBegins()
	if staying := r.Answered(e, byID); len(staying) != 1 || staying[0] != stays {
		t.Errorf("%+v stay", staying)
	}
	if list := <-q.Answer; len(list) != 1 || list[0].Job != 40 || list[0].Moves[0].Job != 0 {
		t.Errorf("%+v", list)
	}
	if staying := r.Answered(e, byID); staying != nil || len(q.Answer) > 0 || r.Asked() || r.Busy() {
		t.Error("it answers twice")
	}
}
