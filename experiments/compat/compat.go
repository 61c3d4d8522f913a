// Package compat replays workloads in the worlds of published simulators, with our engine and our
// policies. A profile models what is particular to such a world: the time of an iteration, the cost
// of each cluster event, which jobs end together, when the scheduler runs. The engine and the
// policies do not depend on it. Virtual time is a double here, as in those simulators; the engine
// sees whole nanoseconds.
package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/trace"
)

// Profile is what is particular to a simulator's world.
type Profile struct {
	Name string
	// Slower multiplies every iteration's time.
	Slower float64
	// Stall is the seconds of progress that a running job loses in every interval between two
	// cluster events, except the interval that ends with its own end; nil: none.
	Stall func(gpus int, model string) (float64, error)
	// Together is the relative distance of ends that count as one instant, that of the job listed
	// first; 0: only equal ones.
	Together float64
	// Lists makes a policy with levels take the jobs of a level in the order of a list: a job that
	// arrives or moves down goes to the tail of its level's list; after each event running jobs are
	// moved before waiting ones.
	Lists bool
	// Quiet says that jobs report no progress, so that the policy does not use it.
	Quiet bool
	// Asked lists GPU-seconds of service at which a running job triggers the scheduler, at whole
	// seconds of its run; each once.
	Asked []float64
	// Round is the period of the scheduler, in seconds; it then does not run at arrivals and ends,
	// except at an arrival in an empty cluster; 0: it runs at each event.
	Round float64
	// Meet is the distance in seconds below which an end and an arrival count as one event, at the
	// time of the arrival; 0: only equal ones.
	Meet    float64
	sharing sharing // how jobs share GPUs; nil: they do not
}

// sharing is what is particular to a world in which jobs share GPUs.
type sharing interface {
	enter(j *job) error                       // a job of the workload
	ready(w *World, cfg *engine.Config) error // sets up the policy, the speeds that it knows, and the nodes
	ran(j *job)                               // a running job's progress is up to date
	order(live []*job)                        // called before the scheduler runs
	settle(live []*job) error                 // called afterwards: sets the jobs' speeds
	ended(j *job)
}

// job is a job in the world.
type job struct {
	entry   *trace.Entry
	gpus    float64
	submit  float64      // seconds
	step    float64      // seconds per iteration, alone
	alone   float64      // what it loses at each cluster event, alone
	left    float64      // iterations
	seen    float64      // when its progress was last updated
	clock   cluster.Time // ... in the engine's time
	used    float64      // seconds in the running state
	level   int          // index of Asked
	place   int64        // in the list of its level
	running bool
	done    time.Duration // completed work as the engine believes
	company
	antManJob
	themisJob
}

// World is a driver for the world of a profile.
type World struct {
	p       Profile
	jobs    []job
	next    int    // index of the next arrival
	live    []*job // arrived and not over, in order of arrival
	runs    []*job // ... the running ones, where GPUs are not shared
	lists   [][]*job
	now     float64
	clock   cluster.Time   // now, in the engine's time
	reports []engine.Event // sent at the same instant
	told    []engine.Event // the last batch's, kept for its memory
	ends    []group        // the next one first
	fresh   bool           // ends must be recomputed
	jct     []float64
	last    float64 // time of the last end
	stirs   int     // number of cluster events
	turn    float64 // start of the current round
}

// group is the jobs that end together.
type group struct {
	at   float64
	jobs []*job
}

