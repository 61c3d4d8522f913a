package compat

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/solve"
)

// gavelRules are AlloX, Gandiva and LAS without heterogeneity as Gavel's simulator has them (G-gavel-simulator,
// 5 and 6): AlloX looks at idle GPUs only and forgets who was to come next, Gandiva
// draws pairs by lot, LAS the order of the models each round, and all leave to the rounds what their solution does not say.
// They are peculiar to that simulator, so they are here and no policies.
type gavelRules struct {
	w       *GavelWorld
	solve   func(g *gavelRules)
	chance  *twister
	order   *twister // draws the order of the models in each round; nil: from the fastest on
	changed int      // jobs that have come, and those that are over, at the last solution
	last    float64
	total   [3]float64 // seconds handed out on each model since then, and at the start of it
	entries []*gavelEntry
}

// gavelEntry is a job, or two on the same GPUs.
type gavelEntry struct {
	jobs    [2]*gavelJob // the second is nil for one
	solved  bool         // the last solution knew it
	x       [3]float64   // part of its time on each model
	had     [3]float64   // seconds since the last solution, and half a round
	deficit [3]float64
}

func newGavelRules(w *GavelWorld, solve func(g *gavelRules)) *gavelRules {
	g := &gavelRules{w: w, solve: solve, chance: newTwister(w.x.Seed)}
	w.book = g.book
	return g
}

func (*gavelRules) Name() string { return "gavel-rules" }

func (*gavelRules) Traits() engine.Traits {
	return engine.Traits{Preempts: true, Backfill: engine.Skip, Round: 1, Gated: true}
}

func (*gavelRules) Key(_ engine.View, j engine.JobView) engine.Key {
	if t := j.Target(); t != nil {
		return engine.Key{t.Rank}
	}
	return engine.Key{}
}

// rate is the entry's jobs' steps per second on a model.
func (g *gavelRules) rate(e *gavelEntry, model int) (a, b float64) {
	if e.jobs[1] == nil {
		return e.jobs[0].rate[model], 0
	}
	x, y := e.jobs[0], e.jobs[1]
	return g.w.table.beside[gavelPair{x.model, y.model, x.gpus}][model], g.w.table.beside[gavelPair{y.model, x.model, x.gpus}][model]
}

// stalls reports whether one of the entry's jobs would make no steps on a model.
func (g *gavelRules) stalls(e *gavelEntry, model int) bool {
	a, b := g.rate(e, model)
	return a == 0 || b == 0 && e.jobs[1] != nil
}

// book counts what an entry had in a round.
func (g *gavelRules) book(j *gavelJob, seconds float64) {
	g.total[j.on] += seconds
	for _, e := range g.entries {
		if e.jobs[0] == j && e.jobs[1] == j.mate || e.jobs[1] == j && e.jobs[0] == j.mate && j.mate != nil {
			e.had[j.on] += seconds
		}
	}
}

// Plan solves anew where jobs have come or gone, and selects who runs this round.
func (g *gavelRules) Plan(v engine.View, jobs []engine.JobView) engine.Plan {
	clock := g.w.clock
	g.entries = slices.DeleteFunc(g.entries, func(e *gavelEntry) bool { return e.jobs[0].done || e.jobs[1] != nil && e.jobs[1].done })
	for _, j := range g.w.live {
		if !j.entered {
			j.entered = true
			g.entries = append(g.entries, &gavelEntry{jobs: [2]*gavelJob{j}, had: [3]float64{gavelRound / 2, gavelRound / 2, gavelRound / 2}})
		}
	}
	if over := len(g.w.jobs) - len(g.w.live); g.changed != len(g.w.jobs)+over && (clock-g.last >= gavelReset || g.last == 0) {
		g.changed = len(g.w.jobs) + over
		for _, e := range g.entries {
			for k := range gavelModels {
				e.deficit[k] += e.x[k]*(clock-g.last) - (e.had[k] - gavelRound/2)
				e.had[k] = gavelRound / 2
			}
		}
		for k := range g.total {
			g.total[k] = gavelRound / 2 * float64(len(g.entries))
		}
		g.solve(g)
		g.last = clock
	}
	g.w.planned, g.w.company = map[int]string{}, map[int]int{}
	taken := map[*gavelJob]bool{}
	for _, k := range g.models() {
		g.selectOn(k, taken)
	}
	return g.plan(v, jobs)
}

