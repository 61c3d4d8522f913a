package tune

import (
	"math"
	"math/rand/v2"
	"slices"
)

// LeftOut is the leave-one-out value of choosing: each block is left out once, the choice is made
// on the others, and the chosen candidate is scored on it. Costs are means over blocks, weighted by
// their jobs.
type LeftOut struct {
	Cost float64 `json:"cost"`
	// of the current policy; if its replay was cut, of the first under which most jobs end
	Current float64 `json:"current_cost"`
	Best    string  `json:"best_single"` // the best single candidate for all blocks, in hindsight
	Least   float64 `json:"best_cost"`
	Behind  float64 `json:"behind"` // by how much choosing is worse than that: 0.03 is 3 %
	Blocks  int     `json:"blocks"` // scored blocks
	Better  int     `json:"better"` // blocks in which the chosen candidate is better than the current policy
	Worse   int     `json:"worse"`
}

// significant is the share of resamples in which the cheapest candidate must beat another one for the
// difference to be significant.
const significant = 0.95

// leastBlocks is the number of blocks from which on significance is tested; tries is the number of
// resamples for that.
const leastBlocks, tries = 3, 200

// choose returns the candidate that is chosen on blocks, each counted the given number of times;
// -1: none can be chosen. It is not simply the cheapest one: in a history of a few weeks that
// depends on a handful of long jobs. Among those that resampling cannot distinguish from the
// cheapest, it is the one that is closest to the best block by block, by the mean logarithm, so
// that no single block decides. If others is set, results from other histories count as well
// (handicap).
func (c *chooser) choose(times []int, others bool) int {
	best, total := c.pick(times)
	var blocks []int
	for k, n := range times {
		if n > 0 {
			blocks = append(blocks, k)
		}
	}
	if best < 0 || len(blocks) < leastBlocks || c.opt.Resamples == 0 || !(total[best] > 0) {
		return best
	}
	beats := c.beats(best, blocks)
	behind := c.behind(blocks, total[best]/100)
	if others {
		c.handicap(behind, blocks)
	}
	chosen := best
	look := func(i int) {
		if c.out[i] == "" && float64(beats[i]) < significant*tries && behind[i] < behind[chosen] {
			chosen = i
		}
	}
	look(c.measure) // first: it wins ties
	for i := range c.scores {
		look(i)
	}
	return chosen
}

// proven is the candidate that was closest to the best over the five ITP clusters of
// docs/howto/choose-a-policy.md, among those that use nothing stated of jobs: 3 % on average, for
// mean JCT, the next ones 12 to 19 %. A few weeks of one history carry less information. So each
// other such candidate counts as a tenth behind it in this many additional blocks.
const (
	proven       = "gittins"
	provenBlocks = 6
	provenBehind = 0.1
)

// handicap adds the results from other histories to the candidates' distances.
func (c *chooser) handicap(behind []float64, blocks []int) {
	if !c.opt.Objective.single || !c.opt.Objective.Uses(MeanJCT) || !slices.Contains(c.names, proven) {
		return
	}
	jobs := 0
	for _, k := range blocks {
		jobs += c.scores[c.measure].ended[k]
	}
	for i, name := range c.names {
		if name != proven && !usesStated(name) {
			behind[i] += provenBlocks * provenBehind * float64(jobs) / float64(len(blocks))
		}
	}
}

// beats counts, for each other candidate, the resamples in which best has a lower cost.
func (c *chooser) beats(best int, blocks []int) []int {
	rng := rand.New(rand.NewPCG(c.opt.Seed, 0x63686f6f7365))
	n, times := make([]int, len(c.scores)), make([]int, c.blocks.N)
	for range tries {
		clear(times)
		for range blocks {
			times[blocks[rng.IntN(len(blocks))]]++
		}
		costs := c.costs(times)
		for i, v := range costs {
			if !(v <= costs[best]) { // a candidate without a cost is beaten, too
				n[i]++
			}
		}
	}
	return n
}

// behind is, for each candidate, the mean over blocks, weighted by their jobs, of the logarithm of
// its cost over the lowest cost in the block. Costs are rounded up by grain, so that a block in
// which almost nothing is lost does not decide. Blocks without a cost do not count; a candidate
// without a cost where others have one is infinitely behind.
func (c *chooser) behind(blocks []int, grain float64) []float64 {
	sum, one := make([]float64, len(c.scores)), make([]int, c.blocks.N)
	for _, k := range blocks {
		clear(one)
		one[k] = 1
		best, costs := c.pick(one)
		if best < 0 {
			continue
		}
		for i, v := range costs {
			if math.IsNaN(v) {
				v = math.Inf(1)
			}
			sum[i] += float64(c.scores[c.measure].ended[k]) * math.Log((v+grain)/(costs[best]+grain))
		}
	}
	return sum
}

// leaveOut leaves out each block once.
func (c *chooser) leaveOut() *LeftOut {
	l := &LeftOut{}
	sums, jobs := make([]float64, len(c.scores)), 0.0
	times, alone := make([]int, c.blocks.N), make([]int, c.blocks.N)
	for k := range times {
		for i := range times {
			times[i], alone[i] = 1, 0
		}
		times[k], alone[k] = 0, 1
		chosen, costs, n := c.choose(times, true), c.costs(alone), float64(c.scores[c.measure].ended[k])
		if chosen < 0 || math.IsNaN(costs[c.measure]) || math.IsNaN(costs[chosen]) {
			continue
		}
		jobs += n
		l.Blocks++
		l.Better += one(costs[chosen] < costs[c.measure])
		l.Worse += one(costs[chosen] > costs[c.measure])
		l.Cost += n * costs[chosen]
		for i, v := range costs {
			sums[i] += n * v
		}
	}
	if jobs == 0 {
		return nil
	}
	best := c.measure
	for i, v := range sums {
		if c.out[i] == "" && v < sums[best] {
			best = i
		}
	}
	l.Cost, l.Current, l.Best, l.Least = l.Cost/jobs, sums[c.measure]/jobs, c.names[best], sums[best]/jobs
	l.Behind = l.Cost/max(l.Least, 1e-9) - 1
	return l
}
