// Package forward runs a copy of an engine ahead in virtual time to predict when waiting jobs will
// start: with the same code that will decide it. Its world is simple: jobs take as long as the
// caller expects, nothing fails, and nothing is submitted or cancelled but the expected arrivals.
package forward

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/heap"
)

// Options say how far to run ahead and what to expect.
type Options struct {
	// Now is the instant at which the run begins, or the engine's time if that is later. Jobs that
	// should have ended before then end at once.
	Now cluster.Time
	// Events happen at Now before anything else; if there are none, the engine is first stepped
	// when something is due.
	Events []engine.Event
	// Arrivals are jobs that are expected to be submitted later, in the order of their submission.
	// Their numbers are unused and below engine.Snapshot.Next.
	Arrivals []cluster.Job
	// Work returns the total useful work of a job, on the reference GPU, of which done is complete;
	// 0: unknown, the job ends only at its limit. nil: Expected.
	Work Work
	// Rate is the speed of a job on what it holds, in ppm of the reference; nil: the last known
	// one, else 1,000,000.
	Rate func(r *engine.JobRecord) int64
	// For lists the jobs asked about: the run ends when all of them have started. nil: all waiting
	// jobs except those that a person holds.
	For []cluster.JobID
	// Steps bounds the number of engine steps; 0: DefaultSteps.
	Steps int
	// Horizon bounds how far the run goes beyond Now; 0: DefaultHorizon.
	Horizon time.Duration
	// Stop is polled from time to time; true ends the run. nil: never.
	Stop func() bool
}

// Defaults of the bounds.
const (
	DefaultSteps   = 1_000_000
	DefaultHorizon = 366 * 24 * time.Hour
)

// While nothing is due in the world, the engine may wake this often without effect; after that it
// is stepped only when a timer, a window, a budget or a reservation changes something, and for at
// most this much virtual time: by then every weekly window has opened and every monthly budget has
// been renewed.
const (
	idleWakes = 24
	patience  = 32 * 24 * time.Hour
)

// End says why the run ended.
type End uint8

// After the first two ends, a job without a start has none in sight; after the others a start may
// have been just beyond.
const (
	AllStarted  End = iota // all jobs asked about have started
	Idle                   // nothing is due any more
	Quiet                  // for long, time alone changed nothing that matters
	HorizonPast            // a start may be later than that
	StepsSpent             // Options.Steps is used up
	Stopped                // Options.Stop returned true
)

// Result is the outcome of a run ahead.
type Result struct {
	Now    cluster.Time                   // where the run began
	Until  cluster.Time                   // the last instant that was reached
	Starts map[cluster.JobID]cluster.Time // first starts of jobs that did not run at Now
	Never  map[cluster.JobID]string       // jobs that will be refused, and why
	Leaves map[cluster.JobID]Leaving      // when jobs that held devices at Now first leave them
	Limits map[cluster.JobID]bool         // starts that rest on a job's time limit: they may come earlier
	Steps  int
	End    End
}

// Leaving is when a job leaves its devices, and why: completed, time limit or preempted.
type Leaving struct {
	At     cluster.Time
	Reason engine.StopReason
}

// Complete reports whether a job without a start has none in sight.
func (r *Result) Complete() bool { return r.End <= Idle }

// Run runs the engine ahead. It changes the engine, which the caller therefore restores from a
// snapshot for this purpose (engine.Restore).
func Run(e *engine.Engine, opt Options) *Result {
	w := newWorld(e, opt)
	if len(opt.Events) > 0 {
		w.step(opt.Events)
	} else {
		w.wake = e.Wake()
	}
	for !w.over() {
		at := w.due()
		if at == cluster.Never {
			w.res.End = Idle
			break
		}
		if end, ok := w.bounded(at); ok {
			w.res.End = end
			break
		}
		w.now = at
		w.step(w.happened())
	}
	w.res.Until = w.now
	return w.res
}

// Expected is the expected work of a job: its estimate or, if more than that is done, another
// twentieth but at least a minute, as the engine expects of overdue jobs; 0: unknown.
func Expected(r *engine.JobRecord, done time.Duration) time.Duration {
	if r.Spec.Estimate == 0 || done < r.Spec.Estimate {
		return r.Spec.Estimate
	}
	return done + max(time.Minute, done/20)
}

type phase uint8

const (
	waiting phase = iota
	starting
	running
	leaving
)

// run is a job that holds or held devices.
type run struct {
	phase             phase
	gen               uint32
	resizing          bool
	work              time.Duration // total; 0: unknown
	done              time.Duration // at since
	saved             time.Duration // saved in a checkpoint
	rate              int64
	since             cluster.Time
	stop              engine.StopReason
	ckpt              cluster.Checkpoint
	ignoresCheckpoint bool // when told to write a checkpoint it saves nothing
}

