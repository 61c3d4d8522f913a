package traffic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// cassini shifts jobs in time, so that some transmit while others compute (Rajasekaran et al., "CASSINI: Network-Aware
// Job Scheduling in Machine Learning Clusters", NSDI'24). Links that would close a loop in the affinity graph, for
// which a shift for each job need not exist, are left out; the publication discards such placements, and here jobs
// are placed already.
//
// Jobs that do not fit beside each other lose by slots: one that another delays misses its slot and waits for the next
// one. The publication holds them all the same; here jobs that share links are held unless they are slower so, played
// on the flow model, than untreated.
type cassini struct {
	all   bool // as published: also those that are slower so
	known flow.Cache
}

// newCassini makes the policy for hold=gains, or hold=all as published.
func newCassini(knobs string) (Policy, error) {
	switch key, value, _ := strings.Cut(knobs, "="); {
	case key != "hold":
		return nil, fmt.Errorf("traffic policy cassini: %w", cluster.Unknown("knob", key, []string{"hold"}))
	case value == "gains":
		return &cassini{}, nil
	case value == "all":
		return &cassini{all: true}, nil
	default:
		return nil, fmt.Errorf("traffic policy cassini: %w", cluster.Unknown("hold", value, []string{"gains", "all"}))
	}
}

func (c *cassini) Name() string {
	if c.all {
		return "cassini:hold=all"
	}
	return "cassini"
}

func (*cassini) shifts() {}

func (c *cassini) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	ts := make([]cluster.Treatment, len(jobs))
	on := loads(jobs, ts)
	for _, group := range network.Components(on) {
		interleave(f, jobs, on, upToSlots(jobs, group, SlotsOffered), ts, false)
		free := !c.all && c.loses(f, pick(jobs, group), pick(on, group), pick(ts, group))
		for _, i := range group {
			if free {
				ts[i] = cluster.Treatment{}
			}
		}
		apart(f, jobs, on, group, ts, func(j *Job) bool { return j.Slots == SlotsKept && !(free && j.Demand.Real) })
	}
	return ts
}

// loses reports whether jobs that share links are slower, by their GPUs, under treatments than without any. Real jobs
// do not stay as far apart as they begin, so of these untreated ones begin all at once.
func (c *cassini) loses(f Fabric, jobs []Job, on [][]network.Bytes, ts []cluster.Treatment) bool {
	held, free := make([]flow.Job, len(jobs)), make([]flow.Job, len(jobs))
	for i := range jobs {
		held[i], free[i] = jobs[i].Along(on[i], &ts[i]), jobs[i].Along(on[i], &cluster.Treatment{})
		if jobs[i].Demand.Real {
			free[i].First = 0
		}
	}
	times, without := c.known.Glance(f, held), c.known.Glance(f, free)
	gain, gpus := 0.0, 0.0
	for i := range jobs {
		alone := free[i].Alone(f)
		speed := func(t time.Duration) float64 { return float64(alone) / float64(max(alone, t)) }
		gain += float64(jobs[i].GPUs) * (speed(times[i]) - speed(without[i]))
		gpus += float64(jobs[i].GPUs)
	}
	return gain < -1e-9*gpus
}

// upToSlots are the jobs of a component that keep slots at least as far.
func upToSlots(jobs []Job, group []int, least Slots) (some []int) {
	for _, i := range group {
		if jobs[i].Slots <= least {
			some = append(some, i)
		}
	}
	return some
}

// apart gives jobs of a component that do not keep slots, have not said yet that they do, or are real and have none, a
// class each, after those that do: a class holds by itself. Of them those go first that compute most for their traffic,
// as under Crux.
func apart(f Fabric, jobs []Job, on [][]network.Bytes, group []int, ts []cluster.Treatment, keeps func(*Job) bool) {
	rest := slices.DeleteFunc(slices.Clone(group), func(i int) bool { return keeps(&jobs[i]) })
	if len(group) < 2 || len(rest) == 0 || f.Classes < 2 {
		return
	}
	first := 1
	for _, i := range group {
		if keeps(&jobs[i]) {
			ts[i].Class, first = 1, 2
		}
	}
	in := intensities(f, pick(jobs, rest), pick(on, rest))
	order := upTo(len(rest))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(in[b], in[a]) })
	for rank, k := range order {
		ts[rest[k]].Class = min(first+rank, f.Classes)
	}
}

