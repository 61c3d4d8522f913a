package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// ledger is an independent, naive twin of the world's books: from decisions and events it computes
// what each job held, how fast it ran and how much work it did.
type ledger struct {
	t       *testing.T
	spec    *cluster.Spec
	entries []trace.Entry
	table   *perf.Table
	speeds  bool // whole-GPU jobs and shares run exactly at the table's speed
	now     cluster.Time
	jobs    []ledgerJob
	used    float64 // milli-GPU-ms of devices held by any job
	seen    ledgerSeen
}

// ledgerSeen counts how often the cases under test occurred.
type ledgerSeen struct{ stops, resizes, beside int }

type ledgerJob struct {
	allocs, frozen  []engine.Alloc
	computes, guest bool
	vague           bool    // its speed changed or it was suspended: the device time of its lost work is unknown
	rate            int64   // ppm
	work, saved     float64 // ns of recorded run time
	busy, lost      float64 // milli-GPU-ms
	pieces          float64 // intervals whose work was rounded
	done            bool
}

func (l *ledger) Record(b *engine.Batch, d *engine.Decision) error {
	l.advance(b.Now)
	for i := range b.Events {
		l.event(&b.Events[i])
	}
	for i := range d.Actions {
		l.action(&d.Actions[i])
	}
	return nil
}

func milliOf(allocs []engine.Alloc) (m float64) {
	for i := range allocs {
		m += float64(allocs[i].Milli()) // a guest holds nothing; inherited devices are compared per device only
	}
	return m
}

// advance accumulates everything up to an instant.
func (l *ledger) advance(to cluster.Time) {
	dt := float64(to.Sub(l.now))
	if dt == 0 {
		return
	}
	whole, parts := map[[2]int32]bool{}, 0.0
	for id := range l.jobs {
		j := &l.jobs[id]
		for i := range j.allocs {
			a := &j.allocs[i]
			if a.Share > 0 {
				parts += float64(a.Share)
				continue
			}
			for k := range int32(64) {
				if a.GPUs>>k&1 != 0 {
					whole[[2]int32{a.Node, k}] = true
				}
			}
		}
		if !j.computes {
			continue
		}
		if want := l.rate(id, false); l.speeds && j.rate != want && j.rate != l.rate(id, true) {
			l.t.Fatalf("%v: job %d (%s) runs at %d ppm on %+v, by the table at %d", l.now, id, l.entries[id].Job.Model,
				j.rate, j.allocs, want)
		}
		j.work += dt * float64(j.rate) / 1e6
		j.busy += milliOf(j.allocs) * dt / 1e6
		j.pieces++
	}
	l.used += (float64(len(whole))*1000 + parts) * dt / 1e6
	l.now = to
}

// rate is the table's speed of a job on what it holds, with its partners. The world recomputes a
// job's speed when a partner begins to compute or has left, not when the partner begins to write a
// checkpoint or to restart: until then the partner may count.
func (l *ledger) rate(id int, leaving bool) int64 {
	j, job := &l.jobs[id], &l.entries[id].Job
	rate, tasks, turns := int64(1_000_000), 0, int64(1)
	if v, ok := l.table.Speed[job.Model][l.spec.Nodes[j.allocs[0].Node].Model]; ok {
		rate = v
	}
	var others []string
	for o := range l.jobs {
		if o != id && (l.jobs[o].computes || leaving && l.jobs[o].rate > 0) && together(j.allocs, l.jobs[o].allocs) {
			others = append(others, l.entries[o].Job.Model)
		}
	}
	slices.Sort(others)
	for _, o := range others {
		if f, ok := l.table.Pairs[perf.Pair{job.Model, o}]; ok {
			rate = rate * f / 1_000_000
		} else if j.allocs[0].Share == 0 {
			turns++
		}
	}
	for i := range j.allocs {
		tasks += int(j.allocs[i].Tasks)
	}
	rate = rate / turns * int64(tasks) / int64(job.NumTasks())
	if c := &job.Checkpoint; c.Interval > 0 && c.Cost > 0 && !c.None {
		rate = rate * int64(c.Interval/1000) / int64((c.Interval+c.Cost)/1000)
	}
	return rate
}

func together(a, b []engine.Alloc) bool {
	for i := range a {
		for k := range b {
			if a[i].Node == b[k].Node && a[i].GPUs&b[k].GPUs != 0 {
				return true
			}
		}
	}
	return false
}

func (l *ledger) event(ev *engine.Event) {
	if ev.Type == engine.NodeDown {
		for id := range l.jobs {
			if slices.ContainsFunc(l.jobs[id].frozen, func(a engine.Alloc) bool {
				return l.spec.Nodes[a.Node].Name == ev.Node
			}) {
				l.forget(id)
			}
		}
	}
	j := &l.jobs[ev.Job]
	switch ev.Type {
	case engine.Started, engine.Resized:
		j.vague = j.vague || j.rate > 0 && ev.Rate != j.rate
		j.computes, j.rate = true, ev.Rate
	case engine.Progress:
		if j.vague = j.vague || ev.Rate > 0 && ev.Rate != j.rate; !j.computes {
			break // it was told to stop meanwhile: the report describes the time before
		}
		if ev.Rate > 0 {
			j.rate = ev.Rate
		}
		l.near(int(ev.Job), ev.Done)
	case engine.Stopped:
		if ev.Reason == engine.Completed {
			j.done = true
			l.near(int(ev.Job), l.entries[ev.Job].Run)
		}
		l.near(int(ev.Job), ev.Done)
		j.computes, j.allocs = false, nil
	}
}