// models are the models in the order of this round, shuffled as CPython does it.
func (g *gavelRules) models() [3]int {
	order := [3]int{2, 1, 0}
	if g.order != nil {
		for i := len(order) - 1; i > 0; i-- {
			k := g.order.below(i + 1)
			order[i], order[k] = order[k], order[i]
		}
	}
	return order
}

// selectOn selects on a model. Who came since the last solution keeps GPUs from
// others, and does not run.
func (g *gavelRules) selectOn(model int, taken map[*gavelJob]bool) {
	line := slices.Clone(g.entries)
	priority := func(e *gavelEntry) float64 {
		switch {
		case !e.solved || e.x[model] == 0 || g.stalls(e, model):
			return 0
		case g.total[model] == 0:
			return e.x[model] * 1e9
		}
		return e.x[model] / (e.had[model] / g.total[model])
	}
	slices.SortStableFunc(line, func(a, b *gavelEntry) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), cmp.Compare(b.deficit[model], a.deficit[model]), cmp.Compare(b.x[model], a.x[model]))
	})
	free := gavelGPUs
	for _, e := range line {
		a, b := e.jobs[0], e.jobs[1]
		if taken[a] || b != nil && taken[b] || a.gpus > free || g.stalls(e, model) {
			continue
		}
		free -= a.gpus
		taken[a] = true
		if b != nil {
			taken[b] = true
		}
		if !e.solved {
			continue
		}
		g.w.planned[int(a.spec.ID)] = gavelModels[model].ours
		if b != nil {
			g.w.planned[int(b.spec.ID)] = gavelModels[model].ours
			g.w.company[int(a.spec.ID)], g.w.company[int(b.spec.ID)] = int(b.spec.ID), int(a.spec.ID)
		}
	}
}

// plan makes targets of what was selected: of two, who holds GPUs of the model already
// goes on to hold them.
func (g *gavelRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	plan := engine.Plan{Targets: make([]engine.Target, len(jobs)), Next: v.Now() + 1}
	views := map[int]engine.JobView{}
	for _, j := range jobs {
		views[int(j.Spec().ID)] = j
	}
	holds := func(id int) bool {
		_, guest := views[id].Beside()
		return views[id].Running() && !guest && views[id].GPU() == g.w.planned[id]
	}
	guest := func(id int) bool { // of the two, who is beside the other one
		mate, ok := g.w.company[id]
		return ok && (holds(mate) && (!holds(id) || id > mate) || !holds(mate) && !holds(id) && id > mate)
	}
	for i, j := range jobs {
		id := int(j.Spec().ID)
		host, is := j.Beside()
		t := engine.Target{GPU: g.w.planned[id], Idle: g.w.planned[id] == ""}
		if guest(id) {
			t.Rank, t.Beside, t.Move, t.Idle, t.Alone = 1, 1+int32(g.w.company[id]), true, true, is
		} else if is {
			t.Alone = !guest(int(host)) && views[int(host)].GPU() == g.w.planned[int(host)]
		}
		plan.Targets[i] = t
	}
	return plan
}

// gavelAlloX gives idle GPUs to who comes first in the assignment with the least sum
// of completion times; who has one keeps it.
func gavelAlloX(g *gavelRules) {
	free := [3]int{gavelGPUs, gavelGPUs, gavelGPUs}
	var queue []*gavelEntry
	for _, e := range g.entries {
		e.solved = true
		if k := slices.Index(e.x[:], 1); k >= 0 {
			free[k]--
		} else {
			queue = append(queue, e)
		}
	}
	var seats []struct{ model, gpu, turn int }
	for k, n := range free {
		for gpu := range min(n, len(queue)) {
			for turn := range len(queue) {
				seats = append(seats, struct{ model, gpu, turn int }{k, gpu, turn + 1})
			}
		}
	}
	if len(seats) == 0 {
		return
	}
	costs := make([]int64, 0, len(queue)*len(seats))
	for _, e := range queue {
		j := e.jobs[0]
		for _, s := range seats {
			cost := int64(solve.Impossible)
			if v := j.rate[s.model]; v > 0 {
				cost = int64(math.Round(1e3 * float64(s.turn) * j.left / v))
			}
			costs = append(costs, cost)
		}
	}
	first := map[[2]int]int{} // the last turn from the end, on each GPU
	columns := solve.Assign(len(queue), len(seats), costs)
	for _, c := range columns {
		s := seats[c]
		first[[2]int{s.model, s.gpu}] = max(first[[2]int{s.model, s.gpu}], s.turn)
	}
	for i, c := range columns {
		if s := seats[c]; s.turn == first[[2]int{s.model, s.gpu}] {
			queue[i].x[s.model] = 1
		}
	}
}

