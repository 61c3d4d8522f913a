package learn

import "slices"

// Rule is a heuristic that decides in a world: of the jobs that fit, the one for which Cost is
// least, as near together as it fits. It is what agents are compared with, and imitate first.
type Rule struct {
	Cost  func(g *Gang) float64
	Near  bool // it waits for nothing, but never goes farther apart than it has to
	scene SchedScene
}

// ShortestService is the rule of least GPU time, by which an agent starts to learn.
func ShortestService() *Rule {
	return &Rule{Cost: func(g *Gang) float64 { return float64(g.Length * float64(g.gpus())) }}
}

// ShortestJob is the rule of least run time.
func ShortestJob() *Rule { return &Rule{Cost: func(g *Gang) float64 { return g.Length }} }

// Oldest is the rule of arrival, which passes over who does not fit.
func Oldest() *Rule { return &Rule{Cost: func(g *Gang) float64 { return -g.Age }} }

// row is what the rule does in a scene that was looked at.
func (r *Rule) row(m *Moment, s *SchedScene) int {
	best, least := -1, 0.0
	for i := range m.Line {
		near := slices.Index(s.fits[i].ok[:], true)
		if near < 0 {
			continue
		}
		if c := r.Cost(&m.Line[i]); best < 0 || c < least {
			best, least = i*int(levels)+near, c
		}
	}
	return best
}

// Next implements Decider.
func (r *Rule) Next(m *Moment) (p Pick, ok bool) {
	if !r.scene.look(m) {
		return p, false
	}
	s := Sched2{scene: r.scene}
	p = s.take(m, r.row(m, &s.scene))
	r.scene = s.scene
	return p, true
}

// student decides in a world and notes its choices.
type student struct {
	Sched2
	rule    *Rule // whom it imitates; nil: it draws by its own probabilities
	random  *Rand
	choices []Choice
}

// Next implements Decider.
func (s *student) Next(m *Moment) (p Pick, ok bool) {
	if !s.scene.look(m) {
		return p, false
	}
	s.agent.Judge(&s.scene.Scene, &s.look)
	row := 0
	if s.rule != nil {
		row = s.rule.row(m, &s.scene)
	} else {
		row = s.look.Draw(s.random)
	}
	s.choices = append(s.choices, Choice{Scene: s.scene.Scene.kept(), Row: row, LogProb: Log(max(s.look.Probs[row], 1e-12)), Worth: s.agent.Value(&s.look)})
	return s.take(m, row), true
}

// kept is a scene that outlives the next look.
func (s *Scene) kept() Scene {
	k := Scene{State: slices.Clone(s.State), Mask: slices.Clone(s.Mask), Rows: make([][]float64, len(s.Rows))}
	for i, row := range s.Rows {
		k.Rows[i] = slices.Clone(row)
	}
	for _, e := range s.Elements {
		k.Elements = append(k.Elements, Element{slices.Clone(e.Features), e.Count})
	}
	return k
}

// Episode plays a world and returns the choices, credited. What a choice costs is how many jobs there are
// until the next one, over time, less how many there were under the rule at the same time: what the jobs do, by which
// nobody can help it, counts for nothing so (Mao et al., 2019: input-dependent baselines).
func (l *Learner) Episode(w *World, rule *Rule, imitate bool) []Choice {
	base := w.Play(rule, nil)
	st := &student{Sched2: Sched2{agent: l.agent}, random: l.random}
	if imitate {
		st.rule = rule
	}
	norm := 0.0
	for i := range w.Jobs {
		norm += w.Jobs[i].Run
	}
	norm = max(norm/max(float64(len(w.Jobs)), 1)*10, 1e-9)
	paid, last := 0, 0.0
	settle := func(now, area float64) {
		cost := area - base.until(now)
		if n := len(st.choices); n > 0 {
			st.choices[n-1].Reward += (last - cost) / norm
			paid = n
		}
		last = cost
	}
	out := w.Play(st, settle)
	if paid > 0 { // what the rule still had to do when the agent was done
		st.choices[paid-1].Reward += (base.area[len(base.area)-1] - base.until(out.times[len(out.times)-1])) / norm
	}
	l.Credit(st.choices)
	return st.choices
}

// Mix is what kind of jobs there are in a world that is made up.
type Mix struct {
	Nodes, GPUs int     // of a node
	Racks       int     // 1: all are in one
	Jobs        int     // how many come
	Load        float64 // offered work, of what the cluster can do
	Spread      float64 // of run times: the standard deviation of their logarithm
	Large       float64 // the share of gangs of more than one GPU
	Loose       float64 // the share of gangs whose tasks have one GPU each, so that they may be spread
	Loss        float64 // what of these lose of their speed at most, when they are
	Unknown     bool    // nobody knows how long jobs run
}

// Mix is a mix by chance, with an offered load of about so much.
func (r *Rand) Mix(load float64) Mix {
	m := Mix{Nodes: 2 + r.Int(5), GPUs: 8, Racks: 1 + r.Int(3), Load: load * (0.8 + float64(0.4*r.Float())),
		Spread: 0.6 + float64(1.4*r.Float()), Large: 0.2 + float64(0.6*r.Float()), Loose: r.Float(), Loss: float64(0.7 * r.Float()), Unknown: r.Int(8) == 0}
	if r.Int(3) == 0 {
		m.GPUs = 4
	}
	if r.Int(2) == 0 {
		m.Loose = 0
	}
	m.Jobs = m.Nodes * m.GPUs * (4 + r.Int(8))
	return m
}

// World makes up a world of the mix.
func (m *Mix) World(r *Rand) *World {
	w := &World{Check: 60}
	for i := range m.Nodes {
		w.Rooms = append(w.Rooms, Room{GPUs: int32(m.GPUs), Free: int32(m.GPUs), Rack: int32(i * m.Racks / m.Nodes)})
	}
	work := 0.0
	for range m.Jobs {
		j := Job{Tasks: 1, Each: 1, Unknown: m.Unknown}
		if r.Float() < m.Large {
			g := int32(2) << r.Int(4) // 2 to 16
			for int(g) > m.Nodes*m.GPUs {
				g /= 2
			}
			switch {
			case r.Float() < m.Loose:
				j.Tasks = g
				j.Loss = [2]float64{float64(m.Loss * 0.5 * r.Float()), 0}
				j.Loss[1] = min(0.9, j.Loss[0]+float64(m.Loss*0.5*r.Float()))
			case int(g) > m.GPUs:
				j.Tasks, j.Each = g/int32(m.GPUs), int32(m.GPUs)
			default:
				j.Each = g
			}
		}
		j.Run = 600 * Exp(float64(m.Spread*r.Norm()))
		work += float64(j.Run * float64(j.Tasks*j.Each))
		w.Jobs = append(w.Jobs, j)
	}
	span := work / (m.Load * float64(m.Nodes*m.GPUs))
	at := 0.0
	for i := range w.Jobs { // some together, others apart
		if r.Float() < 0.7 {
			at -= float64(span / float64(m.Jobs) / 0.7 * Log(1-r.Float()))
		}
		w.Jobs[i].Submit = at
	}
	return w
}
