//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/share"
)

// sample measures until the daemon ends.
func (m *Machine) sample() {
	defer m.runners.Done()
	s := m.newSampler(m.opt.Now())
	m.sampler.Store(s)
	s.Run(m.opt.Now)
}

// newSampler makes one that measures from an instant on.
func (m *Machine) newSampler(now time.Time) *observe.Sampler {
	return observe.New(m.running, observe.Options{Host: observed{m}, Devices: m.opt.Devices, Store: m.store,
		Every: m.opt.SampleEvery, Log: m.opt.Log}, now)
}

// observed is the machine as its sampler needs it.
type observed struct{ m *Machine }

func (h observed) TaskOf(pid int) (id cluster.JobID, rank int, ok bool) {
	return h.m.keeper.TaskOf(pid)
}

func (h observed) Used(j *observe.Job, rank int) (cgroup.Usage, bool) {
	return h.m.keeper.Group(h.m.keeper.Mark(j.ID, j.Run, rank)).Usage()
}

func (h observed) Seen(values []gpu.Sample) { h.m.gpus.SetSeen(values) }

func (h observed) IdleRules() *observe.IdleRules { return h.m.idle.Load() }

func (h observed) SetIdle(j *observe.Job, r *observe.IdleRules, since time.Time, stage string) {
	h.m.setIdle(j, r, since, stage)
}

func (h observed) Over(j *observe.Job, rank int, used, may int64) {
	h.m.over(j.ID, j.Run, rank, used, may)
}

func (h observed) Occupies(j *observe.Job, used int64) { h.m.occupies(j.ID, j.Run, used) }

func (h observed) Running() (list []observe.Job, healthy int, held float64) {
	m := h.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	healthy = m.gpus.Healthy()
	for _, j := range m.jobs {
		if s := j.Info.Record.State; s < engine.Starting || s > engine.Stopping {
			continue
		}
		r := j.Whole().Record
		may := share.MemoryOf(&m.opt.Rules.Spec, r.Spec)
		v := observe.Job{ID: j.ID, Run: j.Info.Run, Devices: j.Info.Devices, Began: r.Started, Tier: r.Spec.Tier,
			Idle: j.Info.IdleStage(),
			May: func(rank int) int64 {
				if set := setOf(r.Allocs, rank); set < len(may) {
					return may[set]
				}
				return 0
			}}
		if rules := m.idle.Load(); rules != nil {
			v.Spared = rules.Spares(r.Spec, m.opt.Rules.Spec.Queues)
		}
		v.Packed, v.Tells = r.GuestOf != 0 || len(r.Guests) > 0, m.eng.WantsMemory()
		if r.GuestOf != 0 && r.Spec.Tasks[0].Request.Memory > 0 {
			v.Asked = r.Spec.Tasks[0].Request.Memory
		}
		if p := j.Info.Progress; p != nil {
			step, rate := p.Step, p.SamplesPerSec
			if v.Step = &step; rate > 0 {
				v.Rate = &rate
			}
		}
		for i := range r.Allocs {
			v.Tasks += int(r.Allocs[i].Tasks)
			held += float64(r.Allocs[i].Milli()) / float64(cluster.Whole)
		}
		held += float64(record.Milli(r.Leaving)) / float64(cluster.Whole)
		list = append(list, v)
	}
	return list, healthy, held
}
