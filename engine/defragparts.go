package engine

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Moves of shares and slices. One slice can be in the way of a larger one by where it
// lies, and keep a GPU from a job that wants it whole; so can a share. An instance that
// is used cannot be moved in place (NVIDIA's MIG user guide): its job leaves, and starts on another, also of
// the same GPU. For a GPU that is to be whole everybody leaves it who has a part; for a
// slice, who is on the memory slices from one of its legal starts on; for a share, as few
// as leave enough.

// on is what is free when the mover is gone: of who has parts of a GPU with others, that
// GPU when all of them are, or several of a node.
func (m *mover) on() []inventory.Alloc {
	if m.all != nil {
		return m.gpu[:]
	}
	return m.j.Allocs
}

// has reports whether the job is the mover, or one of them.
func (m *mover) has(j *job.State) bool {
	return m.j == j || slices.ContainsFunc(m.all, func(x mover) bool { return x.j == j })
}

// parted reports whether a mover holds parts of GPUs.
func (m *mover) parted() bool {
	return slices.ContainsFunc(m.j.Allocs, func(a inventory.Alloc) bool { return a.Share > 0 })
}

// each lists the jobs behind movers, each once.
func each(movers []mover) (list []mover) {
	for i := range movers {
		m := &movers[i]
		if m.all == nil {
			list = append(list, *m)
			continue
		}
		for k := range m.all {
			if !slices.ContainsFunc(list, func(x mover) bool { return x.j == m.all[k].j }) {
				list = append(list, m.all[k])
			}
		}
	}
	return list
}

