package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// gavelWorld holds one-GPU jobs that never end, on nodes of up to three GPU models.
type gavelWorld struct {
	spec    *cluster.Spec
	kinds   []string
	gpus    []int // of each kind
	model   *perf.Table
	entries []trace.Entry
}

// newGavelWorld draws a world; crowd gives the number of jobs for a number of GPUs.
func newGavelWorld(t *testing.T, r *rand.Rand, crowd func(gpus int) int) *gavelWorld {
	t.Helper()
	w := &gavelWorld{kinds: []string{"A100-80GB", "V100-16GB", "T4-16GB"}[:1+r.IntN(3)],
		model: &perf.Table{Speed: map[string]map[string]int64{}}}
	var nodes []string
	sum := 0
	for _, k := range w.kinds {
		w.gpus = append(w.gpus, 1+r.IntN(4))
		nodes = append(nodes, fmt.Sprintf("1x%dx%s", w.gpus[len(w.gpus)-1], k))
		sum += w.gpus[len(w.gpus)-1]
	}
	w.spec = shared.Must(cluster.ParseShort(strings.Join(nodes, "+")))
	for i := range crowd(sum) {
		m := fmt.Sprint("m", i)
		w.model.Speed[m] = map[string]int64{}
		for _, k := range w.kinds {
			w.model.Speed[m][k] = 200_000 + r.Int64N(800_000)
		}
		w.entries = append(w.entries, entry(i, 0, 10_000*time.Hour, 1, func(e *trace.Entry) { e.Job.Model = m }))
	}
	return w
}

// play replays the world under a policy for a number of minutes.
func (w *gavelWorld) play(t *testing.T, pol string, minutes int) *shares {
	t.Helper()
	e := engineOn(w.spec, engine.Config{Policy: mustPolicy(t, pol), Speeds: perf.Belief{Model: w.model}})
	s := &shares{e: e, world: w, on: map[cluster.JobID]int{}, had: make([][3]float64, len(w.entries)),
		due: make([][3]float64, len(w.entries))}
	opt := Options{Model: w.model, Until: cluster.Time(minutes) * cluster.Time(time.Minute)}
	if err := driver.Run(context.Background(), e, NewWorld(w.spec, w.entries, opt), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// shares tracks what jobs received of each kind, in rounds of a minute, and what was due to them.
// It begins with the second round: before the first, the engine starts the jobs that are there
// without a plan.
type shares struct {
	e           *engine.Engine
	world       *gavelWorld
	on          map[cluster.JobID]int // the kind on which a job runs; looked up, never iterated
	had, due    [][3]float64          // per job and kind
	last        cluster.Time
	rounds      float64
	under, over float64 // the largest deficit and surplus of a job on a kind
}

// part is X, the part of its time that a job should have on a kind, as its target stores it (layout
// in policy: left, iso, alone, then x, base, due, deficit for each kind).
func (s *shares) part(id, kind int) float64 {
	to := s.e.Record(cluster.JobID(id)).Target
	if to == nil || len(to.Memo) == 0 {
		return 0
	}
	return float64(to.Memo[3+4*kind]) / 1e6
}

func (s *shares) Record(b *engine.Batch, d *engine.Decision) error {
	if past := b.Now.Sub(s.last).Minutes(); past > 0 && s.last >= cluster.Time(time.Minute) {
		s.rounds += past
		for id := range s.had {
			if k, ok := s.on[cluster.JobID(id)]; ok {
				s.had[id][k] += past
			}
			for k := range s.world.kinds {
				s.due[id][k] += s.part(id, k) * past
				s.under, s.over = max(s.under, s.due[id][k]-s.had[id][k]), max(s.over, s.had[id][k]-s.due[id][k])
			}
		}
	}
	s.last = b.Now
	for i := range b.Events {
		if ev := &b.Events[i]; ev.Type == engine.Stopped {
			delete(s.on, ev.Job)
		}
	}
	for i := range d.Actions {
		switch a := &d.Actions[i]; a.Type {
		case engine.Start:
			for k, name := range s.world.kinds {
				if s.world.spec.Nodes[a.Allocs[0].Node].Model == name {
					s.on[a.Job] = k
				}
			}
		case engine.Preempt:
			delete(s.on, a.Job)
		}
	}
	return nil
}

// Gavel (OSDI'20): what single-GPU jobs receive of each model tracks X to within about one round at
// any time, as long as jobs wait for every GPU. With hardly more jobs than GPUs a round, which
// fills the models one after the other, may find no job with a claim left for the last model; a job
// then has up to a twentieth less of its time than X says.
func TestGavelSharesTrackX(t *testing.T) {
	for seed := range shared.Soak[uint64](9, 90) {
		r := rand.New(rand.NewPCG(seed, 31))
		crowded := seed%3 > 0
		w := newGavelWorld(t, r, func(gpus int) int {
			if crowded {
				return 2*gpus + r.IntN(2*gpus)
			}
			return gpus + 1 + r.IntN(gpus)
		})
		s := w.play(t, "gavel:round=1m,reset=1000h,objective="+[]string{"las", "waterfill"}[seed%2], 400)
		if s.rounds < 390 {
			t.Fatalf("seed %d: %g rounds", seed, s.rounds)
		}
		if crowded && (s.under > 1.5 || s.over > 1.5) {
			t.Errorf("seed %d, %d jobs on %v: at some time a job is %.2f rounds behind X, or %.2f ahead", seed,
				len(w.entries), w.gpus, s.under, s.over)
		}
		if s.under > 1.5+s.rounds/20 {
			t.Errorf("seed %d, %d jobs on %v: a job is %.2f rounds behind X after %g", seed, len(w.entries), w.gpus,
				s.under, s.rounds)
		}
		for k, n := range w.gpus { // no GPU is idle, and X sums to all of it
			had, due := 0.0, 0.0
			for id := range s.had {
				had, due = had+s.had[id][k], due+s.due[id][k]
			}
			if math.Abs(had-float64(n)*s.rounds) > 1e-6 || due > had*(1+1e-4) {
				t.Errorf("seed %d: %d GPUs of %s give %g rounds, %g are due", seed, n, w.kinds[k], had, due)
			}
		}
	}
}

// Gavel (OSDI'20): multiplying all speeds of a job by one factor does not change X where speeds are
// normalised.
func TestGavelSharesOfScaledSpeeds(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 32))
		w := newGavelWorld(t, r, func(gpus int) int { return gpus + 1 + r.IntN(gpus) })
		pol := "gavel:round=1m,order=A100-80GB/V100-16GB/T4-16GB,objective=" + []string{"las", "waterfill"}[seed%2]
		before := w.play(t, pol, 2)
		for m, row := range w.model.Speed { // each model independently of the others
			var i int
			if _, err := fmt.Sscanf(m, "m%d", &i); err != nil {
				t.Fatal(err)
			}
			for k := range row {
				row[k] *= int64(1 + i%5)
			}
		}
		after := w.play(t, pol, 2)
		for id := range before.had {
			for k := range w.kinds {
				if a, b := before.part(id, k), after.part(id, k); math.Abs(a-b) > 2e-3 {
					t.Errorf("seed %d: job %d is to have %.4f of its time on %s, %.4f if its speeds are multiplied by %d", seed, id, a, w.kinds[k], b, 1+id%5)
				}
			}
		}
	}
}

