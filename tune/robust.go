package tune

import (
	"math"
	"math/rand/v2"
	"slices"
)

// LeftOut is what choosing was worth on blocks that the choice did not know: each
// is left out once, the choice is made by all the others, and what was chosen is
// scored on it. Costs are means over blocks, by their jobs.
type LeftOut struct {
	Cost    float64 `json:"cost"`
	Current float64 `json:"current_cost"` // of the policy in force; if its replay was cut, of the first under which most jobs end
	Best    string  `json:"best_single"`  // the best candidate, one for all blocks, in hindsight
	Least   float64 `json:"best_cost"`
	Behind  float64 `json:"behind"` // by what part choosing is worse than that: 0.03 is 3 %
	Blocks  int     `json:"blocks"` // that were scored
	Better  int     `json:"better"` // those in which what was chosen is better than the policy in force
	Worse   int     `json:"worse"`
}

// surely is the share of resamples in which the candidate of least cost has to beat
// another for that to be more than chance.
const surely = 0.95

// leastBlocks is how many blocks say something about chance when one chooses; tries is
// how many resamples that takes.
const leastBlocks, tries = 3, 200

// choose returns the candidate that is chosen by blocks that count so many times each;
// -1: nothing can be said. It is not simply that of least cost: in a history of few
// weeks that hangs on a handful of long jobs. Of those that the resamples cannot tell
// from it, it is the one that is least behind the best block by block, by the mean of
// the logarithm, in which no single block decides. What other histories said counts
// beside these blocks (handicap), if others.
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
		if c.out[i] == "" && float64(beats[i]) < surely*tries && behind[i] < behind[chosen] {
			chosen = i
		}
	}
	look(c.measure) // first: among equals it stays
	for i := range c.scores {
		look(i)
	}
	return chosen
}

// proven is the candidate that was least behind the best over five ITP clusters of
// docs/howto/choose-a-policy.md, of those that are told nothing of jobs: 3 % in the mean, for mean JCT,
// the next ones 12 to 19 %. A few weeks of one history say less than that. So each such
// candidate counts as behind it by a tenth in as many blocks more.
const (
	proven       = "gittins"
	provenBlocks = 6
	provenBehind = 0.1
)

// handicap adds to how far candidates are behind what other histories said.
func (c *chooser) handicap(behind []float64, blocks []int) {
	if !c.opt.Objective.single || !c.opt.Objective.Uses(MeanJCT) || !slices.Contains(c.names, proven) {
		return
	}
	jobs := 0
	for _, k := range blocks {
		jobs += c.scores[c.measure].ended[k]
	}
	for i, name := range c.names {
		if name != proven && !knowing(name) {
			behind[i] += provenBlocks * provenBehind * float64(jobs) / float64(len(blocks))
		}
	}
}

// beats counts the resamples of blocks in which a candidate has less cost than each other.
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
			if !(v <= costs[best]) { // what has no cost is beaten, too
				n[i]++
			}
		}
	}
	return n
}

// behind is, for each candidate, the mean over blocks, by their jobs, of the logarithm of
// its cost over that of the best there. grain is what costs are rounded up by: a block in
// which nearly nothing is lost does not decide. Blocks without a cost do not count; a
// candidate without one where others have one is infinitely behind.
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

// leaveOut leaves each block out once.
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
