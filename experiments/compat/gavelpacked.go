package compat

import "slices"

// gavelPacked is FIFO with space sharing. It starts from scratch each time: in order of arrival
// each job gets the model on which it is fastest among those with room, until the first job that
// fits nowhere. Later jobs (that one itself is dropped if there is room for others) join the job
// that has GPUs alone and gets most done with them, if that is more than one and a half times what
// one gets done alone; until the first job without a partner.
func gavelPacked(g *gavelRules) {
	for _, list := range [][]*gavelEntry{g.entries, g.pairs} {
		for _, e := range list {
			e.x = [3]float64{}
		}
	}
	type seat struct {
		job   *gavelJob
		model int
	}
	var seats []seat
	var queue []*gavelJob
	for _, e := range g.entries {
		queue = append(queue, e.jobs[0])
	}
	free, room := [3]int{gavelGPUs, gavelGPUs, gavelGPUs}, true
	for len(queue) > 0 && room {
		j := queue[0]
		queue = queue[1:]
		best := -1
		for k := range free {
			if free[k] >= j.gpus && (best < 0 || j.rate[k] > j.rate[best]) {
				best = k
			}
		}
		if best < 0 {
			break
		}
		if j.rate[best] > 0 {
			seats = append(seats, seat{j, best})
			free[best] -= j.gpus
			room = free != [3]int{}
		}
	}
	for _, j := range queue {
		most, at := 1.5, -1
		for i, s := range seats {
			if s.job.gpus == j.gpus {
				if gain := g.gainOn(s.job, j, s.model); gain > most {
					most, at = gain, i
				}
			}
		}
		if at < 0 {
			break
		}
		g.keep(g.pair(seats[at].job, j)).x[seats[at].model] = 1
		seats = slices.Delete(seats, at, at+1)
	}
	for _, s := range seats {
		s.job.alone.x[s.model] = 1
	}
}

// gainOn is what two get done together on a model, relative to what each does alone.
func (g *gavelRules) gainOn(a, b *gavelJob, model int) float64 {
	x, y := g.beside(a, b, model)
	sum := 0.0
	if x > 0 {
		sum += x / a.rate[model]
	}
	if y > 0 {
		sum += y / b.rate[model]
	}
	return sum
}
