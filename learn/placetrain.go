package learn

// exploration is the value of a unit of uncertainty of the performance model during training.
const exploration = 0.2

// inner and outer are Reptile's: this many updates on a workload, at this rate; then a step of this size of the
// meta-weights towards the result.
const (
	innerUpdates = 5
	innerRate    = 1e-3
	outerStep    = 0.1
)

// PlaceScore is the agent's mean JCT relative to that of best fit, over worlds.
func PlaceScore(a *Agent, worlds []*PlaceWorld) float64 {
	sum := 0.0
	for _, w := range worlds {
		own, rule := w.Play(NewPlacing(a)), w.Play(PackRule{})
		sum += own.MeanJCT(w.Jobs) / rule.MeanJCT(w.Jobs)
	}
	return sum / max(float64(len(worlds)), 1)
}

// placeWorlds generates worlds of one workload: world makes the jobs, without their communication.
func (t *Training) placeWorlds(r *Rand, round int) func() *PlaceWorld {
	load, heavy := t.load(round), 0.2+float64(1.8*r.Float())
	if t.World != nil {
		return func() *PlaceWorld { return t.World(r, load).Communicating(r, heavy) }
	}
	m := r.Mix(load)
	m.Loose, m.Jobs = 0.5+float64(0.5*r.Float()), m.Jobs/2
	return func() *PlaceWorld { return m.World(r).Communicating(r, heavy) }
}

// MetaRL trains meta-weights for the placer: it imitates best fit, then learns workload after workload, rewarded
// by the predictions of a performance model of its own measurements, and moves a step towards what it learned of
// each (Reptile). Of all weights on the way it keeps those that score best on the judging worlds.
func (t *Training) MetaRL() *Agent {
	random := NewRand(t.Seed)
	judges := make([]*PlaceWorld, t.Judges)
	for i := range judges {
		judges[i] = t.placeWorlds(random, i*t.Rounds/max(t.Judges, 1))()
	}
	meta := NewAgent(random, placeShape)
	if t.From != nil {
		meta.set(t.From)
	} else {
		warm := t.PPO
		warm.Rate = 1e-3
		l := NewLearner(meta, warm, random.Uint64())
		var choices []Choice
		for i := range t.Imitated {
			choices = append(choices,
				l.placeEpisode(t.placeWorlds(random, i*t.Rounds/max(t.Imitated, 1))(), nil, true)...)
		}
		l.Imitate(choices, 4)
	}
	model := NewPerfModel(random.Uint64())
	return t.rounds(meta, func() float64 { return PlaceScore(meta, judges) }, func(round int) {
		own := meta.Clone()
		t.Adapt(own, model, t.placeWorlds(random, round), innerUpdates, random.Uint64())
		Reptile(meta, own, outerStep)
	})
}

// Adapt lets an agent learn one workload, in this many updates, and reports how often the performance model
// detected a change of the workload: the agent then starts again with its original weights.
func (t *Training) Adapt(a *Agent, model *PerfModel, world func() *PlaceWorld, updates int, seed uint64) (drifts int) {
	meta, rules := a.Clone(), t.PPO
	rules.Rate = innerRate
	l := NewLearner(a, rules, seed)
	before := model.Drifts // the model outlives the workload
	for range updates {
		var choices []Choice
		for range 2 {
			choices = append(choices, l.placeEpisode(world(), model, false)...)
		}
		model.Fit(20)
		if model.Drifts > before+drifts { // the choices were rewarded by a model of another world
			drifts = model.Drifts - before
			a.set(meta)
			l.adam = Adam{Rate: innerRate}
			continue
		}
		l.Improve(choices)
	}
	return drifts
}

// placeEpisode plays a world and returns the credited choices.
func (l *Learner) placeEpisode(w *PlaceWorld, model *PerfModel, pack bool) []Choice {
	a := &apprentice{Placing: Placing{agent: l.agent}, pack: pack, random: l.random, model: model, bonus: exploration}
	w.Play(a)
	l.Credit(a.choices)
	return a.choices
}
