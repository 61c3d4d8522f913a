//go:build linux

package local

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/share"
	"github.com/muster-gpu/muster/show"
)

// findMPS knows the control daemons of the services before this one.
func (m *Machine) findMPS() (err error) {
	m.mps, err = share.Find(m.running,
		share.Options{Dir: filepath.Join(m.opt.Dir, "mps"), Program: m.opt.Sharing.Program,
			Host: mpsHost{m}, Now: func() time.Time { return m.opt.Now() }, Log: m.opt.Log})
	return err
}

// mpsHost is the machine as MPS' control daemons need it.
type mpsHost struct{ m *Machine }

func (h mpsHost) Exclusive(uuid string, on bool) error { return h.m.opt.Devices.Exclusive(uuid, on) }

func (h mpsHost) UserOf(id cluster.JobID) int {
	m := h.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	if j := m.jobs[id]; j != nil {
		return j.Info.User.UID
	}
	return -1
}

func (h mpsHost) Sharers(uuid string) (ids []cluster.JobID) {
	m := h.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	at := slices.IndexFunc(m.gpus.List, func(g show.GPU) bool { return g.UUID == uuid })
	on := func(a engine.Alloc) bool { return a.Share > 0 && a.Slots == 0 && a.GPUs>>at&1 == 1 }
	for id, j := range m.jobs {
		if at >= 0 && (slices.ContainsFunc(j.Info.Record.Allocs, on) ||
			slices.ContainsFunc(j.Info.Record.Leaving, on) || j.run != nil && slices.ContainsFunc(j.Info.On, on)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// endMPS has the GPUs that a run gets whole, or instances of, be no longer MPS' alone: in
// exclusive-process mode a second process would be refused, and a GPU in use cannot be cut.
func (r *runner) endMPS(tasks []*run.Task) error {
	for _, t := range tasks {
		for i := range t.Devices {
			if d := &t.Devices[i]; !share.UnderMPS(&r.m.opt.Rules.Spec, d) {
				if err := r.m.mps.Leave(d.GPU()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// serveMPS makes sure that the GPUs of a run's shares have their control daemons.
func (r *runner) serveMPS(tasks []*run.Task) error {
	for _, t := range tasks {
		for i := range t.Devices {
			if share.UnderMPS(&r.m.opt.Rules.Spec, &t.Devices[i]) {
				if err := r.m.mps.Need(t.Devices[i].UUID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// mpsVariables make a task a client of its GPU's server, within its share; own is the
// user's environment.
func (m *Machine) mpsVariables(t *run.Task, own []string) []string {
	if len(t.Devices) != 1 || !share.UnderMPS(&m.opt.Rules.Spec, &t.Devices[0]) {
		return nil
	}
	return m.mps.Variables(t.Devices[0].UUID, t.Devices[0].Share, t.Request.Memory, own)
}

// failedAt is when the first task of a run failed: the others were stopped then.
func (r *runner) failedAt() time.Time {
	at := r.m.opt.Now()
	for _, t := range r.Tasks {
		if s := t.State; s != nil && s.Exit != 0 && !s.Ended.IsZero() && s.Ended.Before(at) {
			at = s.Ended
		}
	}
	return at
}

// faultOfOthers says, of a run that failed, that the server of its GPU failed about then,
// while others were on it, too. "": it failed by itself. It is called without the state's lock.
func (r *runner) faultOfOthers() string {
	failed := r.failedAt()
	r.m.mu.RLock()
	devices := r.m.gpus.Held(&r.m.opt.Rules.Spec, r.job.Info.On)
	r.m.mu.RUnlock()
	for _, device := range devices {
		if !share.UnderMPS(&r.m.opt.Rules.Spec, &device) {
			continue
		}
		others := r.m.mps.Fault(device.UUID, r.ID, failed)
		was := "job %s was"
		switch {
		case len(others) == 0:
			continue
		case len(others) > 1:
			was = "jobs %s were"
		}
		return fmt.Sprintf("the MPS server of GPU %d failed; "+was+" on it, too", device.Index, share.Numbers(others))
	}
	return ""
}
