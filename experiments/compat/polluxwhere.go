package compat

import (
	"cmp"
	"math"
	"slices"
)

// Placement of jobs that learn. The published Pollux searches for nodes and sizes together, at
// random; here the sizes are given. As there, a job that moves restarts, and an arrangement in
// which fewer jobs run on more nodes than necessary is worth some moves.

// polluxMove is the cost of moving one GPU's part of a job, relative to a job on more nodes than
// necessary: half a round, compared with a part of the speed for some rounds.
const polluxMove = 0.5

// arrange places the jobs that were assigned GPUs. It tries to leave jobs of unchanged size in
// place, to gather those on more nodes than necessary, and to clear nodes of jobs that are only
// there, beginning with the jobs that have least there.
func (w *PolluxWorld) arrange() {
	var run []*polluxJob // largest first
	var used [polluxNodes]int
	for i := range w.jobs {
		j := &w.jobs[i]
		if j.given == 0 {
			j.where, j.shape = nil, nil
			continue
		}
		run = append(run, j)
		for _, n := range j.where {
			used[n] += count(len(j.where) == j.given)
		}
	}
	slices.SortStableFunc(run, func(a, b *polluxJob) int { return b.given - a.given })
	order := make([]int, polluxNodes)
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(used[a], used[b]) })
	var clear [polluxNodes]bool
	best, least := arranged(run, false, &clear)
	for cleared := 0; cleared <= polluxNodes && least > 0; cleared++ {
		if cleared > 0 {
			clear[order[cleared-1]] = true
		}
		if places, cost := arranged(run, true, &clear); cost < least {
			best, least = places, cost
		}
	}
	for i, j := range run {
		if slices.Equal(j.where, best[i]) {
			continue
		}
		j.where, j.shape = best[i], nil
		for k, n := range j.where {
			if k > 0 && n == j.where[k-1] {
				j.shape[len(j.shape)-1]++
			} else {
				j.shape = append(j.shape, 1)
			}
		}
		j.tune()
		j.hold = polluxHold
	}
}

// arranged is an arrangement and its cost: jobs of changed size are placed, the largest first, and
// with gather also those that are spread, and those on a single node that is to be cleared.
func arranged(run []*polluxJob, gather bool, clear *[polluxNodes]bool) (places [][]int, cost float64) {
	var free [polluxNodes]int
	for n := range free {
		free[n] = polluxPerNode
	}
	places = make([][]int, len(run))
	for i, j := range run {
		if len(j.where) != j.given || gather && spread(j.where) || len(j.shape) == 1 && clear[j.where[0]] {
			continue
		}
		places[i] = j.where
		for _, n := range j.where {
			free[n]--
		}
	}
	for i, j := range run {
		if places[i] == nil {
			if places[i] = j.fit(&free); len(j.where) == j.given && !slices.Equal(places[i], j.where) {
				cost += polluxMove * float64(j.given)
			}
		}
		if spread(places[i]) {
			cost += float64(j.given)
		}
	}
	return places, cost
}

// spread reports whether a list of nodes, one entry per GPU, equal ones adjacent, has more nodes
// than necessary for its GPUs.
func spread(where []int) bool {
	nodes := 0
	for k, n := range where {
		nodes += count(k == 0 || n != where[k-1])
	}
	return nodes > (len(where)+polluxPerNode-1)/polluxPerNode
}

// fit takes free GPUs of few nodes: the job's own if they have room, otherwise the fullest with
// room for the rest, or the one with the most free GPUs.
func (j *polluxJob) fit(free *[polluxNodes]int) (where []int) {
	if len(j.shape) == 1 && len(j.where) == j.given && free[j.where[0]] >= j.given {
		free[j.where[0]] -= j.given
		return j.where
	}
	for need := j.given; need > 0; {
		best, least := 0, math.MaxInt
		for n, f := range free {
			missing := max(0, need-f)
			if c := missing*2*polluxPerNode + f; f > 0 && c < least {
				best, least = n, c
			}
		}
		take := min(free[best], need)
		if take == 0 {
			panic("compat: more GPUs are given than there are")
		}
		for range take {
			where = append(where, best)
		}
		free[best] -= take
		need -= take
	}
	slices.Sort(where)
	return where
}
