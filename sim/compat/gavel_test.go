package compat

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// G-gavel-simulator, 2.
func TestGavelChance(t *testing.T) {
	r := newTwister(0)
	for _, want := range []float64{0.8444218515250481, 0.7579544029403025} {
		if got := r.random(); got != want {
			t.Errorf("random: %v, want %v", got, want)
		}
	}
}

// G-gavel-simulator, 3: the first jobs of seed 0, single GPUs, one arrival per hour.
func TestGavelJobs(t *testing.T) {
	g := newGavelGenerator(0, false, 1)
	for i, want := range []gavelDraw{
		{1, "ResNet-18 (batch size 64)", 68344.35010595087, 0},
		{1, "Transformer (batch size 16)", 31016.60914593223, 0.27176230323366835},
		{1, "Recommendation (batch size 1024)", 2146.6088374387864, 1.05752758614344},
		{1, "Recommendation (batch size 4096)", 7386.674819745945, 1.5194918840626528},
	} {
		got := g.next()
		got.arrival /= 3600
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-14*b }
		if got.gpus != want.gpus || got.model != want.model || !near(got.duration, want.duration) || !near(got.arrival, want.arrival) {
			t.Errorf("job %d: %v, want %v", i, got, want)
		}
	}
	several := newGavelGenerator(0, true, 1)
	count := map[int]int{}
	for range 2000 {
		d := several.next()
		count[d.gpus]++
		if d.gpus > 1 && (strings.HasPrefix(d.model, "A3C") || strings.HasPrefix(d.model, "Rec") || d.model == "CycleGAN") {
			t.Fatalf("%v cannot be distributed", d)
		}
	}
	for gpus, part := range map[int]float64{1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05} {
		if got := float64(count[gpus]) / 2000; math.Abs(got-part) > 0.03 {
			t.Errorf("%.3f of the jobs have %d GPUs, want about %.2f", got, gpus, part)
		}
	}
}

func gavelTable(t testing.TB) *Throughputs {
	t.Helper()
	table, err := ReadThroughputs(shared.Unzip(t, "traces/gavel/simulation_throughputs.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// G-gavel-simulator, 12.1: the mean to the printed digit, under that simulator's
// FIFO; under our policies package results looks at it.
func TestGavelFIFO(t *testing.T) {
	f, err := RunGavel(context.Background(), Gavel{Rate: 4}, gavelTable(t))
	if got := fmt.Sprintf("%.2f", f.Hours); err != nil || got != "25.38" {
		t.Errorf("%s h (%d jobs, %d rounds), %v; want 25.38", got, f.Jobs, f.Rounds, err)
	}
}

// Space sharing: two jobs' steps on the same GPUs are those of the published table,
// and where there are more jobs than GPUs they are done sooner than without. The
// world fails if any two run together that were not planned so.
func TestGavelSharing(t *testing.T) {
	table := gavelTable(t)
	both := table.beside[gavelPair{"ResNet-18 (batch size 16)", "ResNet-18 (batch size 32)", 1}]
	if got := both[gavelModel("K80-12GB")]; math.Abs(got-2.539979567443098) > 1e-12 {
		t.Errorf("beside: %v steps per second, want 2.53998", got)
	}
	hours := func(knob string) float64 {
		x := Gavel{Rate: 7, To: 300, Policy: "gavel:solve=resets,order=V100-16GB/P100-16GB/K80-12GB" + knob}
		f, err := RunGavel(context.Background(), x, table)
		if err != nil {
			t.Fatal(err)
		}
		return f.Hours
	}
	if apart, together := hours(""), hours(",space_sharing=true"); !(together < 0.95*apart) {
		t.Errorf("%.2f h with space sharing, %.2f without", together, apart)
	}
}
