package defrag

import (
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// Moves of shares and slices. One slice can be in the way of a larger one by where it lies, and keep a GPU from a job
// that wants it whole; so can a share. An instance that is used cannot be moved in place (NVIDIA's MIG user guide): its
// job leaves, and starts on another, also of the same GPU. For a GPU that is to be whole all jobs with a part leave it;
// for a slice those on the memory slices from one of its legal starts on; for a share as few as leave enough.

// on is what is free when the mover is gone: where several have parts of GPUs of a node, these when all have left.
func (m *Mover) on() []inventory.Alloc {
	if m.all != nil {
		return m.gpu[:]
	}
	return m.Job.Allocs
}

// has reports whether the job is the mover, or one of them.
func (m *Mover) has(j *job.State) bool {
	return m.Job == j || slices.ContainsFunc(m.all, func(x Mover) bool { return x.Job == j })
}

// holdsParts reports whether a job holds parts of GPUs.
func holdsParts(j *job.State) bool {
	return slices.ContainsFunc(j.Allocs, func(a inventory.Alloc) bool { return a.Share > 0 })
}

// each lists the jobs behind movers, each once.
func each(movers []Mover) (list []Mover) {
	for i := range movers {
		m := &movers[i]
		if m.all == nil {
			list = append(list, *m)
			continue
		}
		for k := range m.all {
			if !slices.ContainsFunc(list, func(x Mover) bool { return x.Job == m.all[k].Job }) {
				list = append(list, m.all[k])
			}
		}
	}
	return list
}

// gather puts movers with parts of a GPU together, where without them no job would be on it; else it would not be
// whole, and they do not count.
func (f *Finder) gather(movers []Mover) (list []Mover) {
	var parts []Mover
	for i := range movers {
		if holdsParts(movers[i].Job) {
			parts = append(parts, movers[i])
		} else {
			list = append(list, movers[i])
		}
	}
	if parts == nil {
		return list
	}
	for id, on := range f.byNode(parts) {
		n, first := &f.st.Nodes()[id], len(list)
		for dev := range n.Devices() {
			if len(on) == 0 || n.Whole()>>dev&1 == 0 {
				continue
			}
			g := Mover{gpu: [1]inventory.Alloc{{Node: int32(id), GPUs: 1 << dev}}}
			here := f.tenantsOf(int32(id), dev, parts, on)
			for i := range here {
				g.all = append(g.all, here[i].Mover)
			}
			if g.all == nil || !coversAll(here, &n.Devices()[dev]) {
				continue
			}
			same := func(x Mover) bool {
				return slices.EqualFunc(x.all, g.all, func(a, b Mover) bool { return a.Job == b.Job })
			}
			if k := slices.IndexFunc(list[first:], same); k >= 0 {
				list[first+k].gpu[0].GPUs |= 1 << dev // they leave both, and cost that once
				continue
			}
			g.cost = costOf(g.all)
			list = append(list, g)
		}
	}
	return list
}

// portions prices movers so that no choice among them costs more than its jobs do: a job with parts of several GPUs
// counts for each of them in part.
func portions(movers []Mover) []Mover {
	if !slices.ContainsFunc(movers, func(m Mover) bool { return m.all != nil }) {
		return movers
	}
	list := slices.Clone(movers)
	for i := range list {
		if list[i].all == nil {
			continue
		}
		list[i].cost = 0
		for _, x := range list[i].all {
			n := 0
			for k := range movers {
				if movers[k].has(x.Job) {
					n++
				}
			}
			list[i].cost += x.cost / time.Duration(n)
		}
	}
	return list
}

// occupant is a mover with part of a GPU, and what of that is free when it leaves.
type occupant struct {
	Mover
	tenants int16 // allocations
	slots   uint8
	media   bool
	milli   int32
	mem     cluster.MiB
}

// tenantsOf lists which of some movers (on) have parts of a GPU, by cost.
func (f *Finder) tenantsOf(id int32, dev int, movers []Mover, on []int) (list []occupant) {
	for _, i := range on {
		o := occupant{Mover: movers[i]}
		for k := range o.Job.Allocs {
			if a := &o.Job.Allocs[k]; a.Node == id && a.GPUs>>dev&1 == 1 && a.Share > 0 {
				o.tenants, o.slots, o.media = o.tenants+1, o.slots|a.Slots, o.media || a.Media
				o.milli, o.mem = o.milli+a.Share, o.mem+a.Mem
			}
		}
		if o.tenants > 0 {
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b occupant) int { return int(min(1, max(-1, a.cost-b.cost))) })
	return list
}

// coversAll reports whether no other job has parts of the GPU.
func coversAll(list []occupant, d *inventory.Device) bool {
	n := int16(0)
	for i := range list {
		n += list[i].tenants
	}
	return n == d.Tenants()
}

// partChoices lists the sets of movers whose departure may make room for one task with shares or a slice, moves for
// most at most, the cheapest first.
func (f *Finder) partChoices(ask placement.Request, s *shape.Shape, j *job.State, movers []Mover,
	most cluster.Milli) (list []choice) {
	if s.Wide() {
		return f.wideChoices(ask, s, j, movers, most)
	}
	r := &s.Sets[0].Request
	for id, on := range f.byNode(movers) {
		n := &f.st.Nodes()[id]
		if len(on) == 0 || !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for dev := range n.Devices() {
			if n.Healthy()>>dev&1 == 0 {
				continue
			}
			for _, leavers := range f.departures(int32(id), dev, r, j, movers, on) {
				if len(leavers) > 0 && toll(leavers) <= most {
					list = append(list, choice{movers: leavers, cost: costOf(leavers),
						at: inventory.Domain{Level: cluster.LevelNode, ID: int32(id)}})
				}
			}
		}
	}
	sortChoices(list)
	return list
}

// departures lists the sets of movers that could leave a GPU for a share or a slice.
func (f *Finder) departures(id int32, dev int, r *cluster.Request, j *job.State, movers []Mover,
	on []int) (list [][]Mover) {
	n := &f.st.Nodes()[id]
	d := &n.Devices()[dev]
	if d.Tenants() == 0 {
		return f.holderOf(n, id, dev, movers, on)
	}
	here := f.tenantsOf(id, dev, movers, on)
	if len(here) == 0 {
		return nil
	}
	if !n.IsCut(dev) && coversAll(here, d) {
		list = append(list, jobsOf(here, 1<<len(here)-1))
	}
	switch {
	case r.Profile == "" && (d.Slots() != 0 || f.places.Sharing == cluster.MPS && d.User() != j.Spec.User):
		return list // only all of them make room
	case r.Profile == "":
		return append(list, f.fewest(n, d, r, here)...)
	case d.Slots() == 0:
		return list // likewise
	}
	model := f.st.Classes()[n.Class()].Model()
	p, ok := model.Profile(r.Profile)
	if !ok {
		return nil
	}
	for _, mask := range n.MasksOf(p, dev) {
		gone, slots, media := uint64(0), d.Slots()&mask, d.Media() && p.Media()
		for i := range here {
			if o := &here[i]; o.slots&mask != 0 || o.media && p.Media() {
				gone, slots, media = gone|1<<i, slots&^o.slots, media && !o.media
			}
		}
		if slots == 0 && !media {
			list = append(list, jobsOf(here, gone))
		}
	}
	return list
}

// holderOf is the mover that has a whole GPU.
func (f *Finder) holderOf(n *inventory.Node, id int32, dev int, movers []Mover, on []int) [][]Mover {
	for _, i := range on {
		for k := range movers[i].Job.Allocs {
			if a := &movers[i].Job.Allocs[k]; a.Node == id && a.Share == 0 && a.GPUs>>dev&1 == 1 &&
				n.Hosts()>>dev&1 == 1 {
				return [][]Mover{{movers[i]}}
			}
		}
	}
	return nil
}

// fewest lists the sets of movers with shares of a GPU whose departure makes room for one more, each without a job that
// need not leave: every such set where up to eight may leave, else the cheapest until there is room.
func (f *Finder) fewest(n *inventory.Node, d *inventory.Device, r *cluster.Request, here []occupant) (list [][]Mover) {
	enough := func(gone uint64) bool {
		milli, mem, seats := d.Milli(), d.Mem(), f.st.Classes()[n.Class()].Seats(d)
		for m := gone; m != 0; m &= m - 1 {
			o := &here[bits.TrailingZeros64(m)]
			milli, mem, seats = milli+o.milli, mem+o.mem, seats+int(o.tenants)
		}
		return int64(milli) >= r.Share && mem >= r.Memory && seats > 0
	}
	if len(here) > exactMovers {
		gone := uint64(0)
		for i := 0; i < min(64, len(here)) && !enough(gone); i++ {
			gone |= 1 << i
		}
		return append(list, jobsOf(here, gone))
	}
	for gone := uint64(1); gone < 1<<len(here); gone++ {
		least := enough(gone)
		for m := gone; m != 0 && least; m &= m - 1 {
			least = !enough(gone &^ (m & -m))
		}
		if least {
			list = append(list, jobsOf(here, gone))
		}
	}
	return list
}

// jobsOf are those of a mask.
func jobsOf(list []occupant, mask uint64) (leavers []Mover) {
	for i := range list {
		if mask>>i&1 == 1 {
			leavers = append(leavers, list[i].Mover)
		}
	}
	return leavers
}

// makeRoom looks for the cheapest way to have a share or a slice where some jobs leave.
func (f *Finder) makeRoom(h *search, list []choice) {
	for i := range list[:min(len(list), mostBlocks)] {
		c := &list[i]
		if !h.better(c.cost, len(c.movers)) {
			return
		}
		f.tryMoves(h, c.at, c.movers)
	}
}

// extentOf is how much room a job that moves needs, in thousandths of a GPU: a slice at least
// its part of the memory slices, of eight.
func extentOf(j *job.State) (sum int64) {
	for i := range j.Allocs {
		a := &j.Allocs[i]
		sum += max(a.Milli(), int64(bits.OnesCount8(a.Slots))*cluster.Whole/8)
	}
	return sum
}

// Toll is what a move counts for against the bound of moves (Settings.Moves), in thousandths: of a job with whole GPUs
// for one; of one with shares or slices for its part of them, at most one, so that it is one move to clear a GPU.
func Toll(j *job.State) cluster.Milli {
	if holdsParts(j) {
		return min(cluster.Whole, extentOf(j))
	}
	return cluster.Whole
}

func toll(movers []Mover) (sum cluster.Milli) {
	for i := range movers {
		sum += Toll(movers[i].Job)
	}
	return sum
}
