package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/solve"
)

var allox = Info{
	Name: "allox",
	About: "GPUs of several models: an assignment of the waiting jobs to GPUs, one after the other on each, makes the sum of their " +
		"completion times least; no preemption",
	Source: "C-gavel, G-gavel-simulator: AlloX (EuroSys'20); gangs, and GPUs that are busy, are ours",
	Needs:  "run times, speeds per GPU model",
	Knobs: []Knob{
		{"alpha", "1", "of the waiting jobs this part, the oldest, is looked at (and one for each idle GPU): less is fairer"},
		{"busy", "true", "false: only GPUs that are idle are assigned, as in Gavel's simulator"},
	},
	New: func(k *Knobs) (engine.Policy, error) {
		alpha, err := strconv.ParseFloat(k.text("alpha"), 64)
		if err != nil || !(alpha > 0 && alpha <= 1) {
			return nil, fmt.Errorf("alpha=%q: want a number above 0, up to 1", k.text("alpha"))
		}
		busy, err := k.bool("busy")
		r := &alloxRules{alpha, busy}
		return &planner{name: k.label(), plan: r.plan, traits: engine.Traits{Backfill: engine.Skip, Gated: true}}, err
	},
}

type alloxRules struct {
	alpha float64
	busy  bool
}

// mostAssigned bounds how many jobs are assigned at once: the shortest of those that
// are looked at, since longer ones come after them. The work grows with the third
// power.
const mostAssigned = 64

// longest is the longest time that is told from longer ones, in ms: so that costs
// stay far below what cannot be.
const longest = int64(365 * 24 * time.Hour / time.Millisecond)

// waiter is a job that is to be assigned.
type waiter struct {
	at    int // in the list of jobs
	j     engine.JobView
	tasks int
	gpus  int64   // what it takes, rounded up to whole GPUs
	time  []int64 // run time on each kind, times GPUs, in GPU-ms; 0: it cannot run there
	least int64   // ... where it is fastest
	seat
}

// seat is a place in the line of a GPU.
type seat struct {
	kind, gpu int
	ready     int64 // ms until the GPU is idle
	turn      int   // from the last in its line
}

// plan assigns who waits. Who runs goes on to its end.
func (r *alloxRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	kinds := v.Kinds()
	p := engine.Plan{Next: cluster.Never, Targets: v.Targets(len(jobs))}
	var line []waiter
	for i, j := range jobs {
		w := waiter{at: i, j: j, tasks: asked(j)}
		w.gpus = max(int64(j.GPUs(w.tasks)), (j.Milli()+cluster.Whole-1)/cluster.Whole)
		t := &p.Targets[i]
		t.Tasks, t.Least = w.tasks, w.tasks
		if !j.Running() && w.gpus > 0 {
			t.Idle = true
			line = append(line, w)
		}
	}
	ready := r.ready(v, kinds, jobs)
	line = r.oldest(v, kinds, ready, line)
	assign(line, ready)
	first := map[[2]int]int{} // the turn of who comes first on a GPU; looked up only
	for i := range line {
		w := &line[i]
		first[[2]int{w.kind, w.gpu}] = max(first[[2]int{w.kind, w.gpu}], w.turn)
	}
	slices.SortStableFunc(line, func(a, b waiter) int {
		behind := func(w *waiter) int { return first[[2]int{w.kind, w.gpu}] - w.turn }
		return cmp.Or(cmp.Compare(behind(&a), behind(&b)), cmp.Compare(a.ready, b.ready), cmp.Compare(a.time[a.kind], b.time[b.kind]))
	})
	for n, w := range line {
		t := &p.Targets[w.at]
		t.Rank, t.GPU, t.Idle = int64(n), kinds[w.kind].GPU, false
	}
	return p
}

// ready lists, for each kind, in how many ms its GPUs are idle: the soonest first.
func (r *alloxRules) ready(v engine.View, kinds []engine.Kind, jobs []engine.JobView) [][]int64 {
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
		idle := (int64(kinds[k].GPUs)*cluster.Whole - milli[k] + cluster.Whole - 1) / cluster.Whole // part of one counts as one
		busy := list[k]
		slices.Sort(busy)
		list[k] = make([]int64, max(0, idle))
		if n := kinds[k].GPUs - len(list[k]); r.busy && n > 0 {
			list[k] = append(list[k], busy[:min(n, len(busy))]...)
		}
	}
	return list
}

// runTime is what is left of a job, in ms with so many tasks on a kind of GPU; at
// least 1.
func runTime(v engine.View, j engine.JobView, gpu string, tasks int) int64 {
	speed := max(1, v.Speed(j, gpu, max(1, tasks)))
	return max(1, int64(min(workLeft(j)*1e9/float64(speed), float64(longest))))
}

// oldest lists those who are looked at, with their times: of the jobs that some
// GPU of the lists is good for.
func (r *alloxRules) oldest(v engine.View, kinds []engine.Kind, ready [][]int64, line []waiter) []waiter {
	idle := 0
	for _, list := range ready {
		at, _ := slices.BinarySearch(list, 1)
		idle += at
	}
	if idle == 0 {
		return nil // nobody can start
	}
	list, times := line[:0], make([]int64, len(line)*len(kinds))
	for i := range line {
		w := line[i]
		w.time, times = times[:len(kinds):len(kinds)], times[len(kinds):]
		for k := range kinds {
			if len(ready[k]) > 0 && w.j.Accepts(kinds[k].GPU) {
				w.time[k] = min(runTime(v, w.j, kinds[k].GPU, w.tasks), longest/w.gpus) * w.gpus
			}
		}
		if slices.Max(w.time) > 0 {
			w.least = w.shortest()
			list = append(list, w)
		}
	}
	if most := max(int(math.Ceil(r.alpha*float64(len(list)))), idle); most < len(list) {
		slices.SortStableFunc(list, byAge)
		list = list[:most]
	}
	if len(list) <= mostAssigned {
		slices.SortStableFunc(list, byAge)
		return list
	}
	return shortestOf(list)
}

// byAge orders jobs by submission; of those that came together the shorter first.
func byAge(a, b waiter) int {
	return cmp.Or(cmp.Compare(a.j.Spec().Submit, b.j.Spec().Submit), cmp.Compare(a.least, b.least))
}

// shortestOf lists as many of the shortest jobs as are assigned at once, the older of
// equals first.
func shortestOf(list []waiter) []waiter {
	best := make([]waiter, 0, mostAssigned+1)
	for i := range list {
		w := &list[i]
		if len(best) == mostAssigned && w.least > best[mostAssigned-1].least {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, w, func(o waiter, w *waiter) int {
			return cmp.Or(cmp.Compare(o.least, w.least), cmp.Compare(o.j.Spec().Submit, w.j.Spec().Submit), -1) // behind its equals
		})
		best = slices.Insert(best, at, *w)
		best = best[:min(len(best), mostAssigned)]
	}
	return best
}

// shortest is the job's time where it is fastest.
func (w *waiter) shortest() int64 {
	least := int64(math.MaxInt64)
	for _, t := range w.time {
		if t > 0 {
			least = min(least, t)
		}
	}
	return least
}

// assign finds a seat for each: who is the n-th from the last on a GPU delays n
// jobs, itself among them, by its time, and waits for the GPU. Of each kind the
// GPUs that are idle soonest are looked at, and no longer lines than jobs can fill.
func assign(line []waiter, ready [][]int64) {
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
