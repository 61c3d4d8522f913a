//go:build linux

// Package observe measures the jobs of a machine while they run: what they use of GPUs and host, whether they are idle,
// what their users could have done without.
package observe

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// MostPoints is how many a job's series has at most: when there are more, every second is dropped.
const MostPoints = 240

const flushEvery = 60 * time.Second // what was measured since then may be lost with the daemon

// Job is a job that runs, as the sampler sees it.
type Job struct {
	ID         cluster.JobID
	Run        int
	Tasks      int
	Devices    []show.Device
	Began      cluster.Time // of the run
	Tier       cluster.Tier
	Idle       string               // stage
	Spared     bool                 // from the rules for idle jobs
	May        func(rank int) int64 // MiB of each GPU that a task shares; 0: whatever is there
	Asked      int64                // MiB of each GPU that a guest asked for; 0: it did not say
	Packed     bool                 // others are on its GPUs
	Tells      bool                 // the policy uses the GPU memory that it is measured to use
	Step, Rate *float64             // what it last reported
}

// Host is the machine whose jobs are measured.
type Host interface {
	// Running lists the jobs that run, the healthy GPUs, and what is held of them.
	Running() (jobs []Job, healthy int, held float64)
	// TaskOf finds the task of a process.
	TaskOf(pid int) (id cluster.JobID, rank int, ok bool)
	// Used is what a task uses of the host; false: that is not measured.
	Used(j *Job, rank int) (cgroup.Usage, bool)
	// Seen is given the last sample of the GPUs, in their order.
	Seen(values []gpu.Sample)
	// IdleRules say what becomes of idle jobs; nil: nothing does.
	IdleRules() *IdleRules
	// SetIdle takes a job to a stage; "": it computes again, or the rules spare it now.
	SetIdle(j *Job, r *IdleRules, since time.Time, stage string)
	// Over deals with a task (-1: the only one, or all together) that uses more of a GPU's memory, in MiB, than it may.
	Over(j *Job, rank int, used, may int64)
	// Occupies: a job uses more of a GPU's memory, in MiB, than it was known to.
	Occupies(j *Job, used int64)
}

// Options are those of a sampler.
type Options struct {
	Host    Host
	Devices gpu.Source
	Store   *store.Store
	Every   time.Duration
	Log     *slog.Logger
}

// Sampler measures all running jobs periodically.
type Sampler struct {
	opt     Options
	host    Host
	running context.Context
	mu      sync.Mutex // of jobs: others read them
	jobs    map[cluster.JobID]*Meter
	place   map[string]int // of a UUID among the source's devices
	last    time.Time
	flush   time.Time
	hours   map[int64]*store.Hour
}

// New makes a sampler that measures from an instant on, as long as the context lasts.
func New(running context.Context, opt Options, now time.Time) *Sampler {
	s := &Sampler{opt: opt, host: opt.Host, running: running, jobs: map[cluster.JobID]*Meter{}, place: map[string]int{},
		hours: map[int64]*store.Hour{}, last: now, flush: now}
	for i, d := range opt.Devices.Devices() {
		s.place[d.UUID] = i
	}
	return s
}

// Run measures until the context ends.
func (s *Sampler) Run(now func() time.Time) {
	tick := time.NewTicker(s.opt.Every)
	defer tick.Stop()
	for {
		select {
		case <-s.running.Done():
			s.Store()
			return
		case <-tick.C:
			s.Sample(now())
		}
	}
}

// Meter is what was measured so far of a job that is being measured; nil: it is not, or not yet.
func (s *Sampler) Meter(id cluster.JobID) *Meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.jobs[id]
	if v == nil {
		return nil
	}
	return v.copied()
}

// Store writes what was measured since it was written last.
func (s *Sampler) Store() { s.store(nil) }

// Hour is what was measured of an hour and is not written yet.
func (s *Sampler) Hour(at time.Time) store.Hour { return *s.hour(at) }

