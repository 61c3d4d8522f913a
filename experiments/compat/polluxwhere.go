package compat

import (
	"cmp"
	"math"
	"slices"
)

// Where jobs that learn run. The published Pollux looks for nodes and sizes
// together, at random; here the sizes are given. As there, whoever moves starts
// anew, and an arrangement in which fewer run on more nodes than hold them is
// worth some moves.

// polluxMove is what it costs to move a GPU's part of a job, where 1 is what it costs that
// the job runs on more nodes than hold it: half a round, against a part of the
// speed for some rounds.
const polluxMove = 0.5

// arrange places the jobs that were given GPUs. It tries to leave everybody who
// keeps its size, to gather those on more nodes than hold them, and to clear nodes of
// jobs that are on that node only, those first that have least there.
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

// arranged is an arrangement and its cost: those who have another size than before
// are placed, the largest first, and with gather those who are spread, and those
// who are on one node that is to be cleared.
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

// spread reports whether a list of nodes, one entry per GPU, equal ones adjacent, has
// more of them than hold so many GPUs.
func spread(where []int) bool {
	nodes := 0
	for k, n := range where {
		nodes += count(k == 0 || n != where[k-1])
	}
	return nodes > (len(where)+polluxPerNode-1)/polluxPerNode
}

// fit takes the free GPUs of few nodes: the job's own if they have room, else the fullest
// that has room for all that is missing, or the one with the most free.
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