// The kinds of due events, in the order in which they happen at one instant.
const (
	dueReady  uint8 = iota // a start or a resize is complete
	dueFinish              // a job ends by itself
	dueLeft                // a stop is complete
)

type due struct {
	at   cluster.Time
	kind uint8
	id   cluster.JobID
	gen  uint32 // the run's generation when this was planned; void if it has changed
}

// Before orders due events by time, then by kind and job.
func (a *due) Before(b *due) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.id < b.id
}

// world plays the driver for the engine.
type world struct {
	e     *engine.Engine
	opt   Options
	runs  map[cluster.JobID]*run     // looked up, never iterated
	asked map[cluster.JobID]struct{} // jobs asked about that have not started; looked up, never iterated
	queue []due
	pool  []engine.Event
	now   cluster.Time
	wake  cluster.Time
	last  cluster.Time // when something last happened
	idle  int          // steps since then
	next  int          // index of the next arrival
	end   cluster.Time // the horizon

	held    map[cluster.JobID]bool // jobs that held devices at the beginning; looked up, never iterated
	limited map[int32]uint64       // node → devices whose being free rests on a time limit; looked up, never iterated
	atLimit bool                   // the event being processed rests on a time limit
	res     *Result
}

func newWorld(e *engine.Engine, opt Options) *world {
	if opt.Work == nil {
		opt.Work = Expected
	}
	if opt.Rate == nil {
		opt.Rate = lastSpeed
	}
	if opt.Steps == 0 {
		opt.Steps = DefaultSteps
	}
	if opt.Horizon == 0 {
		opt.Horizon = DefaultHorizon
	}
	now := max(opt.Now, e.Now())
	w := &world{e: e, opt: opt, runs: map[cluster.JobID]*run{}, asked: map[cluster.JobID]struct{}{}, now: now,
		wake: cluster.Never, last: now,
		end: now.Add(opt.Horizon),
		res: &Result{Now: now, Starts: map[cluster.JobID]cluster.Time{}, Never: map[cluster.JobID]string{},
			Leaves: map[cluster.JobID]Leaving{}, Limits: map[cluster.JobID]bool{}}, held: map[cluster.JobID]bool{},
		limited: map[int32]uint64{}}
	ids := opt.For
	if ids == nil {
		ids = e.Waiting()
	}
	for _, id := range ids {
		w.asked[id] = struct{}{}
	}
	for _, b := range e.Beliefs() {
		w.held[b.Job] = true
		w.adopt(e.Record(b.Job))
	}
	return w
}

func lastSpeed(r *engine.JobRecord) int64 {
	if r.Speed > 0 {
		return r.Speed
	}
	return million
}

const million = 1_000_000

// adopt takes over a job that holds devices. The record does not say when a stopping job was told
// to stop: it is assumed to be now.
func (w *world) adopt(r *engine.JobRecord) {
	j := w.runOf(r)
	switch {
	case r.State == engine.Stopping:
		j.stop = r.Reason
		w.leave(r.Spec.ID, j, r.How, j.ckpt.Cost, r.Rate > 0)
	case r.State == engine.Starting:
		w.push(dueReady, r.Spec.ID, j, r.Started.Add(j.restart(r, r.FirstStart < r.Started)+w.e.WakeTime(r.Allocs)))
	case r.Resizing:
		j.resizing = true
		w.push(dueReady, r.Spec.ID, j, r.Acc.Add(j.ckpt.Restart))
	default:
		j.phase, j.rate, j.since = running, r.Rate, r.Acc
		// Work is computed as of now: a job that has done more than expected is overdue.
		j.work = w.opt.Work(r, r.DoneAt(w.now))
		w.plan(r.Spec.ID, j)
	}
}

// runOf makes a run from the engine's record.
func (w *world) runOf(r *engine.JobRecord) *run {
	j := w.runs[r.Spec.ID]
	if j == nil {
		j = &run{}
		w.runs[r.Spec.ID] = j
	}
	*j = run{phase: starting, gen: j.gen + 1, done: r.Done, saved: r.Saved, since: w.now, ckpt: r.Spec.Checkpoint,
		ignoresCheckpoint: r.IgnoresCheckpoint}
	return j
}

// restart is the time from a start until the job computes.
func (j *run) restart(r *engine.JobRecord, again bool) time.Duration {
	switch {
	case r.ResidentOnGPU:
		return j.ckpt.Suspend
	case again:
		return j.ckpt.Restart
	}
	return 0
}

func (w *world) push(kind uint8, id cluster.JobID, j *run, at cluster.Time) {
	heap.Push(&w.queue, due{max(at, w.now), kind, id, j.gen})
}

