package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// crowd is a driver of one cluster with a thousand jobs on it, for engines that are to decide alike.
type crowd struct {
	rng     *rand.Rand
	engines []*engine.Engine
	now     cluster.Time
	next    cluster.JobID
	running []cluster.JobID
}

// draw makes a job; what stopping it wastes stays as it is, grows up to what saving costs, falls whenever it
// saves by itself, or grows for ever.
func (c *crowd) draw() engine.Event {
	id := c.next
	c.next++
	j := &cluster.Job{ID: id, Submit: c.now, Tier: cluster.Standard, User: "u",
		Tasks:    cluster.GroupTasks([]int{1, 1, 1, 1, 1, 1, 1, 2, 4, 16}[c.rng.IntN(10)], 8, cluster.Request{GPUs: 1}),
		Estimate: time.Duration(1+c.rng.IntN(100)) * time.Minute}
	switch c.rng.IntN(5) {
	case 0:
		j.Checkpoint = cluster.Checkpoint{Cost: time.Duration(c.rng.IntN(5)) * time.Minute,
			Restart: time.Duration(c.rng.IntN(60)) * time.Second}
	case 1:
		j.Checkpoint = cluster.Checkpoint{Cost: time.Minute, Interval: 7 * time.Minute}
	case 2:
		j.Checkpoint = cluster.Checkpoint{None: true}
	}
	return engine.Event{Type: engine.Submitted, Job: id, Spec: j}
}

// happens draws what happens next: a job comes or ends, is demoted, tells of its progress, or saves nothing any more.
func (c *crowd) happens() []engine.Event {
	ev := engine.Event{Type: engine.Tick}
	if len(c.running) > 0 {
		k := c.rng.IntN(len(c.running))
		ev.Job = c.running[k]
		switch c.rng.IntN(8) {
		case 0, 1:
			ev.Type, ev.Reason, ev.Done = engine.Stopped, engine.Completed, time.Hour
			c.running = append(c.running[:k], c.running[k+1:]...)
			return []engine.Event{ev}
		case 2:
			ev.Type, ev.Done, ev.Saved = engine.Progress, time.Duration(c.rng.IntN(600))*time.Second,
				time.Duration(c.rng.IntN(600))*time.Second
			ev.Saves = engine.Saves(c.rng.IntN(3))
			return []engine.Event{ev}
		case 3:
			ev.Type, ev.Switch.Save = engine.Progress, time.Duration(c.rng.IntN(200))*time.Second
			return []engine.Event{ev}
		case 4:
			ev.Type, ev.Undo = engine.Demoted, c.rng.IntN(2) == 0
			return []engine.Event{ev}
		}
	}
	evs := make([]engine.Event, c.rng.IntN(6))
	for i := range evs {
		evs[i] = c.draw()
	}
	return append(evs, engine.Event{Type: engine.Tick})
}

// step has all engines take the events, and answers the first one's decision; false: they do not agree.
func (c *crowd) step(evs []engine.Event) bool {
	for len(evs) > 0 {
		d := c.engines[0].Step(engine.Batch{Now: c.now, Events: evs})
		for _, e := range c.engines[1:] {
			if e.Step(engine.Batch{Now: c.now, Events: evs}).Hash != d.Hash {
				return false
			}
		}
		evs = nil
		for i := range d.Actions {
			switch a := &d.Actions[i]; a.Type {
			case engine.Start:
				c.running = append(c.running, a.Job)
				evs = append(evs, engine.Event{Type: engine.Started, Job: a.Job, Rate: int64(c.rng.IntN(3)) * 500_000})
			case engine.Preempt:
				for k, id := range c.running {
					if id == a.Job {
						c.running = append(c.running[:k], c.running[k+1:]...)
						break
					}
				}
				evs = append(evs, engine.Event{Type: engine.Stopped, Job: a.Job, Reason: engine.Preempted})
			}
		}
	}
	return true
}

// newCrowd is a cluster for three engines: one ranks victims where that is worth it, one always, one never.
func newCrowd(t *testing.T, pol string, seed uint64) *crowd {
	c := &crowd{rng: rand.New(rand.NewPCG(seed, 9))}
	for range 3 {
		spec, err := cluster.ParseShort("150x8xA100-80GB")
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.New(pol)
		if err != nil {
			t.Fatal(err)
		}
		pl, err := place.New("best-fit")
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(
			engine.Config{Spec: *spec, Policy: p, Placer: pl, MinRuntime: time.Duration(seed%2) * 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c.engines = append(c.engines, e)
	}
	c.engines[1].Rank(true)
	c.engines[2].Rank(false)
	return c
}

// TestRankingTwin: engines that rank victims always, never, and where that is worth it decide alike, with levels of
// many jobs in which what stopping a job wastes changes with time or does not.
func TestRankingTwin(t *testing.T) {
	policies := []string{"las:base=1m", "tiresias-g:thresholds=600", "srtf", "las:base=10m,levels=3",
		"tiresias-l:thresholds=60/600", "gittins"}
	for _, pol := range policies[:shared.Soak(3, len(policies))] {
		t.Run(pol, func(t *testing.T) {
			t.Parallel()
			began, grew, dropped := 0, 0, 0
			for seed := range uint64(2) {
				c := newCrowd(t, pol, seed)
				evs := make([]engine.Event, 1600)
				for i := range evs {
					evs[i] = c.draw()
				}
				for i := range shared.Soak(45, 200) {
					if !c.step(evs) {
						t.Fatalf("seed %d, step %d, %v: engines that rank victims, and one that does not, decide otherwise", seed, i, c.now)
					}
					for k, e := range c.engines {
						if err := e.CheckRanking(); err != nil {
							t.Fatalf("seed %d, step %d, engine %d: %v", seed, i, k, err)
						}
					}
					if on, _ := c.engines[0].Ranks(); on {
						began++
					}
					_, n := c.engines[1].Ranks()
					grew = max(grew, n)
					if byKey, byEnd := c.engines[1].Dropped(); byKey && byEnd {
						dropped++
					}
					if c.rng.IntN(20) == 0 {
						if err := c.engines[1].ReadLists(); err != nil {
							t.Fatalf("seed %d, step %d: lists made again: %v", seed, i, err)
						}
					}
					if byKey, byEnd := c.engines[2].Dropped(); byKey || byEnd {
						t.Fatal("the twin drops lists")
					}
					if on, _ := c.engines[2].Ranks(); on {
						t.Fatal("the twin ranks victims")
					}
					c.now = c.now.Add(time.Duration(c.rng.Int64N(int64(40 * time.Second))))
					evs = c.happens()
				}
			}
			if dropped < 10 {
				t.Errorf("lists of jobs with devices are dropped in %d steps", dropped)
			}
			if largeLevels := pol != "srtf"; (began > 0) != largeLevels || grew < 20 {
				t.Errorf("an engine ranked victims in %d steps, where it is worth it; at most %d of them lose more with time", began, grew)
			}
		})
	}
}
