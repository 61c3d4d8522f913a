package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

var allox = Info{
	Name: "allox",
	About: "GPUs of several models: waiting jobs are assigned to GPUs, one after the other on each, so that the sum of their " +
		"completion times is least; no preemption",
	Source: "AlloX (EuroSys'20); gangs, and GPUs that are busy, are ours",
	Needs:  "run times, speeds per GPU model",
	Trials: []Trial{{Given: Speeds | Estimates | Short}},
	Knobs: []Knob{
		{"alpha", "1", "fraction of the waiting jobs, the oldest, that is considered (at least one job per idle GPU): less is fairer"},
		{"busy", "true", "false: only GPUs that are idle are assigned, as in Gavel's simulator"},
	},
	New: func(k *Knobs) sched.Policy {
		r := &alloxRules{k.float("alpha", 0, 1), k.bool("busy")}
		if r.alpha == 0 {
			k.fail("alpha=%q: want a number above 0, up to 1", k.text("alpha"))
		}
		return &drawer{
			planner: planner{name: k.label(), plan: r.plan,
				traits: sched.Traits{Backfill: sched.Skip, Gated: true, Anywhere: true}},
			pool: r.pool, nothing: always(sched.Target{Idle: true}),
		}
	},
}

type alloxRules struct {
	alpha float64
	busy  bool
}

// mostAssigned bounds how many jobs are assigned at once: the shortest of the candidates, since
// longer ones come after them. The work grows with the third power.
const mostAssigned = 64

// longest caps run times, in ms, so that costs stay far below solve.Impossible.
const longest = int64(365 * 24 * time.Hour / time.Millisecond)

// waiter is a waiting job that takes part in the assignment.
type waiter struct {
	at    int // in the list of jobs
	j     sched.JobView
	tasks int
	gpus  int64   // demand, rounded up to whole GPUs
	time  []int64 // run time on each kind, times GPUs, in GPU-ms; 0: it cannot run there
	least int64   // ... where it is fastest
	seat
}

// seat is a position in the queue of a GPU.
type seat struct {
	kind, gpu int
	ready     int64 // ms until the GPU is idle
	turn      int   // counted from the last in its queue
}

// plan assigns the waiting jobs. Running jobs run to their end.
func (r *alloxRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	kinds := v.Kinds()
	ready := r.ready(v, kinds, jobs)
	idle := idleOf(ready)
	drawn := 0
	p := sched.Plan{Next: cluster.Never}
	line := sched.Scratch[waiter](v, len(jobs)+mostAssigned+1)[:0]
	for i, j := range jobs {
		if j.Running() {
			continue
		}
		if w := waiterOf(j, i); w.gpus > 0 {
			line = append(line, w)
		}
	}
	if idle > 0 {
		for _, w := range r.draw(v, kinds, ready) {
			w.at = len(jobs) + drawn
			line = append(line, w)
			drawn++
		}
	}
	p.Targets = v.Targets(len(jobs) + drawn)
	for i, j := range jobs {
		n := asked(j)
		p.Targets[i].Tasks, p.Targets[i].Least = n, n
	}
	for i := range line {
		p.Targets[line[i].at] = sched.Target{Idle: true}
	}
	line = r.oldest(v, kinds, ready, line, idle)
	assign(line, ready)
	first := map[[2]int]int{} // turn of the first job on a GPU; looked up only
	for i := range line {
		w := &line[i]
		first[[2]int{w.kind, w.gpu}] = max(first[[2]int{w.kind, w.gpu}], w.turn)
	}
	slices.SortStableFunc(line, func(a, b waiter) int {
		behind := func(w *waiter) int { return first[[2]int{w.kind, w.gpu}] - w.turn }
		return cmp.Or(cmp.Compare(behind(&a), behind(&b)), cmp.Compare(a.ready, b.ready),
			cmp.Compare(a.time[a.kind], b.time[b.kind]))
	})
	for n, w := range line {
		t := &p.Targets[w.at]
		*t = sched.Target{Rank: int64(n), GPU: kinds[w.kind].GPU, Tasks: w.tasks, Least: w.tasks}
	}
	return p
}

// waiterOf makes a waiter of a job.
func waiterOf(j sched.JobView, at int) waiter {
	w := waiter{at: at, j: j, tasks: asked(j)}
	w.gpus = max(int64(j.GPUs(w.tasks)), (j.Milli()+cluster.Whole-1)/cluster.Whole)
	return w
}

