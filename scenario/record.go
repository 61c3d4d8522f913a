package scenario

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// stay is a job's time on some devices.
type stay struct {
	from, to cluster.Time // to is Never while it lasts
	allocs   []engine.Alloc
	turn     int // starts are numbered over the run
}

// story is the history of a job according to the decisions.
type story struct {
	stays []stay
	text  string // reason of a rejection
}

// played is a variant after its replay.
type played struct {
	variant
	set     *setup
	ids     []cluster.JobID // by index in the setup
	run     report.Run
	sum     report.Summary
	stories []story // by JobID
	journal []byte
	hash    uint64
	last    cluster.Time // of the replay
}

// recorder observes the decisions on their way to the journal.
type recorder struct {
	out     *journal.Writer
	stories []story
	turns   int
	last    cluster.Time
}

// Record implements driver.Journal.
func (r *recorder) Record(b *engine.Batch, d *engine.Decision) error {
	r.last = b.Now
	for i := range b.Events {
		switch ev := &b.Events[i]; ev.Type {
		case engine.Stopped, engine.StartFailed:
			r.close(ev.Job, b.Now)
		case engine.JobReshaped:
			r.close(ev.Job, b.Now)
			r.open(ev.Job, b.Now, ev.Reshape.Allocs)
		}
	}
	for i := range d.Actions {
		a := &d.Actions[i]
		switch a.Type {
		case engine.Start, engine.Resize:
			if a.Type == engine.Resize {
				r.close(a.Job, b.Now)
			}
			r.open(a.Job, b.Now, a.Allocs)
		case engine.Reject:
			r.stories[a.Job].text = a.Text
		}
	}
	return r.out.Record(b, d)
}

func (r *recorder) open(id cluster.JobID, at cluster.Time, allocs []engine.Alloc) {
	r.turns++
	s := &r.stories[id]
	s.stays = append(s.stays, stay{from: at, to: cluster.Never, allocs: slices.Clone(allocs), turn: r.turns})
}

func (r *recorder) close(id cluster.JobID, at cluster.Time) {
	if s := r.stories[id].stays; len(s) > 0 && s[len(s)-1].to == cluster.Never {
		s[len(s)-1].to = at
	}
}

// workload sorts the jobs of a setup by submission.
func (s *setup) workload() (wl trace.Workload, ids []cluster.JobID) {
	perNode := 0
	for i := range s.spec.Nodes {
		perNode = max(perNode, s.spec.Nodes[i].GPUs)
	}
	order := make([]int, len(s.jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return int(min(1, max(-1, s.jobs[a].entry.Job.Submit-s.jobs[b].entry.Job.Submit)))
	})
	ids = make([]cluster.JobID, len(order))
	for id, i := range order {
		ids[i] = cluster.JobID(id)
	}
	for id, i := range order {
		d := &s.jobs[i]
		e := d.entry
		e.Job.ID = cluster.JobID(id)
		if d.grouped {
			e.Job.Tasks = d.group(perNode)
		}
		if e.Job.Array != nil {
			a := *e.Job.Array
			a.ID = ids[d.first]
			e.Job.Array = &a
		}
		e.Job.After = slices.Clone(e.Job.After)
		for _, r := range d.after {
			jobs, err := s.lookup(r.name)
			if err != nil {
				panic("scenario: a job that was found is lost: " + err.Error())
			}
			if dep := (cluster.Dependency{Type: r.typ, Job: ids[jobs[0]], Elements: len(jobs),
				Delay: r.delay}); ids[jobs[len(jobs)-1]] == dep.Last() {
				e.Job.After = append(e.Job.After, dep)
				continue
			}
			for _, k := range jobs { // other jobs may be in between
				e.Job.After = append(e.Job.After, cluster.Dependency{Type: r.typ, Job: ids[k], Delay: r.delay})
			}
		}
		wl.Jobs = append(wl.Jobs, e)
	}
	return wl, ids
}