// interleave shifts the jobs of a component. A link counts although its jobs would fit if all began at once: shifts
// that other links need could undo that. If it may, it also has jobs wait whose traffic fills a link, so that each has
// its turn in an iteration: shifts alone, as in the publication, are of little use to such jobs.
func interleave(f Fabric, jobs []Job, on [][]network.Bytes, group []int, ts []cluster.Treatment, wait bool) {
	if len(group) == 0 {
		return
	}
	rings := make([]Ring, len(group))
	for k, i := range group {
		rings[k] = ringOf(f, &jobs[i], on[i])
	}
	evenOut(rings)
	links := contended(f, on, group)
	if wait {
		makeRoom(f, links, rings)
	}
	var shifts []LinkShifts
	for _, l := range links {
		mine := make([]Ring, len(l.jobs))
		for n, k := range l.jobs {
			mine[n] = rings[k].with(l.bytes[n])
		}
		if !exceeds(f.Capacity(l.link), mine) {
			continue
		}
		c := NewCircle(f.Capacity(l.link), mine, 0)
		if c == nil {
			continue
		}
		steps, _ := c.Best()
		c.Centre(steps)
		s := LinkShifts{Jobs: l.jobs}
		for n, d := range steps {
			s.Shifts = append(s.Shifts, c.Shift(n, d))
		}
		if joined := append(shifts, s); !Loops(joined) {
			shifts = joined
		}
	}
	periods := make([]time.Duration, len(rings))
	for k := range rings {
		periods[k] = rings[k].Iteration
	}
	for k, t := range Consistent(periods, shifts) {
		if t >= 0 {
			ts[group[k]].Period, ts[group[k]].Shift = periods[k], t
		}
	}
}

// makeRoom lengthens all iterations by the same factor, so that the traffic of each link takes less than the time.
func makeRoom(f Fabric, links []shared, rings []Ring) {
	busiest := 0.0
	for _, l := range links {
		busy := 0.0
		for n, k := range l.jobs {
			busy += float64(l.bytes[n]) / float64(f.Capacity(l.link)) / rings[k].Iteration.Seconds()
		}
		busiest = max(busiest, busy)
	}
	if busiest <= 1 {
		return
	}
	step := time.Duration(0) // of which all are multiples
	for k := range rings {
		step = gcd(rings[k].Iteration, step)
	}
	longer := time.Duration(float64(step) * busiest * (1 + 1./room))
	for k := range rings {
		rings[k].Iteration = rings[k].Iteration / step * longer
	}
}

func gcd(a, b time.Duration) time.Duration {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// evenOut lengthens iterations by at most a twentieth, so that their least common multiple is small: jobs of about the
// same length get the same one, others a multiple of a step.
func evenOut(rings []Ring) {
	order := upTo(len(rings))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rings[b].Iteration, rings[a].Iteration) })
	longest, shortest := rings[order[0]].Iteration, rings[order[len(order)-1]].Iteration
	step := grid(shortest)
	if longest <= shortest+shortest/20 {
		step = time.Millisecond // there is one period
	}
	var used []time.Duration // descending
	for _, k := range order {
		own := rings[k].Iteration
		period := (own + step - 1) / step * step
		for _, p := range used {
			if p >= own && p <= own+own/20 {
				period = p // the shortest that is used already
			}
		}
		if !slices.Contains(used, period) {
			used = append(used, period)
		}
		rings[k].Iteration = period
	}
}

