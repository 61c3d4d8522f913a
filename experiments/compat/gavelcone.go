package compat

// gavelProgram is a policy of that simulator that solves a program (section 6), with the method of
// the solver that it used, which selects one of several optimal divisions.
type gavelProgram struct {
	alike bool // all models count as equal: without heterogeneity

	// For finish-time fairness, by job: steps per second alone in its part of the cluster at the
	// last solution, the remaining steps at that time, and the seconds that its completed work
	// takes there.
	alone, left, took map[*gavelJob]float64
}

// maxMin is LAS: it maximizes the smallest normalised speed.
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

// finishTime is finish-time fairness: it minimizes the largest ratio of a job's time to the time
// that it would take alone in its part of the cluster.
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
		part := gavelGPUs / (n * float64(j.gpus)) // of each model, at most all of its time
		alone[j], left[j] = part/max(1, part*float64(len(rate)))*(rate[0]+rate[1]+rate[2]), j.left
		takes := q.took[j] + j.left/alone[j]
		jobs[i] = coneJob{gpus: float64(j.gpus), speed: rate, offset: (g.w.clock - j.arrival) / takes}
		jobs[i].limit[len(rate)] = j.left / takes
	}
	q.alone, q.left = alone, left
	g.share(jobs, true)
}

// share solves a program and sets the entries' shares; if there is no solution, all get equal
// shares.
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
