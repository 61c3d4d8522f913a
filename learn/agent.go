package learn

// Element is a set of equal things as an agent sees them: their features, and how many there are.
type Element struct {
	Features []float64
	Count    float64
}

// Scene is what an agent sees when it has to choose: the unordered elements of its world, the state as a whole,
// and a row for each possible action.
type Scene struct {
	Elements []Element
	State    []float64
	Rows     [][]float64
	Mask     []bool // by row: whether the action is possible
}

// Agent chooses among any number of rows. One network rates each row together with the shared part, so the order
// of rows and elements does not matter (elements are encoded one by one and averaged). Another network estimates
// the value of the state.
type Agent struct {
	Encode, Rate, Worth *Net
	features            Shape
}

// Shape is the number of features of an element, the state and a row.
type Shape struct{ Element, State, Row int }

// embedding is the size of the averaged encoding of the elements.
const embedding, hidden = 8, 32

// NewAgent makes an untrained agent.
func NewAgent(r *Rand, s Shape) *Agent {
	shared := s.State + embedding
	return &Agent{NewNet(r, s.Element, 16, embedding), NewNet(r, shared+s.Row, hidden, hidden, 1),
		NewNet(r, shared, hidden, hidden, 1), s}
}

// nets lists the networks, with their names in files.
func (a *Agent) nets() ([]*Net, []string) {
	return []*Net{a.Encode, a.Rate, a.Worth}, []string{"encode", "rate", "worth"}
}

func (a *Agent) params() (list [][]float64) {
	nets, _ := a.nets()
	for _, n := range nets {
		list = append(list, n.params()...)
	}
	return list
}

// zero is an agent of the same shape with all weights 0.
func (a *Agent) zero() *Agent {
	return &Agent{a.Encode.zero(), a.Rate.zero(), a.Worth.zero(), a.features}
}

// Clone is a copy with the same weights.
func (a *Agent) Clone() *Agent {
	c := a.zero()
	c.set(a)
	return c
}

// set copies the weights of another agent.
func (a *Agent) set(from *Agent) {
	to, list := a.params(), from.params()
	for i := range to {
		copy(to[i], list[i])
	}
}

// Look is what an agent computes of a scene. It can be reused.
type Look struct {
	Logits, Probs []float64 // by row; masked rows are rated -Inf, and never chosen
	shared, pre   []float64
	total         float64
	rows, elems   []trace
	worth         trace
}

// see computes the part that all rows share.
func (a *Agent) see(s *Scene, l *Look) {
	l.shared = append(l.shared[:0], s.State...)
	for range embedding {
		l.shared = append(l.shared, 0)
	}
	pooled := l.shared[len(s.State):]
	for len(l.elems) < len(s.Elements) {
		l.elems = append(l.elems, trace{})
	}
	l.total = 0
	for i := range s.Elements {
		e := &s.Elements[i]
		axpy(e.Count, a.Encode.forward(a.Encode.B[0], e.Features, &l.elems[i]), pooled)
		l.total += e.Count
	}
	if l.total > 0 {
		for i := range pooled {
			pooled[i] /= l.total
		}
	}
}

// Judge rates the rows of a scene.
func (a *Agent) Judge(s *Scene, l *Look) {
	a.see(s, l)
	if len(l.pre) != a.Rate.Sizes[1] {
		l.pre = make([]float64, a.Rate.Sizes[1])
	}
	a.Rate.prefix(l.shared, l.pre)
	for len(l.rows) < len(s.Rows) {
		l.rows = append(l.rows, trace{})
	}
	l.Logits = l.Logits[:0]
	for i := range s.Rows {
		v := never
		if s.Mask[i] {
			v = a.Rate.forward(l.pre, s.Rows[i], &l.rows[i])[0]
		}
		l.Logits = append(l.Logits, v)
	}
	l.Probs = Softmax(l.Logits, s.Mask, l.Probs[:0])
}

// Best is the row that the agent rates highest after Judge, of equals the first; -1: all are masked.
func (l *Look) Best() int {
	best := -1
	for i, v := range l.Logits {
		if v > never && (best < 0 || v > l.Logits[best]) {
			best = i
		}
	}
	return best
}

// Draw is a random row, with the agent's probabilities.
func (l *Look) Draw(r *Rand) int {
	x, last := r.Float(), -1
	for i, p := range l.Probs {
		if p <= 0 {
			continue
		}
		last = i
		if x -= p; x < 0 {
			break
		}
	}
	return last
}

// Value is the agent's estimate of the value of a scene, after Judge.
func (a *Agent) Value(l *Look) float64 {
	return a.Worth.forward(a.Worth.B[0], l.shared, &l.worth)[0]
}

// grader accumulates gradients of an agent.
type grader struct {
	grad   *Agent
	buf    [2][]float64
	shared []float64
	first  []float64
	pooled []float64
}

// back adds the gradient of a judged scene: of each row's rating, and of the value.
func (g *grader) back(a *Agent, s *Scene, l *Look, rows []float64, worth float64) {
	g.shared = append(g.shared[:0], l.shared...)
	clear(g.shared)
	g.first = append(g.first[:0], l.pre...)
	clear(g.first)
	for i, v := range rows {
		if s.Mask[i] && v != 0 {
			axpy(1, a.Rate.backward(&l.rows[i], []float64{v}, g.grad.Rate, &g.buf), g.first)
		}
	}
	a.Rate.backShared(g.first, l.shared, g.grad.Rate, g.shared)
	if worth != 0 {
		first := a.Worth.backward(&l.worth, []float64{worth}, g.grad.Worth, &g.buf)
		a.Worth.backShared(first, nil, g.grad.Worth, nil)
		for o, v := range first {
			axpy(v, a.Worth.W[0][o*len(l.shared):(o+1)*len(l.shared)], g.shared)
		}
	}
	pooled := g.shared[len(s.State):]
	for i := range s.Elements {
		g.pooled = append(g.pooled[:0], pooled...)
		for k := range g.pooled {
			g.pooled[k] = float64(g.pooled[k]*s.Elements[i].Count) / l.total
		}
		a.Encode.backward(&l.elems[i], g.pooled, g.grad.Encode, &g.buf)
	}
}
