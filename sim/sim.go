// Package sim replays a workload in virtual time: a driver whose world is a
// queue of future events. It knows what the scheduler does not (how long jobs
// really run, when nodes fail) and keeps the books for the report.
package sim

import (
	"context"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// Options are the world's rules. The zero value is an ideal world: only jobs take time, and nothing
// fails.
type Options struct {
	Startup  time.Duration // from the decision to start until the job computes
	NodeMTBF time.Duration // mean time between failures of a node; 0: never
	GPUMTBF  time.Duration // of a GPU; 0: never
	Repair   time.Duration // until a node or GPU is back; 0: 4 h
	Faults   float64       // part of the jobs failing in shares under MPS that take down the GPU's server, 0 to 1
	Seed     uint64
	Until    cluster.Time      // end of the simulation; 0: when all jobs are done
	Model    perf.Model        // a job's speed on a placement; nil: as recorded everywhere
	Lanes    cluster.LaneOrder // how jobs on the same whole GPUs take turns; Run takes it from the policy
	Paces    bool              // report the speeds of running jobs, by job model
	Memory   bool              // report the jobs' GPU memory use; Run takes it from the policy
	Search   *Searching        // a search whose trials are submitted as well; each world needs its own
	Serving  *Serving          // services whose requests are played; each world needs its own
	Script   []Scripted        // events of nodes and people at set times
	Progress func(done, total int, now cluster.Time)
}

// Scripted is an event at a set time: a node fails or is drained, a person cancels or holds a job,
// queues change.
type Scripted struct {
	At    cluster.Time
	Event engine.Event
}

// jobRun is a job in the world.
type jobRun struct {
	entry    *trace.Entry
	phase    phase
	gen      uint32
	rate     int64         // ppm while it computes
	since    cluster.Time  // of the present phase
	left     time.Duration // recorded run time left, at since
	saved    time.Duration // work safe in a checkpoint
	allocs   []engine.Alloc
	frozen   []engine.Alloc // where a suspended job's memory is
	yield    int64          // part of its speed (ppm) that the host of this guest keeps
	milli    cluster.Milli
	heldFrom cluster.Time
	stop     engine.StopReason
	resizing bool
	restart  bool // it has run before: the next start restores a checkpoint
	trial    *trialRun
	replica  *replicaRun
	treated  *cluster.Treatment // of its traffic; nil: as any other
	sends    *sending           // while it transmits over the network
}

type phase uint8

const (
	absent phase = iota
	waiting
	starting
	running
	leaving
	gone
)

type worldEvent struct {
	at   cluster.Time
	kind uint8
	id   int32 // job, or node
	gen  uint32
}

const (
	evReady  uint8 = iota // a start is complete
	evMark                // a trial reaches a rung and continues
	evFinish              // a job ends by itself
	evLeft                // a stop is complete
	evCancel              // a person cancels
	evFail                // a node fails
	evRepair
	evGPUFail
	evGPURepair
	evScript  // id: index in Options.Script
	evAwake   // a node is woken
	evPower   // a power group's rule is due
	evAnswers // a replica takes requests
	evStays   // a replica that is moved has gone on for long enough
)

// World is the simulator's driver.
type World struct {
	opt      Options
	spec     *cluster.Spec
	jobs     []jobRun
	next     int // next arrival
	recorded int // jobs of the workload; jobs of a search have higher numbers
	queue    []worldEvent
	crowded  int // queue length at which void events are removed
	wake     cluster.Time
	now      cluster.Time
	seq      int64
	pool     []engine.Event
	alive    int // submitted, not gone
	runs     int // starting, running or leaving
	quiet    cluster.Time
	book     *Book
	rng      *rand.Rand
	badGPU   []uint64
	devices  []int             // number of each node's first GPU, over all nodes
	tenants  [][]cluster.JobID // jobs on shared devices in order of arrival, by GPU
	packing  bool              // there were guests on whole devices: tenants covers whole devices, too
	reports  []engine.Event    // sent with the next batch
	stopped  bool
	power    powers
	net      *contention // nil: no network is described

	first  int                                       // first of the jobs that arrived with the last batch
	answer func(cluster.JobID) engine.DeadlineAnswer // the engine's answer to a job's deadline; nil: none
}

// NewWorld prepares a replay. The entries must be sorted by submission and
// numbered densely; they are shared between worlds and never written.
func NewWorld(spec *cluster.Spec, entries []trace.Entry, opt Options) *World {
	w := &World{opt: opt, spec: spec, recorded: len(entries), jobs: make([]jobRun, len(entries)), wake: cluster.Never,
		rng: rand.New(rand.NewPCG(opt.Seed, 0x6d757374)), badGPU: make([]uint64, len(spec.Nodes)),
		devices: make([]int, len(spec.Nodes))}
	gpus := 0
	for i := range spec.Nodes {
		w.devices[i] = gpus
		gpus += spec.Nodes[i].GPUs
	}
	w.tenants = make([][]cluster.JobID, gpus)
	if w.opt.Repair == 0 {
		w.opt.Repair = 4 * time.Hour
	}
	for i := range entries {
		w.jobs[i] = jobRun{entry: &entries[i], left: entries[i].Run}
	}
	w.book = newBook(spec, len(entries))
	for i := range opt.Script {
		w.push(worldEvent{at: opt.Script[i].At, kind: evScript, id: int32(i)})
	}
	w.scheduleFailures()
	w.initPower()
	w.net = newContention(spec)
	return w
}

// Book returns the records of the replay.
func (w *World) Book() *Book { return w.book }

func (w *World) scheduleFailures() {
	for i := range w.spec.Nodes {
		if w.opt.NodeMTBF > 0 {
			w.push(worldEvent{at: w.expo(w.opt.NodeMTBF), kind: evFail, id: int32(i)})
		}
		if w.opt.GPUMTBF > 0 && w.spec.Nodes[i].GPUs > 0 {
			w.push(worldEvent{at: w.expo(w.opt.GPUMTBF / time.Duration(w.spec.Nodes[i].GPUs)), kind: evGPUFail,
				id: int32(i)})
		}
	}
}

// expo draws an exponentially distributed time, counted from now.
func (w *World) expo(mean time.Duration) cluster.Time {
	d := -math.Log(1-w.rng.Float64()) * float64(mean)
	return w.now.Add(time.Duration(min(d, float64(cluster.MaxDuration))))
}

// Stop makes Next return io.EOF at the next call: the run ends early.
func (w *World) Stop() { w.stopped = true }

// maxQuiet bounds how long a world may tick without any event: jobs that can no longer start are
// reported as unfinished.
const maxQuiet = 60 * 24 * time.Hour

// Next returns the next instant with its events.
func (w *World) Next(ctx context.Context) (engine.Batch, error) {
	for len(w.queue) > 0 && w.void(&w.queue[0]) {
		w.popEvent() // void events need no step
	}
	if len(w.queue) == 0 || w.queue[0].at > w.now {
		w.respeed(w.contend())
	}
	at := w.wake
	if w.next < w.recorded {
		at = min(at, w.jobs[w.next].entry.Job.Submit)
	}
	at = min(at, w.tuneAt(), w.serveAt())
	if len(w.reports) > 0 {
		at = min(at, w.now)
	}
	if len(w.queue) > 0 && (w.alive > 0 || w.next < w.recorded) {
		at = min(at, w.queue[0].at)
	}
	switch {
	case w.stopped || ctx.Err() != nil || at == cluster.Never,
		w.next == w.recorded && w.alive == 0 && w.tuneAt() == cluster.Never && w.serveAt() == cluster.Never,
		w.opt.Until > 0 && at > w.opt.Until,
		w.next == w.recorded && w.runs == 0 && at.Sub(w.quiet) > maxQuiet:
		if w.opt.Until > 0 && at > w.opt.Until && (w.alive > 0 || w.next < w.recorded) {
			w.now = max(w.now, w.opt.Until)
		}
		w.book.close(w)
		return engine.Batch{}, io.EOF
	}
	at = max(at, w.now)
	w.book.advance(at)
	w.now = at
	w.wake = cluster.Never
	if err := w.playRequests(); err != nil {
		return engine.Batch{}, err
	}
	evs := append(w.pool[:0], w.reports...)
	w.reports = w.reports[:0]
	for len(w.queue) > 0 && w.queue[0].at <= at {
		due := w.popEvent()
		if due.kind == evPower {
			evs = append(evs, w.powerDue(due.id)...)
		} else if ev, ok := w.happen(due); ok {
			evs = append(evs, ev)
		}
	}
	w.first = w.next
	for w.next < w.recorded && w.jobs[w.next].entry.Job.Submit <= at {
		evs = append(evs, w.arrive(&w.jobs[w.next]))
		w.next++
	}
	evs, err := w.tune(evs)
	if err == nil {
		evs, err = w.serve(evs)
	}
	if err != nil {
		return engine.Batch{}, err
	}
	w.pool = evs
	w.seq++
	if w.opt.Progress != nil && w.seq&1023 == 0 {
		w.opt.Progress(w.book.done, len(w.jobs), w.now)
	}
	return engine.Batch{Seq: w.seq, Now: at, Events: evs}, nil
}

func (w *World) arrive(j *jobRun) engine.Event {
	s := &j.entry.Job
	j.phase, j.since = waiting, w.now
	w.alive++
	w.quiet = w.now
	queue := s.Queue
	if j.replica != nil {
		queue = "service " + w.opt.Serving.Services[j.replica.service].Name
	}
	w.book.arrived(s, queue)
	if j.entry.End > 0 {
		w.push(worldEvent{at: max(j.entry.End, w.now), kind: evCancel, id: int32(s.ID)})
	}
	return engine.Event{Type: engine.Submitted, Job: s.ID, Spec: s}
}

// happen turns a due event into the event for the engine; false: it is void.
func (w *World) happen(ev worldEvent) (engine.Event, bool) {
	switch ev.kind {
	case evFail, evRepair, evGPUFail, evGPURepair:
		return w.nodeEvent(ev)
	case evAwake:
		return w.nodeAwake(ev)
	case evScript:
		return w.scripted(w.opt.Script[ev.id].Event)
	}
	j := &w.jobs[ev.id]
	id := cluster.JobID(ev.id)
	switch ev.kind {
	case evCancel:
		return w.cancel(id)
	case evAnswers:
		w.replicaAnswers(j, ev.gen)
		return engine.Event{}, false
	case evStays:
		w.replicaStays(j, ev.gen)
		return engine.Event{}, false
	}
	if w.void(&ev) {
		return engine.Event{}, false
	}
	switch ev.kind {
	case evMark:
		w.reportMark(j)
		w.markAhead(j)
		return engine.Event{}, false
	case evReady:
		j.phase, j.since = running, w.now
		crowd := w.transmits(j)
		j.rate = w.rateOf(j)
		w.book.computing(j)
		w.plan(j)
		w.respeed(crowd)
		w.replicaStarted(j)
		if j.entry.Memory > 0 && w.opt.Memory { // as a live driver reports it after a measurement
			w.reports = append(w.reports,
				engine.Event{Type: engine.Progress, Job: id, Memory: j.entry.Memory, Done: j.entry.Run - j.left,
					Saved: j.saved})
		}
		near := w.neighbours(j)
		if w.respeed(near); len(near) > 0 && j.entry.Job.Shares() { // as a live driver reports it after a measurement
			w.reports = append(w.reports,
				engine.Event{Type: engine.Progress, Job: id, Rate: j.rate, Done: j.entry.Run - j.left, Saved: j.saved})
		}
		if j.resizing {
			j.resizing = false
			return engine.Event{Type: engine.Resized, Job: id, Rate: j.rate, Pace: w.paceOf(j)}, true
		}
		return engine.Event{Type: engine.Started, Job: id, Rate: j.rate, Pace: w.paceOf(j)}, true
	case evFinish:
		w.idle(j)
		reason := engine.Completed
		if j.entry.Outcome != trace.Succeeded {
			reason = engine.Failed
			if j.entry.Outcome == trace.Cancelled {
				reason = engine.WasCancelled
			} else {
				w.mpsFault(j)
			}
		}
		w.depart(j, reason)
		return engine.Event{Type: engine.Stopped, Job: id, Reason: reason, Done: j.entry.Run}, true
	}
	done := j.entry.Run - j.left
	reason := j.stop
	w.depart(j, reason)
	return engine.Event{Type: engine.Stopped, Job: id, Reason: reason, Done: done}, true
}

// cancel cancels a job on behalf of a person.
func (w *World) cancel(id cluster.JobID) (engine.Event, bool) {
	j := &w.jobs[id]
	was := j.phase
	switch was {
	case waiting:
		w.end(j, engine.WasCancelled) // nothing runs: it ends at once
	case leaving:
		j.stop = engine.WasCancelled // it is not requeued
	}
	return engine.Event{Type: engine.Cancelled, Job: id}, was != gone
}

func (w *World) scripted(ev engine.Event) (engine.Event, bool) {
	w.powerOut(&ev)
	switch ev.Type {
	case engine.Cancelled:
		return w.cancel(ev.Job)
	case engine.JobReshaped:
		return w.reshape(ev.Job, ev.Node)
	case engine.Updated:
		w.update(&w.jobs[ev.Job], ev.Spec)
	case engine.NodeDown, engine.GPUBad:
		if !ev.Undo {
			w.book.failures++
		}
		if ev.Type == engine.NodeDown {
			w.wipe(ev.Node)
		}
	}
	return ev, true
}

func (w *World) nodeEvent(ev worldEvent) (engine.Event, bool) {
	n := &w.spec.Nodes[ev.id]
	switch ev.kind {
	case evFail:
		w.push(worldEvent{at: w.now.Add(w.opt.Repair), kind: evRepair, id: ev.id})
		w.book.failures++
		w.wipe(n.Name)
		down := engine.Event{Type: engine.NodeDown, Node: n.Name}
		w.powerOut(&down)
		return down, true
	case evRepair:
		w.push(worldEvent{at: w.expo(w.opt.NodeMTBF), kind: evFail, id: ev.id})
		up := engine.Event{Type: engine.NodeUp, Node: n.Name}
		w.powerOut(&up)
		return up, true
	case evGPUFail:
		dev := uint64(1) << w.rng.IntN(n.GPUs)
		w.badGPU[ev.id] = dev
		w.push(worldEvent{at: w.now.Add(w.opt.Repair), kind: evGPURepair, id: ev.id})
		w.book.failures++
		return engine.Event{Type: engine.GPUBad, Node: n.Name, GPUs: dev}, true
	}
	w.push(worldEvent{at: w.expo(w.opt.GPUMTBF / time.Duration(n.GPUs)), kind: evGPUFail, id: ev.id})
	return engine.Event{Type: engine.GPUBad, Node: n.Name, GPUs: w.badGPU[ev.id], Undo: true}, true
}

// forget loses what a suspended job has in memory.
func (w *World) forget(j *jobRun) {
	done := j.entry.Run - j.left
	kept := j.lastCheckpoint(done)
	w.book.lost(j, done-kept)
	j.left, j.frozen = j.entry.Run-kept, nil
}

// wipe loses what suspended jobs have in a node's memory.
func (w *World) wipe(name string) {
	for i := range w.jobs {
		j := &w.jobs[i]
		if slices.ContainsFunc(j.frozen, func(a engine.Alloc) bool { return w.spec.Nodes[a.Node].Name == name }) {
			w.forget(j)
		}
	}
}

// Apply carries out a decision in virtual time.
func (w *World) Apply(_ context.Context, d engine.Decision) error {
	w.wake = d.WakeAt
	for i := w.first; i < w.next; i++ {
		w.answered(&w.jobs[i])
	}
	for i := range d.Actions {
		a := &d.Actions[i]
		j := &w.jobs[a.Job]
		w.quiet = w.now
		switch a.Type {
		case engine.Start:
			w.answered(j) // it may have been answered before the job could run
			j.treated = a.Treatment
			w.begin(j, a)
		case engine.Preempt:
			w.evict(j, a)
		case engine.Resize:
			w.resize(j, a)
		case engine.Treat:
			w.treat(j, a.Treatment)
		case engine.Reject:
			w.book.Records[a.Job].Why = a.Text
			w.end(j, a.Reason)
		}
	}
	// A pending job that is cancelled or whose dependency fails ends without having run: the engine
	// rejects it; cancellations end in World.cancel.
	return nil
}

func (w *World) begin(j *jobRun, a *engine.Action) {
	if j.phase != waiting {
		return // the decision was applied already
	}
	j.gen++
	j.phase, j.resizing = starting, false // a resize that was in progress at the stop is void
	j.allocs = a.Allocs
	j.milli = 0
	for i := range a.Allocs {
		j.milli += a.Allocs[i].Milli()
	}
	w.runs++
	goesOn := j.frozen != nil && inventory.SamePlace(j.frozen, a.Allocs)
	if j.frozen != nil && !goesOn { // its memory is on other devices
		w.forget(j)
	}
	j.frozen, j.yield = nil, a.Yield
	w.beginPacking(a)
	w.book.started(j, w.now)
	w.occupy(j)
	j.since = w.now
	w.powerHold(j.allocs, 1)
	latency := w.opt.Startup + w.wakeFor(j.allocs)
	switch {
	case goesOn: // its processes and their memory are still there
		latency = j.entry.Job.Checkpoint.Suspend
	case j.restart:
		latency += j.entry.Job.Checkpoint.Restart
	}
	j.restart = true
	w.push(worldEvent{at: w.now.Add(latency), kind: evReady, id: int32(a.Job), gen: j.gen})
}

// plan schedules the end of a running job at its present speed.
func (w *World) plan(j *jobRun) {
	j.gen++
	if j.entry.Run == 0 && j.entry.Job.Kind == cluster.Service {
		return // runs until it is cancelled
	}
	w.markAhead(j)
	w.push(worldEvent{at: w.now.Add(stretch(j.left, j.rate)), kind: evFinish, id: int32(j.entry.Job.ID), gen: j.gen})
}

// stretch is the time that work takes at a speed in ppm.
func stretch(d time.Duration, ppm int64) time.Duration {
	if ppm == 1_000_000 {
		return d
	}
	hi, lo := bits.Mul64(uint64(d), 1_000_000)
	if ppm <= 0 || hi >= uint64(ppm) {
		return cluster.MaxDuration
	}
	q, r := bits.Div64(hi, lo, uint64(ppm))
	if r > 0 {
		q++
	}
	return time.Duration(min(q, uint64(cluster.MaxDuration)))
}

// shrinkBy is the work done in time d at a speed in ppm.
func shrinkBy(d time.Duration, ppm int64) time.Duration {
	if ppm == 1_000_000 {
		return d
	}
	hi, lo := bits.Mul64(uint64(d), uint64(ppm))
	q, _ := bits.Div64(hi, lo, 1_000_000)
	return time.Duration(q)
}

// advance brings a running job's remaining work up to now.
func (w *World) advance(j *jobRun) {
	if j.phase != running {
		return
	}
	j.left = w.leftNow(j)
	w.book.computed(j, w.now)
	w.sent(j)
	j.since = w.now
}

// idle advances a job that stops computing, temporarily or for good.
func (w *World) idle(j *jobRun) {
	if j.phase == running {
		w.advance(j)
		w.book.busy -= j.milli
		j.phase = leaving
		w.silent(j)
	}
}

// evict begins to stop a job as the engine asked. Unsaved work is lost.
func (w *World) evict(j *jobRun, a *engine.Action) {
	if j.phase != starting && j.phase != running {
		return // the decision was applied already
	}
	if r := j.replica; r != nil && a.How == engine.Replace {
		r.moves = true
		w.push(worldEvent{at: w.now.Add(a.Grace), kind: evStays, id: int32(a.Job), gen: r.starts})
		return
	}
	c := &j.entry.Job.Checkpoint
	was := j.phase
	w.idle(j)
	j.gen++
	j.stop = a.Reason
	delay := w.replicaLeaves(j, a.Grace)
	done := j.entry.Run - j.left
	if was == running {
		kept := done
		switch {
		case a.How == engine.Suspend:
			j.frozen, w.power.froze = j.allocs, true
		case a.How == engine.Checkpoint && !c.None && c.Cost <= w.graceFor(a):
			delay = c.Cost
		default:
			kept = j.lastCheckpoint(done)
		}
		w.book.lost(j, done-kept)
		j.left = j.entry.Run - kept
		if a.How != engine.Suspend {
			j.saved = max(j.saved, kept)
		}
	}
	j.phase, j.since = leaving, w.now
	w.push(worldEvent{at: w.now.Add(delay), kind: evLeft, id: int32(a.Job), gen: j.gen})
}

// lastCheckpoint is the work saved by the last periodic checkpoint.
func (j *jobRun) lastCheckpoint(done time.Duration) time.Duration {
	c := &j.entry.Job.Checkpoint
	if c.Interval <= 0 || c.None {
		return j.saved
	}
	return max(j.saved, done-done%c.Interval)
}

func (w *World) resize(j *jobRun, a *engine.Action) {
	if inventory.SamePlace(j.allocs, a.Allocs) {
		return // the decision was applied already
	}
	was := j.phase
	w.idle(j)
	if a.Reason == engine.NodeLost { // tasks were lost: the others resume from the last checkpoint
		done := j.entry.Run - j.left
		kept := j.lastCheckpoint(done)
		w.book.lost(j, done-kept)
		j.left = j.entry.Run - kept
		j.saved = max(j.saved, kept)
	}
	w.hold(j, a.Allocs)
	if was != running && was != starting {
		return
	}
	// A resize costs a restart, during which the job does not compute.
	j.gen++
	j.resizing = true
	j.phase, j.since = starting, w.now
	w.push(worldEvent{at: w.now.Add(j.entry.Job.Checkpoint.Restart + w.wakeFor(j.allocs)), kind: evReady,
		id: int32(a.Job), gen: j.gen})
}

// update gives a job another spec: all of it while it waits, otherwise what the engine takes over, too.
func (w *World) update(j *jobRun, spec *cluster.Job) {
	e := *j.entry
	if j.phase == waiting {
		e.Job = *spec
	}
	e.Job.NoRequeue, e.Job.Checkpoint = spec.NoRequeue, spec.Checkpoint
	j.entry = &e
}

// reshape has a running gang lose its tasks on a node; the others go on at once.
func (w *World) reshape(id cluster.JobID, node string) (engine.Event, bool) {
	j := &w.jobs[id]
	r := &engine.Reshape{Tasks: slices.Clone(j.entry.Job.Tasks)}
	for i := range r.Tasks {
		r.Tasks[i].Count = 0
	}
	for _, a := range j.allocs {
		if w.spec.Nodes[a.Node].Name != node {
			r.Allocs = append(r.Allocs, a)
			r.Tasks[a.Set].Count += int(a.Tasks)
		}
	}
	lost := slices.ContainsFunc(r.Tasks, func(s cluster.TaskSet) bool { return s.Count == 0 })
	if j.phase != running || lost || len(r.Allocs) == len(j.allocs) {
		return engine.Event{}, false
	}
	near := w.neighbours(j)
	w.idle(j)
	w.hold(j, r.Allocs)
	j.phase, j.since = running, w.now
	crowd := w.transmits(j)
	j.rate = w.rateOf(j)
	w.book.computing(j)
	w.plan(j)
	w.respeed(near)
	w.respeed(crowd)
	return engine.Event{Type: engine.JobReshaped, Job: id, Reshape: r}, true
}

// hold has a job hold other devices than before.
func (w *World) hold(j *jobRun, allocs []engine.Alloc) {
	w.book.resized(j, w.now, allocs)
	w.vacate(j)
	w.powerHold(j.allocs, -1)
	j.allocs = allocs
	w.powerHold(j.allocs, 1)
	w.occupy(j)
	j.milli = 0
	for i := range allocs {
		j.milli += allocs[i].Milli()
	}
}

// depart takes a job off its devices.
func (w *World) depart(j *jobRun, reason engine.StopReason) {
	w.book.left(j, w.now)
	w.replicaGoes(j, reason)
	near := w.neighbours(j)
	w.vacate(j)
	w.passToGuest(j)
	w.respeed(near)
	w.runs--
	j.gen++
	w.powerHold(j.allocs, -1)
	j.allocs = nil
	w.quiet = w.now
	if (reason == engine.Preempted || reason == engine.NodeLost) && !j.entry.Job.NoRequeue {
		j.phase, j.since = waiting, w.now
		w.book.waits(j, reason)
		return
	}
	w.end(j, reason)
}

func (w *World) end(j *jobRun, reason engine.StopReason) {
	if j.phase == gone {
		return
	}
	was := j.phase
	w.answered(j)
	j.phase = gone
	w.alive--
	w.book.ended(j, w.now, reason, was == waiting)
	if j.trial != nil {
		w.trialEnded(j, reason)
	}
	if j.replica != nil {
		w.replicaEnded(j, reason)
	}
}

// answered books the answer to a job's deadline, once.
func (w *World) answered(j *jobRun) {
	s := &j.entry.Job
	if r := &w.book.Records[s.ID]; w.answer != nil && s.Deadline > 0 && r.Answer == report.Unanswered {
		r.Answer = answerOf[w.answer(s.ID)]
	}
}

var answerOf = [...]report.Answer{engine.DeadlineUnanswered: report.Unanswered,
	engine.DeadlineAccepted: report.Accepted, engine.DeadlineDeclined: report.Declined}

// Before, push and popEvent keep the queue of future events: earliest first, ties by kind, then id.
func (a *worldEvent) Before(b *worldEvent) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.id < b.id
}

func (w *World) push(ev worldEvent) {
	if len(w.queue) >= w.crowded { // stopped jobs leave their void finish events behind
		all := w.queue
		w.queue = all[:0] // writes never overtake the reads
		for _, ev := range all {
			if !w.void(&ev) {
				heap.Push(&w.queue, ev)
			}
		}
		w.crowded = 2*len(w.queue) + 256
	}
	heap.Push(&w.queue, ev)
}

// void reports whether the job's state has changed since the event was scheduled.
func (w *World) void(ev *worldEvent) bool { return ev.kind <= evLeft && w.jobs[ev.id].gen != ev.gen }

func (w *World) popEvent() worldEvent { return heap.Pop(&w.queue) }