// pool keeps waiting jobs in pools by run time, provided that it is the same on all GPUs; only a
// few of the shortest are then considered.
func (r *alloxRules) pool(v sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	w := waiterOf(j, 0)
	if r.alpha < 1 || v.Measured() || w.gpus == 0 {
		return 0, at, false
	}
	return 0, sched.Key{w.on(v, "")}, true
}

// on is the job's run time on a kind of GPU, times GPUs.
func (w *waiter) on(v sched.View, gpu string) int64 {
	return min(runTime(v, w.j, gpu, w.tasks), longest/w.gpus) * w.gpus
}

// timed sets the job's run time on each kind that has GPUs in the lists; false: it can run on none.
func (w *waiter) timed(v sched.View, kinds []sched.Kind, ready [][]int64) bool {
	w.time = make([]int64, len(kinds))
	for k := range kinds {
		if len(ready[k]) > 0 && w.j.Accepts(kinds[k].GPU) {
			w.time[k] = w.on(v, kinds[k].GPU)
		}
	}
	if slices.Max(w.time) == 0 {
		return false
	}
	w.least = w.shortest()
	return true
}

// draw takes the shortest jobs out of the pools: one more than are assigned at once, so that the
// caller sees whether there are more.
func (r *alloxRules) draw(v sched.View, kinds []sched.Kind, ready [][]int64) (drawn []waiter) {
	drawn = make([]waiter, 0, mostAssigned+1)
	type head struct {
		sched.Pool
		waiter
	}
	var heads []head
	for _, p := range v.Pools() {
		if j, ok := p.Head(); ok {
			if h := (head{p, waiterOf(j, 0)}); h.timed(v, kinds, ready) {
				heads = append(heads, h)
			}
		}
	}
	for len(drawn) <= mostAssigned && len(heads) > 0 {
		best := 0
		for i := range heads {
			if byTime(&heads[i].waiter, &heads[best].waiter) < 0 {
				best = i
			}
		}
		h := &heads[best]
		h.Draw()
		drawn = append(drawn, h.waiter)
		if j, ok := h.Head(); ok {
			h.waiter = waiterOf(j, 0)
			h.timed(v, kinds, ready)
		} else {
			heads = slices.Delete(heads, best, best+1)
		}
	}
	return drawn
}

// ready lists, per kind, in how many ms each GPU becomes idle, in increasing order.
func (r *alloxRules) ready(v sched.View, kinds []sched.Kind, jobs []sched.JobView) [][]int64 {
	list, milli := make([][]int64, len(kinds)), make([]int64, len(kinds))
	for _, j := range jobs {
		for k := range kinds {
			if !j.Running() || j.GPU() != kinds[k].GPU {
				continue
			}
			milli[k] += j.Milli()
			tasks, _, _ := j.Tasks()
			for range (j.Milli() + cluster.Whole - 1) / cluster.Whole {
				list[k] = append(list[k], runTime(v, j, kinds[k].GPU, tasks))
			}
		}
	}
	for k := range kinds {
		// part of a GPU counts as one
		idle := (int64(kinds[k].GPUs)*cluster.Whole - milli[k] + cluster.Whole - 1) / cluster.Whole
		busy := list[k]
		slices.Sort(busy)
		list[k] = make([]int64, max(0, idle))
		if n := kinds[k].GPUs - len(list[k]); r.busy && n > 0 {
			list[k] = append(list[k], busy[:min(n, len(busy))]...)
		}
	}
	return list
}

// runTime is a job's remaining run time with so many tasks on a kind of GPU, in ms; at least 1.
func runTime(v sched.View, j sched.JobView, gpu string, tasks int) int64 {
	speed := max(1, v.Speed(j, gpu, max(1, tasks)))
	return max(1, int64(min(workLeft(j)*1e9/float64(speed), float64(longest))))
}

// idleOf is the number of idle GPUs in the lists.
func idleOf(ready [][]int64) (idle int) {
	for _, list := range ready {
		at, _ := slices.BinarySearch(list, 1)
		idle += at
	}
	return idle
}