// plan schedules the end of a running job.
func (w *world) plan(id cluster.JobID, j *run) {
	if j.work > 0 {
		w.push(dueFinish, id, j, j.since.Add(timeFor(max(0, j.work-j.done), j.rate)))
	}
}

func (w *world) over() bool { return len(w.asked) == 0 }

// due is the next instant at which something happens.
func (w *world) due() cluster.Time {
	for len(w.queue) > 0 && w.runs[w.queue[0].id].gen != w.queue[0].gen {
		heap.Pop(&w.queue)
	}
	at := w.wake
	if len(w.queue) > 0 {
		at = min(at, w.queue[0].at)
	}
	if w.next < len(w.opt.Arrivals) {
		at = min(at, w.opt.Arrivals[w.next].Submit)
	}
	return max(at, w.now)
}

// askEvery is the number of steps between two calls of Options.Stop.
const askEvery = 64

// bounded reports whether a bound is reached, and which.
func (w *world) bounded(at cluster.Time) (End, bool) {
	switch {
	case at > w.end:
		return HorizonPast, true
	case w.res.Steps >= w.opt.Steps:
		return StepsSpent, true
	case len(w.queue) == 0 && at.Sub(w.last) > patience:
		return Quiet, true
	case w.opt.Stop != nil && w.res.Steps%askEvery == 0 && w.opt.Stop():
		return Stopped, true
	}
	return 0, false
}

// happened returns the events that are due by now.
func (w *world) happened() []engine.Event {
	evs := w.pool[:0]
	w.atLimit = false
	for len(w.queue) > 0 && w.queue[0].at <= w.now {
		d := heap.Pop(&w.queue)
		if j := w.runs[d.id]; j.gen == d.gen {
			if d.kind != dueReady {
				w.left(&d, j)
			}
			if d.kind == dueReady {
				evs = w.awake(evs, d.id)
			}
			evs = append(evs, w.happen(&d, j))
		}
	}
	for ; w.next < len(w.opt.Arrivals) && w.opt.Arrivals[w.next].Submit <= w.now; w.next++ {
		j := &w.opt.Arrivals[w.next]
		evs = append(evs, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j})
	}
	w.pool = evs
	return evs
}

// left records that a job leaves its devices, and whether that rests on a time limit: its own, or
// that of a job that it waited for.
func (w *world) left(d *due, j *run) {
	reason := j.stop
	if d.kind == dueFinish {
		reason = engine.Completed
	}
	if _, ok := w.res.Leaves[d.id]; w.held[d.id] && !ok {
		w.res.Leaves[d.id] = Leaving{At: w.now, Reason: reason}
	}
	if reason != engine.TimedOut && !w.res.Limits[d.id] {
		return
	}
	w.atLimit = true
	for _, a := range w.e.Record(d.id).Allocs {
		w.limited[a.Node] |= a.GPUs
	}
}

// restsOnLimit reports whether a start at this instant would be earlier if some job ended before
// its time limit.
func (w *world) restsOnLimit(allocs []engine.Alloc) bool {
	return w.atLimit || slices.ContainsFunc(allocs, func(a engine.Alloc) bool { return w.limited[a.Node]&a.GPUs != 0 })
}

// awake adds events for the sleeping nodes of a job: they are up when it computes.
func (w *world) awake(evs []engine.Event, id cluster.JobID) []engine.Event {
	allocs := w.e.Record(id).Allocs
	if w.e.WakeTime(allocs) == 0 {
		return evs
	}
	nodes := w.e.Nodes()
	for i := range allocs {
		if n := &nodes[allocs[i].Node]; n.Asleep > 0 {
			n.Asleep = 0
			evs = append(evs, engine.Event{Type: engine.NodeAsleep, Node: n.Name, Undo: true})
		}
	}
	return evs
}

func (w *world) happen(d *due, j *run) engine.Event {
	switch d.kind {
	case dueReady:
		r := w.e.Record(d.id)
		j.phase, j.since, j.rate, j.work = running, w.now, max(1, w.opt.Rate(r)), w.opt.Work(r, j.done)
		j.gen++
		w.plan(d.id, j)
		if j.resizing {
			j.resizing = false
			return engine.Event{Type: engine.Resized, Job: d.id, Rate: j.rate}
		}
		return engine.Event{Type: engine.Started, Job: d.id, Rate: j.rate}
	case dueFinish:
		j.phase = waiting
		j.gen++
		return engine.Event{Type: engine.Stopped, Job: d.id, Reason: engine.Completed, Done: j.work}
	}
	j.phase = waiting
	j.gen++
	return engine.Event{Type: engine.Stopped, Job: d.id, Reason: j.stop, Done: j.done}
}

