//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/share"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// order tells a runner what to do with its job.
type order struct {
	how      engine.How
	grace    time.Duration
	resume   bool           // a suspended job gets its devices back
	freeze   bool           // a person stops it on its devices
	unfreeze bool           // ... and lets it go on
	signal   unix.Signal    // sent as it is; 0: none
	shell    bool           // ... to the first process only
	resize   []engine.Alloc // run on these from now on
}

// ends reports whether an order ends the run, or suspends it.
func (o *order) ends() bool {
	return o.signal == 0 && !o.resume && !o.freeze && !o.unfreeze && o.resize == nil
}

// phase is how far a runner is in stopping its job.
type phase uint8

const (
	calm          phase = iota
	checkpointing       // the checkpoint signal was sent
	terminating         // SIGTERM was sent
	killed
)

// runner owns the processes of one run of a job.
type runner struct {
	m                 *Machine
	id                cluster.JobID
	job               *job           // its id, submission and user never change; the rest belongs to the step
	n                 int            // number of the run
	on                []engine.Alloc // what this run runs on
	next              []engine.Alloc // what it shall run on when it has stopped; nil: it ends then
	reportedSuspended bool           // belongs to the step, like the job
	tasks             []*task
	orders            chan order
	later             []order // that came while its tasks were being started
	ended             chan *task
	timer             *time.Timer

	phase         phase
	saved         bool // it may have written a checkpoint when one was requested
	unhandled     bool // none of its processes handles the signal that asks for a checkpoint
	stopRequested bool
	frozen        bool // suspended: its devices are another's
	live          int
	limit         time.Time // when the time limit strikes; zero: never
	alarm         bool      // the signal before the limit was sent
	requestedHere bool      // a checkpoint, by this daemon
	requestedAt   time.Time // a checkpoint, by this daemon; zero: it was not
	kept          bool      // since then it reported one

	found      signalResponse // as far as the handlers of its processes tell
	inspectAt  time.Time      // when those are inspected next
	inspectGap time.Duration

	news reports
	port int // at which the tasks meet
}

// progressEvery is how often the progress of a job is looked at.
const progressEvery = time.Second

