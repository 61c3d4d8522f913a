//go:build linux

package local

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/devices"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/share"
	"github.com/muster-gpu/muster/show"
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
	WarnOver     OverMemory = iota // its history says so, and the log
	ThrottleOver                   // it stands still every second sample, for as long as it does so
	StopOver                       // it ends
)

// choose decides which way a job shares GPUs; the text says what is enforced.
func (m *Machine) choose(s *ask.Submission, spec *cluster.Job) (text string, err error) {
	return share.Choose(&m.opt.Rules.Spec, m.gpus.Simulated(), s, spec)
}

// occupies reports to the engine how much of a GPU's memory a run of a job was measured to use,
// in MiB.
func (m *Machine) occupies(id cluster.JobID, run int, used int64) {
	m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if j := m.jobs[id]; j == nil || j.Info.Run != run || m.eng.Record(id).State != engine.Running {
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
		if j == nil || j.Info.Run != run || j.run == nil || m.eng.Record(id).State != engine.Running {
			return nil, nil
		}
		var events []engine.Event
		text := fmt.Sprintf("uses %d MiB of a GPU, its share has %d", used, may)
		if rank >= 0 {
			text = fmt.Sprintf("task %d %s", rank, text)
		}
		if m.eng.Record(id).GuestOf != 0 {
			text = fmt.Sprintf("uses %d MiB of a GPU beside another job, it asked for %d", used, may)
		}
		if !j.Info.Over {
			j.Own().Over = true
			j.Said = append(j.Said, text)
			m.opt.Log.Warn("a job uses more memory of a GPU than its share's", "job", id, "user", j.Info.User.Name,
				"used_mib", used, "share_mib", may)
			events = []engine.Event{{Type: engine.Progress, Job: id}} // so that it is stored
		}
		switch m.opt.Sharing.OverMemory {
		case WarnOver:
		case ThrottleOver:
			if every := m.opt.SampleEvery; !j.Info.Frozen && now.Sub(j.throttled) >= 2*every {
				j.throttled = now
				m.pause(j.run, every)
			}
		case StopOver:
			j.Own().Text = text + ": it was stopped"
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
		if r.job.run == r && !r.job.Info.Frozen && !r.reportedSuspended {
			r.Stop(run.Order{Unfreeze: true})
		}
		return nil, nil
	})
}

// serveMIG makes the instances that a run needs, and has GPUs be whole that it needs whole.
func (r *runner) serveMIG(tasks []*run.Task) error {
	var list []*show.Device
	for _, t := range tasks {
		for i := range t.Devices {
			list = append(list, &t.Devices[i])
		}
	}
	return r.m.gpus.Cut(r.m.opt.Rules.Spec.MIG, list, r.inUse, func(p *devices.Partition) {
		for _, t := range tasks {
			for i := range t.Spec.Env {
				t.Spec.Env[i] = p.Rename(t.Spec.Env[i])
			}
		}
		r.repartitioned(p)
	})
}

// inUse reports which instances another job's tasks may be on.
func (r *runner) inUse() func(uuid string) bool {
	r.m.mu.RLock()
	defer r.m.mu.RUnlock()
	var held []string
	for id, j := range r.m.jobs {
		if id == r.ID || j.run == nil {
			continue
		}
		for i := range j.Info.Devices {
			held = append(held, j.Info.Devices[i].UUID)
		}
	}
	return func(uuid string) bool { return slices.Contains(held, uuid) }
}

// repartitioned books what a GPU's instances are now, and which of them the job has.
func (r *runner) repartitioned(p *devices.Partition) {
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		r.m.gpus.Repartitioned(p)
		if r.job.run != r {
			return nil, nil
		}
		info := r.job.Own()
		info.Devices = r.m.gpus.Held(&r.m.opt.Rules.Spec, info.On)
		return []engine.Event{{Type: engine.Progress, Job: r.ID}}, nil // so that it is stored
	})
}