// step steps the engine and carries out its decision.
func (w *world) step(events []engine.Event) {
	w.res.Steps++
	d := w.e.Step(engine.Batch{Seq: int64(w.res.Steps), Now: w.now, Events: events})
	w.wake = d.WakeAt
	if w.idle++; len(events)+len(d.Actions) > 0 {
		w.last, w.idle = w.now, 0
	}
	if w.idle > idleWakes && len(w.queue) == 0 {
		w.wake = w.e.WakeRare()
	}
	for i := range d.Actions {
		a := &d.Actions[i]
		switch a.Type {
		case engine.Start:
			w.start(a)
		case engine.Preempt:
			w.preempt(a)
		case engine.Resize:
			w.resize(a)
		case engine.Reject:
			delete(w.asked, a.Job)
			if _, ok := w.res.Starts[a.Job]; !ok {
				w.res.Never[a.Job] = a.Text
			}
		}
	}
}

func (w *world) start(a *engine.Action) {
	if _, ok := w.res.Starts[a.Job]; !ok {
		w.res.Starts[a.Job] = w.now
		if w.restsOnLimit(a.Allocs) {
			w.res.Limits[a.Job] = true
		}
	}
	delete(w.asked, a.Job)
	r := w.e.Record(a.Job)
	again := w.runs[a.Job] != nil || r.FirstStart < r.Started
	j := w.runOf(r)
	w.push(dueReady, a.Job, j, w.now.Add(j.restart(r, again)+w.e.WakeTime(a.Allocs))) // its driver wakes sleeping nodes
}

// advance brings a run's completed work up to now.
func (w *world) advance(j *run) {
	if j.phase == running {
		j.done, j.since = j.done+workIn(w.now.Sub(j.since), j.rate), w.now
		if j.work > 0 {
			j.done = min(j.done, j.work)
		}
	}
}

func (w *world) preempt(a *engine.Action) {
	j := w.runs[a.Job]
	if j == nil || j.phase != starting && j.phase != running {
		return
	}
	w.advance(j)
	j.stop = a.Reason
	w.leave(a.Job, j, a.How, a.Grace, j.phase == running)
}

// leave stops a job as it was told: with a checkpoint if one can be written within the grace
// period; otherwise unsaved work is lost.
func (w *world) leave(id cluster.JobID, j *run, how engine.How, grace time.Duration, computed bool) {
	delay := time.Duration(0)
	switch {
	case !computed || how == engine.Suspend:
	case how == engine.Checkpoint && !j.ckpt.None && !j.ignoresCheckpoint && j.ckpt.Cost <= grace:
		delay = j.ckpt.Cost
		j.saved = max(j.saved, j.done)
	default:
		j.done = j.lastCheckpoint()
		j.saved = max(j.saved, j.done)
	}
	j.phase, j.since = leaving, w.now
	j.gen++
	w.push(dueLeft, id, j, w.now.Add(delay))
}

// lastCheckpoint is the work saved by the last periodic checkpoint.
func (j *run) lastCheckpoint() time.Duration {
	if j.ckpt.Interval <= 0 || j.ckpt.None {
		return min(j.saved, j.done)
	}
	return max(min(j.saved, j.done), j.done-j.done%j.ckpt.Interval)
}

// resize stops a job for the time of a restart.
func (w *world) resize(a *engine.Action) {
	j := w.runs[a.Job]
	if j == nil || j.phase != starting && j.phase != running {
		return
	}
	w.advance(j)
	if a.Reason == engine.NodeLost { // tasks were lost: the others resume from the last checkpoint
		j.done = j.lastCheckpoint()
		j.saved = max(j.saved, j.done)
	}
	j.phase, j.since, j.resizing = starting, w.now, true
	j.gen++
	w.push(dueReady, a.Job, j, w.now.Add(j.ckpt.Restart+w.e.WakeTime(a.Allocs)))
}

// timeFor is the time that work takes at a speed in ppm, rounded up.
func timeFor(d time.Duration, ppm int64) time.Duration {
	if ppm == million {
		return d
	}
	hi, lo := bits.Mul64(uint64(d), million)
	if ppm <= 0 || hi >= uint64(ppm) {
		return cluster.MaxDuration
	}
	q, r := bits.Div64(hi, lo, uint64(ppm))
	if r > 0 && q < math.MaxUint64 {
		q++
	}
	return time.Duration(min(q, uint64(cluster.MaxDuration)))
}

// workIn is the work done in a time at a speed in ppm.
func workIn(d time.Duration, ppm int64) time.Duration {
	switch {
	case d <= 0 || ppm <= 0:
		return 0
	case ppm == million:
		return d
	}
	hi, lo := bits.Mul64(uint64(d), uint64(ppm))
	if hi >= million {
		return cluster.MaxDuration
	}
	q, _ := bits.Div64(hi, lo, million)
	return time.Duration(min(q, uint64(cluster.MaxDuration)))
}