// gavelLAS gives all jobs, of one GPU each, the same part of each model: the centre of
// what is best (G-gavel-simulator, 6).
func gavelLAS(g *gavelRules) {
	for _, e := range g.entries {
		e.solved = true
		for k := range e.x {
			e.x[k] = min(1/float64(len(e.x)), gavelGPUs/float64(len(g.entries)))
		}
	}
}

// gavelGandiva divides all GPUs equally among jobs, or if there are more than GPUs
// among jobs and pairs: pairs are drawn by lot, and stay while they get more done
// together than one alone.
func gavelGandiva(g *gavelRules) {
	asked := 0
	var singles, kept []*gavelEntry
	for _, e := range g.entries {
		e.x = [3]float64{}
		if e.jobs[1] == nil {
			e.solved = true
			asked += e.jobs[0].gpus
			singles = append(singles, e)
		} else if g.gains(e) {
			kept = append(kept, e)
		}
	}
	shared := map[*gavelJob]bool{}
	g.entries = slices.Clone(singles)
	if asked > len(gavelModels)*gavelGPUs {
		for _, e := range kept {
			g.entries = append(g.entries, e)
			shared[e.jobs[0]], shared[e.jobs[1]] = true, true
		}
		var open []*gavelJob
		for _, e := range singles {
			if !shared[e.jobs[0]] {
				open = append(open, e.jobs[0])
			}
		}
		for range len(open) {
			if len(open) < 2 {
				break
			}
			i, k := g.two(len(open))
			a, b := open[min(i, k)], open[max(i, k)]
			if a.gpus == b.gpus {
				g.entries = append(g.entries, &gavelEntry{jobs: [2]*gavelJob{a, b}, solved: true})
				shared[a], shared[b] = true, true
				open = slices.DeleteFunc(open, func(j *gavelJob) bool { return j == a || j == b })
			}
		}
	}
	var sharing []*gavelEntry
	for _, e := range g.entries {
		if e.jobs[1] != nil || !shared[e.jobs[0]] {
			sharing = append(sharing, e)
		}
	}
	for _, e := range sharing {
		part := gavelGPUs / float64(len(sharing)*e.jobs[0].gpus)
		for k := range e.x {
			e.x[k] = part / max(1, part*float64(len(e.x)))
		}
	}
}

// gains reports whether two get more done together than one alone, over all models.
func (g *gavelRules) gains(e *gavelEntry) bool {
	sum := 0.0
	for k := range gavelModels {
		if g.stalls(e, k) {
			return false
		}
		a, b := g.rate(e, k)
		sum += a/e.jobs[0].rate[k] + b/e.jobs[1].rate[k]
	}
	return sum >= 1
}

// two draws two different places of n, as CPython's random.sample does: up to 21 from
// a list that shrinks, beyond that again until they differ.
func (g *gavelRules) two(n int) (i, k int) {
	i = g.chance.below(n)
	if n <= 21 {
		if k = g.chance.below(n - 1); k == i {
			k = n - 1 // the last one has moved there
		}
		return i, k
	}
	for k = g.chance.below(n); k == i; k = g.chance.below(n) {
	}
	return i, k
}

var gavelOwn = map[string]func(g *gavelRules){"allox": gavelAlloX, "gandiva": gavelGandiva, "las": gavelLAS}

// ownPolicy is a policy of that simulator.
func (w *GavelWorld) ownPolicy() (engine.Policy, error) {
	if w.x.Own == "" {
		return newGavelFIFO(w), nil
	}
	rules, ok := gavelOwn[w.x.Own]
	if !ok {
		return nil, cluster.Unknown("policy of Gavel's simulator", w.x.Own, []string{"allox", "gandiva", "las"})
	}
	g := newGavelRules(w, rules)
	if w.x.Own == "las" {
		g.order = newTwister(w.x.Seed + 5)
	}
	return g, nil
}
