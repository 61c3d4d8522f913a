package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/policy"
)

// activeJobs is the number of running and waiting jobs in BenchmarkActive, on as many GPUs.
const activeJobs = 10_000

// activeModels maps a job model to the part of its speed (ppm) that it keeps on the second GPU
// model.
var activeModels = map[string]int64{"resnet50": 400_000, "bert": 250_000, "lstm": 700_000, "gan": 550_000}

// activeWorld is the stepWorld of BenchmarkActive: its jobs carry what the policy under test uses.
type activeWorld struct {
	*stepWorld
	needs  string
	models []string
	setup  time.Duration
}

func newActiveWorld(b *testing.B, info policy.Info) *activeWorld {
	nodes := activeJobs / 8
	spec := shared.Must(cluster.ParseShort(fmt.Sprintf("%dx8xA100-80GB", nodes)))
	cfg := engine.Config{}
	w := &activeWorld{needs: info.Needs}
	for m := range activeModels {
		w.models = append(w.models, m)
	}
	slices.Sort(w.models)
	if strings.Contains(w.needs, "speeds") {
		tab := &perf.Table{Speed: map[string]map[string]int64{}, Pairs: map[perf.Pair]int64{}}
		for i, m := range w.models {
			tab.Speed[m] = map[string]int64{"V100-32GB": activeModels[m]}
			for k, o := range w.models {
				tab.Pairs[perf.Pair{m, o}] = 500_000 + 60_000*int64(i+k)
			}
		}
		cfg.Speeds = perf.Belief{Model: tab}
	}
	if strings.Contains(w.needs, "per GPU model") {
		old := shared.Must(cluster.ParseShort(fmt.Sprintf("%dx8xV100-32GB", nodes/2)))
		for i := range old.Nodes {
			old.Nodes[i].Name = "old-" + old.Nodes[i].Name
		}
		spec.Nodes = append(spec.Nodes[:nodes-nodes/2], old.Nodes...)
	}
	cfg.Policy = shared.Must(policy.New(info.Name))
	for q := range 10 {
		spec.Queues = append(spec.Queues,
			cluster.Queue{Name: fmt.Sprintf("q%d", q), Limit: cluster.Unlimited, Lend: cluster.Unlimited})
	}
	e := engineOn(spec, cfg)
	w.stepWorld = &stepWorld{e: e, rng: rand.New(rand.NewPCG(1, 2)), at: map[cluster.JobID]int{}}
	for range 20 { // arrivals are spread over an hour, so that rounds pass
		evs := make([]engine.Event, activeJobs/20)
		for i := range evs {
			evs[i] = w.arrival()
		}
		w.now = w.now.Add(3 * time.Minute)
		w.setup = max(w.setup, w.quiet(b, evs))
	}
	return w
}

// arrival draws a job of 2.2 GPUs on average, so that about half of the jobs run at a time.
func (w *activeWorld) arrival() engine.Event {
	ev := w.stepWorld.arrival()
	s := ev.Spec
	g := []int{1, 1, 1, 1, 1, 1, 2, 2, 4, 8}[w.rng.IntN(10)]
	s.Tasks = cluster.GroupTasks(g, 8, cluster.Request{GPUs: 1})
	s.Queue, s.Model, s.Name = fmt.Sprintf("q%d", w.rng.IntN(10)), w.models[w.rng.IntN(len(w.models))],
		fmt.Sprintf("n%d", w.rng.IntN(100))
	s.Priority = int64(w.rng.IntN(4))
	s.Checkpoint = cluster.Checkpoint{Interval: 30 * time.Minute, Cost: 10 * time.Second, Restart: 20 * time.Second}
	if strings.Contains(w.needs, "elastic") {
		s.Tasks = []cluster.TaskSet{{Count: g, Request: cluster.Request{GPUs: 1}}}
		s.Elastic = cluster.Elastic{Min: max(1, g/2), Max: 2 * g}
	}
	if strings.Contains(w.needs, "deadlines") && s.ID%10 == 0 {
		s.Deadline = w.now.Add(time.Duration(float64(s.Estimate) * (1 + 4*w.rng.Float64())))
	}
	if strings.Contains(w.needs, "tiers") && s.ID%3 == 0 {
		s.Tier = cluster.BestEffort
	}
	return ev
}

// quiet steps until no action is left, like stepWorld.step, and returns the longest call of Step.
// It confirms every resize.
func (w *activeWorld) quiet(b *testing.B, evs []engine.Event) (longest time.Duration) {
	for len(evs) > 0 {
		from := shared.ProcessorTime(b)
		d := w.e.Step(engine.Batch{Now: w.now, Events: evs})
		longest = max(longest, shared.ProcessorTime(b)-from)
		evs = w.answers(d)
	}
	return longest
}

func (w *activeWorld) answers(d engine.Decision) []engine.Event {
	evs := w.stepWorld.answers(d)
	for i := range d.Actions {
		if a := &d.Actions[i]; a.Type == engine.Resize {
			evs = append(evs, engine.Event{Type: engine.Resized, Job: a.Job})
		}
	}
	w.events = evs
	return evs
}

// BenchmarkActive measures one decision with 10,000 GPUs and 10,000 jobs, about half of them
// running, under each policy: every 10 seconds a job ends or arrives, alternately. Times are CPU
// time, which other load on the machine disturbs less. plan-ms is the mean over the calls of Step
// in which the policy made a plan.
func BenchmarkActive(b *testing.B) {
	for _, info := range policy.List() {
		b.Run(info.Name, func(b *testing.B) {
			w := newActiveWorld(b, info)
			lat := make([]time.Duration, 0, b.N)
			var planning time.Duration
			var after time.Duration
			plans := 0
			b.ResetTimer()
			for i := range b.N {
				w.now = w.now.Add(10 * time.Second)
				evs := []engine.Event{{}}
				if i%2 == 0 {
					evs = w.arrivalOrEnd(i)
				} else {
					evs[0] = w.arrival()
				}
				before, from := w.e.Stats().Plans, shared.ProcessorTime(b)
				d := w.e.Step(engine.Batch{Now: w.now, Events: evs})
				took := shared.ProcessorTime(b) - from
				lat = append(lat, took)
				if w.e.Stats().Plans > before {
					planning += took
					plans++
				}
				b.StopTimer()
				after = max(after, w.quiet(b, w.answers(d)))
				b.StartTimer()
			}
			slices.Sort(lat)
			for _, p := range []struct {
				name string
				at   int
			}{{"p50-us", len(lat) / 2}, {"p99-us", len(lat) * 99 / 100}, {"max-us", len(lat) - 1}} {
				b.ReportMetric(float64(lat[p.at].Nanoseconds())/1000, p.name)
			}
			b.ReportMetric(float64(planning.Microseconds())/1000/float64(max(1, plans)), "plan-ms")
			b.ReportMetric(float64(plans), "plans")
			b.ReportMetric(float64(w.setup.Microseconds())/1000, "setup-ms")
			b.ReportMetric(float64(after.Microseconds())/1000, "after-ms")
			b.ReportMetric(float64(len(w.running)), "running")
		})
	}
}
