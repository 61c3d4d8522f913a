package learn

// The placer meta-rl's agent (Meta-RL worker placement, TCC'23): it puts worker after worker of a gang on
// nodes, until all are placed. It sees nodes that are alike as one.

var placeShape = Shape{Element: 4, State: 9, Row: 11}

// Spot is a node as the placer sees it.
type Spot struct {
	GPUs, Free int32 // wholly free ones, without those that this gang has taken
	Room       int32 // workers that still fit
	Mine       int32 // workers of this gang that are on it
	Crowd      int32 // other gangs that are on several nodes and have workers here
	Rack       int32
}

// Worker is what the placer knows of the gang, and how far it is.
type Worker struct {
	Tasks, Each int32
	Placed      int32
	Loss        [2]float64 // as Gang.Loss
	Home        int32      // the rack of the last worker that was placed
}

// PlaceScene is how the agent sees nodes, in memory that is used again.
type PlaceScene struct {
	Scene
	First []int32 // by row: the first node that is like this
	seen  []Spot
	count []float64
	memo  SchedScene // for its memory only
}

// look makes the scene; any: a worker fits somewhere.
func (s *PlaceScene) look(spots []Spot, w *Worker) (any bool) {
	s.seen, s.count, s.First = s.seen[:0], s.count[:0], s.First[:0]
	used, free, gpus := 0.0, 0.0, 0.0
	for i := range spots {
		p := spots[i]
		used += one(p.Mine > 0)
		free += float64(p.Free)
		gpus += float64(p.GPUs)
		if w.Placed == 0 { // all racks are alike as long as none is home
			p.Rack = 0
		} else {
			p.Rack = int32(one(p.Rack == w.Home))
		}
		p.Crowd = min(p.Crowd, 4)
		any = s.see(p, w, 1, int32(i)) || any
	}
	if any {
		s.fill(w, used, free, gpus)
	}
	return any
}

// see counts nodes that look alike, as the agent sees them, and reports whether a worker fits on
// one of them; who comes first says which is their first.
func (s *PlaceScene) see(p Spot, w *Worker, count float64, first int32) bool {
	p.Room = min(p.Room, w.Tasks-w.Placed)
	k := len(s.seen) - 1
	for k >= 0 && s.seen[k] != p {
		k--
	}
	if k < 0 {
		k = len(s.seen)
		s.seen, s.count, s.First = append(s.seen, p), append(s.count, 0), append(s.First, first)
	}
	s.count[k] += count
	return p.Room > 0
}

// fill describes what was seen: of all nodes, how many the gang uses, and the GPUs that are free
// and there.
func (s *PlaceScene) fill(w *Worker, used, free, gpus float64) {
	m := &s.memo
	m.memo, s.Elements, s.Rows, s.Mask = m.memo[:0], s.Elements[:0], s.Rows[:0], s.Mask[:0]
	v := m.room(placeShape.State)
	s.State = v
	v[0], v[1] = log2(float64(w.Tasks))/6, float64(w.Each)/8
	v[2], v[3] = float64(w.Placed)/float64(w.Tasks), used/float64(w.Tasks)
	v[4] = free / max(gpus, 1)
	v[5], v[6] = w.Loss[0], w.Loss[1]
	v[7], v[8] = one(w.Tasks == 1), float64(w.Tasks-w.Placed)*float64(w.Each)/max(free, 1)
	for i := range s.seen {
		p := &s.seen[i]
		e := m.room(placeShape.Element)
		e[0], e[1] = float64(p.GPUs)/8, float64(p.Free)/float64(max(p.GPUs, 1))
		e[2], e[3] = one(p.Free == p.GPUs), float64(p.Crowd)/4
		s.Elements = append(s.Elements, Element{e, s.count[i]})
		s.Mask = append(s.Mask, p.Room > 0)
		s.Rows = append(s.Rows, m.spot(p, w))
	}
}

// spot is the row of a kind of node.
func (s *SchedScene) spot(p *Spot, w *Worker) []float64 {
	v := s.room(placeShape.Row)
	left := w.Tasks - w.Placed
	size := float64(max(p.GPUs, 1))
	v[0] = float64(p.Mine) / float64(w.Tasks)
	v[1] = float64(p.Free-w.Each) / size
	v[2] = float64(p.Free-p.Room*w.Each) / size // when all that fits of the rest has gone there
	v[3] = one(p.Free == p.GPUs)
	v[4] = one(w.Placed > 0 && p.Rack == 1)
	v[5] = one(p.Room >= left)
	v[6] = float64(p.Room) / float64(left)
	v[7] = float64(p.Crowd) / 4
	v[8] = one(p.Mine > 0)
	v[9] = one(p.Free == w.Each)
	v[10] = one(w.Tasks > 1) * float64(p.Crowd) / 4
	return v
}

// Placing puts workers on nodes by an agent.
type Placing struct {
	agent *Agent
	scene PlaceScene
	look  Look
}

// NewPlacing makes one; agents may be shared, as nothing changes them.
func NewPlacing(a *Agent) *Placing { return &Placing{agent: a} }

// By has another agent choose.
func (p *Placing) By(a *Agent) { p.agent = a }

// Next is the node for the next worker: the first of those that are like the one that the agent chose; -1:
// there is no room.
func (p *Placing) Next(spots []Spot, w *Worker) int {
	if !p.scene.look(spots, w) {
		return -1
	}
	return p.choose()
}

// NextOf is Next of places, which must be those on which the gang's workers have been put.
func (p *Placing) NextOf(places *Places, w *Worker) int {
	if !p.scene.lookAt(places, w) {
		return -1
	}
	return p.choose()
}

func (p *Placing) choose() int {
	if open, row := p.scene.open(); open == 1 { // there is nothing to choose
		return int(p.scene.First[row])
	}
	p.agent.Judge(&p.scene.Scene, &p.look)
	return int(p.scene.First[p.look.Best()])
}

// open is how many rows are not masked, and the last of them.
func (s *Scene) open() (n, row int) {
	for i, ok := range s.Mask {
		if ok {
			n, row = n+1, i
		}
	}
	return n, row
}

// Bind notes that a worker is on a node.
func (w *Worker) Bind(spots []Spot, node int) {
	s := &spots[node]
	s.Room--
	s.Free -= w.Each
	s.Mine++
	w.Home = s.Rack
	w.Placed++
}
