package results

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// TestTriton: our rule serves closed loops as Triton was measured to. A batch is timed by a table that has one instance
// alone and the network in it, where two slow each other down and callers overlap: on the GPU where that is furthest
// off, the T4, two instances do 1.6 times as much as one, not twice, so 25 % are allowed for a loop, and a tenth in the
// mean. How many are in a batch depends on the rule more than on the times.
func TestTriton(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(shared.Path(t, "traces/serving-profiles/triton-dynamic-closed-loop.csv"))
	list, profiles, err := readTriton(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 64 || len(profiles) != 4 {
		t.Fatalf("%d loops on %d GPUs", len(list), len(profiles))
	}
	var rates, batches differences
	queue, computing := 0.0, 0.0
	for i := range list {
		l := &list[i]
		if has := l.rate * l.takes() / 1e3; math.Abs(has/float64(l.callers)-1) > 0.02 { // Little's law
			t.Errorf("%s: %d callers have %.1f requests", l.gpu, l.callers, has)
		}
		got, err := playTriton(l, profiles[l.gpu])
		if err != nil {
			t.Fatal(err)
		}
		if has := got.rate * got.takes() / 1e3; math.Abs(has/float64(l.callers)-1) > 0.02 {
			t.Errorf("%s: %d callers have %.1f requests when played", l.gpu, l.callers, has)
		}
		rates.add(got.rate, l.rate)
		batches.add(got.batch, l.batch)
		if off := math.Abs(rates[i]); off > 25 {
			t.Errorf("%s, %d callers: %.0f requests/s, measured %.0f", l.gpu, l.callers, got.rate, l.rate)
		}
		if off := math.Abs(batches[i]); off > 20 {
			t.Errorf("%s, %d callers: batches of %.1f, measured %.1f", l.gpu, l.callers, got.batch, l.batch)
		}
		queue += 100 * (got.queue/got.takes() - l.queue/l.takes()) / float64(len(list))
		computing += 100 * (got.compute/got.takes() - l.compute/l.takes()) / float64(len(list))
	}
	if m := mean(rates.off()); m > 10 {
		t.Errorf("requests/s differ by %.1f %% in the mean", m)
	}
	if m := mean(batches.off()); m > 6 {
		t.Errorf("batches differ by %.1f %% in the mean", m)
	}
	if math.Abs(queue) > 12 || math.Abs(computing) > 12 {
		t.Errorf("parts of a request's time differ by %.1f points in the queue, by %.1f computing", queue, computing)
	}
}
