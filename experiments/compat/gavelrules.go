package compat

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
)

// gavelRules are AlloX, Gandiva, LAS, finish-time fairness and FIFO with space sharing as in
// Gavel's simulator (sections 5 and 6): AlloX considers idle GPUs only and forgets which job was
// next, Gandiva draws pairs at random, LAS without heterogeneity the order of the models in each
// round, and all but FIFO leave to the rounds what their solutions do not say. They are particular
// to that simulator, so they are here and not policies.
type gavelRules struct {
	w       *GavelWorld
	solve   func(g *gavelRules)
	chance  *twister
	order   *twister // draws the order of the models in each round; nil: the fastest first
	changed int      // number of arrivals and ends at the last solution
	last    float64
	total   [3]float64 // seconds handed out on each model since then, and the initial value
	entries []*gavelEntry

	// Any two jobs with equal numbers of GPUs are an entry in that simulator, if its policy uses
	// pairs. Here a pair is stored once a solution names it or it has run: all others have their
	// initial values (entry).
	pairing bool
	pairs   []*gavelEntry
	pairOf  map[[2]cluster.JobID]*gavelEntry // pairs by ids, the older job first

	strict bool // unused GPUs stay unused
}

// gavelEntry is a job, or two on the same GPUs.
type gavelEntry struct {
	jobs    [2]*gavelJob // the second, the later arrival, is nil for a single job
	solved  bool         // the last solution included it
	shares  bool         // Gandiva has drawn the pair, and keeps it
	x       [3]float64   // part of its time on each model
	had     [3]float64   // seconds since the last solution, plus half a round
	deficit [3]float64
}

func newGavelRules(w *GavelWorld, solve func(g *gavelRules)) *gavelRules {
	g := &gavelRules{w: w, solve: solve, chance: newTwister(w.x.Seed), pairOf: map[[2]cluster.JobID]*gavelEntry{}}
	w.book, w.emptied = g.book, g.solveAgain
	return g
}

func (*gavelRules) Name() string { return "gavel-rules" }

func (*gavelRules) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: engine.Skip, Round: 1, Gated: true}
}

func (*gavelRules) Key(_ sched.View, j sched.JobView) engine.Key {
	if t := j.Target(); t != nil {
		return engine.Key{t.Rank}
	}
	return engine.Key{}
}

// rate is the steps per second of the entry's jobs on a model.
func (g *gavelRules) rate(e *gavelEntry, model int) (a, b float64) {
	if e.jobs[1] == nil {
		return e.jobs[0].rate[model], 0
	}
	return g.beside(e.jobs[0], e.jobs[1], model)
}

// beside is the steps per second of a pair on the same GPUs.
func (g *gavelRules) beside(x, y *gavelJob, model int) (a, b float64) {
	return g.w.table.beside[gavelPair{x.model, y.model, x.gpus}][model],
		g.w.table.beside[gavelPair{y.model, x.model, x.gpus}][model]
}

// stalls reports whether one of the entry's jobs would make no steps on a model.
func (g *gavelRules) stalls(e *gavelEntry, model int) bool {
	a, b := g.rate(e, model)
	return a == 0 || b == 0 && e.jobs[1] != nil
}

// gavelIDs are two jobs' ids, the older one first.
func gavelIDs(a, b *gavelJob) [2]cluster.JobID {
	return [2]cluster.JobID{min(a.spec.ID, b.spec.ID), max(a.spec.ID, b.spec.ID)}
}

// pair is the entry of two jobs; a is the older one.
func (g *gavelRules) pair(a, b *gavelJob) *gavelEntry {
	if e := g.pairOf[gavelIDs(a, b)]; e != nil {
		return e
	}
	return g.entry(a, b)
}

// keep stores a pair.
func (g *gavelRules) keep(e *gavelEntry) *gavelEntry {
	if ids := gavelIDs(e.jobs[0], e.jobs[1]); g.pairOf[ids] == nil {
		g.pairs, g.pairOf[ids] = append(g.pairs, e), e
	}
	return e
}

// entry is a new entry of a job, or of two of which a is the older one, without received time.
func (g *gavelRules) entry(a, b *gavelJob) *gavelEntry {
	half := g.w.x.Round / 2
	return &gavelEntry{jobs: [2]*gavelJob{a, b}, solved: a.known && (b == nil || b.known),
		had: [3]float64{half, half, half}}
}

// book adds what an entry received in a round.
func (g *gavelRules) book(j *gavelJob, seconds float64) {
	g.total[j.on] += seconds
	if j.mate != nil {
		g.pairOf[gavelIDs(j, j.mate)].had[j.on] += seconds
		return
	}
	j.alone.had[j.on] += seconds
}