// Sample takes one sample of everything.
func (s *Sampler) Sample(now time.Time) {
	dt := min(now.Sub(s.last), 3*s.opt.Every).Seconds() // a machine that slept measured nothing
	s.last = now
	values := s.opt.Devices.Sample()
	s.host.Seen(values)
	jobs, healthy, held := s.host.Running()
	hour := s.hour(now)
	hour.Total += dt * float64(healthy)
	hour.Held += dt * held
	users := s.processes(values)
	gone := map[cluster.JobID]*Meter{}
	s.mu.Lock()
	for id, v := range s.jobs {
		gone[id] = v
	}
	for i := range jobs {
		j := &jobs[i]
		v := s.jobs[j.ID]
		if v == nil {
			v = s.load(j.ID)
			s.jobs[j.ID] = v
		}
		delete(gone, j.ID)
		s.measure(v, j, values, users, dt, now, hour)
	}
	s.mu.Unlock()
	if len(gone) > 0 || now.Sub(s.flush) >= flushEvery {
		s.flush = now
		s.store(gone)
	}
}

func (s *Sampler) hour(now time.Time) *store.Hour {
	at := now.Truncate(time.Hour).Unix()
	if s.hours[at] == nil {
		s.hours[at] = &store.Hour{At: at}
	}
	return s.hours[at]
}

// load goes on with what is stored of a job.
func (s *Sampler) load(id cluster.JobID) *Meter {
	v := &Meter{Every: 1}
	text, err := s.opt.Store.Usage(s.running, int(id))
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.opt.Log.Warn("what was measured of a job cannot be read; it starts again", "job", id, "error", err)
		v = &Meter{Every: 1}
	}
	return v
}

// used is what processes of one job use of one GPU, together and by task.
type used struct {
	util   *float64
	memory *int64
	tasks  []taskUse
}

// taskUse is what the processes of one task use of a GPU's memory, in MiB.
type taskUse struct {
	rank   int
	memory int64
}

func (u *used) add(rank int, p *gpu.Process) {
	u.util, u.memory = plus(u.util, p.Utilisation), plus(u.memory, p.Memory)
	if p.Memory == nil {
		return
	}
	i := slices.IndexFunc(u.tasks, func(t taskUse) bool { return t.rank == rank })
	if i < 0 {
		i, u.tasks = len(u.tasks), append(u.tasks, taskUse{rank: rank})
	}
	u.tasks[i].memory += *p.Memory
}

// processes adds up, for each GPU, what the processes of each job use.
func (s *Sampler) processes(values []gpu.Sample) []map[cluster.JobID]*used {
	list := make([]map[cluster.JobID]*used, len(values))
	for i := range values {
		list[i] = map[cluster.JobID]*used{}
		for _, p := range values[i].Processes {
			id, rank, ok := s.host.TaskOf(p.PID)
			if !ok {
				continue
			}
			u := list[i][id]
			if u == nil {
				u = &used{}
				list[i][id] = u
			}
			u.add(rank, &p)
		}
	}
	return list
}

// part is what a job holds of one GPU, all its shares or slices of it together.
type part struct {
	uuid  string  // of the device, or the first of them
	at    int     // among the source's devices; -1: it is not there
	of    float64 // the GPU
	whole bool
}

// parts lists the GPUs of which a job holds something, each once: what its processes do
// there is known by GPU.
func (s *Sampler) parts(j *Job) (list []part) {
	for i := range j.Devices {
		d := &j.Devices[i]
		at, ok := s.place[d.GPU()]
		if !ok {
			at = -1
		}
		of := float64(d.Share) / float64(cluster.Whole)
		if k := slices.IndexFunc(list, func(p part) bool { return ok && p.at == at }); k >= 0 {
			list[k].of += of
			continue
		}
		p := part{d.UUID, at, of, d.Share == 0}
		if p.whole {
			p.of = 1
		}
		list = append(list, p)
	}
	return list
}

