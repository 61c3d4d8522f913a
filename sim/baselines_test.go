package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/trace"
)

// Invariants: under fifo jobs start in order of arrival; under sjf no job starts while a shorter
// one waits, nor under ssf while one of less service waits (strict order: whether it fits or not);
// on one GPU, with lossless preemption, the mean completion time under srtf is at most that under
// sjf.
func TestBaselines(t *testing.T) {
	for seed := range uint64(20) {
		entries := randomEntries(rand.New(rand.NewPCG(seed, 14)), 60)
		for i := range entries {
			entries[i].Job.Submit /= 4
		}
		keys := map[string]func(e *trace.Entry) int64{
			"fifo": func(e *trace.Entry) int64 { return int64(e.Job.Submit) },
			"sjf":  func(e *trace.Entry) int64 { return int64(e.Run) },
			"ssf":  func(e *trace.Entry) int64 { return int64(e.Run) * int64(e.Job.GPUs()) },
		}
		for pol, key := range keys { // each by itself
			mode := engine.Strict
			o := replayed(t, "1x16xT4", pol, entries, Options{}, func(s *Setup) { s.Backfill = &mode })
			for i := range entries {
				for k := range entries {
					a, b := &entries[i], &entries[k]
					start := o.Run.Records[i].FirstStart
					if key(a) > key(b) && b.Job.Submit < start && o.Run.Records[k].FirstStart > start {
						t.Errorf("seed %d, %s: job %d starts at %v, before job %d, which comes first", seed, pol, i,
							start, k)
					}
				}
			}
		}
		for i := range entries {
			entries[i].Job.Tasks[0].Request.GPUs = 1
		}
		mean := func(pol string) (sum time.Duration) {
			o := replayed(t, "1x1xT4", pol, entries, Options{})
			for i := range o.Run.Records {
				sum += o.Run.Records[i].End.Sub(o.Run.Records[i].Submit)
			}
			return sum / time.Duration(len(entries))
		}
		if a, b := mean("srtf"), mean("sjf"); a > b {
			t.Errorf("seed %d: srtf %v, sjf %v", seed, a, b)
		}
	}
}

// idler checks that no waiting job would fit.
type idler struct {
	t    *testing.T
	gpus map[cluster.JobID]int // GPUs of each waiting job; never iterated to decide
	held map[cluster.JobID]int
	free int
	last cluster.Time
	seen int
}

func (w *idler) Record(b *engine.Batch, d *engine.Decision) error {
	if b.Now > w.last { // the previous instant is complete
		for id, g := range w.gpus {
			if w.seen++; g <= w.free {
				w.t.Errorf("at %v job %d waits for %d GPUs; %d are free", w.last, id, g, w.free)
			}
		}
		w.last = b.Now
	}
	for i := range b.Events {
		switch ev := &b.Events[i]; ev.Type {
		case engine.Submitted:
			w.gpus[ev.Job] = ev.Spec.GPUs()
		case engine.Stopped:
			w.free += w.held[ev.Job]
			if ev.Reason == engine.Preempted {
				w.gpus[ev.Job] = w.held[ev.Job]
			}
			delete(w.held, ev.Job)
		}
	}
	for i := range d.Actions {
		if a := &d.Actions[i]; a.Type == engine.Start {
			w.held[a.Job] = w.gpus[a.Job]
			w.free -= w.held[a.Job]
			delete(w.gpus, a.Job)
		}
	}
	return nil
}

// Invariant of Tiresias (NSDI'19): at the end of an instant no waiting job fits on the free GPUs.
func TestNothingIdle(t *testing.T) {
	for _, pol := range []string{"tiresias-l:thresholds=300/2000", "tiresias-g:thresholds=300", "gittins",
		"e-las:thresholds=300", "srsf"} {
		t.Run(pol, func(t *testing.T) {
			waits := 0
			for seed := range uint64(5) {
				w := &idler{t: t, gpus: map[cluster.JobID]int{}, held: map[cluster.JobID]int{}, free: 16, last: -1}
				entries := randomEntries(rand.New(rand.NewPCG(seed, 15)), 100)
				played(t, "1x16xT4", engine.Config{Policy: mustPolicy(t, pol)}, entries,
					func(*engine.Engine) driver.Journal { return w })
				waits += w.seen
			}
			if waits < 1000 {
				t.Errorf("%d waits were checked", waits)
			}
		})
	}
}

