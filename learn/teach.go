package learn

import "slices"

// Rule is a heuristic decider: of the jobs that fit it starts the one with the least Cost, as near together as
// it fits. Agents are compared with it, and imitate it first.
type Rule struct {
	Cost  func(g *Gang) float64
	Near  bool // it never waits, but never spreads a job more than necessary
	scene SchedScene
}

// ShortestService is the rule of least GPU time, which agents imitate first.
func ShortestService() *Rule {
	return &Rule{Cost: func(g *Gang) float64 { return float64(g.Length * float64(g.gpus())) }}
}

// row is the rule's action in a scene.
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

// student decides in a world and records its choices.
type student struct {
	Sched2
	rule    *Rule // the rule that it imitates; nil: it draws by its own probabilities
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
	s.choices = append(s.choices,
		Choice{Scene: s.scene.Scene.kept(), Row: row, LogProb: Log(max(s.look.Probs[row], 1e-12)),
			Worth: s.agent.Value(&s.look)})
	return s.take(m, row), true
}

// kept is a copy of a scene that outlives the next look.
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

// Episode plays a world and returns the credited choices. The cost of a choice is the integral of the number of
// jobs until the next choice, less that under the rule at the same time, so that what the jobs do by themselves
// does not count (Mao et al., 2019: input-dependent baselines).
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
	norm = max(float64(norm/max(float64(len(w.Jobs)), 1)*10), 1e-9)
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
	if paid > 0 { // what was left for the rule to do when the agent was done
		st.choices[paid-1].Reward += (base.area[len(base.area)-1] - base.until(out.times[len(out.times)-1])) / norm
	}
	l.Credit(st.choices)
	return st.choices
}

// Mix describes the jobs of a made-up world.
type Mix struct {
	Nodes, GPUs int     // per node
	Racks       int     // 1: one rack
	Jobs        int     // number of jobs
	Load        float64 // offered work relative to the cluster's capacity
	Spread      float64 // of run times: the standard deviation of their logarithm
	Large       float64 // fraction of gangs of more than one GPU
	Loose       float64 // fraction of gangs with tasks of one GPU each, which may be spread
	Loss        float64 // the greatest loss of speed of these when they are spread
	Unknown     bool    // run times are unknown
}

// Mix is a random mix, with about this offered load.
func (r *Rand) Mix(load float64) Mix {
	m := Mix{Nodes: 2 + r.Int(5), GPUs: 8, Racks: 1 + r.Int(3), Load: float64(load * (0.8 + float64(0.4*r.Float()))),
		Spread: 0.6 + float64(1.4*r.Float()), Large: 0.2 + float64(0.6*r.Float()), Loose: r.Float(),
		Loss: float64(0.7 * r.Float()), Unknown: r.Int(8) == 0}
	if r.Int(3) == 0 {
		m.GPUs = 4
	}
	if r.Int(2) == 0 {
		m.Loose = 0
	}
	m.Jobs = m.Nodes * m.GPUs * (4 + r.Int(8))
	return m
}

// World generates a world of the mix.
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
		j.Run = float64(600 * Exp(float64(m.Spread*r.Norm())))
		work += float64(j.Run * float64(j.Tasks*j.Each))
		w.Jobs = append(w.Jobs, j)
	}
	span := work / (m.Load * float64(m.Nodes*m.GPUs))
	at := 0.0
	for i := range w.Jobs { // some arrive together, others apart
		if r.Float() < 0.7 {
			at -= float64(span / float64(m.Jobs) / 0.7 * Log(1-r.Float()))
		}
		w.Jobs[i].Submit = at
	}
	return w
}
