// Package flow plays jobs that compute and transmit on shared links: no packets, rates change only at events. Classes
// are served in strict order, and within a class each job gets an equal rate as far as its links allow (max-min,
// by progressive filling: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Bytes and nanoseconds are
// integers, so a run is the same everywhere.
package flow

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/network"
)

// Job is what a job does in an iteration. It ends when both its computing and its transmission have, and the next one
// begins.
type Job struct {
	Compute time.Duration
	Release time.Duration // from the beginning until it may transmit, at most Compute
	On      []network.Bytes
	Class   int           // 1 is served first; 0: after all classes
	First   time.Duration // beginning of its first iteration
	// with a Period, an iteration begins only at Shift after a multiple of it, or up to a twentieth of it later
	// (CASSINI, NSDI'24, section 5.7: agents adjust drift beyond 5 %), unless the one before took longer
	Shift, Period time.Duration
}

// Result is what a job got done in a window.
type Result struct {
	Iterations int64         // that ended
	Computed   time.Duration // time that it computed
	Sent       time.Duration // what it transmitted, as time alone on its links
}

const unit = 1 << 20 // of a job's weights on links

// run is the state of a job in a run.
type run struct {
	*Job
	on     []use // links by their number in the run
	size   int64 // bytes on the link with the most
	best   int64 // rate when alone, bytes per second
	begun  time.Duration
	next   time.Duration // next event
	active bool          // it transmits
	over   bool          // its transmission of this iteration has ended
	left   int64         // bytes
	rate   int64
	since  time.Duration // of rate and left
	fresh  int64         // rate as it is computed
	frozen bool
	count  int64
	moved  int64
	busy   time.Duration
}

type use struct {
	link   int32
	weight int64 // of its rate, in units
}

// world is a run of several jobs.
type world struct {
	now    time.Duration
	jobs   []run
	order  []int32 // jobs by class
	cap    []int64
	free   []int64
	weight []int64
	level  []int64 // rate at which a link is full
	inUse  []int32 // scratch: links of a class
	fixed  []int32 // scratch
}

