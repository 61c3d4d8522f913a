package explain

import (
	"fmt"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Room says what the job needs and the best there is.
func (x *Explainer) Room(j *job.State, s *shape.Shape) string {
	if s.Partly() && x.suitable(s) {
		return x.parts(j, s) + x.ofBounds(s)
	}
	return x.whole(s) + x.ofBounds(s)
}

// ofBounds says how much of a job its own bounds let single nodes take.
func (x *Explainer) ofBounds(s *shape.Shape) (text string) {
	if s.Most.Any > 0 && s.Most.Any < s.Min {
		text = fmt.Sprintf("; at most %d of its tasks on a node", s.Most.Any)
	}
	none, some := 0, 0
	for id, groups := range s.Most.Of {
		switch n := &x.st.Nodes()[id]; {
		case len(groups) == 0 || !n.TakesJobs() || !s.Any.Has(n.Class()):
		case s.Most.On(int32(id)) == 0:
			none++
		case s.Most.On(int32(id)) < int(s.Min):
			some++
		}
	}
	if none > 0 {
		text += fmt.Sprintf("; %s none of it now", take(none))
	}
	if some > 0 {
		text += fmt.Sprintf("; %s only a part of it now", take(some))
	}
	return text
}

func take(n int) string {
	if n == 1 {
		return "1 node takes"
	}
	return fmt.Sprintf("%d nodes take", n)
}

// whole is Room for tasks that ask for whole GPUs, or none.
func (x *Explainer) whole(s *shape.Shape) string {
	r := &s.Sets[0].Request
	if len(s.Sets) == 1 && s.Min == 1 && r.GPUs > 0 {
		best, bestFree := int32(-1), -1
		for id := range x.st.Nodes() {
			n := &x.st.Nodes()[id]
			if n.TakesJobs() && s.Any.Has(n.Class()) && int(n.FreeGPUs()) > bestFree && s.Most.On(int32(id)) > 0 {
				best, bestFree = int32(id), int(n.FreeGPUs())
			}
		}
		if best < 0 {
			return x.noNode(s)
		}
		name := x.st.Nodes()[best].Spec().Name
		if s.Topo.Required && s.Topo.Level == cluster.LevelNVLink &&
			x.st.Classes()[x.st.Nodes()[best].Class()].Split() {
			return x.island(s, r)
		}
		if bestFree >= r.GPUs {
			return fmt.Sprintf("needs %s beside %s on one node; no node with free GPUs has them", words.Host(r),
				words.GPUs(r.GPUs))
		}
		return fmt.Sprintf("needs %s on one node; best %s has %d", words.GPUs(r.GPUs), name, bestFree)
	}
	free := 0
	for ci := range x.st.Classes() {
		if s.Any.Has(int32(ci)) {
			free += x.st.Classes()[ci].Free()
		}
	}
	if s.GPUs == 0 {
		what := words.Host(r)
		if what == "" {
			what = "no GPU"
		}
		return fmt.Sprintf("needs room for %s with %s; no node that may take it has that", words.Tasks(int(s.Min)), what)
	}
	text := fmt.Sprintf("needs %d GPUs in %d tasks of %d", s.GPUs, s.Min, r.GPUs)
	if s.Topo.Level != cluster.LevelAny && s.Topo.Required {
		text += fmt.Sprintf(" within one %s", s.Topo.Level)
	}
	return text + fmt.Sprintf("; %d suitable GPUs are free", free)
}

// noNode says why no node can be looked at for room: none that suits the shape is up, or none of these
// takes it now.
func (x *Explainer) noNode(s *shape.Shape) string {
	for id := range x.st.Nodes() {
		if n := &x.st.Nodes()[id]; n.TakesJobs() && s.Any.Has(n.Class()) {
			return "none of the nodes that suit it takes it now"
		}
	}
	return "no node that suits it is up"
}

// island is Room for a task that must stay in one NVLink island.
func (x *Explainer) island(s *shape.Shape, r *cluster.Request) string {
	best, bestFree := int32(-1), -1
	for id := range x.st.Nodes() {
		n := &x.st.Nodes()[id]
		for i := 0; i < n.Islands() && n.TakesJobs() && s.Any.Has(n.Class()); i++ {
			on := n.Island(i)
			if !n.Split() {
				on = inventory.AnyDevice
			}
			if k := n.FreeOn(on); k > bestFree {
				best, bestFree = int32(id), k
			}
		}
	}
	return fmt.Sprintf("needs %s in one NVLink island; the best, on %s, has %d free", words.GPUs(r.GPUs),
		x.st.Nodes()[best].Spec().Name, bestFree)
}

// parts is Room for tasks that ask for parts of GPUs.
func (x *Explainer) parts(j *job.State, s *shape.Shape) string {
	r := &s.Sets[0].Request
	text := "needs " + words.Asks(s)
	if s.Topo.Level != cluster.LevelAny && s.Topo.Required {
		text += fmt.Sprintf(" within one %s", s.Topo.Level)
	}
	if others := x.others(j, s); others != "" {
		return text + "; " + others
	}
	switch {
	case len(s.Sets) == 1 && x.lacksHost(j, s):
		return text + fmt.Sprintf(" beside %s on one node; no node with that has them", words.Host(r))
	case len(s.Sets) > 1:
		return text + "; no room for all of it is free together"
	case s.Min == 1 && r.Profile != "":
		return text + "; no GPU has a legal start free"
	case s.Min == 1 && r.GPUs == 1:
		return text + "; no GPU has that left" + x.seats(s, r)
	case s.Min == 1:
		return text + " on one node; none has that left"
	}
	room := 0
	for id := range x.st.Nodes() {
		if n := &x.st.Nodes()[id]; x.open(s, n, id) {
			room += x.st.RoomOn(n, r, cluster.MaxTasks, x.mineOn(n, j))
		}
	}
	if room == 0 {
		return text + "; there is no room for one of them"
	}
	return text + fmt.Sprintf("; there is room for %d", room)
}

// open reports whether a node takes jobs, and could take tasks of the shape.
func (x *Explainer) open(s *shape.Shape, n *inventory.Node, id int) bool {
	return n.TakesJobs() && s.Any.Has(n.Class()) && s.Most.On(int32(id)) > 0
}

// suitable reports whether there is an open node.
func (x *Explainer) suitable(s *shape.Shape) bool {
	for id := range x.st.Nodes() {
		if x.open(s, &x.st.Nodes()[id], id) {
			return true
		}
	}
	return false
}

// lacksHost reports whether a single task would have a part of a GPU, but not the
// CPU or RAM beside it.
func (x *Explainer) lacksHost(j *job.State, s *shape.Shape) bool {
	r := s.Sets[0].Request
	if s.Min > 1 || r.CPU == 0 && r.RAM == 0 {
		return false
	}
	r.CPU, r.RAM = 0, 0
	for id := range x.st.Nodes() {
		if n := &x.st.Nodes()[id]; x.open(s, n, id) && x.st.RoomOn(n, &r, 1, x.mineOn(n, j)) > 0 {
			return x.st.RoomOn(n, &s.Sets[0].Request, 1, x.mineOn(n, j)) == 0
		}
	}
	return false
}

// mineOn is the devices of a node that other users' shares do not keep from a job.
func (x *Explainer) mineOn(n *inventory.Node, j *job.State) uint64 {
	if x.places.Sharing != cluster.MPS {
		return inventory.AnyDevice
	}
	return ^n.Others(j.Spec.User)
}

// others says that there is room beside shares, but these are another user's;
// "": that is not what the job waits for.
func (x *Explainer) others(j *job.State, s *shape.Shape) string {
	if x.places.Sharing != cluster.MPS {
		return ""
	}
	text, more := "", 0
	for i := range s.Sets {
		r := &s.Sets[i].Request
		if !r.Fractional() || r.Profile != "" {
			continue
		}
		for id := range x.st.Nodes() {
			n := &x.st.Nodes()[id]
			if !x.open(s, n, id) || !s.Suits[i].Has(n.Class()) {
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
				text = fmt.Sprintf("%s serves user %s's shares until %s", words.On(x.st, int32(id), 1<<dev),
					n.Devices()[dev].User(), x.tenants(n, dev))
			}
		}
		break // one kind of task is reason enough
	}
	if more > 0 {
		text += fmt.Sprintf("; so do %d others those of other users", more)
	}
	return text
}

// tenants says the end of which jobs leaves a shared device free.
func (x *Explainer) tenants(n *inventory.Node, dev int) string {
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

// seats says of GPUs with room for a share that MPS takes no more clients there.
func (x *Explainer) seats(s *shape.Shape, r *cluster.Request) string {
	full, most := 0, 0
	for id := range x.st.Nodes() {
		n := &x.st.Nodes()[id]
		c := &x.st.Classes()[n.Class()]
		for i := range n.Devices() {
			if d := &n.Devices()[i]; n.TakesJobs() && s.Any.Has(n.Class()) && n.FreeMilliOn(i) >= r.Share &&
				d.Mem() >= r.Memory && d.Slots() == 0 && c.Seats(d) == 0 {
				full, most = full+1, max(most, c.Clients())
			}
		}
	}
	if full == 0 {
		return ""
	}
	return fmt.Sprintf("; but for %d with as many shares as MPS takes clients, %d", full, most)
}

// Fragments says how much is free where the job may run, and how much of that is on
// nodes, or devices, that one of its tasks could use; "": all is, or nothing is free.
func (x *Explainer) Fragments(j *job.State, s *shape.Shape) string {
	free, usable := cluster.Milli(0), cluster.Milli(0)
	for id := range x.st.Nodes() {
		n := &x.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		c, most := &x.st.Classes()[n.Class()], cluster.Milli(0)
		for k := range s.Sets {
			r := &s.Sets[k].Request
			if r.GPUs == 0 || !s.Suits[k].Has(n.Class()) || r.CPU > n.CPU() || r.RAM > n.RAM() {
				continue
			}
			g := inventory.GroupOf(r, x.places.Sharer(j.Spec, r), c.Model())
			sum, _ := n.UsableBy(c, &g)
			most = max(most, sum)
		}
		free, usable = free+n.FreeMilli(), usable+most
	}
	// a GPU that is all slices lacks some thousandths of what they count for
	if j.Milli == 0 || free-usable < cluster.Whole/100 {
		return ""
	}
	gpus := func(milli cluster.Milli) string { return fmt.Sprintf("%.4g", float64(milli)/float64(cluster.Whole)) }
	are := "GPUs are"
	if free == cluster.Whole {
		are = "GPU is"
	}
	return fmt.Sprintf("fragments: %s %s free where it may run, %s of that in pieces that one of its tasks could use",
		gpus(free), are, gpus(usable))
}
