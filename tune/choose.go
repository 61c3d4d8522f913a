package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// Options of a choice.
type Options struct {
	Objective Objective
	Block     time.Duration // 0: weeks, or shorter blocks for a short history (Divide)
	Resamples int           // number of bootstrap resamples
	Seed      uint64
	Holdout   bool
	Horizon   cluster.Time // where the replays were cut (Horizon); 0: they were not
}

// patience bounds a replay, in multiples of the total run time of the history's jobs. A policy that
// always keeps one job running ends within one such time; on GPUs a tenth as fast, within ten.
const patience = 10

// Horizon is where the replay of a history is cut, so that a candidate under which jobs preempt
// each other for ever does not block the choice.
func Horizon(entries []trace.Entry) cluster.Time {
	last, sum := cluster.Time(0), 0.0
	for i := range entries {
		last, sum = max(last, entries[i].Job.Submit), sum+entries[i].Run.Seconds()
	}
	if room := cluster.MaxDuration; patience*sum < room.Seconds()/2 {
		return last.Add(time.Duration(patience * sum * float64(time.Second))).Add(day)
	}
	return last.Add(cluster.MaxDuration)
}

// cut says that a replay was cut with unfinished jobs; "": it ended.
func (o *Options) cut(r *report.Run) string {
	n := 0
	for i := range r.Records {
		n += one(r.Records[i].Outcome == report.Unfinished)
	}
	if o.Horizon == 0 || r.Last < o.Horizon || n == 0 {
		return ""
	}
	return fmt.Sprintf("%d jobs had not ended after %s, %d times what all would take one after the other", n,
		cluster.FormatDuration(o.Horizon.Sub(r.First).Round(time.Hour)), patience)
}

// Row is a candidate's result. Times are seconds, shares and gains 0..1.
type Row struct {
	Policy    string   `json:"policy"`   // as written: POLICY[:KNOBS][+BACKFILL]
	Backfill  string   `json:"backfill"` // the effective backfill
	MeanJCT   *float64 `json:"mean_jct"`
	P95Wait   *float64 `json:"p95_wait"`
	Fairness  *float64 `json:"p95_finish_time_ratio"`
	Missed    *float64 `json:"deadlines_missed"`
	Preempted int      `json:"preemptions"`
	Unended   int      `json:"not_ended"` // jobs that did not end by themselves
	Cost      *float64 `json:"cost"`      // the objective's value; less is better
	Gain      *float64 `json:"gain"`      // over the current policy
	Low       *float64 `json:"gain_low"`  // 95 % interval of the gain, over resamples
	High      *float64 `json:"gain_high"`
	Best      *float64 `json:"best_in"`       // share of resamples in which it is the best
	Better    *float64 `json:"better_in"`     // ... in which it is better than the current policy
	Out       string   `json:"out,omitempty"` // why it cannot be chosen
	run       int
}

// Result is a choice.
type Result struct {
	Objective string        `json:"objective"`
	Block     time.Duration `json:"block"`  // length; 0: the history is one block
	Blocks    int           `json:"blocks"` // number of blocks with jobs
	Resamples int           `json:"resamples"`
	Current   int           `json:"current"` // index of Rows
	Winner    int           `json:"winner"`
	Rows      []Row         `json:"candidates"` // the best first; those that cannot be chosen last
	Changes   []Change      `json:"changes"`    // by user or queue: the best first
	By        string        `json:"changes_by"`
	Least     int           `json:"least"` // index in Rows: lowest cost over the whole history
	Holdout   []Holdout     `json:"holdout,omitempty"`
	LeftOut   *LeftOut      `json:"left_out_once,omitempty"`
	Others    bool          `json:"other_histories,omitempty"` // results from other histories decided the choice
	// why there are no gains: the replay of the current policy was cut
	Alone string `json:"nothing_to_compare,omitempty"`
}

// Change is what the choice would have changed for one user or queue, over the jobs that ended
// under both policies. Times are seconds.
type Change struct {
	Who      string  `json:"who"`
	Jobs     int     `json:"jobs"`
	WaitThen float64 `json:"wait_then"` // mean under the current policy
	WaitNow  float64 `json:"wait_now"`
	JCTThen  float64 `json:"jct_then"`
	JCTNow   float64 `json:"jct_now"`
}

// Holdout is a choice made on some blocks, and its value on the others.
type Holdout struct {
	Tuned   string  `json:"tuned_on"` // odd or even
	Chosen  string  `json:"chosen"`
	Cost    float64 `json:"cost"`         // of the chosen candidate, on the other blocks
	Current float64 `json:"current_cost"` // of the current policy there, as in LeftOut
	Best    string  `json:"best_single"`  // the best candidate there
	Least   float64 `json:"best_cost"`
	Behind  float64 `json:"behind"` // by how much the chosen is worse than the best: 0.03 is 3 %
}

// maxUnended is the share of jobs that a candidate may leave unfinished beyond those of the current
// policy: with more, its means are over different jobs.
const maxUnended = 0.001

