package learn

// Room is a node as an agent sees it.
type Room struct {
	GPUs, Free int32
	Rack       int32
	Kind       int32 // of GPU: a gang's are of one kind
	Class      int32 // nodes of a class suit the same jobs
}

// Near says how near together a gang's tasks are to be.
type Near uint8

// The levels of locality, from near to far.
const (
	SameNode Near = iota
	SameRack
	Anywhere
	levels
)

// Gang is what an agent knows of a job that waits.
type Gang struct {
	Tasks, Each int32      // how many tasks, each of so many GPUs
	Classes     [4]uint64  // on which nodes it may run
	Length      float64    // how long it is believed to run, in any unit; 0: nobody knows
	Age         float64    // how long it has waited, in the same
	Loss        [2]float64 // the part of its speed that it loses on several nodes of a rack, and of several racks
	Behind      int        // so many that are like it wait behind it
	Tried       bool       // it was chosen before and did not start: it takes no room
}

func (g *Gang) gpus() int32 { return g.Tasks * g.Each }

func (g *Gang) suits(r *Room) bool { return g.Classes[r.Class>>6]>>(r.Class&63)&1 == 1 }

// AllClasses are the nodes of every class.
var AllClasses = [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// fit is where a gang would go: whether it fits at a level of locality, and how many GPUs of
// the node that it fits best stay free (of a gang that is spread: 0).
type fit struct {
	ok   [levels]bool
	left int32
	size int32 // of that node
}

// fits finds out at which levels a gang fits. A level that is no different from a nearer
// one is left out: a gang of one task is on one node anyway.
func (f *Floor) fits(g *Gang) (x fit) {
	x.left = -1
	for k := range f.kinds {
		total := int32(0)
		clear(f.perRack)
		for i := range f.Rooms {
			r := &f.Rooms[i]
			if int(r.Kind) != k || r.Free < g.Each || !g.suits(r) {
				continue
			}
			n := r.Free / g.Each
			total += n
			f.perRack[r.Rack] += n
			if left := r.Free - g.gpus(); n >= g.Tasks && (x.left < 0 || left < x.left) {
				x.left, x.size = left, r.GPUs
			}
		}
		x.ok[Anywhere] = x.ok[Anywhere] || total >= g.Tasks
		for _, n := range f.perRack {
			x.ok[SameRack] = x.ok[SameRack] || n >= g.Tasks
		}
	}
	x.ok[SameNode] = x.left >= 0
	if g.Tasks == 1 {
		x.ok[SameNode] = false
	}
	if g.Tasks == 1 || len(f.perRack) == 1 {
		x.ok[SameRack] = false
	}
	x.left = max(x.left, 0)
	return x
}

// Floor is the nodes of a cluster, with what is free of them. Begin makes it ready.
type Floor struct {
	Rooms   []Room
	kinds   int
	perRack []int32
	taken   []int32 // nodes that the last gang went to
	numbers []int32
}

// Begin looks at the nodes: racks and kinds are numbered from 0 after it.
func (f *Floor) Begin() {
	racks := f.number(func(r *Room) *int32 { return &r.Rack })
	f.kinds = f.number(func(r *Room) *int32 { return &r.Kind })
	if len(f.perRack) != racks {
		f.perRack = make([]int32, racks)
	}
}

// number replaces numbers by others from 0 on, in the order in which they appear, and returns
// how many there are.
func (f *Floor) number(of func(r *Room) *int32) int {
	f.numbers = f.numbers[:0]
	for i := range f.Rooms {
		n := of(&f.Rooms[i])
		k := 0
		if last := len(f.numbers) - 1; last >= 0 && f.numbers[last] == *n {
			k = last // neighbours are alike most often
		}
		for k < len(f.numbers) && f.numbers[k] != *n {
			k++
		}
		if k == len(f.numbers) {
			f.numbers = append(f.numbers, *n)
		}
		*n = int32(k)
	}
	return len(f.numbers)
}

// Take puts a gang on nodes, as the engine's best fit does within the level: on the fullest
// node that holds it all, else on the one that holds the most, and so on. It returns these
// nodes, until the next call; none if it does not fit.
func (f *Floor) Take(g *Gang, near Near) []int32 {
	for k := range f.kinds {
		if near != SameRack {
			if f.pack(g, k, -1, near) {
				return f.taken
			}
			continue
		}
		tried := make([]bool, len(f.perRack))
		for range f.perRack {
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

// tightest is the rack with the fewest free GPUs among those that have enough; -1: none has.
func (f *Floor) tightest(g *Gang, kind int, tried []bool) int32 {
	clear(f.perRack)
	for i := range f.Rooms {
		if r := &f.Rooms[i]; int(r.Kind) == kind && g.suits(r) {
			f.perRack[r.Rack] += r.Free
		}
	}
	best := -1
	for i, n := range f.perRack {
		if !tried[i] && n >= g.gpus() && (best < 0 || n < f.perRack[best]) {
			best = i
		}
	}
	return int32(best)
}

// pack takes room for a gang on nodes of a kind, and of a rack (-1: of any), or nothing.
func (f *Floor) pack(g *Gang, kind int, rack int32, near Near) bool {
	f.taken = f.taken[:0]
	for left := g.Tasks; left > 0; {
		best, most := int32(-1), int32(0)
		for i := range f.Rooms {
			r := &f.Rooms[i]
			if int(r.Kind) != kind || rack >= 0 && r.Rack != rack || !g.suits(r) {
				continue
			}
			n := min(r.Free/g.Each, left)
			if n > most || n > 0 && n == most && r.Free < f.Rooms[best].Free {
				best, most = int32(i), n
			}
		}
		if best < 0 || near == SameNode && most < left {
			f.giveBack(g, g.Tasks-left)
			return false
		}
		for range most {
			f.taken = append(f.taken, best)
		}
		f.Rooms[best].Free -= most * g.Each
		left -= most
	}
	return true
}

func (f *Floor) giveBack(g *Gang, tasks int32) {
	for _, i := range f.taken[:tasks] {
		f.Rooms[i].Free += g.Each
	}
}
