package engine

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

// Words for what jobs hold and ask for of GPUs: whole ones, shares, slices.

// wholeOrParts writes numbers of whole GPUs and of parts of them.
type wholeOrParts struct {
	whole int
	parts []string
	count []int
}

func (w *wholeOrParts) add(part string) {
	for i := range w.parts {
		if w.parts[i] == part {
			w.count[i]++
			return
		}
	}
	w.parts, w.count = append(w.parts, part), append(w.count, 1)
}

func (w *wholeOrParts) String() string {
	var list []string
	if w.whole > 0 || len(w.parts) == 0 {
		list = append(list, gpuText(w.whole))
	}
	for i, part := range w.parts {
		list = append(list, timesText(w.count[i], part))
	}
	return strings.Join(list, " and ")
}

// timesText is "0.25 of a GPU" or "3 times 0.25 of a GPU".
func timesText(n int, part string) string {
	if n == 1 {
		return part
	}
	return fmt.Sprintf("%d times %s", n, part)
}

// partText is a share of a GPU, in milli-GPU.
func milliText(share cluster.Milli) string {
	return fmt.Sprintf("%g of a GPU", float64(share)/float64(cluster.Whole))
}

// instanceText is a MIG instance of a GPU.
func instanceText(profile string) string {
	article := "a"
	if strings.HasPrefix(profile, "8") {
		article = "an"
	}
	return article + " " + profile + " slice"
}

// holdsText says what a job holds of GPUs.
func (e *Engine) holdsText(j *job.State) string {
	w := wholeOrParts{}
	for i := range j.Allocs {
		a := &j.Allocs[i]
		switch {
		case a.GPUs == 0:
		case a.Slots != 0:
			w.add(instanceText(e.instanceOf(a)))
		case a.Share > 0:
			w.add(milliText(cluster.Milli(a.Share)))
		default:
			w.whole += bits.OnesCount64(a.GPUs)
		}
	}
	return w.String()
}

// instanceOf is the profile of the instance that an allocation is.
func (e *Engine) instanceOf(a *inventory.Alloc) string {
	model := e.st.Classes()[e.st.Nodes()[a.Node].Class()].Model()
	if p, _, ok := model.Held(a.Slots, int(a.Compute), a.Media); ok {
		return p.Name
	}
	return fmt.Sprintf("%dg", a.Compute)
}

// taskText says what a task asks for of GPUs.
func taskText(r *cluster.Request) string {
	switch {
	case r.Profile != "":
		return instanceText(r.Profile)
	case r.Fractional():
		return timesText(r.GPUs, shareText(r))
	}
	return gpuText(r.GPUs)
}

// shareText says what a task needs of one device.
func shareText(r *cluster.Request) string {
	text := milliText(r.Share)
	if r.Memory > 0 {
		text += fmt.Sprintf(" with %d MiB of its memory", r.Memory)
	}
	return text
}

// tasksText says what a gang asks for of GPUs, at its smallest.
func tasksText(s *shape.Shape) string {
	var list []string
	for i := range s.Sets {
		n := s.Sets[i].Count
		if i == 0 {
			n = int(s.Min)
		}
		if r := &s.Sets[i].Request; r.GPUs > 0 {
			list = append(list, timesText(n, taskText(r)))
		}
	}
	return strings.Join(list, " and ")
}

// partsText is roomText for tasks that ask for parts of GPUs.
func (e *Engine) partsText(j *job.State, s *shape.Shape) string {
	r := &s.Sets[0].Request
	text := "needs " + tasksText(s)
	if s.Topo.Level != cluster.LevelAny && s.Topo.Required {
		text += fmt.Sprintf(" within one %s", s.Topo.Level)
	}
	if others := e.othersText(j, s); others != "" {
		return text + "; " + others
	}
	switch {
	case len(s.Sets) == 1 && e.lacksHost(j, s):
		return text + fmt.Sprintf(" beside %s on one node; no node with that has them", hostText(r))
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
				text = fmt.Sprintf("GPU %d%s serves user %s's shares until %s", dev, e.ofNode(n),
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

// ofNode names the node where there are several.
func (e *Engine) ofNode(n *inventory.Node) string {
	if len(e.st.Nodes()) == 1 {
		return ""
	}
	return " of " + n.Spec().Name
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
