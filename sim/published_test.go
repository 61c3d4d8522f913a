package sim

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/trace"
)

// Invariants from the specifications of single policies, observed from outside or through the
// policy's own methods.

// played replays random jobs of several users and hands each step to a recorder.
func played(t *testing.T, size string, cfg engine.Config, entries []trace.Entry,
	watch func(*engine.Engine) driver.Journal) {
	t.Helper()
	spec := shared.Must(cluster.ParseShort(size))
	e := engineOn(spec, cfg)
	world := NewWorld(spec, Prepare(&trace.Workload{Jobs: entries}, spec, Estimates{}, PerNode), Options{})
	if err := driver.Run(context.Background(), e, world, watch(e)); err != nil {
		t.Fatal(err)
	}
}

// leveler is implemented by Tiresias' policies besides sched.Policy.
type leveler interface {
	sched.Policy
	sched.KeyChanger
	sched.Promoter
	Level(j sched.JobView) int
	LevelOf(service int64) int
}

// climber records a job's counters whenever its key is read.
type climber struct {
	leveler
	t        *testing.T
	had      map[cluster.JobID]served
	pending  map[cluster.JobID]bool // counted only
	quiet    int                    // steps after which no job waited: then levels are not read either
	steps    int                    // steps down by one level
	promoted int
}

type served struct {
	service int64
	ran     time.Duration
	level   int
	quiet   int
}

func (c *climber) Key(v sched.View, j sched.JobView) engine.Key {
	id, now := j.Spec().ID, served{level: c.Level(j)}
	now.service, now.ran = j.Executed()
	was, known := c.had[id]
	quiet := c.quiet > was.quiet
	was.quiet = 0
	switch {
	case !known && now != served{}:
		c.t.Errorf("job %d begins with %+v", id, now)
	case now.service < was.service || now.ran < was.ran || now.level < was.level:
		if c.promoted++; now != (served{}) || j.Running() {
			c.t.Errorf("at %v job %d had %+v and now has %+v", v.Now(), id, was, now)
		}
	case now.level > was.level+1 && !quiet:
		c.t.Errorf("at %v job %d goes from level %d to level %d", v.Now(), id, was.level, now.level)
	case now.level > was.level:
		c.steps++
	}
	now.quiet = c.quiet
	c.had[id] = now
	return c.leveler.Key(v, j)
}

func (c *climber) Record(b *engine.Batch, d *engine.Decision) error {
	for i := range b.Events {
		switch ev := &b.Events[i]; {
		case ev.Type == engine.Submitted, ev.Type == engine.Stopped && ev.Reason == engine.Preempted:
			c.pending[ev.Job] = true
		}
	}
	for i := range d.Actions {
		if d.Actions[i].Type == engine.Start {
			delete(c.pending, d.Actions[i].Job)
		}
	}
	if len(c.pending) == 0 {
		c.quiet++
	}
	return nil
}

// Tiresias (NSDI'19): a job's received service falls only when it is promoted while it waits, which
// resets both counters and the level to zero; and a job goes down one level at a time.
func TestTiresiasLevels(t *testing.T) {
	for _, c := range []struct {
		pol      string
		promotes bool
	}{{"tiresias-l:thresholds=100/300/900", false}, {"tiresias-l:thresholds=100/300/900,promote=2", true}} {
		t.Run(c.pol, func(t *testing.T) {
			steps, promoted := 0, 0
			for seed := range uint64(6) {
				p, ok := mustPolicy(t, c.pol).(leveler)
				if !ok {
					t.Fatalf("%s is no policy of levels", c.pol)
				}
				w := &climber{leveler: p, t: t, had: map[cluster.JobID]served{}, pending: map[cluster.JobID]bool{}}
				played(t, "1x16xT4", engine.Config{Policy: w}, randomEntries(rand.New(rand.NewPCG(seed, 17)), 100),
					func(*engine.Engine) driver.Journal { return w })
				steps, promoted = steps+w.steps, promoted+w.promoted
			}
			if steps < 300 || c.promotes != (promoted > 50) {
				t.Errorf("%d steps down, %d promotions", steps, promoted)
			}
		})
	}
}

// Helios (SC'21), Lucid (ASPLOS'23): where the first job blocks the others, jobs start in order of
// their service (here before any completed job is known).
func TestShortestServiceStrictly(t *testing.T) {
	for _, pol := range []string{"qssf", "qssf:alpha=0", "lucid:pack=never"} {
		for seed := range uint64(10) {
			entries := randomEntries(rand.New(rand.NewPCG(seed, 18)), 60)
			for i := range entries { // all arrive before the first has ended
				e := &entries[i]
				e.Job.Submit, e.Run, e.Job.Estimate = e.Job.Submit/100, e.Run+time.Minute, e.Run+time.Minute
			}
			last := entries[len(entries)-1].Job.Submit
			if last > cluster.Time(time.Minute) {
				t.Fatalf("the last comes at %v", last)
			}
			mode := mustPolicy(t, pol).Traits().Backfill
			o := replayed(t, "1x16xT4", pol, entries, Options{}, func(s *Setup) { s.Backfill = &mode })
			for i := range entries {
				for k := range entries {
					a, b := &entries[i], &entries[k]
					start := o.Run.Records[i].FirstStart
					if int64(a.Run)*a.Job.GPUMilli() > int64(b.Run)*b.Job.GPUMilli() && b.Job.Submit < start &&
						o.Run.Records[k].FirstStart > start {
						t.Errorf("seed %d, %s: job %d starts at %v, before job %d, which is less", seed, pol, i, start,
							k)
					}
				}
			}
		}
	}
}

// leases tracks which jobs compute under astraea.
type leases struct {
	e        *engine.Engine
	t        *testing.T
	deserved map[cluster.JobID]int64
	kept     int
}

func (l *leases) Record(b *engine.Batch, _ *engine.Decision) error {
	for id := range 100 {
		if l.e.Spec(cluster.JobID(id)) == nil {
			continue
		}
		r := l.e.Record(cluster.JobID(id))
		if r.Target == nil || len(r.Target.Memo) < 3 || r.State == engine.Done {
			continue
		}
		until, deserved := cluster.Time(r.Target.Memo[0]), r.Target.Memo[2]
		if deserved < l.deserved[r.Spec.ID] {
			l.t.Errorf("at %v what job %d deserved falls from %d to %d", b.Now, id, l.deserved[r.Spec.ID], deserved)
		}
		l.deserved[r.Spec.ID] = deserved
		if r.State == engine.Running {
			if l.kept++; until <= b.Now {
				l.t.Errorf("at %v job %d computes on; its lease ended at %v", b.Now, id, until)
			}
		}
	}
	return nil
}

// ASTRAEA (TPDS'22): no job computes past its lease unless the lease was renewed, and what a job
// deserved never falls.
func TestAstraeaLeases(t *testing.T) {
	kept := 0
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 19))
		entries := queued(r, randomEntries(r, 100))
		for i := range entries {
			entries[i].Job.Queue = ""
		}
		l := &leases{t: t, deserved: map[cluster.JobID]int64{}}
		cfg := engine.Config{Policy: mustPolicy(t, "astraea:lease=1m,window=1h,starving=10m")}
		played(t, "1x16xT4", cfg, entries, func(e *engine.Engine) driver.Journal {
			l.e = e
			return l
		})
		kept += l.kept
	}
	if kept < 1000 {
		t.Errorf("%d leases were checked", kept)
	}
}