// measure books one sample of a job.
func (s *Sampler) measure(v *Meter, j *Job, values []gpu.Sample, users []map[cluster.JobID]*used, dt float64,
	now time.Time, hour *store.Hour) {
	p := show.Point{At: now.Unix(), Step: j.Step, Rate: j.Rate}
	n, busiest := 0.0, 0.0
	parts := s.parts(j)
	for _, d := range parts {
		if d.at < 0 || d.at >= len(values) {
			continue
		}
		g, own := values[d.at], users[d.at][j.ID]
		util, memory := g.Utilisation, g.MemoryUsed
		if d.whole {
			s.occupied(v, j, own, g.MemoryUsed)
		} else { // others use it, too: only what its own processes do is its own
			util, memory = nil, nil
			if own != nil {
				util, memory = own.util, own.memory
				s.keepsTo(j, own)
			} else if g.PerProcess { // none of its processes is on the GPU
				util, memory = new(float64), new(int64)
			}
		}
		if util != nil {
			n, busiest = n+1, max(busiest, *util)
			v.book(d.uuid, *util, memory, dt)
			hour.Busy += dt * min(*util/100, 1)
			hour.Measured += dt * d.of
		}
		p.Utilisation, p.Memory = plus(p.Utilisation, util), plus(p.Memory, memory)
		if memory != nil && (v.Memory == nil || *memory > *v.Memory) {
			v.Memory = memory
		}
		if g.Power != nil {
			watt, joule := *g.Power*d.of, *g.Power*d.of*dt
			p.Power, v.Energy = plus(p.Power, &watt), plus(v.Energy, &joule)
		}
	}
	if p.Utilisation != nil {
		mean := *p.Utilisation / n
		p.Utilisation = &mean
	}
	s.rest(v, j, busiest, int(n) == len(parts), dt, now)
	s.measureHost(v, j, &p, dt)
	if v.Samples%max(1, v.Every) == 0 {
		v.Points = append(v.Points, p)
	}
	if len(v.Points) > MostPoints {
		for i := 0; i < len(v.Points)/2; i++ {
			v.Points[i] = v.Points[2*i]
		}
		v.Points, v.Every = v.Points[:len(v.Points)/2], 2*max(1, v.Every)
	}
	v.Samples++
	v.Seconds += dt
}

// keepsTo deals with tasks that use more of a GPU's memory than their share of it has.
func (s *Sampler) keepsTo(j *Job, u *used) {
	for _, t := range u.tasks {
		if may := j.May(t.rank); may > 0 && t.memory > may {
			rank := t.rank
			if j.Tasks == 1 {
				rank = -1
			}
			s.host.Over(j, rank, t.memory, may)
			return // one is enough
		}
	}
}

// occupied checks the memory that a job uses of a GPU that is not divided into shares: when that has become more, a
// policy that uses it gets to know; a guest may not use more than it asked for. Where others are on the GPU, too, only
// its own processes count.
func (s *Sampler) occupied(v *Meter, j *Job, u *used, all *int64) {
	own := all
	if j.Packed {
		own = nil
	}
	if u != nil && u.memory != nil {
		own = u.memory
	}
	if own == nil {
		return
	}
	if j.Asked > 0 && *own > j.Asked {
		s.host.Over(j, -1, *own, j.Asked)
	}
	if j.Tells && *own > v.Reported+max(v.Reported/20, 64) {
		v.Reported = *own
		s.host.Occupies(j, *own)
	}
}

// measureHost adds what the job's tasks use of the host.
func (s *Sampler) measureHost(v *Meter, j *Job, p *show.Point, dt float64) {
	var cpu time.Duration
	for rank := range j.Tasks {
		if u, ok := s.host.Used(j, rank); ok {
			cpu += u.CPU
			p.RAM += u.Memory >> 20
		}
	}
	if v.run == j.Run && dt > 0 {
		p.CPU = max(0, (cpu-v.cpu).Seconds()/dt)
	}
	v.run, v.cpu = j.Run, cpu
}

// store writes what was measured; the jobs in over are not measured any more.
func (s *Sampler) store(over map[cluster.JobID]*Meter) {
	err := s.opt.Store.Write(context.WithoutCancel(s.running), func(t *store.Tx) error {
		for id, v := range s.jobs {
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if err := t.PutUsage(int(id), text); err != nil {
				return err
			}
		}
		for _, h := range s.hours {
			if err := t.AddHour(*h); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.opt.Log.Warn("what was measured cannot be written; it is tried again", "error", err)
		return
	}
	clear(s.hours)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range over {
		delete(s.jobs, id)
	}
}
