package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/trace"
)

// BenchmarkPhilly replays the 82,247-job Philly list. heap-MB is the live heap
// at the end of a replay, garbage included (runtime.MemStats.HeapSys).
func BenchmarkPhilly(b *testing.B) {
	wl := shared.Must(trace.Open(shared.Path(b, "traces/philly/philly_pollux.csv"), trace.Options{}))
	for _, size := range []string{"60x8xV100-32GB", "48x8xV100-32GB"} {
		for _, pol := range policy.Names() {
			b.Run(size+"/"+pol, func(b *testing.B) { replay(b, wl, size, pol, 1) })
		}
	}
}

// BenchmarkPhillyMillion replays the list tiled to a million jobs.
func BenchmarkPhillyMillion(b *testing.B) {
	for _, pol := range []string{"fifo", "las"} {
		b.Run(pol, func(b *testing.B) {
			wl := shared.Must(trace.Open(shared.Path(b, "traces/philly/philly_pollux.csv"), trace.Options{}))
			Tile(wl, 13)
			replay(b, wl, "60x8xV100-32GB", pol, 13)
		})
	}
}

func replay(b *testing.B, wl *trace.Workload, size, pol string, tiles int) {
	var mem runtime.MemStats
	var peak uint64
	for range b.N {
		spec := shared.Must(cluster.ParseShort(size))
		entries := Prepare(wl, spec, Estimates{}, PerNode)
		o := Run(context.Background(), spec, entries, Setup{Policy: pol, Placer: "best-fit"})
		if o.Err != nil || len(o.Run.Records) != len(wl.Jobs) {
			b.Fatal(o.Err)
		}
		runtime.ReadMemStats(&mem)
		peak = max(peak, mem.HeapSys)
	}
	b.ReportMetric(float64(peak)/1e6, "heap-MB")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(wl.Jobs)), "us/job")
}

// stepWorld is a saturated cluster for BenchmarkStep: devices are busy, jobs
// wait; each step reports one job's end and one arrival.
type stepWorld struct {
	e       *engine.Engine
	rng     *rand.Rand
	next    cluster.JobID
	running []cluster.JobID
	at      map[cluster.JobID]int
	now     cluster.Time
	events  []engine.Event
}

func newStepWorld(b *testing.B, gpus, waiting int, pol string) *stepWorld {
	spec := shared.Must(cluster.ParseShort(fmt.Sprintf("%dx8xA100-80GB", max(1, gpus/8))))
	e := engineOn(spec, engine.Config{Policy: shared.Must(policy.New(pol))})
	w := &stepWorld{e: e, rng: rand.New(rand.NewPCG(1, 2)), at: map[cluster.JobID]int{}}
	for {
		evs := make([]engine.Event, 0, 1000)
		for range 1000 {
			evs = append(evs, w.arrival())
		}
		w.step(evs)
		if int(w.next)-len(w.running) >= waiting {
			return w
		}
	}
}

// arrival draws a job: mostly one GPU, some gangs, durations over four decades.
func (w *stepWorld) arrival() engine.Event {
	id := w.next
	w.next++
	g := []int{1, 1, 1, 1, 1, 2, 4, 8, 8, 16}[w.rng.IntN(10)]
	run := time.Duration(w.rng.ExpFloat64() * float64(3*time.Hour))
	return engine.Event{Type: engine.Submitted, Job: id,
		Spec: &cluster.Job{ID: id, Submit: w.now, Tier: cluster.Standard,
			User: fmt.Sprintf("u%d", w.rng.IntN(50)), Tasks: cluster.GroupTasks(g, 8, cluster.Request{GPUs: 1}),
			Estimate: run + time.Minute}}
}

// step runs the engine and answers its actions until no action is left.
func (w *stepWorld) step(evs []engine.Event) {
	for len(evs) > 0 {
		d := w.e.Step(engine.Batch{Now: w.now, Events: evs})
		evs = w.answers(d)
	}
}

func (w *stepWorld) leave(id cluster.JobID) {
	i, last := w.at[id], len(w.running)-1
	w.running[i] = w.running[last]
	w.at[w.running[i]] = i
	w.running = w.running[:last]
	delete(w.at, id)
}

// BenchmarkStep measures one scheduling event at a time on a saturated
// cluster: alternately a job's end (with whatever starts in its place) and an
// arrival. p50-us and p99-us are percentiles over single calls of Step.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ gpus, waiting int }{
		{100, 1_000}, {1_000, 10_000}, {10_000, 100_000}, {100_000, 100_000}, {10_000, 1_000_000}} {
		for _, pol := range []string{"fifo", "las", "srtf", "multifactor", "drf"} {
			b.Run(fmt.Sprintf("gpus=%d/waiting=%d/%s", size.gpus, size.waiting, pol), func(b *testing.B) {
				w := newStepWorld(b, size.gpus, size.waiting, pol)
				lat := make([]time.Duration, 0, b.N)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					w.now = w.now.Add(time.Second)
					ev := w.arrivalOrEnd(i)
					from := time.Now()
					d := w.e.Step(engine.Batch{Now: w.now, Events: ev})
					lat = append(lat, time.Since(from))
					b.StopTimer()
					w.step(w.answers(d))
					b.StartTimer()
				}
				slices.Sort(lat)
				b.ReportMetric(float64(lat[len(lat)/2].Nanoseconds())/1000, "p50-us")
				b.ReportMetric(float64(lat[len(lat)*99/100].Nanoseconds())/1000, "p99-us")
				b.ReportMetric(float64(lat[len(lat)-1].Nanoseconds())/1000, "max-us")
			})
		}
	}
}

func (w *stepWorld) arrivalOrEnd(i int) []engine.Event {
	if i%2 == 0 && len(w.running) > 0 {
		id := w.running[w.rng.IntN(len(w.running))]
		w.leave(id)
		return []engine.Event{{Type: engine.Stopped, Job: id, Reason: engine.Completed, Done: time.Hour}}
	}
	return []engine.Event{w.arrival()}
}

// answers are what a world without latency reports after a decision. They are
// valid until the next call.
func (w *stepWorld) answers(d engine.Decision) []engine.Event {
	evs := w.events[:0]
	for i := range d.Actions {
		a := &d.Actions[i]
		switch a.Type {
		case engine.Start:
			w.at[a.Job] = len(w.running)
			w.running = append(w.running, a.Job)
			evs = append(evs, engine.Event{Type: engine.Started, Job: a.Job})
		case engine.Preempt:
			w.leave(a.Job)
			evs = append(evs, engine.Event{Type: engine.Stopped, Job: a.Job, Reason: engine.Preempted})
		}
	}
	w.events = evs
	return evs
}