// play replays a variant three times, once on a single processor, and replays its journal. All must
// make the same decisions.
func (r *runCmd) play(ctx context.Context, v variant) (*played, error) {
	wl, ids := r.set.workload()
	spec := r.set.spec
	sim.AutoQueues(&spec, &wl)
	est := r.est
	est.Seed = uint64(r.seed)
	entries := sim.Prepare(&wl, &spec, est, sim.PerNode)
	su, h := r.setupOf(v, &spec)
	su.World.Script = r.set.script(ids, entries)

	var buf bytes.Buffer
	jw, err := journal.NewWriter(&buf, h)
	if err != nil {
		return nil, err
	}
	rec := &recorder{out: jw, stories: make([]story, len(entries))}
	su.Journal = rec
	out := sim.Run(ctx, &spec, entries, su)
	if out.Err != nil {
		return nil, out.Err
	}
	if err := jw.Flush(); err != nil {
		return nil, err
	}
	su.Journal = nil
	again := sim.Run(ctx, &spec, entries, su)
	procs := runtime.GOMAXPROCS(1)
	once := sim.Run(ctx, &spec, entries, su)
	runtime.GOMAXPROCS(procs)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if again.Hash != out.Hash || once.Hash != out.Hash {
		return nil, fmt.Errorf("not deterministic: decision hashes %x, %x and, on one processor, %x", out.Hash,
			again.Hash, once.Hash)
	}
	jr, err := journal.NewReader("journal", bytes.NewReader(buf.Bytes()))
	if err == nil {
		_, _, err = journal.Replay(jr, cluster.Never)
	}
	if err != nil {
		return nil, fmt.Errorf("the journal does not replay: %w", err)
	}
	return &played{variant: v, set: r.set, ids: ids, run: out.Run, sum: out.Run.Summarise(), stories: rec.stories,
		journal: buf.Bytes(), hash: out.Hash, last: rec.last}, nil
}

// setupOf returns the simulator's setup of a variant, and its journal's header.
func (r *runCmd) setupOf(v variant, spec *cluster.Spec) (sim.Setup, journal.Header) {
	su := sim.Setup{Policy: v.policy, Placer: v.place, Traffic: v.traffic,
		World: sim.Options{Startup: r.startup, Seed: uint64(r.seed), Until: r.until},
		Config: engine.Config{Depth: r.depth, Reserve: r.reserve, MinRuntime: r.minRuntime, Starvation: r.starvation,
			HoldAfter: r.holdAfter, Defrag: r.defrag}}
	if v.backfill != "" {
		b, _ := engine.ParseBackfill(v.backfill) // checked when it was read
		su.Backfill = &b
	}
	if r.preempt != "" {
		stop := engine.DefaultStop
		stop[cluster.Standard].How, _ = engine.ParseHow(r.preempt)
		su.Config.Stop = &stop
	}
	if r.set.perf != nil {
		su.World.Model = r.set.perf
	}
	belief := cmp.Or(r.set.belief, r.set.perf)
	if belief != nil {
		su.Config.Speeds = perf.Belief{Model: belief}
	}
	return su, journal.Header{
		Rules: config.Rules{Perf: belief, Spec: *spec, Policy: v.policy, Placer: v.place, Backfill: v.backfill,
			Depth: r.depth, Reserve: r.reserve, MinRuntime: r.minRuntime, Starvation: r.starvation,
			HoldAfter: r.holdAfter,
			Stop:      su.Config.Stop, Defrag: r.defrag, Traffic: v.traffic}}
}

// at replays the journal up to an instant, and returns the engine at that point.
func (p *played) at(t cluster.Time) (*engine.Engine, error) {
	jr, err := journal.NewReader("journal", bytes.NewReader(p.journal))
	if err != nil {
		return nil, err
	}
	e, _, err := journal.Replay(jr, t)
	if err != nil {
		return nil, err
	}
	e.Look(t)
	return e, nil
}
