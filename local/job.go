//go:build linux

package local

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/store"
)

// noteActions prepares what is stored with a step: a start is a run of its own
// with a number of its own before anything is started.
func (m *Machine) noteActions(b *engine.Batch, d *engine.Decision) {
	for i := range d.Actions {
		a := &d.Actions[i]
		j := m.jobs[a.Job]
		if j == nil {
			continue
		}
		info := j.Own()
		switch a.Type {
		case engine.Start:
			info.Idle, j.noWay = nil, ""
			if j.run == nil { // else it resumes where it is
				if info.Run++; info.Run > 1 {
					j.Said = append(j.Said,
						fmt.Sprintf("run %d begins: %s", info.Run, cmp.Or(info.Text, "it was requeued")))
				}
				info.On = slices.Clone(a.Allocs)
				info.Frozen, info.Requeue = false, false
				info.Waited += b.Now.Sub(info.Record.Since)
				info.Exit, info.Signal, info.Text, info.Progress = 0, 0, "", nil
				info.Began = a.Treatment
				info.StdOut, info.StdErr = m.outputs(&j.Job, 0)
			}
			info.Devices = m.gpus.Held(&m.opt.Rules.Spec, a.Allocs)
			m.loans.Back(&j.Job, b.Now)
		case engine.Resize:
			held := m.gpus.Held(&m.opt.Rules.Spec, a.Allocs)
			if len(held) < len(info.Devices) {
				m.loans.Ask(&j.Job, reclaimer(m.eng, m.jobs), engine.Checkpoint, m.grace(j), m.killWait(), b.Now)
			}
			info.Devices = held
		case engine.Preempt:
			if a.Reason == engine.TimedOut {
				info.Text = "its time limit is over"
			} else if a.Reason == engine.NodeLost {
				info.Text = m.gpus.Failed(j.Info.Devices)
			} else if a.For != cluster.NoJob {
				info.Text = fmt.Sprintf("%s%d", preemptedFor, a.For)
			} else if a.Reason == engine.Preempted {
				info.Text = "preempted by the policy"
			}
			var successor *record.Job
			if o := m.jobs[a.For]; o != nil {
				successor = &o.Job
			}
			within := m.loans.Ask(&j.Job, successor, a.How, a.Grace, m.killWait(), b.Now)
			info.StopUntil = time.Unix(0, int64(b.Now)).Add(within)
		case engine.Reject:
			info.Text = a.Text
		}
	}
}

// preemptedFor begins what is said of a job that makes room for another.
const preemptedFor = "preempted for job "

// storeNow stores a job before the first step.
func (m *Machine) storeNow(ctx context.Context, j *job) error {
	err := m.store.Write(ctx, func(t *store.Tx) error { return j.Put(t, m.eng.Record(j.ID), m.eng.Now()) })
	if err == nil {
		m.jobStored(j.ID)
	}
	return err
}

// jobStored is called when a step's changes of a job are stored and carried out.
func (m *Machine) jobStored(id cluster.JobID) {
	j := m.jobs[id]
	if j == nil {
		return
	}
	j.Written()
	for _, o := range j.then {
		if j.run != nil {
			j.run.Stop(o)
		}
	}
	j.then = nil
	if j.Info.Record.State != engine.Done {
		return
	}
	m.known.Quotes.Gone(j.ID)
	m.loans.Forget(j.ID)
	if j.Info.Record.Reason == engine.Completed {
		m.known.Runs.Add(j.stated(), j.Info.Record.Ran)
	}
	if j.run != nil { // it was suspended when it was cancelled
		j.run.Stop(run.Order{How: engine.Kill, Grace: 0})
	}
	m.opt.Observe.Ended(j.Info.State)
	delete(m.jobs, id)
	m.tally.Add(j.Info.User.Name, -1, -int(j.bare))
	m.ended++
}

// outputs are the files of a task's output and error; the error's is empty
// where both are one.
func (m *Machine) outputs(j *record.Job, task int) (out, errs string) {
	s := j.Sub
	if s.Attached {
		return m.keeper.LogFile(j.ID, task, "out"), m.keeper.LogFile(j.ID, task, "err")
	}
	n := ask.FileNames{Job: int(j.ID), Array: j.Info.Array, Index: j.Index, User: j.Info.User.Name, JobName: s.Name,
		Node: m.opt.Rules.Spec.Nodes[0].Name, Task: task, Step: "batch", Restart: j.Info.Restarts()}
	pattern := s.Output
	if pattern == "" {
		if pattern = "muster-%j.out"; j.Info.Array > 0 {
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
	var j *record.Job
	if l := m.jobs[cluster.JobID(id)]; l != nil {
		j = &l.Job
	} else {
		row, err := m.store.Job(m.running, id)
		if err != nil {
			return "", User{}, err
		}
		if j, err = record.Read(row); err != nil {
			return "", User{}, err
		}
	}
	if j.Info.Run == 0 {
		return "", j.Info.User, nil
	}
	out, e := m.outputs(j, task)
	if errs {
		out = e
	}
	return out, j.Info.User, nil
}