func newWorld(links network.Links, jobs []Job) *world {
	w := &world{jobs: make([]run, len(jobs))}
	var ids []network.LinkID
	for i := range jobs {
		for _, b := range jobs[i].On {
			ids = append(ids, b.Link)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		w.cap = append(w.cap, links.Capacity(id))
	}
	w.free, w.weight, w.level = make([]int64, len(ids)), make([]int64, len(ids)), make([]int64, len(ids))
	for i := range jobs {
		j := &w.jobs[i]
		j.Job = &jobs[i]
		for _, b := range j.On {
			j.size = max(j.size, b.Bytes)
		}
		j.best = math.MaxInt64
		for _, b := range j.On {
			at, _ := slices.BinarySearch(ids, b.Link)
			u := use{int32(at), max(1, int64(math.Ceil(float64(b.Bytes)/float64(j.size)*unit)))}
			j.on = append(j.on, u)
			j.best = min(j.best, share(w.cap[at], u.weight))
		}
		w.order = append(w.order, int32(i))
		j.begin(j.First, 0)
	}
	w.narrow()
	slices.SortStableFunc(w.order, func(a, b int32) int { return rank(jobs[a].Class) - rank(jobs[b].Class) })
	return w
}

// narrow leaves out links that never decide a rate: those whose jobs are all on another link, too, of which each takes
// as large a part or a larger one.
func (w *world) narrow() {
	users := make([][]int32, len(w.cap))
	for i := range w.jobs {
		for k := range w.jobs[i].on {
			users[w.jobs[i].on[k].link] = append(users[w.jobs[i].on[k].link], int32(i))
		}
	}
	parts := func(l int32) (list []int64) { // of the link's capacity at a rate of a unit, by job
		for _, i := range users[l] {
			for _, u := range w.jobs[i].on {
				if u.link == l {
					list = append(list, share(w.cap[l], u.weight))
				}
			}
		}
		return list
	}
	drop := make([]bool, len(w.cap))
	first := map[string][]int32{} // links by their jobs
	var key []byte
	for l := range int32(len(w.cap)) {
		key = key[:0]
		for _, i := range users[l] {
			key = binary.AppendUvarint(key, uint64(i))
		}
		mine := parts(l)
		for _, o := range first[string(key)] {
			others := parts(o)
			wider := func(a, b []int64) bool {
				for i := range a {
					if a[i] < b[i] {
						return false
					}
				}
				return true
			}
			switch {
			case drop[o]:
			case wider(mine, others):
				drop[l] = true
			case wider(others, mine):
				drop[o] = true
			}
		}
		first[string(key)] = append(first[string(key)], l)
	}
	for i := range w.jobs {
		w.jobs[i].on = slices.DeleteFunc(w.jobs[i].on, func(u use) bool { return drop[u.link] })
	}
}

func rank(class int) int {
	if class == 0 {
		return math.MaxInt32
	}
	return class
}

func share(capacity, weight int64) int64 {
	if capacity > math.MaxInt64/unit {
		return capacity / weight * unit
	}
	return capacity * unit / weight
}

// begin starts an iteration, not before t; the last one took so long. A job that does not keep up with its period is
// not held: it would wait for most of the next one each time.
func (j *run) begin(t, took time.Duration) {
	if j.Period > 0 && took <= j.Period+j.Period/20 {
		late := ((t-j.Shift)%j.Period + j.Period) % j.Period
		if late > j.Period/20 {
			t += j.Period - late
		}
	}
	j.begun, j.active, j.over, j.left = t, false, j.size == 0, j.size
	if j.next = t + j.Release; j.over {
		j.next = t + max(1, j.Compute)
	}
}

// due handles the job's event of this instant; true: rates change.
func (w *world) due(j *run) bool {
	switch {
	case j.over: // its computing is over, too
		j.end(w.now)
		return false
	case !j.active:
		j.active, j.rate, j.since, j.next = true, 0, w.now, 1<<62
		return true
	}
	j.moved += j.left
	j.left, j.active, j.over, j.rate = 0, false, true, 0
	if j.next = j.begun + j.Compute; j.next <= w.now {
		j.end(w.now)
	}
	return true
}

func (j *run) end(now time.Duration) {
	j.count++
	j.busy += j.Compute
	j.begin(now, now-j.begun)
}

// fill deals the links out among the jobs that transmit.
func (w *world) fill() {
	copy(w.free, w.cap)
	for from := 0; from < len(w.order); {
		class := w.jobs[w.order[from]].Class
		to := from
		for to < len(w.order) && w.jobs[w.order[to]].Class == class {
			to++
		}
		w.fillClass(w.order[from:to])
		from = to
	}
	for i := range w.jobs {
		j := &w.jobs[i]
		if !j.active || j.fresh == j.rate && j.next < 1<<62 {
			continue
		}
		moved := min(j.left, network.Moved(j.rate, w.now-j.since))
		j.left -= moved
		j.moved += moved
		j.rate, j.since = j.fresh, w.now
		j.next = w.now + network.Takes(j.left, j.rate)
	}
}

// fillClass raises the rates of one class together until a link is full, fixes those that pass it, and goes on.
func (w *world) fillClass(class []int32) {
	open := 0
	w.inUse = w.inUse[:0]
	for _, i := range class {
		if j := &w.jobs[i]; j.active {
			j.fresh, j.frozen = 0, false
			open++
			for _, u := range j.on {
				if w.weight[u.link] == 0 {
					w.inUse = append(w.inUse, u.link)
				}
				w.weight[u.link] += u.weight
			}
		}
	}
	for open > 0 {
		level := int64(math.MaxInt64)
		for _, l := range w.inUse {
			if w.level[l] = math.MaxInt64; w.weight[l] > 0 {
				w.level[l] = share(w.free[l], w.weight[l])
				level = min(level, w.level[l])
			}
		}
		w.fixed = w.fixed[:0]
		for _, i := range class { // those at a link that is full at this level
			j := &w.jobs[i]
			if j.active && !j.frozen &&
				slices.ContainsFunc(j.on, func(u use) bool { return w.level[u.link] <= level }) {
				w.fixed = append(w.fixed, i)
			}
		}
		for _, i := range w.fixed {
			j := &w.jobs[i]
			j.fresh, j.frozen = level, true
			for _, u := range j.on {
				w.weight[u.link] -= u.weight
				w.free[u.link] = max(0, w.free[u.link]-level*u.weight/unit)
			}
		}
		open -= len(w.fixed)
	}
}

// step plays the next instant at which something happens, up to an end; false: there is none.
func (w *world) step(end time.Duration) bool {
	next := end + 1
	for i := range w.jobs {
		next = min(next, w.jobs[i].next)
	}
	if next > end {
		return false
	}
	w.now = next
	changed := false
	for i := range w.jobs {
		for j := &w.jobs[i]; j.next <= w.now; { // several events of one job may be at the same instant
			changed = w.due(j) || changed
		}
	}
	if changed {
		w.fill()
	}
	return true
}

// Run plays the jobs for a time.
func Run(links network.Links, jobs []Job, window time.Duration) []Result {
	w := newWorld(links, jobs)
	for w.step(window) {
	}
	list := make([]Result, len(jobs))
	for i := range w.jobs {
		j := &w.jobs[i]
		list[i] = Result{Iterations: j.count, Computed: j.busy + max(0, min(j.Compute, window-j.begun)),
			Sent: network.Takes(j.movedBy(window), max(1, j.best))}
	}
	return list
}