// Choose compares the runs of one history, one per name; current is the index of the current
// policy. It is an error if the history contains nothing to judge by.
func Choose(names []string, runs []report.Run, current int, opt Options) (*Result, error) {
	b := Divide(runs[0].Jobs, opt.Block)
	if b.N == 0 {
		return nil, fmt.Errorf("the history contains no jobs")
	}
	c := &chooser{opt: opt, names: names, blocks: b, current: current}
	for i := range runs {
		c.scores = append(c.scores, score(&runs[i], &b))
	}
	if err := c.exclude(runs); err != nil {
		return nil, err
	}
	every := slices.Repeat([]int{1}, b.N)
	least, costs := c.pick(every)
	if least < 0 {
		return nil, fmt.Errorf(
			"objective %s: the history contains nothing to judge by (none of its jobs has that figure)", opt.Objective)
	}
	r := &Result{Objective: opt.Objective.String(), Block: b.Length, Blocks: b.N, Alone: c.out[current]}
	for i := range runs {
		r.Rows = append(r.Rows, c.row(i, &runs[i], every, costs))
	}
	if b.N > 1 && opt.Resamples > 0 {
		r.Resamples = opt.Resamples
		c.bootstrap(r.Rows)
	}
	best := c.choose(every, true)
	r.Others = best != c.choose(every, false)
	if r.Alone == "" {
		r.By, r.Changes = changes(&runs[0], c.scores[current], c.scores[best])
	}
	if b.N > 1 {
		r.LeftOut = c.leaveOut()
	}
	if opt.Holdout {
		if b.N < 2 {
			return nil, fmt.Errorf(
				"--holdout: the history is one block; it needs two weeks (or days, --block 1d) at least")
		}
		for _, odd := range []bool{true, false} {
			r.Holdout = append(r.Holdout, c.holdout(odd))
		}
	}
	r.order(best, least, current)
	return r, nil
}

type chooser struct {
	opt     Options
	names   []string
	blocks  Blocks
	scores  []*scores
	out     []string // why a run cannot be chosen
	current int
	measure int // the run that others are compared with: the current policy's, unless it was cut
}

// exclude rules out runs that were cut, and runs in which jobs do not end that end in the reference
// run. The reference is the current policy or, if its replay was cut, the run in which most jobs
// end. It is an error if all were cut.
func (c *chooser) exclude(runs []report.Run) error {
	c.measure = c.current
	for i := range runs {
		c.out = append(c.out, c.opt.cut(&runs[i]))
	}
	under := "the policy in force"
	if c.out[c.current] != "" {
		c.measure = -1
		for i, s := range c.scores {
			if c.out[i] == "" && (c.measure < 0 || s.total > c.scores[c.measure].total) {
				c.measure = i
			}
		}
		if c.measure < 0 {
			return fmt.Errorf("no replay ended: %s: %s", c.names[c.current], c.out[c.current])
		}
		under = c.names[c.measure]
	}
	for i, s := range c.scores {
		if more := c.scores[c.measure].total - s.total; float64(more) > maxUnended*float64(s.jobs) && c.out[i] == "" {
			c.out[i] = fmt.Sprintf("%d jobs that end under %s do not", more, under)
		}
	}
	return nil
}

// costs are the objective's values over blocks, each counted the given number of times.
func (c *chooser) costs(times []int) []float64 {
	v := make([]float64, len(c.scores))
	force := c.scores[c.measure].over(times, &c.opt.Objective, false)
	for i, s := range c.scores {
		own := s.over(times, &c.opt.Objective, false)
		v[i] = c.opt.Objective.cost(&own, &force)
	}
	return v
}

// pick returns the run with the lowest cost; -1: none has a cost. Ties go to the current policy,
// then to the first: a change needs a reason.
func (c *chooser) pick(times []int) (best int, costs []float64) {
	costs = c.costs(times)
	if math.IsNaN(costs[c.measure]) {
		return -1, costs
	}
	best = c.measure
	for i, v := range costs {
		if c.out[i] == "" && v < costs[best] { // false if v is NaN
			best = i
		}
	}
	return best, costs
}

func (c *chooser) row(i int, r *report.Run, every []int, costs []float64) Row {
	f := c.scores[i].over(every, &c.opt.Objective, true)
	return Row{Policy: c.names[i], Backfill: r.Backfill, MeanJCT: figure(f[MeanJCT]), P95Wait: figure(f[P95Wait]),
		Fairness: figure(f[Fairness]),
		Missed:   figure(f[Deadlines]), Preempted: c.scores[i].stopped, Unended: c.scores[i].jobs - c.scores[i].total,
		Cost: figure(costs[i]), Gain: figure(c.gain(costs, i)), Out: c.out[i], run: i}
}

// gain is the relative saving of a candidate over the current policy; NaN if the current policy's
// replay was cut.
func (c *chooser) gain(costs []float64, i int) float64 {
	if c.measure != c.current {
		return math.NaN()
	}
	return gain(costs[i], costs[c.current])
}

