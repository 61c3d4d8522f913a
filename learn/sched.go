package learn

// Sched2's agent (SCHED^2, GLOBECOM 2019) chooses which waiting job starts next and how near together its tasks
// are to be, or waits. Everything that it sees is a ratio, of times to times and of GPUs to GPUs, so that it
// decides the same for jobs that are ten times as long.

// Slots is how many jobs the agent considers at once.
const Slots = 10

// schedShape is the size of Sched2's scenes.
var schedShape = Shape{Element: 4, State: 12, Row: 15}

// Moment is a cluster at one instant.
type Moment struct {
	Floor
	Line    []Gang    // jobs that may be started, at most Slots
	Waiting int       // number of all waiting jobs
	Running []float64 // expected remaining time of each running job; less than 0: unknown
	Width   []int32   // ... and its GPUs
	idle    bool      // nothing ran when the moment began, so waiting would never end
}

// SchedScene is the agent's view of a moment, in memory that is reused.
type SchedScene struct {
	Scene
	fits  []fit
	memo  []float64
	rooms []int32 // by size and free GPUs: number of nodes
}

const mostSize = 16 // larger nodes count as this size

// The rows are Slots times levels, and the last one is to wait.
const waitRow = Slots * int(levels)

// RowOf is the action of a row of the scene.
func RowOf(row int) (slot int, near Near, wait bool) {
	return row / int(levels), Near(row % int(levels)), row == waitRow
}

// look makes the scene of a moment. any: something can be started.
func (s *SchedScene) look(m *Moment) (any bool) {
	s.memo, s.Rows, s.Mask, s.fits = s.memo[:0], s.Rows[:0], s.Mask[:0], s.fits[:0]
	for i := range m.Line {
		s.fits = append(s.fits, m.fits(&m.Line[i]))
		any = any || s.fits[i].ok != [levels]bool{}
	}
	if !any {
		return false
	}
	s.elements(m)
	u := unitsOf(m)
	s.state(m, &u)
	for slot := range Slots {
		for near := range levels {
			ok := slot < len(m.Line) && s.fits[slot].ok[near]
			s.Mask = append(s.Mask, ok)
			if ok {
				s.Rows = append(s.Rows, s.row(m, &u, slot, near))
			} else {
				s.Rows = append(s.Rows, nil)
			}
		}
	}
	at := s.room(schedShape.Row)
	at[0] = 1
	s.Rows, s.Mask = append(s.Rows, at), append(s.Mask, !m.idle)
	return true
}

// room is a zeroed buffer, valid until the next look.
func (s *SchedScene) room(n int) []float64 {
	if cap(s.memo)-len(s.memo) < n {
		s.memo = make([]float64, 0, max(4096, n))
	}
	at := len(s.memo)
	s.memo = s.memo[:at+n]
	clear(s.memo[at:])
	return s.memo[at : at+n : at+n]
}