// near checks that a job has done the stated work, up to the rounding of its intervals.
func (l *ledger) near(id int, said time.Duration) {
	j := &l.jobs[id]
	if diff := math.Abs(j.work - float64(said)); diff > 2*j.pieces+2+j.work*1e-12 {
		l.t.Fatalf("%v: job %d has done %v of its %v, the books say %v (%.0f pieces)", l.now, id, time.Duration(j.work),
			l.entries[id].Run, said, j.pieces)
	}
}

// kept is the work that a job keeps when its memory is lost.
func (l *ledger) kept(id int) float64 {
	j, c := &l.jobs[id], &l.entries[id].Job.Checkpoint
	if c.Interval <= 0 || c.None {
		return j.saved
	}
	return max(j.saved, j.work-math.Mod(j.work+0.5, float64(c.Interval)))
}

func (l *ledger) forget(id int) {
	j := &l.jobs[id]
	j.lose(l.kept(id))
	j.frozen = nil
}

func (j *ledgerJob) lose(kept float64) {
	j.lost += (j.work - kept) * milliOf(j.allocs) / max(1, float64(j.rate))
	j.work = kept
}

func (l *ledger) action(a *engine.Action) {
	id := int(a.Job)
	j, c := &l.jobs[id], &l.entries[id].Job.Checkpoint
	switch a.Type {
	case engine.Start:
		if j.frozen != nil && !inventory.SamePlace(j.frozen, a.Allocs) {
			l.forget(id)
		}
		j.frozen, j.allocs = nil, slices.Clone(a.Allocs)
		for i := range a.Allocs {
			if a.Allocs[i].Beside {
				j.guest = true
				l.seen.beside++
			}
		}
	case engine.Resize:
		j.computes = false
		if a.Reason == engine.NodeLost {
			kept := l.kept(id)
			j.lose(kept)
			j.saved = max(j.saved, kept)
		}
		j.allocs = slices.Clone(a.Allocs)
		l.seen.resizes++
	case engine.Preempt:
		if j.computes {
			kept := j.work
			switch {
			case a.How == engine.Suspend:
				j.frozen, j.vague = j.allocs, true
			case a.How != engine.Checkpoint || c.None || c.Cost > a.Grace:
				kept = l.kept(id)
			}
			j.lose(kept)
			if a.How != engine.Suspend {
				j.saved = max(j.saved, kept)
			}
		}
		j.computes = false
		l.seen.stops++
	}
}

// ledgerTable knows two of three job models, on two GPU models, and their interference.
func ledgerTable() *perf.Table {
	return &perf.Table{
		Speed: map[string]map[string]int64{"a": {"A100-80GB": 2_000_000, "T4-16GB": 700_000},
			"b": {"A100-80GB": 1_300_000}},
		Pairs:  map[perf.Pair]int64{{"a", "b"}: 800_000, {"b", "a"}: 900_000, {"a", "a"}: 600_000, {"b", "b"}: 950_000},
		Stages: map[string][]int64{},
	}
}

// ledgerEntries are gangs, elastic jobs, halves of GPUs and best-effort jobs of three models, one
// of which is not in the table; some write periodic checkpoints, some cannot write any.
func ledgerEntries(r *rand.Rand, n int) []trace.Entry {
	entries := queued(r, randomEntries(r, n))
	for i := range entries {
		e := &entries[i]
		j := &e.Job
		j.Submit /= 2
		e.Run *= 5
		j.Estimate, j.Model = e.Run, []string{"a", "b", "unknown"}[r.IntN(3)]
		j.Name = j.Model
		j.Checkpoint = cluster.Checkpoint{Cost: 5 * time.Second, Restart: 8 * time.Second, Suspend: time.Second,
			None: r.IntN(8) == 0}
		if r.IntN(3) == 0 {
			j.Checkpoint.Interval = 100 * time.Second
		}
		if r.IntN(3) == 0 {
			j.Deadline = j.Submit.Add(e.Run * time.Duration(2+r.IntN(8)))
		}
		if r.IntN(5) == 0 {
			j.Tier = cluster.BestEffort
		}
		switch r.IntN(4) {
		case 0:
			j.Tasks = []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 1}}}
			j.Elastic = cluster.Elastic{Min: 1, Max: 6}
		case 1:
			j.Tasks[0].Request = cluster.Request{GPUs: 1, Share: 500}
		case 2:
			j.Tasks[0].Request = cluster.Request{GPUs: 1}
		default:
			j.Tasks[0].Request.GPUs = min(4, j.Tasks[0].Request.GPUs)
		}
	}
	return entries
}