// figure is nil for NaN, which JSON cannot express.
func figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// bootstrap repeatedly draws as many blocks as there are, with replacement; each draw judges all
// candidates on the same blocks (paired). Blocks are assumed independent, although a backlog may
// span two of them.
func (c *chooser) bootstrap(rows []Row) {
	rng := rand.New(rand.NewPCG(c.opt.Seed, 0x74756e65))
	best, better := make([]int, len(rows)), make([]int, len(rows))
	gains := make([][]float64, len(rows))
	times, drawn := make([]int, c.blocks.N), 0
	for range c.opt.Resamples {
		clear(times)
		for range times {
			times[rng.IntN(len(times))]++
		}
		k, costs := c.pick(times)
		if k < 0 {
			continue // the drawn blocks lack the figure
		}
		drawn++
		best[k]++
		for i, v := range costs {
			if v < costs[c.measure] {
				better[i]++
			}
			if g := c.gain(costs, i); !math.IsNaN(g) {
				gains[i] = append(gains[i], g)
			}
		}
	}
	for i := range rows {
		sort.Float64s(gains[i])
		if n := len(gains[i]); drawn > 0 && c.out[i] == "" && (n > 0 || c.measure != c.current) {
			rows[i].Best = figure(float64(best[i]) / float64(drawn))
		}
		if n := len(gains[i]); n > 0 && c.out[i] == "" {
			rows[i].Better = figure(float64(better[i]) / float64(drawn))
			rows[i].Low = figure(gains[i][rank(0.025, n)])
			rows[i].High = figure(gains[i][rank(0.975, n)])
		}
	}
}

// rank is the index of a percentile by nearest rank.
func rank(p float64, n int) int { return max(0, int(math.Ceil(p*float64(n)))-1) }

// holdout chooses on every second block and judges on the others. The blocks are of one replay: a
// backlog may span several.
func (c *chooser) holdout(odd bool) Holdout {
	tuned, other := make([]int, c.blocks.N), make([]int, c.blocks.N)
	for k := range tuned {
		if (k%2 == 0) == odd { // the first block is odd: number 1
			tuned[k] = 1
		} else {
			other[k] = 1
		}
	}
	h := Holdout{Tuned: "even"}
	if odd {
		h.Tuned = "odd"
	}
	chosen := c.choose(tuned, true)
	best, costs := c.pick(other)
	if chosen < 0 || best < 0 {
		return h
	}
	h.Chosen, h.Best = c.names[chosen], c.names[best]
	h.Cost, h.Current, h.Least = costs[chosen], costs[c.measure], costs[best]
	if h.Cost > h.Least {
		h.Behind = h.Cost/max(h.Least, 1e-9) - 1
	}
	return h
}

// order sorts the rows: the best first, those that cannot be chosen last.
func (r *Result) order(best, least, current int) {
	sort.SliceStable(r.Rows, func(i, k int) bool {
		a, b := &r.Rows[i], &r.Rows[k]
		if (a.Out == "") != (b.Out == "") {
			return a.Out == ""
		}
		if (a.run == best) != (b.run == best) {
			return a.run == best
		}
		if a.Cost == nil || b.Cost == nil {
			return a.Cost != nil && b.Cost == nil
		}
		return *a.Cost < *b.Cost
	})
	for i := range r.Rows {
		if r.Rows[i].run == best {
			r.Winner = i
		}
		if r.Rows[i].run == least {
			r.Least = i
		}
		if r.Rows[i].run == current {
			r.Current = i
		}
	}
}

// changes are means by user, or by queue if the history has only one user.
func changes(r *report.Run, then, now *scores) (by string, list []Change) {
	users, queues := map[string]bool{}, map[string]bool{}
	for _, j := range r.Jobs {
		users[j.User], queues[j.Queue] = true, true
	}
	by = "user"
	if len(users) < 2 {
		by = "queue"
	}
	at := map[string]int{}
	for i, j := range r.Jobs {
		if math.IsNaN(then.jctAll[i]) || math.IsNaN(now.jctAll[i]) {
			continue
		}
		who := j.User
		if by == "queue" {
			who = j.Queue
		}
		k, ok := at[who]
		if !ok {
			k = len(list)
			at[who] = k
			list = append(list, Change{Who: who})
		}
		c := &list[k]
		c.Jobs++
		c.WaitThen, c.WaitNow = c.WaitThen+then.waits[i], c.WaitNow+now.waits[i]
		c.JCTThen, c.JCTNow = c.JCTThen+then.jctAll[i], c.JCTNow+now.jctAll[i]
	}
	for i := range list {
		c, n := &list[i], float64(list[i].Jobs)
		c.WaitThen, c.WaitNow, c.JCTThen, c.JCTNow = c.WaitThen/n, c.WaitNow/n, c.JCTThen/n, c.JCTNow/n
	}
	sort.Slice(list, func(i, k int) bool {
		a, b := list[i].JCTNow-list[i].JCTThen, list[k].JCTNow-list[k].JCTThen
		if a != b {
			return a < b
		}
		return list[i].Who < list[k].Who
	})
	return by, list
}
