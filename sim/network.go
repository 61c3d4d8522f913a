package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/links"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
	"github.com/muster-gpu/muster/network/traffic"
	"github.com/muster-gpu/muster/report"
)

// contention is the network of a world: which jobs transmit over which links, and how much they slow each other.
type contention struct {
	fabric *network.Fabric
	spec   *cluster.Network
	users  [][]cluster.JobID // by link
	bytes  []float64         // that passed, by link
	known  flow.Cache
	dirty  []network.LinkID // links on which something changed
}

// sending is the traffic of a job that computes.
type sending struct {
	job   traffic.Job
	on    []network.Bytes
	alone time.Duration // an iteration without other jobs
	takes time.Duration // an iteration as it is
	speed int64         // ppm
}

func newContention(spec *cluster.Spec) *contention {
	f := network.New(spec.Nodes, spec.Network)
	if f == nil {
		return nil
	}
	return &contention{fabric: f, spec: spec.Network, users: make([][]cluster.JobID, f.Links()),
		bytes: make([]float64, f.Links())}
}

// transmits begins the traffic of a job that begins to compute. It returns the other jobs whose speeds change.
func (w *World) transmits(j *jobRun) []cluster.JobID {
	if w.net == nil {
		return nil
	}
	s := &j.entry.Job
	t, _ := w.net.spec.TrafficOf(s)
	d := w.net.fabric.Demand(s.ID, t, links.Ranks(j.allocs))
	if len(d.Parts) == 0 {
		return nil
	}
	job := traffic.NewJob(w.net.fabric, s.ID, 1, t, d, time.Duration(w.now), cluster.Treatment{})
	plain := job.As(&cluster.Treatment{})
	j.sends = &sending{job: job, alone: plain.Alone(w.net.fabric), speed: 1_000_000}
	j.sends.takes = j.sends.alone
	w.route(j)
	return slices.DeleteFunc(w.contend(), func(id cluster.JobID) bool { return id == s.ID })
}

// silent ends a job's traffic; contend follows.
func (w *World) silent(j *jobRun) {
	if j.sends != nil {
		w.unroute(j)
		j.sends = nil
	}
}

// treat changes how a job's traffic is treated; contend follows.
func (w *World) treat(j *jobRun, t *cluster.Treatment) {
	if j.treated = t; j.sends != nil {
		w.advance(j)
		w.unroute(j)
		w.route(j)
	}
}

// route puts a job's traffic on its links.
func (w *World) route(j *jobRun) {
	t := j.treated.Value()
	j.sends.on = j.sends.job.Demand.On(&t)
	for _, b := range j.sends.on {
		w.net.users[b.Link] = append(w.net.users[b.Link], j.entry.Job.ID)
		w.net.dirty = append(w.net.dirty, b.Link)
	}
}

func (w *World) unroute(j *jobRun) {
	for _, b := range j.sends.on {
		w.net.users[b.Link] = slices.DeleteFunc(w.net.users[b.Link],
			func(id cluster.JobID) bool { return id == j.entry.Job.ID })
		w.net.dirty = append(w.net.dirty, b.Link)
	}
}

// contend finds the speeds of all jobs that may be concerned by what changed on links, and returns those whose speeds
// are others than before. Jobs transmit all of the time on average as they would if they went on for ever. It is
// needed before time passes, and before a job's speed is reported: at one instant a job may end, others be treated
// otherwise for that, and another begin.
func (w *World) contend() (changed []cluster.JobID) {
	if w.net == nil || len(w.net.dirty) == 0 {
		return nil
	}
	seen := map[cluster.JobID]bool{} // looked up only
	todo := w.net.dirty
	w.net.dirty = nil
	done := make([]bool, w.net.fabric.Links())
	for len(todo) > 0 {
		var group []cluster.JobID
		queue := []network.LinkID{todo[0]}
		todo = todo[1:]
		for ; len(queue) > 0; queue = queue[1:] {
			if done[queue[0]] {
				continue
			}
			done[queue[0]] = true
			for _, id := range w.net.users[queue[0]] {
				if seen[id] {
					continue
				}
				seen[id] = true
				group = append(group, id)
				for _, b := range w.jobs[id].sends.on {
					queue = append(queue, b.Link)
				}
			}
		}
		changed = append(changed, w.settle(group)...)
	}
	slices.Sort(changed)
	return changed
}

// settle computes the speeds of jobs that share links with each other and with no others.
func (w *World) settle(group []cluster.JobID) (changed []cluster.JobID) {
	slices.Sort(group)
	jobs := make([]flow.Job, len(group))
	for i, id := range group {
		j := &w.jobs[id]
		t := j.treated.Value()
		jobs[i] = j.sends.job.Along(j.sends.on, &t)
	}
	for i, takes := range w.net.known.Steady(w.net.fabric, jobs) {
		j := &w.jobs[group[i]]
		if takes == j.sends.takes {
			continue
		}
		w.advance(j)
		j.sends.takes = takes
		j.sends.speed = min(1_000_000, max(1, int64(float64(j.sends.alone)/float64(takes)*1_000_000)))
		changed = append(changed, group[i])
	}
	return changed
}

// sent books what a job transmitted since its speed last changed, and what it lost by waiting for others.
func (w *World) sent(j *jobRun) {
	if j.sends == nil || j.phase != running || w.now <= j.since {
		return
	}
	d := w.now.Sub(j.since)
	iterations := float64(d) / float64(j.sends.takes)
	for _, b := range j.sends.on {
		w.net.bytes[b.Link] += iterations * float64(b.Bytes)
	}
	w.book.sent(j, d)
}

// loads lists the links that carried something, the busiest first, over a time.
func (c *contention) loads(span time.Duration) (list []report.LinkLoad) {
	if c == nil || span <= 0 {
		return nil
	}
	for l, bytes := range c.bytes {
		if id := network.LinkID(l); bytes > 0 {
			list = append(list, report.LinkLoad{Name: c.fabric.Name(id), Rate: 8 * c.fabric.Capacity(id),
				Load: bytes / span.Seconds() / float64(c.fabric.Capacity(id))})
		}
	}
	slices.SortStableFunc(list, func(a, b report.LinkLoad) int { return cmp.Compare(b.Load, a.Load) })
	return list[:min(len(list), mostLinks)]
}

// mostLinks bounds the links in a report.
const mostLinks = 64