// oldest selects the candidates and sets their run times: the oldest jobs that can run on some GPU
// of the lists.
func (r *alloxRules) oldest(v sched.View, kinds []sched.Kind, ready [][]int64, line []waiter, idle int) []waiter {
	if idle == 0 {
		return nil // no job can start
	}
	list := line[:0]
	for i := range line {
		if w := line[i]; w.timed(v, kinds, ready) {
			list = append(list, w)
		}
	}
	if most := max(int(math.Ceil(r.alpha*float64(len(list)))), idle); most < len(list) {
		slices.SortFunc(list, byAge)
		list = list[:most]
	}
	if len(list) <= mostAssigned {
		slices.SortFunc(list, byAge)
		return list
	}
	return shortestOf(list)
}

// byAge orders jobs by submission; with equal submission the shorter comes first.
func byAge(a, b waiter) int {
	s, t := a.j.Spec(), b.j.Spec()
	return cmp.Or(cmp.Compare(s.Submit, t.Submit), cmp.Compare(a.least, b.least), cmp.Compare(s.ID, t.ID))
}

// byTime orders jobs by run time; with equal run time the older comes first.
func byTime(a, b *waiter) int {
	s, t := a.j.Spec(), b.j.Spec()
	return cmp.Or(cmp.Compare(a.least, b.least), cmp.Compare(s.Submit, t.Submit), cmp.Compare(s.ID, t.ID))
}

// shortestOf lists the mostAssigned shortest jobs, with equal run time the older first.
func shortestOf(list []waiter) []waiter {
	best := make([]waiter, 0, mostAssigned+1)
	for i := range list {
		w := &list[i]
		if len(best) == mostAssigned && w.least > best[mostAssigned-1].least {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, w, func(o waiter, w *waiter) int {
			return byTime(&o, w)
		})
		best = slices.Insert(best, at, *w)
		best = best[:min(len(best), mostAssigned)]
	}
	return best
}

// shortest is the job's run time on its fastest kind.
func (w *waiter) shortest() int64 {
	least := int64(math.MaxInt64)
	for _, t := range w.time {
		if t > 0 {
			least = min(least, t)
		}
	}
	return least
}

// assign finds a seat for each job: the n-th from the last on a GPU delays n jobs, itself included,
// by its run time, and waits until the GPU is idle. Only the GPUs of each kind that become idle
// first are considered, with queues no longer than the jobs can fill.
func assign(line []waiter, ready [][]int64) {
	if allTheSame(line, ready) {
		slices.SortFunc(line, func(a, b waiter) int { return byTime(&a, &b) })
		seatShortest(line, ready)
		return
	}
	var seats []seat
	for k, list := range ready {
		list = list[:min(len(list), len(line))]
		for g, at := range list {
			for turn := 1; turn <= (len(line)+len(list)-1)/len(list)+2; turn++ {
				seats = append(seats, seat{k, g, at, turn})
			}
		}
	}
	if len(line) == 0 {
		return
	}
	costs := make([]int64, 0, len(line)*len(seats))
	for i := range line {
		for j := range seats {
			s, cost := &seats[j], int64(solve.Impossible)
			if t := line[i].time[s.kind]; t > 0 {
				cost = int64(s.turn)*t + s.ready
			}
			costs = append(costs, cost)
		}
	}
	columns := solve.Assign(len(line), len(seats), costs)
	for i, j := range columns {
		line[i].seat = seats[j]
	}
}

// allTheSame reports whether each job runs equally fast on all the GPUs.
func allTheSame(line []waiter, ready [][]int64) bool {
	for i := range line {
		for k := range ready {
			if len(ready[k]) > 0 && line[i].time[k] != line[i].least {
				return false
			}
		}
	}
	return true
}

// seatShortest finds the seats of assign where GPUs are alike, for jobs ordered by run time: each
// goes to the end of the queue of the GPU that is free first.
//
// Source: Kaspi and Montreuil 1988: this order has the least sum of completion times on
// equal machines, whenever each of them becomes available.
func seatShortest(line []waiter, ready [][]int64) {
	type gpu struct {
		seat
		free  int64 // when its queue is done
		users int
	}
	var gpus []gpu
	for k, list := range ready {
		for g, at := range list[:min(len(list), len(line))] {
			gpus = append(gpus, gpu{seat: seat{k, g, at, 0}, free: at})
		}
	}
	on := make([]int, len(line))
	for i := range line {
		for g := range gpus {
			if gpus[g].free < gpus[on[i]].free {
				on[i] = g
			}
		}
		g := &gpus[on[i]]
		line[i].seat, line[i].turn = g.seat, g.users // number of jobs before it
		g.free += line[i].least
		g.users++
	}
	for i := range line {
		line[i].turn = gpus[on[i]].users - line[i].turn
	}
}
