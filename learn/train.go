package learn

// Training has the settings and the seed of a training.
type Training struct {
	Seed      uint64
	Rounds    int // of improvement
	Worlds    int // played in each
	Imitated  int // worlds played by the rule first
	Judges    int // worlds by which weights are chosen; no agent learns from them
	PPO       PPO
	From      *Agent                             // initial weights; nil: it imitates a rule first
	World     func(r *Rand, load float64) *World // generates a world with about this offered load; nil: made-up mixes
	Progress  func(Progress)
	Cancelled func() bool
}

// Progress is the state of a training.
type Progress struct {
	Stage         string
	Round, Rounds int
	Load          float64
	Score, Best   float64 // mean JCT relative to the rule of least service, over the judging worlds; lower is better
}

// DefaultTraining has the settings of the shipped weights of a system. It takes minutes on one core.
func DefaultTraining(system string, seed uint64) Training {
	p := Defaults()
	p.Epochs, p.Gamma = 4, 0.995
	t := Training{Seed: seed, Rounds: 100, Worlds: 12, Imitated: 3, Judges: 40}
	p.Rate, p.Batch = 1e-3, 128
	if system == SystemMetaRL { // the rates are Reptile's
		p.Rate, p.Batch = 3e-4, 256
		t.Rounds, t.Imitated = 150, 40
	}
	t.PPO = p
	return t
}

// Learn trains the weights of a system.
func (t *Training) Learn(system string) *Agent {
	if system == SystemMetaRL {
		return t.MetaRL()
	}
	return t.Sched2()
}

// Score is the agent's mean JCT relative to that of the rule of least service, over worlds.
func Score(a *Agent, worlds []*World) float64 {
	sum := 0.0
	for _, w := range worlds {
		own, rule := w.Play(NewSched2(a), nil), w.Play(ShortestService(), nil)
		sum += own.MeanJCT(w.Jobs) / rule.MeanJCT(w.Jobs)
	}
	return sum / max(float64(len(worlds)), 1)
}

// load is the curriculum: from light load to overload.
func (t *Training) load(round int) float64 {
	return 0.7 + float64(0.9*min(1, float64(round+1)/(0.7*float64(max(t.Rounds, 1)))))
}

// Sched2 trains an agent for Sched2: it imitates the rule of least service, then improves by the outcome of its
// own choices, with increasing load. Of all weights on the way it keeps those that score best on the judging
// worlds.
func (t *Training) Sched2() *Agent {
	world := t.World
	if world == nil {
		world = func(r *Rand, load float64) *World {
			m := r.Mix(load)
			return m.World(r)
		}
	}
	random := NewRand(t.Seed)
	judges := make([]*World, t.Judges)
	for i := range judges {
		judges[i] = world(random, 0.6+0.8*float64(i)/float64(max(t.Judges, 1)))
	}
	a := NewAgent(random, schedShape)
	warm := t.PPO
	warm.Rate = 1e-3
	l := NewLearner(a, warm, random.Uint64())
	var choices []Choice
	if t.From != nil {
		a.set(t.From)
	}
	for i := range t.Imitated {
		if t.From != nil {
			break
		}
		choices = append(choices,
			l.Episode(world(random, t.load(i*t.Rounds/max(t.Imitated, 1))), ShortestService(), true)...)
	}
	l.Imitate(choices, 4)
	l = NewLearner(a, t.PPO, random.Uint64())
	return t.rounds(a, func() float64 { return Score(a, judges) }, func(round int) {
		choices = choices[:0]
		left := 1 - float64(round)/float64(t.Rounds) // smaller steps and less randomness towards the end
		l.adam.Rate, l.Entropy = float64(t.PPO.Rate*(0.1+float64(0.9*left))), float64(t.PPO.Entropy*left)
		for range t.Worlds {
			load := 0.7 + float64(random.Float()*(t.load(round)-0.7))
			choices = append(choices, l.Episode(world(random, load), ShortestService(), false)...)
		}
		l.Improve(choices)
	})
}

// rounds improves an agent round by round, and returns it with the best weights on the way, those with
// the least score.
func (t *Training) rounds(a *Agent, score func() float64, improve func(round int)) *Agent {
	best, least := a.Clone(), score()
	t.tell(Progress{Stage: "begun", Score: least, Best: least})
	for round := range t.Rounds {
		if t.Cancelled != nil && t.Cancelled() {
			break
		}
		improve(round)
		now := score()
		if now < least {
			least = now
			best.set(a)
		}
		t.tell(Progress{Stage: "improved", Round: round + 1, Rounds: t.Rounds, Load: t.load(round), Score: now,
			Best: least})
	}
	return best
}

func (t *Training) tell(p Progress) {
	if t.Progress != nil {
		t.Progress(p)
	}
}