// solveAgain solves again if jobs have arrived or ended, even if none is left.
func (g *gavelRules) solveAgain() {
	gone := func(e *gavelEntry) bool { return e.jobs[0].done || e.jobs[1] != nil && e.jobs[1].done }
	for _, e := range g.pairs {
		if gone(e) {
			delete(g.pairOf, gavelIDs(e.jobs[0], e.jobs[1]))
		}
	}
	g.entries, g.pairs = slices.DeleteFunc(g.entries, gone), slices.DeleteFunc(g.pairs, gone)
	clock, half := g.w.clock, g.w.x.Round/2
	for _, j := range g.w.live {
		if j.alone == nil {
			j.alone = g.entry(j, nil)
			g.entries = append(g.entries, j.alone)
		}
	}
	over := len(g.w.jobs) - len(g.w.live)
	if g.changed == len(g.w.jobs)+over || clock-g.last < gavelReset && g.last != 0 {
		return
	}
	g.changed = len(g.w.jobs) + over
	for _, list := range [][]*gavelEntry{g.entries, g.pairs} {
		for _, e := range list {
			for k := range gavelModels {
				e.deficit[k] += e.x[k]*(clock-g.last) - (e.had[k] - half)
				e.had[k] = half
			}
			e.solved = true
		}
	}
	for k := range g.total {
		g.total[k] = half * float64(len(g.entries)+g.couples())
	}
	for _, e := range g.entries {
		e.jobs[0].known = true
	}
	g.last = clock
	if len(g.entries) > 0 {
		g.solve(g)
	}
}

// couples is the number of pairs in that simulator.
func (g *gavelRules) couples() (n int) {
	if !g.pairing {
		return 0
	}
	var as [9]int // jobs so far, by number of GPUs
	for _, e := range g.entries {
		n += as[e.jobs[0].gpus]
		as[e.jobs[0].gpus]++
	}
	return n
}

// Plan solves again if jobs have arrived or ended, and selects the jobs that run in this round.
func (g *gavelRules) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	g.solveAgain()
	g.w.planned, g.w.company = map[int]string{}, map[int]int{}
	taken := map[*gavelJob]bool{}
	for _, k := range g.models() {
		g.selectOn(k, taken)
	}
	return g.plan(v, jobs)
}

// models are the models in this round's order, shuffled like in CPython.
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

// priority is an entry's priority on a model: the time due to it over the time received.
func (g *gavelRules) priority(e *gavelEntry, model int) float64 {
	switch {
	case !e.solved || e.x[model] == 0 || g.stalls(e, model):
		return 0
	case g.total[model] == 0 || e.had[model] == 0:
		return e.x[model] * 1e9
	}
	return e.x[model] / (e.had[model] / g.total[model])
}

// byAge is that simulator's order of equal entries: by the later job's arrival; a job alone comes
// before its pairs with older ones.
func byAge(a, b *gavelEntry) int {
	at := func(e *gavelEntry) (last, first cluster.JobID) {
		if e.jobs[1] == nil {
			return e.jobs[0].spec.ID, -1
		}
		return e.jobs[1].spec.ID, e.jobs[0].spec.ID
	}
	aLast, aFirst := at(a)
	bLast, bFirst := at(b)
	return cmp.Or(cmp.Compare(aLast, bLast), cmp.Compare(aFirst, bFirst))
}

// selectOn selects entries on a model. A job that arrived since the last solution keeps other jobs
// off the GPUs, and does not run.
func (g *gavelRules) selectOn(model int, taken map[*gavelJob]bool) {
	type place struct {
		*gavelEntry
		priority float64
	}
	var line []place
	for _, list := range [][]*gavelEntry{g.entries, g.pairs} {
		for _, e := range list {
			if p := g.priority(e, model); p > 0 {
				line = append(line, place{e, p})
			}
		}
	}
	slices.SortFunc(line, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.deficit[model], a.deficit[model]),
			cmp.Compare(b.x[model], a.x[model]), byAge(a.gavelEntry, b.gavelEntry))
	})
	free := gavelGPUs
	for _, at := range line {
		g.take(at.gavelEntry, model, &free, taken)
	}
	if free > 0 && !g.strict {
		g.fill(model, &free, taken)
	}
}