func (m *Machine) newRunner(j *job) *runner {
	r := &runner{m: m, id: j.id, job: j, n: j.info.Run, on: j.info.On, orders: make(chan order, 16), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	j.run = r
	m.runners.Add(1)
	return r
}

// stop gives an order. It never blocks: a runner that is behind has the same
// orders before it.
func (r *runner) stop(o order) {
	select {
	case r.orders <- o:
	default:
	}
}

// act carries out one decision. It runs with the state locked.
func (m *Machine) act(a *engine.Action) {
	j := m.jobs[a.Job]
	if j == nil {
		return
	}
	switch a.Type {
	case engine.Start:
		if j.run != nil {
			if j.run.reportedSuspended {
				j.run.reportedSuspended = false
				if o := (order{resume: true}); sameAllocs(a.Allocs, j.run.on) {
					j.run.stop(o)
				} else { // its memory is not there: it is stopped for good, and comes back from its checkpoint
					j.run.stop(order{how: engine.Kill})
				}
			}
			return
		}
		r := m.newRunner(j)
		tasks := r.plan(j.info.On)
		if l := m.eng.Record(j.id).LimitAt; l != cluster.Never {
			r.limit = time.Unix(0, int64(l))
		}
		go r.launch(tasks)
	case engine.Preempt:
		if j.run != nil {
			j.run.stop(order{how: a.How, grace: a.Grace})
		}
	case engine.Resize:
		if j.run != nil {
			j.run.stop(order{resize: slices.Clone(a.Allocs), grace: m.grace(j)})
		}
	case engine.Reject: // it is stored as done
	}
}

// launch starts the tasks and stays with them to their end.
func (r *runner) launch(tasks []*task) {
	defer r.m.runners.Done()
	if err := r.spawnAll(tasks); err != nil {
		r.notStarted(engine.Event{Type: engine.StartFailed, Job: r.id}, err)
		return
	}
	r.m.crash("started")
	r.m.event(engine.Event{Type: engine.Started, Job: r.id, Rate: 1_000_000})
	r.follow()
}

// spawnAll starts all tasks or, in the end, none.
func (r *runner) spawnAll(tasks []*task) error {
	r.tasks, r.live = tasks, 0
	r.ended = make(chan *task, len(tasks))
	for _, serve := range []func([]*task) error{r.endMPS, r.serveMIG, r.serveMPS} { // no GPU is cut, or whole again, that MPS has
		if err := serve(tasks); err != nil {
			return r.takeBack(err)
		}
	}
	for _, t := range tasks {
		if err := r.spawn(t); err != nil {
			return r.takeBack(fmt.Errorf("task %d: %w", t.rank, err))
		}
	}
	return nil
}

// takeBack takes back what was started of a gang that cannot be started. It returns the error.
func (r *runner) takeBack(err error) error {
	if errors.Is(err, errLeaving) {
		return err
	}
	r.abandon()
	if errors.Is(err, errCalledOff) {
		return err
	}
	r.m.opt.Log.Warn("a job could not be started", "job", r.id, "error", err)
	if crowded(err) {
		return err
	}
	select { // a machine without processes or room needs time, not more attempts
	case <-r.m.running.Done():
	case <-time.After(time.Second):
	}
	return err
}

// follow stays with the job until it is over, or the daemon is.
func (r *runner) follow() {
	for r.obeyLater(); r.loop(); r.obeyLater() {
		if r.next == nil || r.finished() {
			r.finish()
			return
		}
		r.m.crash("resize-ended")
		if !r.again(engine.Resized) {
			return
		}
	}
}

// obeyLater carries out the orders that came while the tasks were being started, also in place.
func (r *runner) obeyLater() {
	later := r.later
	r.later = nil
	for _, o := range later {
		r.obey(o)
	}
}

// abandon kills what was started of a gang that cannot be started.
func (r *runner) abandon() {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for r.live > 0 {
		for _, t := range r.tasks {
			if t.alive {
				t.kill()
				t.killShim() // nobody wants to know how it ended
			}
		}
		select {
		case t := <-r.ended:
			t.over()
			r.live--
		case <-again.C:
		case <-r.m.running.Done():
			return
		}
	}
}

// loop follows the job until all its tasks have ended; false: the daemon ends
// before they do.
func (r *runner) loop() bool {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for r.live > 0 {
		select {
		case <-r.m.running.Done():
			return false // the shims go on
		case t := <-r.ended:
			t.over()
			r.live--
			if r.live > 0 && r.phase == calm && t.failed() { // the others would wait for it for ever
				r.signal(unix.SIGTERM)
				r.to(terminating, r.m.killWait())
			}
			if r.live > 0 && r.phase == checkpointing && r.requestedHere && !r.saving() {
				r.signal(unix.SIGTERM)
				r.to(terminating, r.m.opt.KillWait)
			}
		case o := <-r.orders:
			r.obey(o)
		case <-r.timer.C:
			r.escalate()
		case <-tick.C:
			r.look()
			r.inspectHandlers()
			if r.phase == checkpointing && r.requestedHere {
				r.requestOfTasks()
			}
		}
	}
	for range mostEnd { // what it said last may be what it was run for
		if r.readProgress(true); !r.news.more {
			break
		}
	}
	return true
}

// obey carries out an order.
func (r *runner) obey(o order) {
	switch {
	case o.signal != 0:
		r.send(o.signal, o.shell)
	case o.freeze:
		r.signal(unix.SIGSTOP)
	case o.unfreeze:
		r.signal(unix.SIGCONT)
	case o.resume:
		r.frozen = false
		r.signal(unix.SIGCONT)
		r.m.event(engine.Event{Type: engine.Started, Job: r.id, Rate: 1_000_000})
	case o.resize != nil:
		if !r.stopRequested && !sameAllocs(o.resize, r.on) && r.next == nil {
			r.next = o.resize
			r.requestCheckpoint(o.grace)
		}
	case o.how == engine.Suspend && r.phase == calm:
		if !r.frozen {
			r.signal(unix.SIGSTOP)
			r.look() // what it reported up to now
			r.frozen = true
			r.m.crash("frozen")
			r.suspended()
		}
	case o.how == engine.Checkpoint, o.how == engine.Suspend: // suspended while it leaves for a resize: it leaves
		if r.phase <= checkpointing || r.next != nil {
			r.stopRequested, r.next = true, nil
		}
		r.requestCheckpoint(o.grace)
	case r.phase == terminating && r.next != nil:
		r.stopRequested, r.next = true, nil
	case r.phase < terminating:
		r.stopRequested, r.next = true, nil
		if o.grace <= 0 {
			r.kill()
			return
		}
		r.signal(unix.SIGTERM)
		r.signal(unix.SIGCONT)
		r.to(terminating, o.grace)
	}
}

// requestCheckpoint asks for a checkpoint, once in the life of a run: a handler that is called
// a second time while it writes may spoil what it wrote.
func (r *runner) requestCheckpoint(grace time.Duration) {
	if r.phase != calm {
		return
	}
	r.saved, r.requestedAt = true, r.m.time()
	heard := true
	r.m.crash("before-signal")
	if note := filepath.Join(r.m.jobDir(r.id), strconv.Itoa(r.n), "asked"); !exists(note) {
		heard = r.requestOfTasks()
		if err := os.WriteFile(note, nil, 0o600); err != nil {
			r.m.opt.Log.Warn("that a job was asked for a checkpoint cannot be noted", "job", r.id, "error", err)
		}
	}
	r.m.crash("after-signal")
	r.signal(unix.SIGCONT) // it may be stopped
	if !heard {            // nobody would save anything: to wait for it is time lost
		r.saved, r.unhandled = false, true
		r.signal(unix.SIGTERM)
		r.to(terminating, r.m.killWait())
		return
	}
	r.to(checkpointing, grace)
}

// signalJob sends a signal to those processes of the job that handle it, or to the
// first process of each task if the job wants that. It reports whether there
// is one: to the others, such as a shell around the program that saves, the
// signal would be the end before the program has saved.
func (r *runner) signalJob(s unix.Signal) (heard bool) {
	for _, t := range r.tasks {
		heard = r.signalHandlers(t, s) || heard
	}
	return heard
}

func (r *runner) signalHandlers(t *task, s unix.Signal) (heard bool) {
	if !t.alive || !t.there() {
		return false
	}
	pids := []int{t.state.Pid}
	if !r.job.sub.SignalShell {
		pids = shim.Family(t.state.Pid)
		if t.group.Exists() {
			own := t.group.Pids()
			pids = slices.DeleteFunc(pids, func(pid int) bool { return !slices.Contains(own, pid) })
		}
	}
	for _, pid := range pids {
		if shim.Handles(pid, s) && unix.Kill(pid, s) == nil {
			heard = true
		}
	}
	return heard
}

// requestOfTasks asks each task for a checkpoint that was not asked so far: one that
// has just begun may not have got to its handler yet.
func (r *runner) requestOfTasks() (heard bool) {
	r.requestedHere = true
	for _, t := range r.tasks {
		t.requested = t.requested || r.signalHandlers(t, r.checkpointSignal())
		heard = heard || t.requested
	}
	return heard
}

// saving reports whether a task that was asked for a checkpoint is still there.
// When none is, the others have nothing to wait for.
func (r *runner) saving() bool {
	return slices.ContainsFunc(r.tasks, func(t *task) bool { return t.requested && t.alive })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// to enters a phase that lasts so long.
func (r *runner) to(p phase, d time.Duration) {
	r.phase = p
	r.timer.Reset(d)
}

// escalate is called when a phase is over and the job is still there.
func (r *runner) escalate() {
	switch r.phase {
	case checkpointing:
		r.saved = false // what it has saved all the same it has reported
		r.signal(unix.SIGTERM)
		r.to(terminating, r.m.killWait())
	case terminating:
		r.kill()
	case killed: // its shim does not end: it goes, too
		r.kill()
		for _, t := range r.tasks {
			if t.alive {
				t.killShim()
			}
		}
	case calm:
	}
}

func (r *runner) kill() {
	if r.phase != checkpointing {
		r.saved = false
	}
	for _, t := range r.tasks {
		if t.alive {
			t.kill()
		}
	}
	r.to(killed, 5*time.Second)
}

// signal sends a signal to every process group.
func (r *runner) signal(s unix.Signal) { r.send(s, false) }

func (r *runner) send(s unix.Signal, shell bool) {
	for _, t := range r.tasks {
		if t.alive {
			t.signal(s, shell)
			if s == unix.SIGTERM && r.job.sub.Pty { // a shell at its terminal does not mind; that its terminal goes, it does
				t.signal(unix.SIGHUP, shell)
			}
		}
	}
}

// checkpointSignal is the one that the job asked for.
func (r *runner) checkpointSignal() unix.Signal {
	if _, n, err := ask.ParseSignal(r.job.sub.Signal); err == nil {
		return unix.Signal(n)
	}
	return unix.SIGUSR1 // none was asked for
}

// look reads what the job tells of itself, and warns it before its limit.
func (r *runner) look() {
	if b := time.Duration(r.job.sub.SignalBefore); b > 0 && !r.alarm && !r.limit.IsZero() && r.m.time().Add(b).After(r.limit) && r.phase == calm {
		r.alarm = true
		r.signalJob(r.checkpointSignal())
	}
	r.readProgress(false)
}

// readProgress reads what the job reports; when it has ended, its last line too.
func (r *runner) readProgress(ended bool) {
	if p, saved := r.news.read(r.tasks, ended); p != nil {
		r.kept = r.kept || saved && !r.requestedAt.IsZero()
		said := r.news.Said
		r.news.Said = nil
		r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
			if r.job.run == r {
				info := r.job.own()
				info.measured(r.job.sub.Trial, said, time.Unix(0, int64(now)).UTC())
				info.Falling = progress.Converges(r.job.sub.Converge, info.Falling, said, p)
			}
			return r.progressed(now, p, saved), nil
		})
	}
}

