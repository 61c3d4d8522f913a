package learn

// The agent of the placer meta-rl (Meta-RL worker placement, TCC'23) places a gang worker by worker. It sees
// equal nodes as one.

var placeShape = Shape{Element: 4, State: 9, Row: 11}

// Spot is a node as the placer sees it.
type Spot struct {
	GPUs, Free int32 // wholly free ones, without those taken by this gang
	Room       int32 // workers that still fit
	Mine       int32 // workers of this gang on it
	Crowd      int32 // other gangs on several nodes that have workers here
	Rack       int32
}

// Worker is what the placer knows of the gang, and its progress.
type Worker struct {
	Tasks, Each int32
	Placed      int32
	Loss        [2]float64 // as Gang.Loss
	Home        int32      // the rack of the last worker that was placed
}

// PlaceScene is the agent's view of nodes, in memory that is reused.
type PlaceScene struct {
	Scene
	First []int32 // by row: the first node of the kind
	seen  []Spot
	count []float64
	memo  SchedScene // used for its memory only
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
		if w.Placed == 0 { // all racks are alike until a worker is placed
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

// see counts equal nodes, as the agent sees them, and reports whether a worker fits on one of them; first is the
// first node of the kind.
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

// fill describes all nodes: how many the gang uses, and how many GPUs are free and exist.
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
	v[2] = float64(p.Free-p.Room*w.Each) / size // after placing all that still fits
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

// Placing places workers by an agent.
type Placing struct {
	agent *Agent
	scene PlaceScene
	look  Look
}

// NewPlacing makes a Placing; agents may be shared, because nothing changes them.
func NewPlacing(a *Agent) *Placing { return &Placing{agent: a} }

// By replaces the agent.
func (p *Placing) By(a *Agent) { p.agent = a }

// Next is the node for the next worker: the first of the kind that the agent chose; -1: there is no room.
func (p *Placing) Next(spots []Spot, w *Worker) int {
	if !p.scene.look(spots, w) {
		return -1
	}
	return p.choose()
}

// NextOf is Next for places, on which the gang's workers must have been bound.
func (p *Placing) NextOf(places *Places, w *Worker) int {
	if !p.scene.lookAt(places, w) {
		return -1
	}
	return p.choose()
}

func (p *Placing) choose() int {
	if open, row := p.scene.open(); open == 1 { // no choice
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

// Bind records that a worker is on a node.
func (w *Worker) Bind(spots []Spot, node int) {
	s := &spots[node]
	s.Room--
	s.Free -= w.Each
	s.Mine++
	w.Home = s.Rack
	w.Placed++
}
