//go:build linux

package local

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/share"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// runner keeps the books of one run of a job: what its processes do becomes events for the engine and facts of the job.
type runner struct {
	*run.Run
	m                 *Machine
	job               *job // its id, submission and user never change; the rest belongs to the step
	reportedSuspended bool // belongs to the step, like the job
	port              int  // at which the tasks meet
}

func (m *Machine) newRunner(j *job) *runner {
	r := m.runnerOf(j)
	j.run = r
	m.runners.Add(1)
	return r
}

func (m *Machine) runnerOf(j *job) *runner {
	r := &runner{m: m, job: j}
	w := run.Wishes{Signal: unix.SIGUSR1, SignalShell: j.Sub.SignalShell,
		SignalBefore: time.Duration(j.Sub.SignalBefore), Pty: j.Sub.Pty}
	if _, n, err := ask.ParseSignal(j.Sub.Signal); err == nil { // else none was asked for
		w.Signal = unix.Signal(n)
	}
	r.Run = m.keeper.New(r, j.ID, j.Info.Run, j.Info.On, w)
	return r
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
				if o := (run.Order{Resume: true}); run.SameAllocs(a.Allocs, j.run.On) {
					j.run.Stop(o)
				} else { // its memory is not there: it is stopped for good, and comes back from its checkpoint
					j.run.Stop(run.Order{How: engine.Kill})
				}
			}
			return
		}
		r := m.newRunner(j)
		tasks := r.plan(j.Info.On)
		m.treatmentChanged(j)
		if l := m.eng.Record(j.ID).LimitAt; l != cluster.Never {
			r.Limit = time.Unix(0, int64(l))
		}
		go r.launch(tasks)
	case engine.Preempt:
		if j.run != nil {
			j.run.Stop(run.Order{How: a.How, Grace: m.loans.Grace(j.ID, a.Grace)})
		}
	case engine.Resize:
		if j.run != nil {
			j.run.Stop(run.Order{Resize: slices.Clone(a.Allocs), Grace: m.loans.Grace(j.ID, m.grace(j))})
		}
	case engine.Treat:
		m.treatmentChanged(j)
	case engine.Reject: // it is stored as done
	}
}

// launch starts the tasks and stays with them to their end.
func (r *runner) launch(tasks []*run.Task) {
	defer r.m.runners.Done()
	if err := r.Spawn(tasks); err != nil {
		r.notStarted(engine.Event{Type: engine.StartFailed, Job: r.ID}, err)
		return
	}
	r.m.crash("started")
	r.m.event(engine.Event{Type: engine.Started, Job: r.ID, Rate: 1_000_000})
	r.follow()
}

// follow stays with the job until it is over, or the daemon is.
func (r *runner) follow() {
	for r.ObeyLater(); r.Loop(); r.ObeyLater() {
		if !r.Moves() || r.Finished() {
			r.finish()
			return
		}
		r.m.crash("resize-ended")
		if !r.again(engine.Resized) {
			return
		}
	}
}

// progressed books what the job reported.
func (r *runner) progressed(now cluster.Time, p *show.Progress, saved bool) []engine.Event {
	if r.job.run != r {
		return nil
	}
	p.At = time.Unix(0, int64(now)).UTC()
	info := r.job.Own()
	if old := info.Progress; old != nil && p.Checkpoint == "" {
		p.Checkpoint = old.Checkpoint
	}
	info.Progress = p
	rec := r.m.eng.Record(r.ID)
	pace, ran := &info.Pace, progress.RanAt(rec, now)
	if rec.Spec.Shares() {
		pace.Meet(fmt.Sprint(r.m.eng.Company(r.ID)))
	}
	h := progress.Heard{Now: now, Job: rec, Saved: saved}
	h.Left, h.Paced = pace.Hear(r.N, ran, p, rec.GuestOf != 0 || len(rec.Guests) > 0 || len(r.m.eng.Company(r.ID)) > 0)
	var events []engine.Event
	// the present one: with guests that are held back the mean since they came says little
	h.Speed, events = r.m.holdBack(r.job, rec, p.Step, ran)
	ev := pace.Event(&h, p)
	r.m.traffic.believed(r.ID, ev.Traffic)
	if !r.Frozen() {
		ev.Switch = info.Switch.Back(p.Step, ran, record.Milli(rec.Allocs), pace.Beside)
	}
	if h.Paced && pace.PredictedIn != r.N {
		pace.PredictedIn, r.job.PredictedEnd = r.N, now.Add(h.Left)
	}
	return append(events, ev)
}

// Serve makes a run's GPUs ready. No GPU is cut, or whole again, that MPS has.
func (r *runner) Serve(tasks []*run.Task) error {
	for _, serve := range []func([]*run.Task) error{r.endMPS, r.serveMIG, r.serveMPS} {
		if err := serve(tasks); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) KillWait() time.Duration { return r.m.killWait() }

// Resumed reports to the engine that the job goes on where it was suspended.
func (r *runner) Resumed() {
	r.m.event(engine.Event{Type: engine.Started, Job: r.ID, Rate: 1_000_000})
}

// Reported books what the job reported.
func (r *runner) Reported(p *show.Progress, saved bool, said []progress.Measure) {
	r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run == r {
			info := r.job.Own()
			info.Metrics = progress.Keep(info.Metrics, r.job.Sub.Trial, said, time.Unix(0, int64(now)).UTC())
			info.Falling = progress.Converges(r.job.Sub.Converge, info.Falling, said, p)
		}
		return r.progressed(now, p, saved), nil
	})
}