// progressed books what the job reported.
func (r *runner) progressed(now cluster.Time, p *show.Progress, saved bool) []engine.Event {
	if r.job.run != r {
		return nil
	}
	p.At = time.Unix(0, int64(now)).UTC()
	info := r.job.own()
	if old := info.Progress; old != nil && p.Checkpoint == "" {
		p.Checkpoint = old.Checkpoint
	}
	info.Progress = p
	rec := r.m.eng.Record(r.id)
	pace, ran := &info.Pace, progress.RanAt(rec, now)
	if rec.Spec.Shares() {
		pace.Meet(fmt.Sprint(r.m.eng.Company(r.id)))
	}
	h := progress.Heard{Now: now, Job: rec, Saved: saved}
	h.Left, h.Paced = pace.Hear(r.n, ran, p, rec.Beside != 0 || len(rec.Guests) > 0 || len(r.m.eng.Company(r.id)) > 0)
	var events []engine.Event
	h.Speed, events = r.m.holdBack(r.job, rec, p.Step, ran) // the present one: with guests that are held back the mean since they came says little
	ev := pace.Event(&h, p)
	if !r.frozen {
		ev.Switch = info.Switch.back(p.Step, ran, milliOf(rec.Allocs), pace.Beside)
	}
	if h.Paced && pace.Told != r.n {
		pace.Told, r.job.predictedEnd = r.n, now.Add(h.Left)
	}
	return append(events, ev)
}