// TestLedger (U4) replays every policy on two GPU models with jobs that are resized, stopped in
// every way, suspended and co-located, while nodes fail: each completed job did exactly its work at
// the table's speeds, and the jobs' holdings add up to the devices' use.
func TestLedger(t *testing.T) {
	var all ledgerSeen
	for i, pol := range append(append(policy.Names(), promoting("2")...), "gavel:space_sharing=true",
		"antman:throttle=true,eps=0.2", "yarn-cs") {
		for seed := range uint64(3) {
			if shared.Soak(int(seed) != i%2, false) {
				continue
			}
			spec := shared.Must(cluster.ParseShort("1x8xA100-80GB+1x4xT4-16GB"))
			spec.Queues = []cluster.Queue{{Name: "a", Limit: -1, Lend: -1, Weight: 1000},
				{Name: "b", Limit: -1, Lend: -1, Weight: 2000}}
			entries := ledgerEntries(rand.New(rand.NewPCG(seed, 41)), 80)
			end := cluster.Time(0)
			for i := range entries {
				end = max(end, entries[i].Job.Submit) + 10*cluster.Time(entries[i].Run)
			}
			l := &ledger{t: t, spec: spec, entries: entries, table: ledgerTable(),
				jobs: make([]ledgerJob, len(entries))}
			// Turns on a GPU under Muri, Salus and AntMan, and MISO's instances, have speeds of
			// their own.
			l.speeds = !slices.ContainsFunc([]string{"muri", "salus", "antman", "miso"}, func(p string) bool {
				return strings.HasPrefix(pol, p)
			})
			s := Setup{Policy: scaledText(pol), Placer: "best-fit", Journal: l,
				World: Options{Startup: 3 * time.Second, Model: l.table, NodeMTBF: 4 * time.Hour,
					Repair: 10 * time.Minute, Seed: seed, Until: end}}
			if seed%2 == 1 {
				s.Config.Stop = &[3]engine.StopRule{{How: engine.Kill}, {How: engine.Suspend},
					{How: engine.Checkpoint, Grace: 4 * time.Second}}
			}
			o := Run(t.Context(), spec, entries, s)
			if o.Err != nil {
				t.Fatalf("%s: %v", pol, o.Err)
			}
			if l.audit(fmt.Sprintf("%s seed %d", pol, seed), &o.Run); t.Failed() {
				return
			}
			all.stops, all.resizes, all.beside = all.stops+l.seen.stops, all.resizes+l.seen.resizes,
				all.beside+l.seen.beside
		}
	}
	if least := shared.Soak(500, 1000); all.stops < least || all.resizes < least || all.beside < least/10 {
		t.Errorf("%+v: too few to test anything", all)
	}
}

// scaledText is a policy with short periods, so that a short history has many rounds.
func scaledText(pol string) string {
	switch pol {
	case "las":
		return "las:base=1m"
	case "gavel:space_sharing=true":
		return pol + ",round=1m,reset=5m"
	case "themis", "astraea":
		return pol + ":lease=2m"
	case "gavel", "gandiva-fair":
		return pol + ":round=1m,reset=5m"
	case "gandiva", "muri", "pollux", "sia", "optimus":
		return pol + ":round=1m"
	case "elasticflow":
		return pol + ":slot=1m"
	case "chronus":
		return pol + ":lease=1m"
	}
	return pol
}

// audit compares the ledger with the books.
func (l *ledger) audit(name string, run *report.Run) {
	held := 0.0
	for id := range run.Records {
		r, j := &run.Records[id], &l.jobs[id]
		held += float64(r.Held)
		if r.Outcome != report.Completed && r.Outcome != report.Rejected || (r.Outcome == report.Completed) != j.done {
			l.t.Errorf("%s: job %d: %+v, completed by the ledger: %v", name, id, r, j.done)
		}
		if got := r.End.Sub(r.Submit); j.done && got != r.Waited+r.Ran {
			l.t.Errorf("%s: job %d was there for %v: waited %v, ran %v", name, id, got, r.Waited, r.Ran)
		}
		most := 2 * (j.pieces + 2) * 8000 // a millisecond of eight GPUs per piece and its end
		if off := math.Abs(float64(r.Busy) - j.busy); !j.guest && off > most {
			l.t.Errorf("%s: job %d computed for %d milli-GPU-ms, by the ledger %.0f", name, id, r.Busy, j.busy)
		}
		if off := math.Abs(float64(r.Lost) - j.lost); !j.guest && !j.vague && off > most {
			l.t.Errorf("%s: job %d lost %d milli-GPU-ms, by the ledger %.0f", name, id, r.Lost, j.lost)
		}
	}
	if off := math.Abs(held - l.used); off > 1e-6*l.used+float64(len(run.Records))*80_000 {
		l.t.Errorf("%s: jobs held %.0f milli-GPU-ms, of the devices %.0f were held", name, held, l.used)
	}
}
