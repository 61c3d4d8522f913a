package compat

// gavelProgram is a policy of that simulator that solves a program (Gavel's simulator, 6),
// by the solver that it used: which of the best divisions it takes is that solver's way.
type gavelProgram struct {
	alike bool // every model counts as the same: without heterogeneity

	// Of finish-time fairness, by job: steps per second alone in its part of the cluster at the
	// last solution, the steps that were left then, and the seconds that what it has done takes
	// there.
	alone, left, took map[*gavelJob]float64
}

// maxMin is LAS: the least of the jobs' normalised speeds as high as can be.
func (q *gavelProgram) maxMin(g *gavelRules) {
	jobs := make([]coneJob, len(g.entries))
	for i, e := range g.entries {
		rate := e.jobs[0].rate
		if q.alike {
			rate = [3]float64{1, 1, 1}
		}
		jobs[i].gpus = float64(e.jobs[0].gpus)
		mean := (rate[0] + rate[1] + rate[2]) / float64(len(rate))
		for k, v := range rate {
			jobs[i].limit[k] = -jobs[i].gpus * v / mean
		}
	}
	g.share(jobs, false)
}

// finishTime is finish-time fairness: the greatest ratio of the time that a job takes to
// what it would take alone in its part of the cluster as low as can be.
func (q *gavelProgram) finishTime(g *gavelRules) {
	jobs, n := make([]coneJob, len(g.entries)), float64(len(g.entries))
	alone, left := map[*gavelJob]float64{}, map[*gavelJob]float64{}
	for i, e := range g.entries {
		j, rate := e.jobs[0], e.jobs[0].rate
		if q.alike {
			rate = [3]float64{rate[gavelV100], rate[gavelV100], rate[gavelV100]}
		}
		if was, ok := q.left[j]; ok {
			q.took[j] += (was - j.left) / q.alone[j]
		}
		part := gavelGPUs / (n * float64(j.gpus)) // of each model, no more than all of its time
		alone[j], left[j] = part/max(1, part*float64(len(rate)))*(rate[0]+rate[1]+rate[2]), j.left
		takes := q.took[j] + j.left/alone[j]
		jobs[i] = coneJob{gpus: float64(j.gpus), speed: rate, offset: (g.w.clock - j.arrival) / takes}
		jobs[i].limit[len(rate)] = j.left / takes
	}
	q.alone, q.left = alone, left
	g.share(jobs, true)
}

// share solves a program, and has the entries take what comes of it; where nothing does,
// all take as much.
func (g *gavelRules) share(jobs []coneJob, cones bool) {
	p := newConeProgram(jobs, []float64{gavelGPUs, gavelGPUs, gavelGPUs}, cones)
	x, ok := p.solve()
	for i, e := range g.entries {
		e.solved = true
		for k := range e.x {
			if e.x[k] = min(1, max(0, x[i*p.vars+k])); !ok {
				e.x[k] = 1 / float64(len(e.x))
			}
		}
	}
}