// gather puts movers who have parts of a GPU together, where with them everybody would
// be gone from it: else it would not be whole, and they do not count.
func (e *Engine) gather(movers []mover) (list []mover) {
	var parts []mover
	for i := range movers {
		if movers[i].parted() {
			parts = append(parts, movers[i])
		} else {
			list = append(list, movers[i])
		}
	}
	if parts == nil {
		return list
	}
	for id, on := range e.byNode(parts) {
		n, first := &e.st.Nodes()[id], len(list)
		for dev := range n.Devices() {
			if len(on) == 0 || n.Whole()>>dev&1 == 0 {
				continue
			}
			g := mover{gpu: [1]inventory.Alloc{{Node: int32(id), GPUs: 1 << dev}}}
			here := e.tenantsOf(int32(id), dev, parts, on)
			for i := range here {
				g.all = append(g.all, here[i].mover)
			}
			if g.all == nil || !coversAll(here, &n.Devices()[dev]) {
				continue
			}
			same := func(x mover) bool {
				return slices.EqualFunc(x.all, g.all, func(a, b mover) bool { return a.j == b.j })
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

// portions prices movers so that no choice among them costs more than its jobs do: who has
// parts of several GPUs counts for each of them in part.
func portions(movers []mover) []mover {
	if !slices.ContainsFunc(movers, func(m mover) bool { return m.all != nil }) {
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
				if movers[k].has(x.j) {
					n++
				}
			}
			list[i].cost += x.cost / time.Duration(n)
		}
	}
	return list
}

// occupant is who may leave a GPU, and what of it is free then.
type occupant struct {
	mover
	tenants int16 // allocations
	slots   uint8
	media   bool
	milli   int32
	mem     cluster.MiB
}

// tenantsOf lists which of some movers (on) have parts of a GPU, by cost.
func (e *Engine) tenantsOf(id int32, dev int, movers []mover, on []int) (list []occupant) {
	for _, i := range on {
		o := occupant{mover: movers[i]}
		for k := range o.j.Allocs {
			if a := &o.j.Allocs[k]; a.Node == id && a.GPUs>>dev&1 == 1 && a.Share > 0 {
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

// coversAll reports whether nobody else has parts of the GPU.
func coversAll(list []occupant, d *inventory.Device) bool {
	n := int16(0)
	for i := range list {
		n += list[i].tenants
	}
	return n == d.Tenants()
}

// partChoices lists who could leave so that there may be room for one task with shares or a slice, at
// moves for most at most, the cheapest first.
func (e *Engine) partChoices(ask placement.Request, s *shape.Shape, j *job.State, movers []mover,
	most cluster.Milli) (list []choice) {
	if s.Wide() {
		return e.wideChoices(ask, s, j, movers, most)
	}
	r := &s.Sets[0].Request
	for id, on := range e.byNode(movers) {
		n := &e.st.Nodes()[id]
		if len(on) == 0 || !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for dev := range n.Devices() {
			if n.Healthy()>>dev&1 == 0 {
				continue
			}
			for _, who := range e.departures(int32(id), dev, r, j, movers, on) {
				if len(who) > 0 && toll(who) <= most {
					list = append(list, choice{who: who, cost: costOf(who),
						at: inventory.Domain{Level: cluster.LevelNode, ID: int32(id)}})
				}
			}
		}
	}
	sortChoices(list)
	return list
}

// departures lists who could leave a GPU for a share or a slice.
func (e *Engine) departures(id int32, dev int, r *cluster.Request, j *job.State, movers []mover,
	on []int) (list [][]mover) {
	n := &e.st.Nodes()[id]
	d := &n.Devices()[dev]
	if d.Tenants() == 0 {
		return e.holderOf(n, id, dev, movers, on)
	}
	here := e.tenantsOf(id, dev, movers, on)
	if len(here) == 0 {
		return nil
	}
	if !n.IsCut(dev) && coversAll(here, d) {
		list = append(list, jobsOf(here, 1<<len(here)-1))
	}
	switch {
	case r.Profile == "" && (d.Slots() != 0 || e.cfg.Spec.Sharing == cluster.MPS && d.User() != j.Spec.User):
		return list // only all of them make room
	case r.Profile == "":
		return append(list, e.fewest(n, d, r, here)...)
	case d.Slots() == 0:
		return list // likewise
	}
	model := e.st.Classes()[n.Class()].Model()
	p, ok := model.Profile(r.Profile)
	if !ok {
		return nil
	}
	for _, mask := range n.MasksOf(p, dev) {
		who, slots, media := uint64(0), d.Slots()&mask, d.Media() && p.Media()
		for i := range here {
			if o := &here[i]; o.slots&mask != 0 || o.media && p.Media() {
				who, slots, media = who|1<<i, slots&^o.slots, media && !o.media
			}
		}
		if slots == 0 && !media {
			list = append(list, jobsOf(here, who))
		}
	}
	return list
}

// holderOf is who has a whole GPU and may leave it.
func (e *Engine) holderOf(n *inventory.Node, id int32, dev int, movers []mover, on []int) [][]mover {
	for _, i := range on {
		for k := range movers[i].j.Allocs {
			if a := &movers[i].j.Allocs[k]; a.Node == id && a.Share == 0 && a.GPUs>>dev&1 == 1 &&
				n.Hosts()>>dev&1 == 1 {
				return [][]mover{{movers[i]}}
			}
		}
	}
	return nil
}

// fewest lists who could leave others with shares of a GPU so that one more has room, nobody
// in vain: every choice where up to eight may, else the cheapest until there is.
func (e *Engine) fewest(n *inventory.Node, d *inventory.Device, r *cluster.Request, here []occupant) (list [][]mover) {
	enough := func(who uint64) bool {
		milli, mem, seats := d.Milli(), d.Mem(), e.st.Classes()[n.Class()].Seats(d)
		for m := who; m != 0; m &= m - 1 {
			o := &here[bits.TrailingZeros64(m)]
			milli, mem, seats = milli+o.milli, mem+o.mem, seats+int(o.tenants)
		}
		return int64(milli) >= r.Share && mem >= r.Memory && seats > 0
	}
	if len(here) > exactMovers {
		who := uint64(0)
		for i := 0; i < min(64, len(here)) && !enough(who); i++ {
			who |= 1 << i
		}
		return append(list, jobsOf(here, who))
	}
	for who := uint64(1); who < 1<<len(here); who++ {
		least := enough(who)
		for m := who; m != 0 && least; m &= m - 1 {
			least = !enough(who &^ (m & -m))
		}
		if least {
			list = append(list, jobsOf(here, who))
		}
	}
	return list
}

// jobsOf are those of a mask.
func jobsOf(list []occupant, mask uint64) (who []mover) {
	for i := range list {
		if mask>>i&1 == 1 {
			who = append(who, list[i].mover)
		}
	}
	return who
}

// makeRoom looks for the cheapest way to have a share or a slice where some jobs leave.
func (e *Engine) makeRoom(h *hunt, list []choice) {
	for i := range list[:min(len(list), mostBlocks)] {
		c := &list[i]
		if !h.better(c.cost, len(c.who)) {
			return
		}
		e.tryMoves(h, c.at, c.who)
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

// toll is what moves count for against their bound (Defrag.Moves), in thousandths: a job with
// whole GPUs for one; one with shares or slices for its part of them, at most one, so that it is one
// move to clear a GPU.
func toll(movers []mover) (sum cluster.Milli) {
	for i := range movers {
		if m := &movers[i]; m.parted() {
			sum += min(cluster.Whole, extentOf(m.j))
		} else {
			sum += cluster.Whole
		}
	}
	return sum
}

// movesLeft is how many more moves there may be at once, in thousandths.
func (e *Engine) movesLeft() cluster.Milli {
	left := cluster.Milli(e.defrag.Moves) * cluster.Whole
	for _, id := range e.defrag.movers {
		left -= toll([]mover{{j: e.jobs[id]}})
	}
	return left
}

// onTheWay says that no more jobs are moved at once.
func (e *Engine) onTheWay() string {
	return fmt.Sprintf("%s on the way already: no more are moved at once", words.Jobs(len(e.defrag.movers)))
}