// take selects an entry on a model if possible.
func (g *gavelRules) take(e *gavelEntry, model int, free *int, taken map[*gavelJob]bool) {
	a, b := e.jobs[0], e.jobs[1]
	if taken[a] || b != nil && taken[b] || a.gpus > *free || g.stalls(e, model) {
		return
	}
	*free -= a.gpus
	taken[a] = true
	if b != nil {
		taken[b] = true
	}
	if !e.solved {
		return
	}
	g.w.planned[int(a.spec.ID)] = gavelModels[model].ours
	if b != nil {
		g.w.planned[int(b.spec.ID)] = gavelModels[model].ours
		g.w.company[int(a.spec.ID)], g.w.company[int(b.spec.ID)] = int(b.spec.ID), int(a.spec.ID)
		g.keep(e)
	}
}

// fill gives unused GPUs to jobs to which nothing is due there, alone or in pairs, in order of the
// least received part of what was due.
func (g *gavelRules) fill(model int, free *int, taken map[*gavelJob]bool) {
	var open []*gavelJob
	var line []*gavelEntry
	for _, e := range g.entries {
		if j := e.jobs[0]; !taken[j] && j.gpus <= *free {
			if open = append(open, j); g.priority(e, model) == 0 && !g.stalls(e, model) {
				line = append(line, e)
			}
		}
	}
	for i := range open {
		for k := 0; k < i && g.pairing; k++ {
			a, b := open[k], open[i]
			if a.gpus != b.gpus {
				continue
			}
			if e := g.pair(a, b); g.priority(e, model) == 0 && !g.stalls(e, model) {
				line = append(line, e)
			}
		}
	}
	slices.SortFunc(line, func(a, b *gavelEntry) int {
		return cmp.Or(cmp.Compare(b.deficit[model], a.deficit[model]), cmp.Compare(b.x[model], a.x[model]), byAge(a, b))
	})
	for _, e := range line {
		g.take(e, model, free, taken)
	}
}

// plan turns the selection into targets: of a pair, the job that already holds GPUs of the model
// keeps holding them.
func (g *gavelRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	plan := sched.Plan{Targets: make([]engine.Target, len(jobs)), Next: v.Now() + 1}
	views := map[int]sched.JobView{}
	for _, j := range jobs {
		views[int(j.Spec().ID)] = j
	}
	holds := func(id int) bool {
		_, guest := views[id].Host()
		return views[id].Running() && !guest && views[id].GPU() == g.w.planned[id]
	}
	guest := func(id int) bool { // reports whether the job is the guest of the two
		mate, ok := g.w.company[id]
		return ok && (holds(mate) && (!holds(id) || id > mate) || !holds(mate) && !holds(id) && id > mate)
	}
	for i, j := range jobs {
		id := int(j.Spec().ID)
		host, is := j.Host()
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

// gavelLAS gives all jobs, of one GPU each, the same part of each model: the centre of the optimal
// set (section 6).
func gavelLAS(g *gavelRules) {
	for _, e := range g.entries {
		for k := range e.x {
			e.x[k] = min(1/float64(len(e.x)), gavelGPUs/float64(len(g.entries)))
		}
	}
}

// gavelIsolated gives all jobs the same part of all GPUs, whatever they achieve with them.
func gavelIsolated(g *gavelRules) { g.divide(g.entries) }

// gavelOwn are that simulator's policies; each replay has its own state.
var gavelOwn = map[string]func() func(g *gavelRules){
	"allox":       func() func(g *gavelRules) { return gavelAlloX },
	"fifo-packed": func() func(g *gavelRules) { return gavelPacked },
	"gandiva":     func() func(g *gavelRules) { return gavelGandiva },
	"isolated":    func() func(g *gavelRules) { return gavelIsolated },
	"las":         func() func(g *gavelRules) { return gavelLAS },

	// By its programs and its solver's method; "alike" means without heterogeneity.
	"max-min":       func() func(g *gavelRules) { return (&gavelProgram{}).maxMin },
	"max-min-alike": func() func(g *gavelRules) { return (&gavelProgram{alike: true}).maxMin },
	"ftf":           func() func(g *gavelRules) { return (&gavelProgram{took: map[*gavelJob]float64{}}).finishTime },
}

// ownPolicy is a policy of that simulator.
func (w *GavelWorld) ownPolicy() (sched.Policy, error) {
	if w.x.Own == "" {
		return newGavelFIFO(w), nil
	}
	rules, ok := gavelOwn[w.x.Own]
	if !ok {
		return nil, cluster.Unknown("policy of Gavel's simulator", w.x.Own, slices.Sorted(maps.Keys(gavelOwn)))
	}
	g := newGavelRules(w, rules())
	switch w.x.Own {
	case "isolated", "las", "max-min-alike":
		g.order = newTwister(w.x.Seed + 5)
	case "gandiva":
		g.pairing = true
	case "fifo-packed":
		g.pairing, g.strict = true, true
	}
	return g, nil
}