// suspended tells the engine that the job is frozen: its devices are free.
func (r *runner) suspended() {
	r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		r.reportedSuspended = true
		info := r.job.own()
		info.Switch.left(&info.Pace, stop{run: r.n, on: milliOf(r.on), frozen: true})
		return []engine.Event{{Type: engine.Stopped, Job: r.id, Reason: engine.Preempted, Done: r.m.eng.Record(r.id).DoneAt(now)}}, nil
	})
}

// finish tells the engine that nothing of the job is left on its devices.
func (r *runner) finish() {
	ev := engine.Event{Type: engine.Stopped, Job: r.id}
	exit, signal, text := r.outcome()
	lost := false
	for _, t := range r.tasks {
		lost = lost || t.lost
	}
	switch {
	case r.finished():
		ev.Reason, r.stopRequested, text = engine.Completed, false, "finished when it was asked for a checkpoint"
	case r.stopRequested:
		ev.Reason = engine.Preempted // or what the engine stopped it for, which it knows
	case lost:
		ev.Reason, text = engine.NodeLost, "the process that watched over it was killed"
	case exit == 0:
		ev.Reason = engine.Completed
	default:
		ev.Reason = engine.Failed
	}
	others := ""
	if ev.Reason == engine.Failed {
		others = r.faultOfOthers()
	}
	r.m.crash("ended")
	r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		j, info := r.job, r.job.own()
		info.Frozen = false
		rec := r.m.eng.Record(r.id)
		if others != "" {
			if info.Faults++; info.Faults < share.MostFaults {
				ev.Reason, lost, text = engine.NodeLost, true, others
				j.said = append(j.said, others)
			} else {
				text += fmt.Sprintf("; %s, and this is the %d. time: it counts as its own fault", others, share.MostFaults)
			}
		}
		ev.Done = rec.DoneAt(now)
		ev.Saves = r.reportSignalResponse()
		if r.stopRequested && !r.saved || lost {
			ev.Done = rec.Saved
		}
		back := r.bookLoss(&ev, &text, lost && others == "" && !r.stopRequested, now)
		r.noteRun(rec, now, lost)
		info.Exit, info.Signal = exit, signal
		info.Use.add(r.tasks)
		if lost || r.stopRequested && (rec.State != engine.Stopping || rec.Reason == engine.Preempted || rec.Reason == engine.NodeLost) {
			info.Use.lose(rec, now, ev.Done)
		}
		if r.stopRequested {
			ev.Switch = r.switched(rec, now, ev.Reason)
		}
		if ev.Reason == engine.Preempted && info.endsIdle() {
			ev.Reason, text = engine.WasCancelled, info.Idle.Text
		}
		if text != "" && (info.Text == "" || !r.stopRequested) {
			info.Text = text
		}
		if j.run = nil; rec.State == engine.Pending { // it was suspended: its memory is gone
			if r.frozen {
				return r.fellAsleep(), nil
			}
			return nil, nil
		}
		return append(append([]engine.Event{ev}, back...), r.m.chooseOnReturn(j, rec, ev.Reason)...), nil
	})
}

