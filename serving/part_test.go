package serving

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/internal/shared"
)

// Parts of a GPU: as measured under MPS, interpolated in between; from instances and from processes the slower
// of the two; unknown where nothing as small was measured.
func TestParts(t *testing.T) {
	m := model(t, "A100-80GB")
	s := Service{Points: []Point{
		{Percent: 50, Batch: 2, Processes: 1, Rate: 100, Latency: 25 * time.Millisecond},
		{Percent: 100, Batch: 2, Processes: 1, Rate: 200, Latency: 10 * time.Millisecond},
		{Compute: 7, Batch: 4, Processes: 2, Rate: 80, Latency: 50 * time.Millisecond},
		{Compute: 7, Batch: 4, Processes: 1, Rate: 200, Latency: 20 * time.Millisecond},
		{Compute: 3, Batch: 4, Processes: 1, Rate: 100, Latency: 40 * time.Millisecond},
		{Compute: 4, Batch: 4, Processes: 1, Rate: 120, Latency: 33 * time.Millisecond},
		{Compute: 4, Batch: 4, Processes: 2, Rate: 60, Latency: 66 * time.Millisecond},
	}}
	list := partsOf(m, &s)
	for _, c := range []struct {
		batch, percent int
		want           time.Duration
	}{
		{2, 50, 25 * time.Millisecond}, // its latency, which is longer than its rate implies
		// In between: 80 a second there, not the 100 that were measured.
		{2, 75, 14285714}, {2, 100, 10 * time.Millisecond}, {2, 40, 0},
		{4, 50, 50 * time.Millisecond}, // of two processes, though instances would do 110 a second
		{4, 45, 38835000},              // 103 a second on instances; no process had as little
		{4, 100, 20 * time.Millisecond}, {4, 20, 0},
	} {
		if got := list[c.batch/2-1].takes(c.percent); (got - c.want).Abs() > time.Microsecond {
			t.Errorf("a batch of %d on %d %%: %v, want %v", c.batch, c.percent, got, c.want)
		}
	}
	takes := curve(list, 50)
	for i, want := range []time.Duration{25000, 25000, 37500, 50000} { // microseconds
		if takes[i] != want*time.Microsecond {
			t.Errorf("a batch of %d takes %v, want %v µs", i+1, takes[i], want)
		}
	}
	if len(takes) != 4 {
		t.Errorf("%d batches", len(takes))
	}
}

// Estimates from ParvaGPU's instances compared with one of two and of five processes on the whole GPU: the two
// ways to estimate a half and a fifth of a GPU agree.
func TestPartsMeasured(t *testing.T) {
	dir := filepath.Dir(shared.Path(t, "traces/parvagpu-mig/SLO_SLO_latency.csv"))
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := model(t, "A100-80GB")
	for _, percent := range []int{50, 20} {
		n, off, sum, worst := 0, 0.0, 0.0, 0.0
		for _, f := range files {
			name, ok := strings.CutPrefix(f.Name(), "prof_data_")
			if !ok {
				continue
			}
			s := Service{Name: strings.TrimSuffix(name, ".csv")}
			if err := s.Measure(dir); err != nil {
				t.Fatal(err)
			}
			for _, p := range partsOf(m, &s) {
				a, b := p.instance.at(float64(percent)), p.processes.at(float64(percent))
				if a == 0 || b == 0 {
					continue
				}
				n, sum, off = n+1, sum+a/b-1, off+math.Abs(a/b-1)
				worst = max(worst, math.Abs(a/b-1))
			}
		}
		t.Logf("%d %%: %d models and batches: instances say %+.1f %% more than processes on average, %.1f %% off, at most %.1f %%", percent, n, 100*sum/float64(n), 100*off/float64(n), 100*worst)
		if n < 30 || off/float64(n) > 0.1 {
			t.Error("that is not near")
		}
	}
}
