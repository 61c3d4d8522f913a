package perf

import (
	"fmt"
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// MostStages is the maximum number of resources that an iteration uses in turn: storage, CPU, GPU
// and network.
const MostStages = 4

// Period is the time of an iteration of jobs that interleave on the same GPUs: each is at another
// stage at any time, and all move to their next stages together when the longest is over. It is the
// minimum over all assignments of first stages. More jobs than stages take turns. Jobs with fewer
// stages are idle in the others.
//
// Source: Muri (SIGCOMM'22), iteration time of a group.
func Period(jobs [][]int64) int64 {
	stages := 0
	for _, j := range jobs {
		stages = max(stages, len(j))
	}
	if len(jobs) > stages {
		sum := int64(0)
		for _, j := range jobs {
			sum += total(j)
		}
		return sum
	}
	var longest [MostStages][MostStages]int64 // of the jobs before, by depth
	return rotate(jobs, stages, 0, &longest)
}

// rotate tries each free first stage for the next job; taken is a set of stages.
func rotate(jobs [][]int64, stages int, taken uint, longest *[MostStages][MostStages]int64) int64 {
	depth := bits.OnesCount(taken)
	if depth == len(jobs) {
		if depth == 0 {
			return 0
		}
		return total(longest[depth-1][:stages])
	}
	best := int64(-1)
	for first := range stages {
		if taken>>first&1 == 1 {
			continue
		}
		for s := range stages {
			d := int64(0)
			if depth > 0 {
				d = longest[depth-1][s]
			}
			if k := (first + s) % stages; k < len(jobs[depth]) {
				d = max(d, jobs[depth][k])
			}
			longest[depth][s] = d
		}
		if p := rotate(jobs, stages, taken|1<<first, longest); best < 0 || p < best {
			best = p
		}
		if depth == 0 {
			break // only relative first stages matter
		}
	}
	return best
}

func total(stages []int64) (sum int64) {
	for _, d := range stages {
		sum += d
	}
	return sum
}

// interleaved is the time of an iteration of the job alone and with its partners, if the stages of
// all are known and they have whole GPUs.
func (t *Table) interleaved(model string, p *Placement) (alone, together int64, ok bool) {
	own, ok := t.Stages[model]
	if !ok || p.Share != cluster.Whole {
		return 0, 0, false
	}
	jobs := [][]int64{own}
	for _, other := range p.Partners {
		s, ok := t.Stages[other]
		if !ok {
			return 0, 0, false
		}
		jobs = append(jobs, s)
	}
	return total(own), Period(jobs), true
}

func checkStages(stages []int64) error {
	if len(stages) == 0 || len(stages) > MostStages || total(stages) <= 0 {
		return fmt.Errorf("%d of them; between 1 and %d are possible, which take time", len(stages), MostStages)
	}
	for _, d := range stages {
		if d < 0 || d > 1<<40 {
			return fmt.Errorf("one takes %d thousandths; between 0 and %d are possible", d, int64(1)<<40)
		}
	}
	return nil
}