// switched is what the end of a run that was told to stop says of what stopping and starting takes.
func (r *runner) switched(rec *engine.JobRecord, now cluster.Time, why engine.StopReason) (c engine.SwitchCost) {
	info := r.job.own()
	if why == engine.Preempted {
		c.Save = r.saveTook()
	}
	least := info.Switch.left(&info.Pace, stop{run: r.n, at: progress.RanAt(rec, now), on: milliOf(info.On), save: c.Save})
	if least > rec.Spec.Checkpoint.Restart {
		c.Restart = least
	}
	return c
}

// finished reports whether the job was asked for a checkpoint when there was
// nothing left to do: it says so, and perhaps it was about to end and could not hear.
func (r *runner) finished() bool {
	return (r.saved || r.unhandled) && r.news.Finished && !slices.ContainsFunc(r.tasks, (*task).failed)
}

// fellAsleep ends a job that died while it was suspended.
func (r *runner) fellAsleep() []engine.Event {
	r.job.own().Text = "killed while it was suspended"
	return []engine.Event{{Type: engine.Cancelled, Job: r.id}}
}

// notStarted reports that the run is no more, because its tasks could not be started.
func (r *runner) notStarted(ev engine.Event, why error) {
	if errors.Is(why, errLeaving) {
		return
	}
	r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		r.job.run = nil
		if errors.Is(why, errCalledOff) {
			return []engine.Event{ev}, nil
		}
		r.job.own().Text = "it could not be started: " + why.Error()
		if !crowded(why) {
			return []engine.Event{ev}, nil
		}
		ev.Undo = ev.Type == engine.StartFailed
		return []engine.Event{ev, r.m.notBefore(r.id, now.Add(crowdedWait))}, nil
	})
}

// outcome is the exit code of the gang: of the first task that failed.
func (r *runner) outcome() (exit, signal int, text string) {
	for _, t := range r.tasks {
		s := t.state
		if s == nil || s.Exit == 0 {
			continue
		}
		if s.Error != "" {
			text = s.Error
		} else if killed := r.killed(t); killed != "" {
			text = killed
		} else if s.Signal != 0 {
			text = fmt.Sprintf("killed by %s", unix.SignalName(unix.Signal(s.Signal)))
		} else {
			text = fmt.Sprintf("exit code %d", s.Exit)
		}
		if len(r.tasks) > 1 {
			text = fmt.Sprintf("task %d: %s", t.rank, text)
		}
		return s.Exit, s.Signal, text
	}
	return 0, 0, ""
}

func (t *task) failed() bool { return t.lost || t.state == nil || t.state.Exit != 0 }
