package learn

// Places are the nodes of a cluster while the workers of a gang are placed. Equal nodes form a kind; there are
// few kinds even on many nodes. A choice considers kinds, and placing a worker moves only its node, and the
// nodes of racks that become home or cease to be, to other kinds. The naive twin is PlaceScene.look, which
// considers each node.
type Places struct {
	spots []Spot
	kinds []placeKind
	of    []int32        // by spot
	known map[Spot]int32 // looked up only
	order []placeFirst
	used  int64 // spots with workers of this gang
	free  int64
	gpus  int64
}

// placeKind is a set of equal spots. Rack is 1 for home, else 0; more than four nodes count as four.
type placeKind struct {
	Spot
	count int32
	heap  []int32 // its spots in a heap, among others that have left it
}

// placeFirst is a kind and the first of its spots.
type placeFirst struct{ spot, kind int32 }

// Begin takes the spots of a gang of which no worker is placed. They belong to the places until the next Begin.
func (p *Places) Begin(spots []Spot) {
	if p.known == nil {
		p.known = map[Spot]int32{}
	}
	clear(p.known)
	p.spots, p.kinds, p.of = spots, p.kinds[:0], p.of[:0]
	p.used, p.free, p.gpus = 0, 0, 0
	for i := range spots {
		s := &spots[i]
		p.free, p.gpus = p.free+int64(s.Free), p.gpus+int64(s.GPUs)
		p.of = append(p.of, -1)
		p.enter(int32(i), false)
	}
}

// enter puts a spot into its kind.
func (p *Places) enter(spot int32, home bool) {
	is := p.spots[spot]
	is.Rack, is.Crowd = int32(one(home)), min(is.Crowd, 4)
	k := int32(-1)
	if spot > 0 { // neighbours are usually alike
		k = p.of[spot-1]
	}
	if k < 0 || p.kinds[k].Spot != is {
		at, ok := p.known[is]
		if !ok {
			at = p.kind(is)
		}
		k = at
	}
	kind := &p.kinds[k]
	kind.count++
	kind.heap = pushLeast(kind.heap, spot)
	p.of[spot] = k
}

// kind adds a kind, reusing the memory of an earlier one.
func (p *Places) kind(is Spot) int32 {
	k := len(p.kinds)
	if k < cap(p.kinds) {
		p.kinds = p.kinds[:k+1]
	} else {
		p.kinds = append(p.kinds, placeKind{})
	}
	p.kinds[k] = placeKind{Spot: is, heap: p.kinds[k].heap[:0]}
	p.known[is] = int32(k)
	return int32(k)
}

// Bind records that a worker is on a spot, on which room more still fit.
func (p *Places) Bind(w *Worker, spot int, room int32) {
	s := &p.spots[spot]
	before, first := w.Home, w.Placed == 0
	p.used += int64(one(s.Mine == 0))
	p.free -= int64(w.Each)
	w.Bind(p.spots, spot)
	s.Room = room
	p.kinds[p.of[spot]].count--
	p.enter(int32(spot), true)
	if !first && before == w.Home {
		return
	}
	for i := range p.spots {
		if r := p.spots[i].Rack; i != spot && (r == w.Home || !first && r == before) {
			p.kinds[p.of[i]].count--
			p.enter(int32(i), r == w.Home)
		}
	}
}

// lookAt makes the scene, as if it had considered all spots in order; any: a worker fits somewhere.
func (s *PlaceScene) lookAt(p *Places, w *Worker) (any bool) {
	s.seen, s.count, s.First = s.seen[:0], s.count[:0], s.First[:0]
	for _, o := range p.inOrder() {
		k := &p.kinds[o.kind]
		any = s.see(k.Spot, w, float64(k.count), o.spot) || any
	}
	if any {
		s.fill(w, float64(p.used), float64(p.free), float64(p.gpus))
	}
	return any
}

// inOrder lists the kinds by their first spots.
func (p *Places) inOrder() []placeFirst {
	list := p.order[:0]
	for i := range p.kinds {
		k := &p.kinds[i]
		if k.count == 0 {
			continue
		}
		for p.of[k.heap[0]] != int32(i) {
			k.heap = popLeast(k.heap)
		}
		at := len(list)
		list = append(list, placeFirst{k.heap[0], int32(i)})
		for ; at > 0 && list[at-1].spot > list[at].spot; at-- {
			list[at-1], list[at] = list[at], list[at-1]
		}
	}
	p.order = list
	return list
}

// pushLeast and popLeast keep a list as a heap with the least number first.
func pushLeast(list []int32, n int32) []int32 {
	list = append(list, n)
	for i := len(list) - 1; i > 0; {
		up := (i - 1) / 2
		if list[up] <= list[i] {
			break
		}
		list[up], list[i] = list[i], list[up]
		i = up
	}
	return list
}

func popLeast(list []int32) []int32 {
	last := len(list) - 1
	list[0] = list[last]
	list = list[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if list[c] < list[least] {
				least = c
			}
		}
		if least == i {
			return list
		}
		list[i], list[least] = list[least], list[i]
		i = least
	}
}
