//go:build linux

package local

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// stateOf is the state that users see.
func stateOf(r *engine.JobRecord, frozen bool) string {
	switch r.State {
	case engine.Pending:
		if r.Home != nil {
			return show.StateSuspended
		}
		return show.StatePending
	case engine.Placed:
		return show.StatePending
	case engine.Starting:
		return show.StateStarting
	case engine.Running:
		if frozen {
			return show.StateSuspended
		}
		return show.StateRunning
	case engine.Stopping:
		return show.StateStopping
	}
	return endStates[r.Reason]
}

var endStates = map[engine.StopReason]string{
	engine.Completed: show.StateCompleted, engine.Failed: show.StateFailed, engine.WasCancelled: show.StateCancelled,
	engine.TimedOut: show.StateTimeout, engine.Preempted: show.StatePreempted, engine.NodeLost: show.StateLost,
	engine.LaunchFailed: show.StateFailed, engine.Impossible: show.StateRejected,
	engine.NeverReady: show.StateCancelled,
}

// jobOf is the job of a row, without its submission.
func jobOf(row *store.Job) (*job, error) {
	j := &job{id: cluster.JobID(row.ID), stored: byItself, becomes: byItself, info: &Info{}}
	if err := json.Unmarshal(row.Data, j.info); err != nil {
		return nil, err
	}
	j.spec, j.index = j.info.Record.Spec, j.info.Index
	if j.spec == nil {
		return nil, errors.New("it says nothing of what the job asks for")
	}
	return j, nil
}

// noteActions prepares what is stored with a step: a start is a run of its own
// with a number of its own before anything is started.
func (m *Machine) noteActions(b *engine.Batch, d *engine.Decision) {
	for i := range d.Actions {
		a := &d.Actions[i]
		j := m.jobs[a.Job]
		if j == nil {
			continue
		}
		info := j.own()
		switch a.Type {
		case engine.Start:
			info.Idle, j.noWay = nil, ""
			if j.run == nil { // else it resumes where it is
				if info.Run++; info.Run > 1 {
					j.said = append(j.said,
						fmt.Sprintf("run %d begins: %s", info.Run, cmp.Or(info.Text, "it was requeued")))
				}
				info.On = slices.Clone(a.Allocs)
				info.Frozen, info.Requeue = false, false
				info.Waited += b.Now.Sub(info.Record.Since)
				info.Exit, info.Signal, info.Text, info.Progress = 0, 0, "", nil
				info.StdOut, info.StdErr = m.outputs(j, 0)
			}
			info.Devices = m.gpus.Held(&m.opt.Rules.Spec, a.Allocs)
		case engine.Resize:
			info.Devices = m.gpus.Held(&m.opt.Rules.Spec, a.Allocs)
		case engine.Preempt:
			if a.Reason == engine.TimedOut {
				info.Text = "its time limit is over"
			} else if a.Reason == engine.NodeLost {
				info.Text = m.gpus.Failed(j.info.Devices)
			} else if a.For != cluster.NoJob {
				info.Text = fmt.Sprintf("%s%d", preemptedFor, a.For)
			} else if a.Reason == engine.Preempted {
				info.Text = "preempted by the policy"
			}
			info.StopUntil = time.Unix(0, int64(b.Now)).Add(a.Grace)
		case engine.Reject:
			info.Text = a.Text
		}
	}
}

// preemptedFor begins what is said of a job that makes room for another.
const preemptedFor = "preempted for job "

// writeJob stores a job that the step changed.
func (m *Machine) writeJob(t *store.Tx, id cluster.JobID) error {
	j := m.jobs[id]
	if j == nil {
		return nil // done, and stored as such
	}
	info := j.own()
	info.Record = *m.eng.Record(id)
	r := &info.Record
	j.spec, info.State = r.Spec, stateOf(r, info.Frozen)
	info.giveBack(m.eng.Now())
	if r.State == engine.Pending {
		info.Idle = nil // what it computes is seen when it runs again
	}
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	row := store.Job{ID: int(id), User: j.info.User.Name, Name: r.Spec.Name, Queue: r.Spec.Queue, State: j.info.State,
		Active: r.State != engine.Done, Submitted: int64(r.Spec.Submit), Ended: int64(r.Ended), Data: data}
	if r.FirstStart != cluster.Never {
		row.Started = int64(r.FirstStart)
	}
	if j.becomes = byItself; j.stored != byItself && j.ofArray() {
		row.Submission = []byte{}
	} else if j.stored != byItself || j.edited {
		if row.Submission, err = json.Marshal(j.sub); err != nil {
			return err
		}
	}
	if err := t.PutJob(&row); err != nil {
		return err
	}
	if j.predictedEnd != 0 {
		if err := t.PutEnd(store.Prediction{Job: int(id), At: int64(m.eng.Now()),
			Expected: int64(j.predictedEnd)}); err != nil {
			return err
		}
	}
	said := j.said
	if j.info.State != j.was {
		said = append(slices.Clone(said), j.info.Text)
	}
	for _, text := range said {
		if err := t.PutHistory(int(id), int64(m.eng.Now()), j.info.State, text); err != nil {
			return err
		}
	}
	return nil
}

