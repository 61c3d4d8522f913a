package sim

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// The books weigh what jobs hold: an hour of a T4 counts as a quarter. The user on the new GPUs had
// four GPU-hours where its fair part is two and a half; the user on the old ones had one, which is
// what it asked for.
func TestWorth(t *testing.T) {
	spec := shared.Must(cluster.ParseShort("1x4xA100-80GB+1x4xT4-16GB"))
	spec.Weigh([]cluster.GPUModel{{Name: "T4-16GB", Weight: 250}})
	on := func(user, gpu string) func(e *trace.Entry) {
		return func(e *trace.Entry) { e.Job.User, e.Job.GPUTypes = user, []string{gpu} }
	}
	entries := []trace.Entry{entry(0, 0, time.Hour, 4, on("a", "A100")), entry(1, 0, time.Hour, 4, on("b", "T4"))}
	e := engineOn(spec, engine.Config{Policy: mustPolicy(t, "fifo")})
	w := NewWorld(spec, entries, Options{})
	if err := driver.Run(t.Context(), e, w, nil); err != nil {
		t.Fatal(err)
	}
	run := w.Book().Run(w)
	const hour = int64(time.Hour / time.Millisecond)
	if a, b := run.Records[0], run.Records[1]; a.Held != 4000*hour || a.Worth != 4000*hour || b.Held != 4000*hour ||
		b.Worth != 1000*hour {
		t.Errorf("%+v, %+v", a, b)
	}
	if s := run.Summarise(); s.LongTerm != 1 {
		t.Errorf("long-term GPU time %v, want 1: the user with all T4s has what it requested", s.LongTerm)
	}
	spec.Models = nil
	if w = NewWorld(spec, entries, Options{}); w.Book().Run(w).Kinds != nil {
		t.Error("without weights there are kinds")
	}
}
