//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

const (
	mostPoints = 240              // of a job's series: when there are more, every second is dropped
	flushEvery = 60 * time.Second // what was measured since then may be lost with the daemon
	idleBelow  = 1.0              // percent
	holdsAbove = 512              // MiB of GPU memory: a context without data has less
)

// meter is what was measured of one job; it is stored as it is.
type meter struct {
	Samples int                `json:"samples"`
	Seconds float64            `json:"seconds"`
	Util    float64            `json:"util"` // percent x GPU-seconds
	GPU     float64            `json:"gpu"`  // GPU-seconds with known utilisation
	Most    map[string]float64 `json:"most,omitempty"`
	Memory  *int64             `json:"memory,omitempty"`
	Told    int64              `json:"told,omitempty"` // MiB of a GPU that the policy knows of
	Energy  *float64           `json:"energy,omitempty"`
	Idle    float64            `json:"idle,omitempty"`
	Holding float64            `json:"holding,omitempty"`
	Every   int                `json:"every"`
	Points  []show.Point       `json:"points,omitempty"`
	Began   cluster.Time       `json:"began,omitempty"` // the run that Still is of
	Still   float64            `json:"still,omitempty"` // seconds for which its GPUs have been below the threshold, without a break
	cpu     time.Duration      // of the run, at the last sample
	run     int
}

// sampled is a job as the sampler sees it.
type sampled struct {
	id         cluster.JobID
	run        int
	tasks      int
	devices    []show.Device
	began      cluster.Time // of the run
	tier       cluster.Tier
	idle       string  // stage
	spared     bool    // from the rules for idle jobs
	may        []int64 // MiB of each GPU that a task shares, by task set; 0: whatever is there
	asked      int64   // MiB of each GPU that a guest asked for; 0: nobody says
	on         []engine.Alloc
	packed     bool     // others are on its GPUs
	tells      bool     // the policy looks at the GPU memory that it uses
	step, rate *float64 // what it last reported
}

// sampler looks at all running jobs every now and then.
type sampler struct {
	m     *Machine
	mu    sync.Mutex // of jobs: others read them
	jobs  map[cluster.JobID]*meter
	place map[string]int // of a UUID among the source's devices
	last  time.Time
	flush time.Time
	hours map[int64]*store.Hour
}

// sample measures until the daemon ends.
func (m *Machine) sample() {
	defer m.runners.Done()
	s := &sampler{m: m, jobs: map[cluster.JobID]*meter{}, place: map[string]int{}, hours: map[int64]*store.Hour{}}
	for i, d := range m.opt.Devices.Devices() {
		s.place[d.UUID] = i
	}
	s.last = m.opt.Now()
	s.flush = s.last
	m.sampler.Store(s)
	tick := time.NewTicker(m.opt.SampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-m.running.Done():
			s.store(nil)
			return
		case <-tick.C:
			s.look(m.opt.Now())
		}
	}
}

// look takes one sample of everything.
func (s *sampler) look(now time.Time) {
	dt := min(now.Sub(s.last), 3*s.m.opt.SampleEvery).Seconds() // a machine that slept measured nothing
	s.last = now
	values := s.m.opt.Devices.Sample()
	s.m.setSeen(values)
	jobs, healthy, held := s.m.sampled()
	hour := s.hour(now)
	hour.Total += dt * float64(healthy)
	hour.Held += dt * held
	users := s.processes(values)
	gone := map[cluster.JobID]*meter{}
	s.mu.Lock()
	for id, v := range s.jobs {
		gone[id] = v
	}
	for i := range jobs {
		j := &jobs[i]
		v := s.jobs[j.id]
		if v == nil {
			v = s.load(j.id)
			s.jobs[j.id] = v
		}
		delete(gone, j.id)
		s.measure(v, j, values, users, dt, now, hour)
	}
	s.mu.Unlock()
	if len(gone) > 0 || now.Sub(s.flush) >= flushEvery {
		s.flush = now
		s.store(gone)
	}
}

// meterNow is what was measured so far of a job that is being looked at; nil:
// it is not, or not yet.
func (m *Machine) meterNow(id int) *meter {
	s := m.sampler.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.jobs[cluster.JobID(id)]
	if v == nil {
		return nil
	}
	c := *v
	c.Points, c.Most = slices.Clone(v.Points), maps.Clone(v.Most)
	return &c
}

func (s *sampler) hour(now time.Time) *store.Hour {
	at := now.Truncate(time.Hour).Unix()
	if s.hours[at] == nil {
		s.hours[at] = &store.Hour{At: at}
	}
	return s.hours[at]
}

// load goes on with what is stored of a job.
func (s *sampler) load(id cluster.JobID) *meter {
	v := &meter{Every: 1}
	text, err := s.m.store.Usage(s.m.running, int(id))
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.m.opt.Log.Warn("what was measured of a job cannot be read; it begins anew", "job", id, "error", err)
		v = &meter{Every: 1}
	}
	return v
}