// grid is the step to which iterations are rounded up, at most a twentieth of the shortest, so that their least common
// multiple stays small.
func grid(shortest time.Duration) time.Duration {
	step := time.Millisecond
	for _, times := range []time.Duration{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000} {
		if times*time.Millisecond <= shortest/20 {
			step = times * time.Millisecond
		}
	}
	return step
}

// shared is a link that several jobs of a group pass.
type shared struct {
	link  network.LinkID
	jobs  []int // indexes in the group
	bytes []int64
	busy  float64 // seconds for which it is, in an iteration of each
}

// contended lists the links that several jobs share, the busiest one for each set of jobs; links whose jobs are all on
// a busier one are left out. The busiest come first.
func contended(f Fabric, on [][]network.Bytes, group []int) (list []shared) {
	var users []int32 // by link; then places in the list, plus one
	for _, i := range group {
		for _, b := range on[i] {
			if short := int(b.Link) + 1 - len(users); short > 0 {
				users = append(users, make([]int32, short)...)
			}
			users[b.Link]++
		}
	}
	for l, n := range users {
		users[l] = 0
		if n > 1 {
			list = append(list, shared{link: network.LinkID(l), jobs: make([]int, 0, n), bytes: make([]int64, 0, n)})
			users[l] = int32(len(list))
		}
	}
	for k, i := range group {
		for _, b := range on[i] {
			if n := users[b.Link]; n > 0 {
				s := &list[n-1]
				s.jobs, s.bytes = append(s.jobs, k), append(s.bytes, b.Bytes)
			}
		}
	}
	for l := range list {
		s := &list[l]
		for _, b := range s.bytes {
			s.busy += float64(b)
		}
		s.busy /= float64(f.Capacity(s.link))
	}
	slices.SortFunc(list, func(a, b shared) int {
		return cmp.Or(cmp.Compare(b.busy, a.busy), cmp.Compare(a.link, b.link))
	})
	kept := list[:0]
	for _, s := range list {
		if !slices.ContainsFunc(kept, func(o shared) bool { return within(s.jobs, o.jobs) }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// within reports whether a sorted list contains another.
func within(some, all []int) bool {
	for _, v := range some {
		if _, in := slices.BinarySearch(all, v); !in {
			return false
		}
	}
	return true
}

// Phase is a part of an iteration in which a job transmits.
type Phase struct {
	From, To time.Duration
	Rate     int64
}

// Ring is what a job asks of a link over one iteration.
type Ring struct {
	Iteration time.Duration
	From, To  time.Duration // when it transmits
	Rate      int64         // what it asks then; any unit, that of the capacity
	Phases    []Phase       // instead of From, To and Rate
}

// room is the part of an iteration by which the period of one that varies is longer: a job most of whose iterations
// take longer than its period cannot be held to slots.
const room = 50

// ringOf is a job's iteration without other jobs, of which no link is chosen yet.
func ringOf(f Fabric, j *Job, on []network.Bytes) Ring {
	t := network.Alone(f, on)
	r := Ring{Iteration: loneOf(j, t).iteration(), From: j.Release, To: j.Release + t}
	if j.Varies {
		r.Iteration += r.Iteration / room
	}
	return r
}

// exceeds reports whether jobs that transmit at the same time ask more of a link than it carries.
func exceeds(capacity int64, rings []Ring) bool {
	for i := range rings {
		capacity -= rings[i].Rate
	}
	return capacity < 0
}

// with is the ring on a link on which the job puts so many bytes in an iteration.
func (r Ring) with(bytes int64) Ring {
	r.Rate = int64(float64(bytes) / (r.To - r.From).Seconds())
	return r
}

// Circle is several jobs on one link, on a unified circle: its perimeter is the least common multiple of their
// iterations (section 4.1).
type Circle struct {
	Perimeter time.Duration
	capacity  int64
	angles    int
	rings     []Ring
	demand    [][]int64 // of each job at each angle
	turns     []int     // rotations of each job that differ
}

const (
	leastAngles = 72
	mostAngles  = 1440
)

// NewCircle unifies jobs. With 0 angles there are as many as the shortest phase needs. It is nil if the circle would
// be so long that its angles see nothing.
func NewCircle(capacity int64, rings []Ring, angles int) *Circle {
	c := &Circle{Perimeter: 1, capacity: capacity, angles: angles, rings: rings}
	shortest := time.Duration(math.MaxInt64)
	for i := range rings {
		r := &rings[i]
		if len(r.Phases) == 0 {
			r.Phases = []Phase{{r.From, r.To, r.Rate}}
		}
		for _, p := range r.Phases {
			shortest = min(shortest, max(1, p.To-p.From), max(1, r.Iteration-(p.To-p.From)))
		}
		if c.Perimeter = lcm(c.Perimeter, r.Iteration); c.Perimeter <= 0 || c.Perimeter > time.Hour {
			return nil
		}
	}
	if angles == 0 {
		if c.angles = max(leastAngles, int(c.Perimeter/max(1, shortest/4))); c.angles > mostAngles {
			return nil
		}
	}
	for i := range rings {
		r := &rings[i]
		row := make([]int64, c.angles)
		for a := range row {
			t := time.Duration(int64(c.Perimeter) * int64(a) / int64(c.angles))
			for _, p := range r.Phases {
				// the phase may reach into the next iteration
				if at := t % r.Iteration; at >= p.From && at < p.To || at+r.Iteration < p.To {
					row[a] += p.Rate
				}
			}
		}
		c.demand = append(c.demand, row)
		c.turns = append(c.turns, max(1, c.angles/int(c.Perimeter/r.Iteration)))
	}
	return c
}

func lcm(a, b time.Duration) time.Duration {
	x := gcd(a, b)
	if a/x > math.MaxInt64/b {
		return -1
	}
	return a / x * b
}

// over is the demand beyond capacity under rotations, in steps of an angle.
func (c *Circle) over(steps []int) int64 {
	return exceed(c.beside(steps, 0), c.demand[0], steps[0], math.MaxInt64)
}

// beside is what is asked beyond capacity at each angle by all jobs but one, less than 0 where something is left.
func (c *Circle) beside(steps []int, but int) []int64 {
	sum := make([]int64, c.angles)
	for a := range sum {
		sum[a] = -c.capacity
	}
	for i, row := range c.demand {
		if i != but {
			for a, v := range row[c.angles-steps[i]:] {
				sum[a] += v
			}
			for a, v := range row[:c.angles-steps[i]] {
				sum[a+steps[i]] += v
			}
		}
	}
	return sum
}

// exceed is the demand beyond capacity if a job asks for a row, rotated, beside others; what is more than a limit is
// not counted further.
func exceed(beside, row []int64, steps int, limit int64) (sum int64) {
	cut := len(row) - steps
	for a, v := range row[cut:] {
		if sum += max(0, beside[a]+v); sum > limit {
			return sum
		}
	}
	for a, v := range row[:cut] {
		if sum += max(0, beside[a+steps]+v); sum > limit {
			return sum
		}
	}
	return sum
}

// Score is the compatibility of the jobs under rotations, at most 1 (section 4.1, equation 3).
func (c *Circle) Score(steps []int) float64 {
	return 1 - float64(c.over(steps))/(float64(c.angles)*float64(c.capacity))
}

// Turns are how many rotations of each job differ.
func (c *Circle) Turns() []int { return c.turns }

// Shift is a rotation as a delay of a job.
func (c *Circle) Shift(i, steps int) time.Duration {
	return time.Duration(int64(c.Perimeter)*int64(steps)/int64(c.angles)) % c.rings[i].Iteration
}

// exhaustive is up to how many combinations all are tried.
const exhaustive = 1 << 13

// Best finds the rotations of the highest score, with the first job where it is. The first of the best is taken in
// lexicographic order. With many jobs each is rotated in turn until nothing gets better.
func (c *Circle) Best() (steps []int, score float64) {
	n := len(c.rings)
	steps = make([]int, n)
	all := 1
	for _, t := range c.turns[1:] {
		if all *= t; all > exhaustive {
			return c.descend(steps)
		}
	}
	best, least := slices.Clone(steps), c.over(steps)
	last := n - 1
	for beside := c.beside(steps, last); least > 0; beside = c.beside(steps, last) {
		for steps[last] = range c.turns[last] {
			if o := exceed(beside, c.demand[last], steps[last], least); o < least {
				best, least = slices.Clone(steps), o
			}
		}
		steps[last] = 0
		i := last - 1
		for ; i > 0; i-- {
			if steps[i]++; steps[i] < c.turns[i] {
				break
			}
			steps[i] = 0
		}
		if i <= 0 {
			break
		}
	}
	return best, c.Score(best)
}

// centrings is how often each job is turned, at most: among three jobs the middle depends on where the others are.
const centrings = 4

// Centre turns jobs, but for the first, to the middle of the rotations that are as good as the present ones: at their
// edge, a job that is a little late would transmit beside another.
func (c *Circle) Centre(steps []int) {
	least := c.over(steps)
	for range centrings {
		moved := false
		for i := 1; i < len(steps); i++ {
			at, turns := steps[i], c.turns[i]
			beside := c.beside(steps, i)
			good := func(s int) bool { return exceed(beside, c.demand[i], (s+turns)%turns, least) == least }
			before, after := 0, 0
			for after < turns-1 && good(at+after+1) {
				after++
			}
			for before+after < turns-1 && good(at-before-1) {
				before++
			}
			if before+after < turns-1 {
				steps[i] = (at + (after-before)/2 + turns) % turns
				moved = moved || steps[i] != at
			}
		}
		if !moved {
			return
		}
	}
}

func (c *Circle) descend(steps []int) ([]int, float64) {
	least := c.over(steps)
	for better := true; better; {
		better = false
		for i := 1; i < len(steps); i++ {
			beside := c.beside(steps, i)
			for s := range c.turns[i] {
				if o := exceed(beside, c.demand[i], s, least); o < least {
					steps[i], least, better = s, o, true
				}
			}
		}
	}
	return steps, c.Score(steps)
}

// LinkShifts are the shifts that jobs need on a link: edges of the affinity graph (section 4.2).
type LinkShifts struct {
	Jobs   []int // ascending
	Shifts []time.Duration
}

// Loops reports whether the affinity graph of jobs and links has a loop: more edges than jobs and links less its
// components.
func Loops(links []LinkShifts) bool {
	root := map[int]int{}
	var find func(int) int
	find = func(j int) int {
		if r, in := root[j]; in && r != j {
			return find(r)
		}
		root[j] = j
		return j
	}
	for l := range links {
		link := -1 - l
		for _, j := range links[l].Jobs {
			a, b := find(link), find(j)
			if a == b {
				return true
			}
			root[a] = b
		}
	}
	return false
}

// Consistent gives each job one shift, so that on each link the jobs are apart as they need to be (section 4.2,
// algorithm 1): breadth first from the first job of each component, which stays where it is. -1: the job is on no link.
func Consistent(iterations []time.Duration, links []LinkShifts) []time.Duration {
	t := make([]time.Duration, len(iterations))
	for i := range t {
		t[i] = -1
	}
	done := make([]bool, len(links))
	for first := range t {
		if t[first] >= 0 || !slices.ContainsFunc(links, func(l LinkShifts) bool {
			return slices.Contains(l.Jobs, first)
		}) {
			continue
		}
		t[first] = 0
		for queue := []int{first}; len(queue) > 0; queue = queue[1:] {
			j := queue[0]
			for l := range links {
				at := slices.Index(links[l].Jobs, j)
				if at < 0 || done[l] {
					continue
				}
				done[l] = true
				for n, k := range links[l].Jobs {
					if t[k] < 0 {
						p := iterations[k]
						t[k] = ((t[j]-links[l].Shifts[at]+links[l].Shifts[n])%p + p) % p
						queue = append(queue, k)
					}
				}
			}
		}
	}
	return t
}
