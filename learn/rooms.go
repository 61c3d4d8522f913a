package learn

import "slices"

// Room is a node as an agent sees it.
type Room struct {
	GPUs, Free int32
	Rack       int32
	Kind       int32 // of GPU: a gang's GPUs are of one kind
	Class      int32 // nodes of a class suit the same jobs
}

// Near is how near together a gang's tasks are to be.
type Near uint8

// The levels of locality, from near to far.
const (
	SameNode Near = iota
	SameRack
	Anywhere
	levels
)

// Gang is what an agent knows of a waiting job.
type Gang struct {
	Tasks, Each int32      // number of tasks, and GPUs of each
	Classes     [4]uint64  // on which nodes it may run
	Length      float64    // its expected run time, in any unit; 0: unknown
	Age         float64    // how long it has waited, in the same unit
	Loss        [2]float64 // the fraction of its speed that it loses on several nodes of a rack, and of several racks
	Behind      int        // equal jobs that wait behind it
	Tried       bool       // it was chosen before and did not start: it takes no room
}

func (g *Gang) gpus() int32 { return g.Tasks * g.Each }

func (g *Gang) suits(r *Room) bool { return g.Classes[r.Class>>6]>>(r.Class&63)&1 == 1 }

// AllClasses are the nodes of every class.
var AllClasses = [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// fit is where a gang would go: whether it fits at a level of locality, and how many GPUs of the node that it
// fits best stay free (for a spread gang: 0).
type fit struct {
	ok   [levels]bool
	left int32
	size int32 // of that node
}

// fits finds the levels at which a gang fits. A level that does not differ from a nearer one is left out: a gang
// of one task is on one node anyway.
func (f *Floor) fits(g *Gang) (x fit) {
	x.left = -1
	best := lot{}
	for k := range f.kinds {
		total, tie := int32(0), false
		for i := range f.lots {
			l := &f.lots[i]
			if int(l.Kind) != k || l.Free < g.Each || !g.suits(&l.Room) {
				continue
			}
			n := l.Free / g.Each
			total += n * l.count
			if left := l.Free - g.gpus(); n >= g.Tasks && (x.left < 0 || left < x.left) {
				x.left, best, tie = left, *l, false
			} else if n >= g.Tasks && left == x.left && l.Kind == best.Kind {
				tie = tie || l.GPUs != best.GPUs
			}
		}
		if tie { // the first of the nodes determines the size
			best.GPUs = f.Rooms[f.first(0, g, k, -1, best.Free)].GPUs
		}
		x.ok[Anywhere] = x.ok[Anywhere] || total >= g.Tasks
		if g.Tasks > 1 && len(f.racks) > 1 && !x.ok[SameRack] && total >= g.Tasks {
			x.ok[SameRack] = slices.ContainsFunc(f.racks, func(lots []lot) bool { return holds(lots, g, k) >= g.Tasks })
		}
	}
	x.ok[SameNode] = x.left >= 0 && g.Tasks > 1
	if x.left >= 0 {
		x.size = best.GPUs
	}
	x.left = max(x.left, 0)
	return x
}

// holds is how many tasks of a gang the nodes of a kind hold; it stops counting once all tasks fit.
func holds(lots []lot, g *Gang, kind int) (n int32) {
	for i := range lots {
		if l := &lots[i]; int(l.Kind) == kind && l.Free >= g.Each && g.suits(&l.Room) {
			if n += l.Free / g.Each * l.count; n >= g.Tasks {
				break
			}
		}
	}
	return n
}

// room reports whether a gang fits at any level. Between two calls of Begin room only shrinks, so a gang that
// did not fit is not checked again.
func (f *Floor) room(g *Gang) bool {
	k := narrow{g.Tasks, g.Each, g.Classes}
	if f.full[k] {
		return false
	}
	for kind := range f.kinds {
		if holds(f.lots, g, kind) >= g.Tasks {
			return true
		}
	}
	f.full[k] = true
	return false
}

// narrow is the key by which it is remembered that a gang does not fit.
type narrow struct {
	tasks, each int32
	classes     [4]uint64
}

// lot is a set of equal nodes.
type lot struct {
	Room
	count int32
}

// Floor is the nodes of a cluster with their free GPUs. Begin prepares it; until the next one only Take may
// change it.
type Floor struct {
	Rooms []Room
	kinds int
	lots  []lot   // nodes that are equal but for their rack, which is 0 here
	racks [][]lot // by rack: equal nodes
	full  map[narrow]bool
	seen  map[int32]int32
	taken []int32 // nodes of the last gang that was placed
}

// Begin reads the nodes and numbers racks and kinds from 0 on.
func (f *Floor) Begin() {
	if f.full == nil {
		f.full, f.seen = map[narrow]bool{}, map[int32]int32{}
	}
	clear(f.full)
	racks := f.number(func(r *Room) *int32 { return &r.Rack })
	f.kinds = f.number(func(r *Room) *int32 { return &r.Kind })
	for len(f.racks) < racks {
		f.racks = append(f.racks, nil)
	}
	f.racks, f.lots = f.racks[:racks], f.lots[:0]
	for i := range f.racks {
		f.racks[i] = f.racks[i][:0]
	}
	for i := range f.Rooms {
		r := &f.Rooms[i]
		tally(&f.racks[r.Rack], *r, 1)
	}
	for _, lots := range f.racks {
		for _, l := range lots {
			l.Rack = 0
			tally(&f.lots, l.Room, l.count)
		}
	}
}

// tally adds n equal nodes, or removes them if n is negative.
func tally(lots *[]lot, r Room, n int32) {
	list := *lots
	for i := range list {
		if list[i].Free == r.Free && list[i].Room == r {
			if list[i].count += n; list[i].count == 0 {
				list[i] = list[len(list)-1]
				*lots = list[:len(list)-1]
			}
			return
		}
	}
	*lots = append(list, lot{r, n})
}

// take takes GPUs of a node.
func (f *Floor) take(node, gpus int32) {
	r := &f.Rooms[node]
	for _, n := range [2]int32{-1, 1} {
		tally(&f.racks[r.Rack], *r, n)
		whole := *r
		whole.Rack = 0
		tally(&f.lots, whole, n)
		if n < 0 {
			r.Free -= gpus
		}
	}
}

// first is the first node, starting at one, that is of a kind and a rack (-1: any), suits a gang and has this
// much free; -1: none.
func (f *Floor) first(from int32, g *Gang, kind int, rack, free int32) int32 {
	for i := int(from); i < len(f.Rooms); i++ {
		if r := &f.Rooms[i]; r.Free == free && int(r.Kind) == kind && (rack < 0 || r.Rack == rack) && g.suits(r) {
			return int32(i)
		}
	}
	return -1
}

// number replaces values by numbers from 0 on, in order of appearance, and returns how many there are.
func (f *Floor) number(of func(r *Room) *int32) int {
	clear(f.seen)
	last, is := int32(0), int32(-1)
	for i := range f.Rooms {
		n := of(&f.Rooms[i])
		if is < 0 || *n != last { // neighbours are usually alike
			k, known := f.seen[*n]
			if !known {
				k = int32(len(f.seen))
				f.seen[*n] = k
			}
			last, is = *n, k
		}
		*n = is
	}
	return len(f.seen)
}

// Take places a gang as the engine's best fit does within the level: on the fullest node that holds it all, else
// on the one that holds the most, and so on. It returns these nodes, valid until the next call; none if it does
// not fit.
func (f *Floor) Take(g *Gang, near Near) []int32 {
	for k := range f.kinds {
		if near != SameRack {
			if f.pack(g, k, -1, near) {
				return f.taken
			}
			continue
		}
		tried := make([]bool, len(f.racks))
		for range f.racks {
			rack := f.tightest(g, k, tried)
			if rack < 0 {
				break
			}
			tried[rack] = true
			if f.pack(g, k, rack, near) {
				return f.taken
			}
		}
	}
	return nil
}

// tightest is the rack with the fewest free GPUs among those that have enough; -1: none.
func (f *Floor) tightest(g *Gang, kind int, tried []bool) int32 {
	best, least := -1, int32(0)
	for i, lots := range f.racks {
		n := int32(0)
		for k := range lots {
			if l := &lots[k]; int(l.Kind) == kind && g.suits(&l.Room) {
				n += l.Free * l.count
			}
		}
		if !tried[i] && n >= g.gpus() && (best < 0 || n < least) {
			best, least = i, n
		}
	}
	return int32(best)
}

// pack takes room for a gang on nodes of a kind and a rack (-1: any), or nothing.
func (f *Floor) pack(g *Gang, kind int, rack int32, near Near) bool {
	f.taken = f.taken[:0]
	from, last := int32(0), int32(-1)
	for left := g.Tasks; left > 0; {
		most, free := f.fullest(g, kind, rack, left)
		if most == 0 || near == SameNode && most < left {
			f.giveBack(g, g.Tasks-left)
			return false
		}
		if free != last { // otherwise the nodes before it no longer have this much
			from, last = 0, free
		}
		best := f.first(from, g, kind, rack, free)
		from = best
		for range most {
			f.taken = append(f.taken, best)
		}
		f.take(best, most*g.Each)
		left -= most
	}
	return true
}

// fullest is the largest part of the remaining tasks that a node holds, and the free GPUs of the fullest such
// node.
func (f *Floor) fullest(g *Gang, kind int, rack, left int32) (most, free int32) {
	lots := f.lots
	if rack >= 0 {
		lots = f.racks[rack]
	}
	for i := range lots {
		l := &lots[i]
		if int(l.Kind) != kind || l.Free < g.Each || !g.suits(&l.Room) {
			continue
		}
		if n := min(l.Free/g.Each, left); n > most || n == most && l.Free < free {
			most, free = n, l.Free
		}
	}
	return most, free
}

func (f *Floor) giveBack(g *Gang, tasks int32) {
	for _, i := range f.taken[:tasks] {
		f.take(i, -g.Each)
	}
}