// leastOf is the optimal minimum rate over the jobs, computed by a general simplex: its variables
// are x, the level, and the slacks of rates, times and kinds (Gavel, OSDI'20, base constraints,
// one-GPU jobs).
func leastOf(t *testing.T, rate [][]float64, gpus []int) float64 {
	t.Helper()
	n, k := len(rate), len(gpus)
	level := n * k
	A, b, c := mat.NewDense(2*n+k, level+1+2*n+k, nil), make([]float64, 2*n+k), make([]float64, level+1+2*n+k)
	for i := range n {
		for j := range k {
			A.Set(i, i*k+j, rate[i][j])
			A.Set(n+i, i*k+j, 1)
			A.Set(2*n+j, i*k+j, 1)
		}
		A.Set(i, level, -1)
		A.Set(i, level+1+i, -1)
		A.Set(n+i, level+1+n+i, 1)
		b[n+i] = 1
	}
	for j := range k {
		A.Set(2*n+j, level+1+2*n+j, 1)
		b[2*n+j] = float64(gpus[j])
	}
	c[level] = -1
	opt, _, err := lp.Simplex(c, A, b, 1e-10, nil)
	if err != nil {
		t.Skipf("the oracle gave up: %v", err)
	}
	return -opt
}

// Gavel (OSDI'20), w_m: with weights X is the optimum of the program in which each job's normalised
// speed is divided by its weight (its queue's or its priority's); without the knob all jobs weigh
// the same, whatever their queues and priorities.
func TestGavelWeights(t *testing.T) {
	differ := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 33))
		w := newGavelWorld(t, r, func(gpus int) int { return gpus + 1 + r.IntN(gpus) })
		queues := []int64{500 + r.Int64N(4000), 500 + r.Int64N(4000), 0} // 0 means the default weight 1
		for q, weight := range queues {
			w.spec.Queues = append(w.spec.Queues,
				cluster.Queue{Name: fmt.Sprint("q", q), Limit: -1, Lend: -1, Weight: weight})
		}
		for i := range w.entries {
			w.entries[i].Job.Queue, w.entries[i].Job.Priority = fmt.Sprint("q", r.IntN(3)), int64(r.IntN(6)-1)
		}
		for _, by := range []string{"queue", "priority", "equal"} {
			s := w.play(t, "gavel:round=1m,weigh="+by+",objective="+[]string{"las", "waterfill"}[seed%2], 2)
			rate, got := make([][]float64, len(w.entries)), math.Inf(1)
			for i := range w.entries {
				j, weight, equal, own := &w.entries[i].Job, 1.0, 0.0, 0.0
				switch by {
				case "queue":
					if q := queues[j.Queue[1]-'0']; q > 0 {
						weight = float64(q) / 1000
					}
				case "priority":
					weight = float64(max(1, j.Priority))
				}
				gpus := 0
				for k, n := range w.gpus {
					equal, gpus = equal+float64(n)*float64(w.model.Speed[j.Model][w.kinds[k]]), gpus+n
				}
				for k := range w.gpus {
					rate[i] = append(rate[i], float64(w.model.Speed[j.Model][w.kinds[k]])*float64(gpus)/equal/weight)
					own += rate[i][k] * s.part(i, k)
				}
				got = min(got, own)
			}
			if want := leastOf(t, rate, w.gpus); math.Abs(got-want) > 1e-4*want {
				t.Errorf("seed %d, by %s: the least weighted speed is %.6f, the simplex has %.6f", seed, by, got, want)
			} else if by == "queue" {
				differ++
			}
		}
	}
	if differ < 50 {
		t.Errorf("%d programs", differ)
	}
}