// curve is a job's speed by number of tasks.
type curve map[cluster.JobID][]int64 // looked up, never iterated

func (c curve) Speed(j *cluster.Job, _ string, tasks int) int64 { return c[j.ID][tasks] }

func (curve) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

func (curve) Beside(*cluster.Job, string, []*cluster.Job) int64 { return 1_000_000 }

// Invariants of AFS-L (NSDI'21): all GPUs are allocated as long as some job may take more; no job
// gets a GPU that gains it nothing while another job would gain; equal jobs with clearly concave
// curves differ by at most one GPU.
func TestAFSShares(t *testing.T) {
	vain := 0 // GPUs without any gain, allocated when no job could gain
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 16))
		capacity, n, equal := 2+r.IntN(15), 1+r.IntN(5), seed%2 == 0
		speeds, most, want := curve{}, map[cluster.JobID]int{}, 0
		bend, left, limit, flat := 0.5+0.3*r.Float64(), time.Duration(100+r.IntN(5000))*time.Second, 1+r.IntN(10), 10
		b := engine.Batch{Now: 1}
		for i := range n {
			id := cluster.JobID(i)
			if !equal {
				bend, left, limit, flat = 0.5+0.3*r.Float64(), time.Duration(100+r.IntN(5000))*time.Second,
					1+r.IntN(10), 1+r.IntN(10)
			}
			speeds[id] = []int64{0}
			for k := 1; k <= limit; k++ {
				speeds[id] = append(speeds[id], int64(1_000_000*math.Pow(float64(min(k, flat)), bend)))
			}
			most[id] = limit
			want += limit
			j := &cluster.Job{ID: id, User: "u", Tier: cluster.Standard, Submit: 1, Estimate: left,
				Elastic: cluster.Elastic{Min: 1, Max: limit},
				Tasks:   []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
			b.Events = append(b.Events, engine.Event{Type: engine.Submitted, Job: id, Spec: j})
		}
		got := sharesOf(t, "afs", capacity, speeds, b)
		sum := 0
		for _, k := range got {
			sum += k
		}
		if sum != min(capacity, want) {
			t.Errorf("seed %d: %d of %d GPUs are given, %d could be", seed, sum, capacity, want)
		}
		for id, k := range got { // each job independently of the others
			for other, m := range got {
				if equal && k > m+1 && m < most[other] {
					t.Errorf("seed %d: of equal jobs %d has %d GPUs, %d has %d", seed, id, k, other, m)
				}
				if gain := func(id cluster.JobID, k int) int64 {
					return speeds[id][k] - speeds[id][k-1]
				}; k > 0 && gain(id, k) == 0 {
					if vain++; m < most[other] && gain(other, m+1) > 0 {
						t.Errorf("seed %d: the last GPU of job %d brings nothing; job %d, which has %d, would gain by it", seed, id, other, m)
					}
				}
			}
		}
	}
	if vain < 50 {
		t.Errorf("%d GPUs bring nothing", vain)
	}
}

func sharesOf(t *testing.T, policy string, capacity int, speeds curve, b engine.Batch) map[cluster.JobID]int {
	t.Helper()
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n", Model: "T4-16GB", GPUs: capacity}}}
	e := engineOn(spec, engine.Config{Policy: mustPolicy(t, policy), Speeds: speeds})
	d := e.Step(b)
	got := map[cluster.JobID]int{}
	for i := range b.Events {
		got[b.Events[i].Job] = 0
	}
	for i := range d.Actions {
		for k := range d.Actions[i].Allocs {
			got[d.Actions[i].Job] += int(d.Actions[i].Allocs[k].Tasks)
		}
	}
	return got
}
