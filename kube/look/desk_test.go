package look

import (
	"errors"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// A copy is made once for all that ask within twenty times what it took, between a tenth of a second and two; none is
// made where the scheduler does not lead, and who waits for one when the loop ends is told.
func TestDesk(t *testing.T) {
	now, took, ready, made := time.Unix(1_800_000_000, 0), time.Duration(0), true, 0
	loop := Loop{Ready: func() bool { return ready }, Put: func(f func()) { f() }, Now: func() time.Time { return now },
		See: func() *Sight {
			made++
			l := &Sight{At: cluster.Time(now.UnixNano())}
			now = now.Add(took)
			return l
		}}
	d := NewDesk(loop)
	look := func(want int) {
		t.Helper()
		if _, err := d.Look(t.Context()); err != nil || made != want {
			t.Errorf("%d copies, not %d; %v", made, want, err)
		}
	}
	look(1)
	now = now.Add(99 * time.Millisecond)
	look(1)
	now, took = now.Add(time.Millisecond), time.Second/50 // then twenty times as long
	look(2)
	now = now.Add(379 * time.Millisecond)
	look(2)
	now = now.Add(time.Millisecond)
	look(3)
	if ready = false; !errors.Is(d.Ask(t.Context(), func() { t.Error("it is asked") }), ErrNotLeading) {
		t.Error("a scheduler that does not lead answers")
	}
	ready = true
	loop.Put = func(func()) {}
	d = NewDesk(loop)
	d.Close()
	if _, err := d.Look(t.Context()); !errors.Is(err, ErrNotLeading) {
		t.Errorf("after the loop's end: %v", err)
	}
}

// Who watches is told once of changes since it last looked, and not after it stopped.
func TestDeskWatch(t *testing.T) {
	d := NewDesk(Loop{})
	changed, _, stop := d.Reader().Watch()
	d.Tell()
	d.Tell()
	if len(changed) != 1 {
		t.Errorf("told %d times", len(changed))
	}
	<-changed
	stop()
	if d.Tell(); len(changed) != 0 {
		t.Error("told after it stopped")
	}
}
