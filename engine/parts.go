package engine

import (
	"fmt"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// partsText is roomText for tasks that ask for parts of GPUs.
func (e *Engine) partsText(j *job.State, s *shape.Shape) string {
	r := &s.Sets[0].Request
	text := "needs " + words.Asks(s)
	if s.Topo.Level != cluster.LevelAny && s.Topo.Required {
		text += fmt.Sprintf(" within one %s", s.Topo.Level)
	}
	if others := e.othersText(j, s); others != "" {
		return text + "; " + others
	}
	switch {
	case len(s.Sets) == 1 && e.lacksHost(j, s):
		return text + fmt.Sprintf(" beside %s on one node; no node with that has them", words.Host(r))
	case len(s.Sets) > 1:
		return text + "; no room for all of it is free together"
	case s.Min == 1 && r.Profile != "":
		return text + "; no GPU has a legal start free"
	case s.Min == 1 && r.GPUs == 1:
		return text + "; no GPU has that left" + e.seatsText(s, r)
	case s.Min == 1:
		return text + " on one node; none has that left"
	}
	room := 0
	for id := range e.st.Nodes() {
		if n := &e.st.Nodes()[id]; e.open(s, n, id) {
			room += e.st.RoomOn(n, r, cluster.MaxTasks, e.mineOn(n, j))
		}
	}
	if room == 0 {
		return text + "; there is no room for one of them"
	}
	return text + fmt.Sprintf("; there is room for %d", room)
}

// open reports whether a node takes jobs, and could take tasks of the shape.
func (e *Engine) open(s *shape.Shape, n *inventory.Node, id int) bool {
	return n.TakesJobs() && s.Any.Has(n.Class()) && s.Most.On(int32(id)) > 0
}

// suitable reports whether there is an open node.
func (e *Engine) suitable(s *shape.Shape) bool {
	for id := range e.st.Nodes() {
		if e.open(s, &e.st.Nodes()[id], id) {
			return true
		}
	}
	return false
}

// lacksHost reports whether a single task would have a part of a GPU, but not the
// CPU or RAM beside it.
func (e *Engine) lacksHost(j *job.State, s *shape.Shape) bool {
	r := s.Sets[0].Request
	if s.Min > 1 || r.CPU == 0 && r.RAM == 0 {
		return false
	}
	r.CPU, r.RAM = 0, 0
	for id := range e.st.Nodes() {
		if n := &e.st.Nodes()[id]; e.open(s, n, id) && e.st.RoomOn(n, &r, 1, e.mineOn(n, j)) > 0 {
			return e.st.RoomOn(n, &s.Sets[0].Request, 1, e.mineOn(n, j)) == 0
		}
	}
	return false
}

// mineOn is the devices of a node that other users' shares do not keep from a job.
func (e *Engine) mineOn(n *inventory.Node, j *job.State) uint64 {
	if e.cfg.Spec.Sharing != cluster.MPS {
		return inventory.AnyDevice
	}
	return ^n.Others(j.Spec.User)
}

// othersText says that there is room beside shares, but these are another user's;
// "": that is not what the job waits for.
func (e *Engine) othersText(j *job.State, s *shape.Shape) string {
	if e.cfg.Spec.Sharing != cluster.MPS {
		return ""
	}
	text, more := "", 0
	for i := range s.Sets {
		r := &s.Sets[i].Request
		if !r.Fractional() || r.Profile != "" {
			continue
		}
		for id := range e.st.Nodes() {
			n := &e.st.Nodes()[id]
			if !e.open(s, n, id) || !s.Suits[i].Has(n.Class()) {
				continue
			}
			for m := n.Others(j.Spec.User) & n.Whole(); m != 0; m &= m - 1 {
				dev := bits.TrailingZeros64(m)
				if d := &n.Devices()[dev]; cluster.Milli(d.Milli()) < r.Share || d.Mem() < r.Memory {
					continue
				}
				if text != "" {
					more++
					continue
				}
				text = fmt.Sprintf("%s serves user %s's shares until %s", words.On(&e.st, int32(id), 1<<dev),
					n.Devices()[dev].User(), e.tenantsText(n, dev))
			}
		}
		break // one kind of task is reason enough
	}
	if more > 0 {
		text += fmt.Sprintf("; so do %d others those of other users", more)
	}
	return text
}

// tenantsText says whose end leaves a shared device free.
func (e *Engine) tenantsText(n *inventory.Node, dev int) string {
	jobs := map[int32]bool{}
	last := cluster.NoJob
	for _, t := range n.Tenants() {
		if int(t.Device) == dev {
			jobs[t.Job], last = true, cluster.JobID(t.Job-1)
		}
	}
	if len(jobs) == 1 {
		return fmt.Sprintf("job %d ends", last)
	}
	return fmt.Sprintf("%d jobs end", len(jobs))
}