// New makes a world for a workload whose entries state their work in iterations. The trace's tiers
// are ignored. Entries are in order of submission, and are copied.
func New(p Profile, entries []trace.Entry) (*World, error) {
	w := &World{p: p, clock: -1, jobs: make([]job, len(entries)), lists: make([][]*job, len(p.Asked)+1)}
	for i := range entries {
		e := entries[i]
		if e.Work == nil || e.Work.Step <= 0 {
			return nil, fmt.Errorf("compat: job %d does not tell its work in iterations", i)
		}
		n := e.Job.GPUs()
		opportunistic := e.Job.Tier == cluster.BestEffort
		e.Job.Tier, e.Job.ID = cluster.Standard, cluster.JobID(i)
		// anywhere: GPUs are only counted
		e.Job.Tasks = []cluster.TaskSet{{Count: n, Request: cluster.Request{GPUs: 1}}}
		e.Job.Checkpoint = cluster.Checkpoint{}
		// As the simulator computes it: (milliseconds x factor) / 1000.
		ms := float64(e.Work.Step) / float64(time.Millisecond)
		w.jobs[i] = job{entry: &e, gpus: float64(n), submit: e.Job.Submit.Sub(0).Seconds(),
			step: float64(ms*p.Slower) / 1000, left: e.Work.Steps}
		w.jobs[i].opportunistic = opportunistic
		if err := w.prepare(&w.jobs[i]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// prepare derives a job's constants from the trace.
func (w *World) prepare(j *job) (err error) {
	e := &j.entry.Job
	j.seen, j.cur = j.submit, j.step
	if w.p.Stall != nil {
		if j.alone, err = w.p.Stall(e.GPUs(), e.Model); err != nil {
			return fmt.Errorf("compat: job %d: %w", e.ID, err)
		}
	}
	j.stall = j.alone
	e.Estimate = max(1, j.remaining())
	if w.p.sharing != nil {
		return w.p.sharing.enter(j)
	}
	return nil
}

// remaining is the remaining run time, for the engine.
func (j *job) remaining() time.Duration { return nanos(j.left * j.step) }

func nanos(seconds float64) time.Duration { return time.Duration(math.Round(seconds * 1e9)) }

// instant is now in the engine's time.
func (w *World) instant() cluster.Time {
	if w.p.sharing != nil {
		return cluster.Time(nanos(w.now)) // jobs are compared by the time that they ran
	}
	return instant(w.now)
}

// instant converts a time of the world to the engine's: to the microsecond, so that rounding errors
// of doubles do not show. Otherwise a second would not count as one where the engine counts whole
// milliseconds.
func instant(seconds float64) cluster.Time {
	return cluster.Time(math.Round(seconds*1e6)) * cluster.Time(time.Microsecond)
}

// Next returns the next cluster event. The engine's wake-up time is ignored: these simulators
// evaluate their order at events only.
func (w *World) Next(ctx context.Context) (engine.Batch, error) {
	if len(w.reports) > 0 {
		return w.batch(), nil
	}
	if err := w.regroup(); err != nil {
		return engine.Batch{}, err
	}
	w.runningFirst()
	arrive, end, asked := math.Inf(1), math.Inf(1), w.asked()
	if w.next < len(w.jobs) {
		arrive = w.jobs[w.next].submit
	}
	if len(w.ends) > 0 {
		end = w.ends[0].at
	}
	if math.IsInf(min(arrive, end, asked), 1) || ctx.Err() != nil {
		return engine.Batch{}, io.EOF
	}
	w.stirs++
	if w.p.Meet > 0 && near(arrive, end, w.p.Together, w.p.Meet) {
		end = arrive
	}
	w.now = min(arrive, end, asked)
	if len(w.live) == 0 || w.now >= w.turn+w.p.Round {
		w.turn = w.now
	}
	w.clock = max(w.clock+1, w.instant()) // each event is a new instant, however close
	if min(arrive, end) <= asked {        // otherwise no job arrives or ends in this event
		if end == w.now {
			w.finish(w.ends[0].jobs)
		}
		w.arrive(arrive)
	}
	w.account()
	w.number()
	w.fresh = true
	return w.batch(), nil
}

func (w *World) batch() engine.Batch {
	b := engine.Batch{Seq: int64(w.stirs), Now: w.clock, Events: w.reports}
	w.reports, w.told = w.told[:0], w.reports
	return b
}

// finish ends jobs at their group's instant.
func (w *World) finish(jobs []*job) {
	for _, j := range jobs {
		w.jct = append(w.jct, w.now-j.submit)
		w.last = max(w.last, w.now)
		w.forget(j)
		if w.p.sharing != nil {
			w.p.sharing.ended(j)
		}
		w.reports = append(w.reports,
			engine.Event{Type: engine.Stopped, Job: j.entry.Job.ID, Reason: engine.Completed, Done: w.believed(j)})
	}
}

// arrive submits all jobs that are due.
func (w *World) arrive(at float64) {
	for at == w.now && w.next < len(w.jobs) && near(w.jobs[w.next].submit, at, 1e-9, 0) {
		j := &w.jobs[w.next]
		w.next++
		w.live, w.lists[0] = append(w.live, j), append(w.lists[0], j)
		w.reports = append(w.reports, engine.Event{Type: engine.Submitted, Job: j.entry.Job.ID, Spec: &j.entry.Job})
	}
}

// active lists at least the running jobs, in this world's order.
func (w *World) active() []*job {
	if w.p.sharing != nil {
		return w.live
	}
	return w.runs
}

// starts records that a job runs from now on.
func (w *World) starts(j *job) {
	j.running, j.devices = true, 0
	j.seen, j.clock = w.now, w.clock
	w.runs = slices.Insert(w.runs, w.turnOf(j), j)
}

// stops records that a job no longer runs.
func (w *World) stops(j *job) {
	if i := w.turnOf(j); i < len(w.runs) && w.runs[i] == j {
		w.runs = slices.Delete(w.runs, i, i+1)
	}
	j.running = false
}

// turnOf is the position of a job among the running ones, whether or not it runs.
func (w *World) turnOf(j *job) int {
	i, _ := slices.BinarySearchFunc(w.runs, j, func(a, b *job) int {
		return cmp.Compare(a.entry.Job.ID, b.entry.Job.ID)
	})
	return i
}

// account brings every job up to now. Running jobs lose their stall. The engine is told the
// remaining work, as by a job that reports progress.
func (w *World) account() {
	for _, j := range w.active() {
		if j.running {
			j.left -= max(w.now-j.seen-j.stall, 0) / j.cur
			done := w.believed(j)
			j.used = j.used + w.now - j.seen
			if j.level < len(w.p.Asked) && float64(j.used*j.gpus) >= w.p.Asked[j.level] {
				w.lists[j.level] = without(w.lists[j.level], j)
				j.level++
				w.lists[j.level] = append(w.lists[j.level], j)
			}
			j.done = done
			if w.p.sharing != nil {
				w.p.sharing.ran(j)
			}
			if !w.p.Quiet {
				w.reports = append(w.reports,
					engine.Event{Type: engine.Progress, Job: j.entry.Job.ID, Done: done,
						Estimate: done + max(1, j.remaining())})
			}
		}
		j.seen, j.clock = w.now, w.clock
	}
	if w.p.sharing != nil {
		w.p.sharing.order(w.live)
	}
}

func without(list []*job, j *job) []*job {
	return slices.DeleteFunc(list, func(o *job) bool { return o == j })
}

// forget removes a job that has ended.
func (w *World) forget(j *job) {
	w.stops(j)
	w.live, w.lists[j.level] = without(w.live, j), without(w.lists[j.level], j)
}

// runningFirst moves, in each list, running jobs before waiting ones.
func (w *World) runningFirst() {
	if !w.p.Lists {
		return // the lists are not used
	}
	for _, l := range w.lists {
		n := 0 // number of running jobs that are in place
		for i, j := range l {
			if j.running {
				copy(l[n+1:i+1], l[n:i])
				l[n] = j
				n++
			}
		}
	}
}

// number sets the jobs' places from the order of the lists.
func (w *World) number() {
	if !w.p.Lists {
		return
	}
	for _, l := range w.lists {
		for i, j := range l {
			j.place = int64(i)
		}
	}
}

// leveller is a policy with levels.
type leveller interface {
	sched.Policy
	Level(j sched.JobView) int
	LevelOf(service int64) int
}

// listed is a policy with levels whose order within a level is that of the world's lists. Any place
// may change at an event, so all keys may.
type listed struct {
	leveller
	place func(id cluster.JobID) int64
	// service is the service as the world counts it, in milli-GPU-milliseconds; nil: as the engine
	// counts it, which is all time on devices.
	service func(id cluster.JobID) int64
}

// Traits makes the engine recompute every key at each instant.
func (l *listed) Traits() sched.Traits {
	t := l.leveller.Traits()
	t.Rekey, t.Rerun = 1, 1
	return t
}

// Key is the policy's level, then the place in the world's list.
func (l *listed) Key(_ sched.View, j sched.JobView) engine.Key {
	level := 0
	if l.service != nil {
		level = l.LevelOf(l.service(j.Spec().ID))
	} else {
		level = l.Level(j)
	}
	return engine.Key{int64(level)<<40 + l.place(j.Spec().ID)}
}

// service determines a job's level where the order within it is the world's: the time in the
// running state, summed up by the world in doubles. When many jobs reach a limit at one instant,
// the rounding error of the sum decides whether one of them is demoted at this event or at the
// next, and every event stalls all jobs.
func (w *World) service(id cluster.JobID) int64 {
	j := &w.jobs[id]
	return int64(float64(j.used*j.gpus) * 1_000_000)
}

// believed is the work that the engine has counted until now: the wall time for which the job ran.
func (w *World) believed(j *job) time.Duration { return j.done + w.clock.Sub(j.clock) }

// asked is when a round, or a running job's service, next triggers the scheduler.
func (w *World) asked() float64 {
	at := math.Inf(1)
	if w.p.Round > 0 && len(w.live) > 0 {
		at = w.turn + w.p.Round
	}
	for _, j := range w.active() {
		if j.running && j.level < len(w.p.Asked) {
			at = min(at, math.Ceil(w.p.Asked[j.level]/j.gpus)-j.used+w.now)
		}
	}
	return at
}

// regroup predicts which jobs end when, without further cluster events.
func (w *World) regroup() error {
	if !w.fresh {
		return nil
	}
	w.fresh, w.ends = false, w.ends[:0]
	if w.p.sharing != nil {
		if err := w.p.sharing.settle(w.live); err != nil {
			return err
		}
	}
next:
	for _, j := range w.active() {
		if !j.running {
			continue
		}
		at := w.now + float64(j.left*j.cur)
		for i := range w.ends {
			if near(w.ends[i].at, at, w.p.Together, 0) {
				w.ends[i].jobs = append(w.ends[i].jobs, j)
				continue next
			}
		}
		n := len(w.ends)
		w.ends = slices.Grow(w.ends, 1)[:n+1]
		w.ends[n].at, w.ends[n].jobs = at, append(w.ends[n].jobs[:0], j)
	}
	first := 0
	for i := range w.ends {
		if w.ends[i].at < w.ends[first].at {
			first = i
		}
	}
	if first > 0 {
		w.ends[0], w.ends[first] = w.ends[first], w.ends[0]
	}
	return nil
}

func near(a, b, rel, abs float64) bool {
	return a == b || !math.IsInf(a-b, 0) && math.Abs(a-b) <= max(rel*max(math.Abs(a), math.Abs(b)), abs)
}

// Apply carries out a decision, without delay or loss.
func (w *World) Apply(_ context.Context, d engine.Decision) error {
	for i := range d.Actions {
		a := &d.Actions[i]
		j := &w.jobs[a.Job]
		switch a.Type {
		case engine.Start:
			w.starts(j)
			for k := range a.Allocs {
				j.devices |= a.Allocs[k].GPUs
			}
			w.reports = append(w.reports, engine.Event{Type: engine.Started, Job: a.Job})
		case engine.Preempt:
			w.stops(j)
			w.reports = append(w.reports,
				engine.Event{Type: engine.Stopped, Job: a.Job, Reason: a.Reason, Done: j.done})
		case engine.Reject:
			w.forget(j)
		case engine.Resize:
			return errors.New("compat: jobs have one size")
		}
	}
	return nil
}

// Figures are what such simulators report, in seconds, for the completed jobs.
type Figures struct {
	Jobs               int
	JCT, Makespan, P99 float64
	Stirs              int // number of cluster events
}

// Figures returns the mean completion time, the last end, and the completion
// time at floor(0.99 n), counted from 0, of all in ascending order.
func (w *World) Figures() Figures {
	f := Figures{Jobs: len(w.jct), Makespan: w.last, Stirs: w.stirs}
	if f.Jobs == 0 {
		return f
	}
	for _, v := range w.jct {
		f.JCT += v
	}
	f.JCT /= float64(f.Jobs)
	f.P99 = slices.Sorted(slices.Values(w.jct))[f.Jobs*99/100]
	return f
}

// Run replays entries on one node with the given number of GPUs, which are only counted.
func Run(ctx context.Context, p Profile, entries []trace.Entry, gpus int, pol string) (Figures, error) {
	w, err := New(p, entries)
	if err != nil {
		return Figures{}, err
	}
	spec, err := cluster.ParseShort(fmt.Sprintf("1x%d", gpus))
	if err != nil {
		return Figures{}, err
	}
	cfg := engine.Config{Spec: *spec}
	if pol != "" { // otherwise the world has its own
		if cfg.Policy, err = policy.New(pol); err != nil {
			return Figures{}, err
		}
	}
	if p.Lists {
		levels, ok := cfg.Policy.(leveller)
		if !ok {
			return Figures{}, fmt.Errorf("compat: profile %s goes with a policy of levels, not with %s", p.Name, pol)
		}
		cfg.Policy = &listed{leveller: levels, place: func(id cluster.JobID) int64 {
			return w.jobs[id].place
		}, service: w.service}
	}
	if p.sharing != nil {
		w.clock = 0 // for the engine "last planned at 0" means "in this instant"
		if err := p.sharing.ready(w, &cfg); err != nil {
			return Figures{}, err
		}
	}
	if err := play(ctx, cfg, w); err != nil {
		return Figures{}, err
	}
	return w.Figures(), nil
}

// play runs a world to its end. GPUs are taken in any order: these worlds place jobs themselves, or
// only count GPUs.
func play(ctx context.Context, cfg engine.Config, world driver.Driver) (err error) {
	if cfg.Placer, err = place.New("first-fit"); err != nil {
		return err
	}
	e, err := engine.New(cfg)
	if err != nil {
		return err
	}
	if err := driver.Run(ctx, e, world, nil); err != nil {
		return err
	}
	return ctx.Err()
}