// sampled lists the jobs that run, the healthy GPUs, and what is held of them.
func (m *Machine) sampled() (list []sampled, healthy int, held float64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, f := range m.faults {
		if f == "" {
			healthy++
		}
	}
	for _, j := range m.jobs {
		if s := j.info.Record.State; s < engine.Starting || s > engine.Stopping {
			continue
		}
		r := j.whole().Record
		v := sampled{id: j.id, run: j.info.Run, devices: j.info.Devices, began: r.Started, tier: r.Spec.Tier, idle: j.info.idleStage(), may: m.memoryOf(r.Spec), on: r.Allocs}
		if rules := m.idle.Load(); rules != nil {
			v.spared = m.spared(rules, r.Spec)
		}
		v.packed, v.tells = r.Beside != 0 || len(r.Guests) > 0, m.eng.WantsMemory()
		if r.Beside != 0 && r.Spec.Tasks[0].Request.Memory > 0 {
			v.asked = r.Spec.Tasks[0].Request.Memory
		}
		if p := j.info.Progress; p != nil {
			step, rate := p.Step, p.SamplesPerSec
			if v.step = &step; rate > 0 {
				v.rate = &rate
			}
		}
		for i := range r.Allocs {
			v.tasks += int(r.Allocs[i].Tasks)
			held += float64(r.Allocs[i].Milli()) / float64(cluster.Whole)
		}
		held += float64(milliOf(r.Leaving)) / float64(cluster.Whole)
		list = append(list, v)
	}
	return list, healthy, held
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
func (s *sampler) processes(values []gpu.Sample) []map[cluster.JobID]*used {
	list := make([]map[cluster.JobID]*used, len(values))
	for i := range values {
		list[i] = map[cluster.JobID]*used{}
		for _, p := range values[i].Processes {
			id, rank, ok := s.m.taskOf(p.PID)
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

// plus adds what is known; nil: nothing is.
func plus[T int64 | float64](a, b *T) *T {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	v := *a + *b
	return &v
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
func (s *sampler) parts(j *sampled) (list []part) {
	for i := range j.devices {
		d := &j.devices[i]
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
func (s *sampler) measure(v *meter, j *sampled, values []gpu.Sample, users []map[cluster.JobID]*used, dt float64, now time.Time, hour *store.Hour) {
	p := show.Point{At: now.Unix(), Step: j.step, Rate: j.rate}
	n, busiest := 0.0, 0.0
	parts := s.parts(j)
	for _, d := range parts {
		if d.at < 0 || d.at >= len(values) {
			continue
		}
		g, own := values[d.at], users[d.at][j.id]
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
	s.host(v, j, &p, dt)
	if v.Samples%max(1, v.Every) == 0 {
		v.Points = append(v.Points, p)
	}
	if len(v.Points) > mostPoints {
		for i := 0; i < len(v.Points)/2; i++ {
			v.Points[i] = v.Points[2*i]
		}
		v.Points, v.Every = v.Points[:len(v.Points)/2], 2*max(1, v.Every)
	}
	v.Samples++
	v.Seconds += dt
}

// keepsTo deals with tasks that use more of a GPU's memory than their share of it has.
func (s *sampler) keepsTo(j *sampled, u *used) {
	for _, t := range u.tasks {
		if set := setOf(j.on, t.rank); set < len(j.may) && j.may[set] > 0 && t.memory > j.may[set] {
			rank := t.rank
			if j.tasks == 1 {
				rank = -1
			}
			s.m.over(j.id, j.run, rank, t.memory, j.may[set])
			return // one is enough
		}
	}
}

// occupied looks at the memory that a job uses of a GPU that is not divided into shares:
// the policy is told, if it asks, when that has become more; a guest may not use more than
// it asked for. Where others are on the GPU, too, only its own processes tell.
func (s *sampler) occupied(v *meter, j *sampled, u *used, all *int64) {
	own := all
	if j.packed {
		own = nil
	}
	if u != nil && u.memory != nil {
		own = u.memory
	}
	if own == nil {
		return
	}
	if j.asked > 0 && *own > j.asked {
		s.m.over(j.id, j.run, -1, *own, j.asked)
	}
	if j.tells && *own > v.Told+max(v.Told/20, 64) {
		v.Told = *own
		s.m.occupies(j.id, j.run, *own)
	}
}

// book adds what one GPU did.
func (v *meter) book(uuid string, util float64, memory *int64, dt float64) {
	if v.Most == nil {
		v.Most = map[string]float64{}
	}
	v.Most[uuid] = max(v.Most[uuid], util)
	v.Util += util * dt
	v.GPU += dt
	if util < idleBelow {
		v.Idle += dt
		if memory != nil && *memory > holdsAbove {
			v.Holding += dt
		}
	}
}

// host adds what the job's tasks use of the host.
func (s *sampler) host(v *meter, j *sampled, p *show.Point, dt float64) {
	var cpu time.Duration
	for rank := range j.tasks {
		if u, ok := s.m.groupOf(s.m.mark(j.id, j.run, rank)).Usage(); ok {
			cpu += u.CPU
			p.RAM += u.Memory >> 20
		}
	}
	if v.run == j.run && dt > 0 {
		p.CPU = max(0, (cpu-v.cpu).Seconds()/dt)
	}
	v.run, v.cpu = j.run, cpu
}

// store writes what was measured; the jobs in over are not looked at any more.
func (s *sampler) store(over map[cluster.JobID]*meter) {
	err := s.m.store.Write(context.WithoutCancel(s.m.running), func(t *store.Tx) error {
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
		s.m.opt.Log.Warn("what was measured cannot be written; it is tried again", "error", err)
		return
	}
	clear(s.hours)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range over {
		delete(s.jobs, id)
	}
}
