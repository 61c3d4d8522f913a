package compat

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
)

// Gavel's simulator, 2.
func TestGavelChance(t *testing.T) {
	t.Parallel()
	r := newTwister(0)
	for _, want := range []float64{0.8444218515250481, 0.7579544029403025} {
		if got := r.random(); got != want {
			t.Errorf("random: %v, want %v", got, want)
		}
	}
}

// Gavel's simulator, 3: the first jobs of seed 0, single GPUs, one arrival per hour.
func TestGavelJobs(t *testing.T) {
	t.Parallel()
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
		if got.gpus != want.gpus || got.model != want.model || !near(got.duration, want.duration) ||
			!near(got.arrival, want.arrival) {
			t.Errorf("job %d: %v, want %v", i, got, want)
		}
	}
	several := newGavelGenerator(0, true, 1)
	count := map[int]int{}
	for range 2000 {
		d := several.next()
		count[d.gpus]++
		if d.gpus > 1 && (strings.HasPrefix(d.model, "A3C") || strings.HasPrefix(d.model, "Rec") ||
			d.model == "CycleGAN") {
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

// Gavel's simulator, example 12.1: the mean equals the printed digits under that simulator's FIFO;
// package results checks our policies.
func TestGavelFIFO(t *testing.T) {
	t.Parallel()
	f, err := RunGavel(context.Background(), Gavel{Rate: 4}, gavelTable(t))
	if got := fmt.Sprintf("%.2f", f.Hours); err != nil || got != "25.38" {
		t.Errorf("%s h (%d jobs, %d rounds), %v; want 25.38", got, f.Jobs, f.Rounds, err)
	}
}

// Space sharing: the steps of two jobs on the same GPUs are those of the published table, and 200
// jobs that all arrive at once complete sooner on average than without. The world fails if two jobs
// run together without a plan for it.
func TestGavelSharing(t *testing.T) {
	t.Parallel()
	table := gavelTable(t)
	both := table.beside[gavelPair{"ResNet-18 (batch size 16)", "ResNet-18 (batch size 32)", 1}]
	if got := both[gavelModel("K80-12GB")]; math.Abs(got-2.539979567443098) > 1e-12 {
		t.Errorf("beside: %v steps per second, want 2.53998", got)
	}
	hours := func(knob string) float64 {
		x := Gavel{Static: 200, Policy: "gavel:solve=resets,order=V100-16GB/P100-16GB/K80-12GB" + knob}
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

// Gavel's simulator, example H5: one V100 and one K80 are idle; the short job gets the V100, and
// the long one, which follows it there, gets nothing now.
func TestGavelAlloX(t *testing.T) {
	t.Parallel()
	job := func(id cluster.JobID, left float64) *gavelEntry {
		return &gavelEntry{jobs: [2]*gavelJob{
			{gavelDraw: gavelDraw{gpus: 1}, spec: cluster.Job{ID: id}, rate: [3]float64{0.5, 0, 2}, left: left}}}
	}
	g := &gavelRules{w: &GavelWorld{}}
	for id := range gavelGPUs - 1 { // all but one of each model are held
		for _, k := range []int{0, 2} {
			e := job(cluster.JobID(1000+2*id+k), 1)
			e.x[k] = 1
			g.entries = append(g.entries, e)
		}
	}
	long, short := job(1, 100), job(2, 10)
	g.entries = append(g.entries, long, short)
	gavelAlloX(g)
	if short.x != [3]float64{0, 0, 1} || long.x != [3]float64{} {
		t.Errorf("the short one has %v, want a V100; the long one %v, want nothing", short.x, long.x)
	}
}

// Two of n as drawn by CPython's random.sample.
func TestGavelTwo(t *testing.T) {
	t.Parallel()
	g := &gavelRules{chance: newTwister(3)}
	for _, c := range []struct {
		n    int
		want [][2]int
	}{{3, [][2]int{{0, 2}, {1, 2}, {2, 0}, {2, 0}, {1, 2}, {2, 0}, {0, 1}, {2, 1}}},
		{21, [][2]int{{12, 4}, {7, 4}, {16, 12}, {0, 2}}},
		{22, [][2]int{{5, 18}, {1, 9}, {0, 8}, {15, 19}, {12, 13}, {12, 18}}}} {
		for _, want := range c.want {
			if i, k := g.two(c.n); [2]int{i, k} != want {
				t.Errorf("of %d: %d and %d, want %v", c.n, i, k, want)
			}
		}
	}
}

// The assignment has the minimal sum, and among several optimal ones it is the one that Munkres'
// method finds: three jobs of 3, 2 and 1 on two GPUs, the first two last, each on a GPU of its own,
// and the third before the first job.
func TestGavelAssign(t *testing.T) {
	t.Parallel()
	got := gavelAssign(3, 6, []float64{3, 3, 6, 6, 9, 9, 2, 2, 4, 4, 6, 6, 1, 1, 2, 2, 3, 3})
	if !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("columns %v, want 0, 1 and 2", got)
	}
	r := newTwister(7)
	for range 300 {
		rows := 1 + r.below(4)
		cols := rows + r.below(3)
		costs := make([]float64, rows*cols)
		for i := range costs {
			if costs[i] = float64(r.below(5)); rows%2 == 0 {
				costs[i] = r.random()
			}
		}
		var least func(i int, taken uint) float64
		least = func(i int, taken uint) float64 {
			if i == rows {
				return 0
			}
			best := math.Inf(1)
			for k := range cols {
				if taken&(1<<k) == 0 {
					best = min(best, costs[i*cols+k]+least(i+1, taken|1<<k))
				}
			}
			return best
		}
		sum, taken := 0.0, uint(0)
		for i, k := range gavelAssign(rows, cols, slices.Clone(costs)) {
			sum += costs[i*cols+k]
			taken |= 1 << k
		}
		if want := least(0, 0); math.Abs(sum-want) > 1e-9 || bits.OnesCount(taken) != rows {
			t.Fatalf("%d rows of %v: sum %v, %d columns; want %v", rows, costs, sum, bits.OnesCount(taken), want)
		}
	}
}

// AlloX with a queue, and Gandiva with random pairs, to the printed digit: these two cells match
// only with the assignment above, and with the initial values of pairs.
func TestGavelOwn(t *testing.T) {
	t.Parallel()
	table := gavelTable(t)
	for _, c := range []struct {
		x    Gavel
		want string
	}{{Gavel{Rate: 4, Own: "allox"}, "17.13"}, {Gavel{Rate: 2, Several: true, Own: "gandiva"}, "25.16"}} {
		if shared.Soak(c.x.Own == "gandiva", false) {
			continue
		}
		f, err := RunGavel(context.Background(), c.x, table)
		if got := fmt.Sprintf("%.2f", f.Hours); err != nil || got != c.want {
			t.Errorf("%s at %g: %s h, %v; want %s", c.x.Own, c.x.Rate, got, err, c.want)
		}
	}
	if _, err := RunGavel(context.Background(), Gavel{Rate: 1, Own: "themis"}, table); err == nil ||
		!strings.Contains(err.Error(), "themis") {
		t.Errorf("a policy that is not there: %v", err)
	}
	if _, err := RunGavel(context.Background(), Gavel{Rate: 1, Round: -1}, table); err == nil ||
		!strings.Contains(err.Error(), "rounds of -1 seconds") {
		t.Errorf("rounds of -1 s: %v", err)
	}
}