// jobStored is called when a step's changes of a job are stored and carried out.
func (m *Machine) jobStored(id cluster.JobID) {
	j := m.jobs[id]
	if j == nil {
		return
	}
	j.formStored()
	j.edited, j.was, j.said, j.predictedEnd = false, j.info.State, nil, 0
	for _, o := range j.then {
		if j.run != nil {
			j.run.Stop(o)
		}
	}
	j.then = nil
	if j.info.Record.State != engine.Done {
		return
	}
	m.known.Quotes.Gone(j.id)
	if j.info.Record.Reason == engine.Completed {
		m.known.Runs.Add(j.stated(), j.info.Record.Ran)
	}
	if j.run != nil { // it was suspended when it was cancelled
		j.run.Stop(run.Order{How: engine.Kill, Grace: 0})
	}
	m.opt.Observe.Ended(j.info.State)
	delete(m.jobs, id)
	m.tally.Add(j.info.User.Name, -1, -int(j.bare))
	m.ended++
}

// outputs are the files of a task's output and error; the error's is empty
// where both are one.
func (m *Machine) outputs(j *job, task int) (out, errs string) {
	s := j.sub
	if s.Attached {
		return m.keeper.LogFile(j.id, task, "out"), m.keeper.LogFile(j.id, task, "err")
	}
	n := ask.FileNames{Job: int(j.id), Array: j.info.Array, Index: j.index, User: j.info.User.Name, JobName: s.Name,
		Node: m.opt.Rules.Spec.Nodes[0].Name, Task: task, Step: "batch", Restart: j.info.restarts()}
	pattern := s.Output
	if pattern == "" {
		if pattern = "muster-%j.out"; j.info.Array > 0 {
			pattern = "muster-%A_%a.out"
		}
	}
	out = inDir(s.Dir, ask.ExpandPattern(pattern, n))
	if s.Error != "" {
		errs = inDir(s.Dir, ask.ExpandPattern(s.Error, n))
	}
	if errs == out {
		errs = ""
	}
	return out, errs
}

// LogPath returns the file of a task's output and whose it must be; "": none.
func (m *Machine) LogPath(id, task int, errs bool) (string, User, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	j := m.jobs[cluster.JobID(id)]
	if j == nil {
		row, err := m.store.Job(m.running, id)
		if err != nil {
			return "", User{}, err
		}
		sub := &ask.Submission{}
		if j, err = jobOf(row); err == nil {
			err = json.Unmarshal(row.Submission, sub)
		}
		if err != nil {
			return "", User{}, err
		}
		j.sub = sub
	}
	if j.info.Run == 0 {
		return "", j.info.User, nil
	}
	out, e := m.outputs(j, task)
	if errs {
		out = e
	}
	return out, j.info.User, nil
}

// view is a job as the interface shows it.
func view(info *Info, sub *ask.Submission, id int, now time.Time) show.Job {
	r := &info.Record
	at := func(t cluster.Time) *time.Time {
		if t <= 0 || t == cluster.Never {
			return nil
		}
		v := time.Unix(0, int64(t)).UTC()
		return &v
	}
	j := show.Job{ID: id, Array: info.Array, Index: info.Index, User: info.User.Name, State: info.State,
		Reason:    info.Text,
		Submitted: time.Unix(0, int64(r.Spec.Submit)).UTC(), Eligible: at(r.EligibleSince),
		Started: at(r.Started), FirstStart: at(r.FirstStart),
		Ended: at(r.Ended), Waited: ask.Duration(info.Waited), Ran: ask.Duration(r.Ran),
		GPUHours: float64(r.Attained) / 3.6e9,
		Restarts: info.restarts(), Preemptions: int(r.Preemptions), ExitCode: info.Exit, ExitSignal: info.Signal,
		Devices: info.Devices, StdOut: info.StdOut, StdErr: info.StdErr, Progress: info.Progress, Metrics: info.Metrics,
		Submission: *sub,
		Sharing:    info.Sharing, LostGPUHours: info.Use.Lost.Hours(), CPUTime: ask.Duration(info.Use.CPU),
		RAMPeak: info.Use.Peak >> 20}
	if r.State == engine.Done && r.Reason == engine.NeverReady {
		j.Code = "DependencyNeverSatisfied"
	}
	if r.Target != nil {
		j.Promise = answers[r.Target.Deadline]
	}
	t := cluster.Time(now.UnixNano())
	switch {
	case r.State == engine.Pending || r.State == engine.Placed:
		j.Waited += ask.Duration(max(0, t.Sub(r.Since)))
	case r.State < engine.Done:
		j.Ran += ask.Duration(max(0, t.Sub(r.Acc)))
		for _, d := range info.Devices {
			share := d.Share
			if share == 0 {
				share = cluster.Whole
			}
			j.GPUHours += float64(share) / float64(cluster.Whole) * max(0, t.Sub(r.Acc).Hours())
		}
	}
	j.GPUHours += info.backHours(t)
	j.StepRate, j.SampleRate = progress.PerHour(info.Pace.Steps, j.GPUHours),
		progress.PerHour(info.Pace.Sample, j.GPUHours)
	if s := &info.Switch; s.Count > 0 {
		j.SwitchCost, j.SwitchGPUHours = ask.Duration(s.Took/time.Duration(s.Count)), s.GPU.Hours()
	}
	if r.State < engine.Done {
		j.SavesNothing = info.savesText(sub)
	}
	if end, by := endOf(info, sub, t); by != "" {
		j.ExpectedEnd, j.EndBy = at(end), by
	}
	if i := info.Idle; i != nil && r.State < engine.Done {
		j.Idle = &show.Idle{Since: i.Since, Stage: i.Stage, Text: i.Text}
		j.Reason = i.Text
	}
	return j
}