// Suspended reports to the engine that the job is frozen: its devices are free.
func (r *runner) Suspended() {
	r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		r.reportedSuspended = true
		info := r.job.Own()
		info.Switch.Left(&info.Pace, run.Stop{Run: r.N, On: record.Milli(r.On), Frozen: true})
		return []engine.Event{
			{Type: engine.Stopped, Job: r.ID, Reason: engine.Preempted, Done: r.m.eng.Record(r.ID).DoneAt(now)}}, nil
	})
}

// finish reports to the engine that nothing of the job is left on its devices.
func (r *runner) finish() {
	ev := engine.Event{Type: engine.Stopped, Job: r.ID}
	exit, signal, text := r.outcome()
	lost, stopped := r.Lost(), r.WasStopped()
	switch {
	case r.Finished():
		ev.Reason, stopped, text = engine.Completed, false, "finished when it was asked for a checkpoint"
	case stopped:
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
		j, info := r.job, r.job.Own()
		info.Frozen = false
		rec := r.m.eng.Record(r.ID)
		if others != "" {
			if info.Faults++; info.Faults < share.MostFaults {
				ev.Reason, lost, text = engine.NodeLost, true, others
				j.Said = append(j.Said, others)
			} else {
				text += fmt.Sprintf("; %s, and this is the %d. time: it counts as its own fault", others,
					share.MostFaults)
			}
		}
		ev.Done = rec.DoneAt(now)
		ev.Saves = r.job.NoteResponse(r.Response())
		if stopped && !r.Saved() || lost {
			ev.Done = rec.Saved
		}
		back := r.bookLoss(&ev, &text, lost && others == "" && !stopped, now)
		r.noteRun(rec, now, stopped, lost)
		info.Exit, info.Signal = exit, signal
		info.Use.Add(r.Tasks)
		if lost || stopped &&
			(rec.State != engine.Stopping || rec.Reason == engine.Preempted || rec.Reason == engine.NodeLost) {
			info.Use.Lose(rec, now, ev.Done)
		}
		if stopped {
			ev.Switch = r.switched(rec, now, ev.Reason)
		}
		if ev.Reason == engine.Preempted && info.EndsIdle() {
			ev.Reason, text = engine.WasCancelled, info.Idle.Text
		}
		if text != "" && (info.Text == "" || !stopped) {
			info.Text = text
		}
		if j.run = nil; rec.State == engine.Pending { // it was suspended: its memory is gone
			if r.Frozen() {
				return r.fellAsleep(), nil
			}
			return nil, nil
		}
		return append(append([]engine.Event{ev}, back...), r.m.chooseOnReturn(j, rec, ev.Reason)...), nil
	})
}

// switched is what the end of a run that had to stop says of what stopping and starting takes.
func (r *runner) switched(rec *engine.JobRecord, now cluster.Time, why engine.StopReason) (c engine.SwitchCost) {
	info := r.job.Own()
	if why == engine.Preempted {
		c.Save = r.SaveTook()
	}
	least := info.Switch.Left(&info.Pace,
		run.Stop{Run: r.N, At: progress.RanAt(rec, now), On: record.Milli(info.On), Save: c.Save})
	if least > rec.Spec.Checkpoint.Restart {
		c.Restart = least
	}
	return c
}

// fellAsleep ends a job that died while it was suspended.
func (r *runner) fellAsleep() []engine.Event {
	r.job.Own().Text = "killed while it was suspended"
	return []engine.Event{{Type: engine.Cancelled, Job: r.ID}}
}

// notStarted reports that the run is no more, because its tasks could not be started.
func (r *runner) notStarted(ev engine.Event, why error) {
	if errors.Is(why, run.ErrLeaving) {
		return
	}
	r.m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		r.job.run = nil
		if errors.Is(why, run.ErrCalledOff) {
			return []engine.Event{ev}, nil
		}
		r.job.Own().Text = "it could not be started: " + why.Error()
		if !run.Crowded(why) {
			return []engine.Event{ev}, nil
		}
		ev.Undo = ev.Type == engine.StartFailed
		return []engine.Event{ev, notBefore(r.m.eng, r.ID, now.Add(crowdedWait))}, nil
	})
}

// outcome is the exit code of the gang: of the first task that failed.
func (r *runner) outcome() (exit, signal int, text string) {
	for _, t := range r.Tasks {
		s := t.State
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
		if len(r.Tasks) > 1 {
			text = fmt.Sprintf("task %d: %s", t.Rank, text)
		}
		return s.Exit, s.Signal, text
	}
	return 0, 0, ""
}

// Delayed says which processes hold up a job's devices, in the log and in the job's history.
func (r *runner) Delayed(rank int, text string) {
	r.m.opt.Log.Warn(text, "job", r.ID, "task", rank)
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run != r {
			return nil, nil
		}
		r.job.Said = append(r.job.Said, text)
		return []engine.Event{{Type: engine.Progress, Job: r.ID}}, nil
	})
}
