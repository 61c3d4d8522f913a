//go:build linux

package local

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// Sharing is how this machine's GPUs are shared.
type Sharing struct {
	Program    string // that controls MPS
	OverMemory OverMemory
}

// OverMemory is what becomes of a job that uses more memory of a GPU than its
// share's, where nothing keeps it from doing so.
type OverMemory uint8

// What can become of it.
const (
	WarnOver     OverMemory = iota // it is told, and so is the log
	ThrottleOver                   // it stands still every second sample, for as long as it does so
	StopOver                       // it ends
)

// ways are what this machine offers to jobs that share its GPUs: as the simulator has it.
func (m *Machine) ways() cluster.Ways { return m.opt.Rules.Spec.Ways(nil) }

// choose decides which way a job shares GPUs; the text says what is enforced.
func (m *Machine) choose(s *ask.Submission, spec *cluster.Job) (text string, err error) {
	w := m.ways()
	for i := range spec.Tasks {
		r := &spec.Tasks[i].Request
		if r.GPUs == 0 && r.Memory > 0 && w.Model.Memory > 0 { // so much memory of a GPU, and as much of the rest
			r.GPUs, r.Share = 1, (r.Memory*cluster.Whole+w.Model.Memory-1)/w.Model.Memory
			if r.Share >= cluster.Whole {
				r.Share = 0
			}
		}
		*r, text = w.Choose(*r, spec.Isolation, s.Prompt)
		if no := r.Unshareable(w.Sharing); no != "" {
			return "", &ask.FieldError{Field: "gpus", Text: no}
		}
	}
	if strings.Contains(text, "enforced: ") && m.opt.GPUs[0].Simulated {
		text += " (on a real one: nothing is enforced on a simulated GPU)"
	}
	return text, nil
}

// memoryOf is what the tasks of each set may use of each GPU that they share, in MiB, where
// nothing enforces it: what they asked for, else their share's part of it (Ways.Choose), also for
// jobs of versions that did not choose it. 0: whatever is there, or nothing but the job could use it.
func (m *Machine) memoryOf(spec *cluster.Job) (list []int64) {
	rules := &m.opt.Rules.Spec
	model, _ := rules.Model(rules.Nodes[0].Model)
	for i := range spec.Tasks {
		r, may := &spec.Tasks[i].Request, int64(0)
		if r.Fractional() && r.Profile == "" && (rules.Sharing != cluster.MPS || !model.MPSLimits()) {
			may = cmp.Or(r.Memory, model.Memory*r.Share/cluster.Whole)
		}
		list = append(list, may)
	}
	return list
}

// occupies tells the engine how much of a GPU's memory a run of a job was measured to use,
// in MiB.
func (m *Machine) occupies(id cluster.JobID, run int, used int64) {
	m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if j := m.jobs[id]; j == nil || j.info.Run != run || m.eng.Record(id).State != engine.Running {
			return nil, nil
		}
		return []engine.Event{{Type: engine.Progress, Job: id, Memory: used}}, nil
	})
}

// over deals with a run of a job of which a task (-1: the only one, or all together) uses
// more memory of a GPU than its share's, in MiB.
func (m *Machine) over(id cluster.JobID, run, rank int, used, may int64) {
	m.inbox.Put(func(now cluster.Time) ([]engine.Event, func(error)) {
		j := m.jobs[id]
		if j == nil || j.info.Run != run || j.run == nil || m.eng.Record(id).State != engine.Running {
			return nil, nil
		}
		var events []engine.Event
		text := fmt.Sprintf("uses %d MiB of a GPU, its share has %d", used, may)
		if rank >= 0 {
			text = fmt.Sprintf("task %d %s", rank, text)
		}
		if m.eng.Record(id).Beside != 0 {
			text = fmt.Sprintf("uses %d MiB of a GPU beside another job, it asked for %d", used, may)
		}
		if !j.info.Over {
			j.own().Over = true
			j.said = append(j.said, text)
			m.opt.Log.Warn("a job uses more memory of a GPU than its share's", "job", id, "user", j.info.User.Name,
				"used_mib", used, "share_mib", may)
			events = []engine.Event{{Type: engine.Progress, Job: id}} // so that it is stored
		}
		switch m.opt.Sharing.OverMemory {
		case WarnOver:
		case ThrottleOver:
			if every := m.opt.SampleEvery; !j.info.Frozen && now.Sub(j.throttled) >= 2*every {
				j.throttled = now
				m.pause(j.run, every)
			}
		case StopOver:
			j.own().Text = text + ": it was stopped"
			events = []engine.Event{{Type: engine.Cancelled, Job: id}}
		}
		return events, nil
	})
}

// pause has a run stand still for so long.
func (m *Machine) pause(r *runner, d time.Duration) {
	r.Stop(run.Order{Freeze: true})
	time.AfterFunc(d, func() { m.unthrottle(r) })
}

// unthrottle lets a run go on, unless a person has stopped it meanwhile.
func (m *Machine) unthrottle(r *runner) {
	m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run == r && !r.job.info.Frozen && !r.reportedSuspended {
			r.Stop(run.Order{Unfreeze: true})
		}
		return nil, nil
	})
}