// elements counts each kind of equal nodes once.
func (s *SchedScene) elements(m *Moment) {
	const side = mostSize + 1
	if s.rooms == nil {
		s.rooms = make([]int32, side*side)
	}
	clear(s.rooms)
	for i := range m.lots {
		l := &m.lots[i]
		s.rooms[min(l.GPUs, mostSize)*side+min(l.Free, mostSize)] += l.count
	}
	s.Elements = s.Elements[:0]
	for i, n := range s.rooms {
		if size, free := float64(i/side), float64(i%side); n > 0 && size > 0 {
			f := s.room(schedShape.Element)
			f[0], f[1] = size/8, free/size
			f[2], f[3] = one(free == size), one(free == 0)
			s.Elements = append(s.Elements, Element{f, float64(n)})
		}
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// units are the units of times and GPUs of a moment.
type units struct {
	length      float64 // the mean of the known lengths; 0: none is known
	gpus, free  float64
	least, mean float64 // time until the first job ends, and the mean of all
}

func unitsOf(m *Moment) (u units) {
	known := 0.0
	for i := range m.Line {
		if l := m.Line[i].Length; l > 0 {
			u.length += l
			known++
		}
	}
	if known > 0 {
		u.length /= known
	}
	for i := range m.lots { // integers: the order of addition does not matter
		l := &m.lots[i]
		u.gpus += float64(l.count * l.GPUs)
		u.free += float64(l.count * l.Free)
	}
	known, u.least = 0, -1
	for _, left := range m.Running {
		if left < 0 {
			continue
		}
		u.mean += left
		known++
		if u.least < 0 || left < u.least {
			u.least = left
		}
	}
	if known > 0 {
		u.mean /= known
	}
	return u
}

// ratio compares two times on a scale on which twice as long is 0.25, from -2 to 2.
func ratio(a, b float64) float64 {
	if a <= 0 && b <= 0 {
		return 0
	}
	if b <= 0 {
		return 2
	}
	return within(log2(a/b)/4, -2, 2)
}

func (s *SchedScene) state(m *Moment, u *units) {
	v := s.room(schedShape.State)
	s.State = v
	part, largest, empty := 0.0, 0.0, 0.0
	for i := range m.lots {
		l := &m.lots[i]
		largest = max(largest, float64(l.Free))
		if l.Free < l.GPUs {
			part += float64(l.count * l.Free)
		} else {
			empty += float64(l.count)
		}
	}
	v[0] = u.free / max(u.gpus, 1)
	v[1] = part / max(u.free, 1)
	v[2] = min(largest/8, 2)
	v[3] = empty / max(float64(len(m.Rooms)), 1)
	v[4] = log2(1+float64(m.Waiting)) / 10
	v[5] = float64(len(m.Line)) / Slots
	v[6] = one(u.least >= 0 && u.length > 0) // whether the following features are known
	if v[6] > 0 {
		v[7], v[8] = ratio(u.least, u.length), ratio(u.mean, u.length)
	}
	fitting, widest := 0.0, 0.0 // waiting serves the jobs that do not fit now
	for i := range m.Line {
		if s.fits[i].ok != [levels]bool{} {
			fitting++
		} else {
			widest = max(widest, float64(m.Line[i].gpus()))
			v[11] = max(v[11], 1-within(ratio(m.Line[i].Length, u.length), -1, 1))
		}
	}
	v[9] = fitting / Slots
	v[10] = widest / max(u.gpus, 1)
}

func (s *SchedScene) row(m *Moment, u *units, slot int, near Near) []float64 {
	v, g, f := s.room(schedShape.Row), &m.Line[slot], &s.fits[slot]
	gpus := float64(g.gpus())
	if g.Length > 0 {
		v[1] = ratio(g.Length, u.length)
		v[2] = v[1] + float64(log2(gpus)/4)
		v[3] = g.Age / (g.Age + g.Length)
	} else {
		v[4] = 1
	}
	v[5] = log2(gpus) / 6
	v[6] = gpus / max(u.gpus, 1)
	v[7] = gpus / max(u.free, 1)
	v[8], v[9] = one(near == SameNode), one(near == SameRack)
	if near > SameNode && !(near == Anywhere && f.ok[SameNode]) && g.Tasks > 1 {
		v[10] = g.Loss[near-1]
	}
	v[11] = float64(f.left) / max(float64(f.size), 1)
	v[12] = one(f.size > 0 && f.left+g.gpus() == f.size) // it takes GPUs of an empty node
	v[13] = log2(1+float64(g.Behind)) / 10
	shorter := 0.0
	for i := range m.Line {
		shorter += one(m.Line[i].Length < g.Length)
	}
	v[14] = shorter / Slots
	return v
}

// Pick is an action of Sched2: to start the job of a slot, or to wait.
type Pick struct {
	Slot  int
	Near  Near
	Wait  bool
	Prob  float64 // its probability
	Pause float64 // that of waiting
	Open  int     // number of possible actions
}

// Sched2 chooses by an agent.
type Sched2 struct {
	agent *Agent
	scene SchedScene
	look  Look
}

// NewSched2 makes a Sched2; agents may be shared, because nothing changes them.
func NewSched2(a *Agent) *Sched2 { return &Sched2{agent: a} }

// Begin is called once per moment, before the first pick.
func (m *Moment) Begin() {
	m.Floor.Begin()
	m.idle = len(m.Running) == 0
}

// Next is the agent's action at a moment; ok: one was possible. A start changes the moment: the chosen job has
// taken its room, and the caller refills its slot.
func (s *Sched2) Next(m *Moment) (p Pick, ok bool) {
	if !s.scene.look(m) {
		return p, false
	}
	s.agent.Judge(&s.scene.Scene, &s.look)
	return s.take(m, s.look.Best()), true
}

// take carries out the action of a row.
func (s *Sched2) take(m *Moment, row int) (p Pick) {
	p.Slot, p.Near, p.Wait = RowOf(row)
	if len(s.look.Probs) > row {
		p.Prob, p.Pause = s.look.Probs[row], s.look.Probs[waitRow]
	}
	for _, ok := range s.scene.Mask {
		if ok {
			p.Open++
		}
	}
	if p.Wait {
		return p
	}
	if g := &m.Line[p.Slot]; !g.Tried {
		m.Take(g, p.Near)
	}
	m.idle = false // something runs from now on
	return p
}
