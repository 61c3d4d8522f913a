// Package flow plays jobs that compute and transmit on shared links: no packets, rates change only at events. Classes
// are served in strict order, and within a class each job gets an equal rate as far as its links allow (max-min,
// by progressive filling: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2), or a part that is larger the
// later it began and differs by chance, where links are uneven (cluster.Uneven). Bytes and nanoseconds are integers,
// and chance is a seeded sequence, so a run is the same everywhere.
package flow

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/splitmix"
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
	near   []use // those of them that are tight
	rank   int32 // of its class, the first one 0
	size   int64 // bytes on the link with the most
	best   int64 // rate when alone, bytes per second
	begun  time.Duration
	next   time.Duration // next event
	active bool          // it transmits
	over   bool          // its transmission of this iteration has ended
	left   int64         // bytes
	rate   int64
	since  time.Duration // of rate and left
	booked int64         // rate that links' loads have
	fresh  int64         // rate as it is computed
	chance int64         // ... by chance alone
	ratio  int64         // of its rate to an equal one, in units
	sends  time.Duration // since when it transmits
	sent   time.Duration // for which it transmitted, but for what is under way
	event  int32         // the last one that concerned it
	count  int64
	moved  int64
	busy   time.Duration
}

type use struct {
	link   int32
	weight int64 // of its rate, in units
}

type user struct {
	job    int32
	weight int64
}

// link is the state of a link in a run.
type link struct {
	users  []user  // by class
	starts []int32 // where those of each class begin, and the last ones end
	cap    int64
	seeded int32 // the last one at which its jobs were to be dealt with,
	from   int32 // ... from this class on
}

// gauge is what jobs take of a link.
type gauge struct {
	load  int64
	full  int64 // with more than this the link may decide the rate of a job on it
	event int32 // the last one at which the load changed
	tight bool  // it may decide the rate of a job
}

// filling is the state of a link while the rates of a class are found.
type filling struct {
	free   int64
	weight int64 // of the jobs that are not frozen
	level  int64 // rate at which it is full
}

// world is a run of several jobs. What is read of all jobs and links in the inner loops lies apart from the rest of
// them, so that it stays in the nearest cache.
type world struct {
	now     time.Duration
	jobs    []run
	at      []link
	changed []int32 // jobs that began or ended a transmission at this instant
	uneven  cluster.Uneven
	dice    splitmix.Source
	event   int32           // at which rates change
	round   int32           // of filling: one for each class
	seeds   [][]int32       // jobs to be dealt with, by their rank
	next    []time.Duration // of each job: its next event
	sending []bool          // ... it transmits
	frozen  []bool          // ... its rate is found
	bounds  []int64         // ... the level at which it is as fast as alone
	gauges  []gauge         // of each link
	rounds  []int32         // ... the last round of filling that concerned it
	fills   []filling       // ... in that round
	// scratch
	links, class, open, inUse, fixed, touched, booked, tighter []int32
}

func newWorld(links network.Links, jobs []Job) *world {
	return worldOn(links, jobs, scarce(links, jobs))
}

// worldOn is a run of jobs, of which those links are listed that cannot carry all of them at once.
func worldOn(links network.Links, jobs []Job, on [][]network.Bytes) *world {
	w := &world{jobs: make([]run, len(jobs)), uneven: network.UnevenOf(links)}
	var ids []network.LinkID
	var order []int32 // jobs by class
	for i := range on {
		for _, b := range on[i] {
			ids = append(ids, b.Link)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		w.at = append(w.at, link{cap: links.Capacity(id)})
	}
	for i := range jobs {
		j := &w.jobs[i]
		j.Job = &jobs[i]
		j.ratio = unit
		j.size, j.best = j.alone(links)
		for _, b := range on[i] {
			at, _ := slices.BinarySearch(ids, b.Link)
			j.on = append(j.on, use{int32(at), weight(b.Bytes, j.size)})
		}
		order = append(order, int32(i))
		j.begin(j.First, 0)
	}
	w.sending, w.frozen, w.bounds = make([]bool, len(jobs)), make([]bool, len(jobs)), make([]int64, len(jobs))
	w.gauges, w.rounds, w.fills = make([]gauge, len(ids)), make([]int32, len(ids)), make([]filling, len(ids))
	w.narrow()
	slices.SortStableFunc(order, func(a, b int32) int { return rank(jobs[a].Class) - rank(jobs[b].Class) })
	for k, i := range order {
		j := &w.jobs[i]
		if k == 0 || j.Class != w.jobs[order[k-1]].Class {
			w.seeds = append(w.seeds, nil)
			w.startClass()
		}
		j.rank = int32(len(w.seeds) - 1)
		for _, u := range j.on {
			w.at[u.link].users = append(w.at[u.link].users, user{i, u.weight})
		}
	}
	w.startClass()
	for i := range w.at {
		// this allows for rounding: with less, each of its jobs is slowed elsewhere, or as fast as alone
		w.gauges[i].full = w.at[i].cap - 2*int64(len(w.at[i].users))
		if w.uneven != (cluster.Uneven{}) { // where links are uneven all are tight
			w.tighten(int32(i))
		}
	}
	for i := range w.jobs {
		w.next = append(w.next, w.jobs[i].next)
	}
	return w
}

// startClass has the links' users from here on be those of the next class.
func (w *world) startClass() {
	for i := range w.at {
		l := &w.at[i]
		l.starts = append(l.starts, int32(len(l.users)))
	}
}

// of are the users of a class.
func (l *link) of(rank int32) []user { return l.users[l.starts[rank]:l.starts[rank+1]] }

// alone is the bytes on the link with the most, and the rate of these when nothing else is on the links.
func (j *Job) alone(links network.Links) (size, rate int64) {
	for _, b := range j.On {
		size = max(size, b.Bytes)
	}
	rate = math.MaxInt64
	for _, b := range j.On {
		rate = min(rate, share(links.Capacity(b.Link), weight(b.Bytes, size)))
	}
	return size, rate
}

// weight is a part of a size, in units.
func weight(bytes, size int64) int64 {
	return max(1, int64(math.Ceil(float64(bytes)/float64(size)*unit)))
}

// most is what a rate takes of a link, rounded up.
func most(rate, weight int64) int64 {
	if rate > math.MaxInt64/(2*unit) {
		return (rate/unit + 1) * weight
	}
	return (rate*weight + unit - 1) / unit
}

// narrow leaves out links that never decide a rate: those whose jobs are all on another link, too, of which each takes
// as large a part or a larger one.
func (w *world) narrow() {
	type one struct {
		id    int32
		parts []int64 // of its capacity at a rate of a unit, by job
	}
	users, parts := make([][]byte, len(w.at)), make([][]int64, len(w.at))
	for i := range w.jobs {
		for _, u := range w.jobs[i].on {
			users[u.link] = binary.AppendUvarint(users[u.link], uint64(i))
			parts[u.link] = append(parts[u.link], share(w.at[u.link].cap, u.weight))
		}
	}
	wider := func(a, b []int64) bool {
		for i := range a {
			if a[i] < b[i] {
				return false
			}
		}
		return true
	}
	drop := make([]bool, len(w.at))
	kept := map[string][]one{} // links by their jobs
	for l := range int32(len(w.at)) {
		key := string(users[l])
		others := kept[key]
		if slices.ContainsFunc(others, func(o one) bool { return wider(parts[l], o.parts) }) {
			drop[l] = true
			continue
		}
		others = slices.DeleteFunc(others, func(o one) bool {
			drop[o.id] = wider(o.parts, parts[l])
			return drop[o.id]
		})
		kept[key] = append(others, one{l, parts[l]})
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
		j.active, j.rate, j.since, j.next, j.sends = true, 0, w.now, 1<<62, w.now
		if varies := int64(w.uneven.Varies) * unit / 100; varies > 0 {
			j.chance = unit - varies + int64(w.dice.Uint64()%uint64(2*varies+1))
		} else {
			j.chance = unit
		}
		return true
	}
	j.moved += j.left
	j.sent += w.now - j.sends
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

// fill deals the links out again after some jobs began or ended to transmit, class by class. Only those jobs are dealt
// with whose rates may change: those on tight links of jobs that change, and on tight links of these.
func (w *world) fill() {
	w.event++
	w.booked = w.booked[:0]
	rank := int32(math.MaxInt32)
	for _, i := range w.changed {
		w.sending[i] = w.jobs[i].active
	}
	for _, i := range w.changed {
		j := &w.jobs[i]
		w.disturb(j, j.rank)
		w.book(j, 0)
		if j.active {
			w.seed(i)
		}
		rank = min(rank, j.rank)
	}
	for ; int(rank) < len(w.seeds); rank++ {
		if len(w.seeds[rank]) == 0 {
			continue
		}
		w.round++
		w.links, w.class = w.links[:0], append(w.class[:0], w.seeds[rank]...)
		w.seeds[rank] = w.seeds[rank][:0]
		w.tighter = w.tighter[:0]
		for dealt := 0; ; {
			dealt = w.connect(rank, dealt)
			w.fillClass(rank)
			for _, i := range w.class {
				w.book(&w.jobs[i], w.jobs[i].fresh)
			}
			if len(w.tighter) == 0 {
				break
			}
		}
		for _, i := range w.class {
			j := &w.jobs[i]
			if j.fresh != j.rate {
				w.disturb(j, rank+1)
			}
			w.setRate(i)
		}
	}
	for _, l := range w.booked {
		if g := &w.gauges[l]; g.tight && g.load <= g.full {
			w.loosen(l)
		}
	}
}

// book counts a job's rate on its links. A link that is tight before or after stays so until the rates of this instant
// are found.
func (w *world) book(j *run, rate int64) {
	if rate == j.booked || w.uneven != (cluster.Uneven{}) {
		return
	}
	for _, u := range j.on {
		g := &w.gauges[u.link]
		if g.event != w.event {
			g.event = w.event
			w.booked = append(w.booked, u.link)
		}
		if g.load += rate*u.weight/unit - j.booked*u.weight/unit; !g.tight && g.load > g.full {
			w.tighten(u.link)
			w.tighter = append(w.tighter, u.link)
		}
	}
	j.booked = rate
}

func (w *world) tighten(link int32) {
	w.gauges[link].tight = true
	for _, u := range w.at[link].users {
		j := &w.jobs[u.job]
		j.near = append(j.near, use{link, u.weight})
	}
}

func (w *world) loosen(link int32) {
	w.gauges[link].tight = false
	for _, u := range w.at[link].users {
		j := &w.jobs[u.job]
		for k := range j.near {
			if j.near[k].link == link {
				last := len(j.near) - 1
				j.near[k] = j.near[last]
				j.near = j.near[:last]
				break
			}
		}
	}
}

// disturb has the jobs dealt with that are on tight links of one, from a class on.
func (w *world) disturb(j *run, from int32) {
	for _, u := range j.near {
		l := &w.at[u.link]
		if l.seeded == w.event && l.from <= from {
			continue
		}
		l.seeded, l.from = w.event, from
		for _, o := range l.users[l.starts[from]:] {
			if w.sending[o.job] {
				w.seed(o.job)
			}
		}
	}
}

// seed has a job dealt with, when it is the turn of its class.
func (w *world) seed(i int32) {
	if j := &w.jobs[i]; j.event != w.event {
		j.event = w.event
		w.seeds[j.rank] = append(w.seeds[j.rank], i)
	}
}

// connect finds the tight links of the jobs of a class that are dealt with, and the others of the class on these. Those
// before a place in the line were seen before; of them only links matter that have become tight since.
func (w *world) connect(rank int32, seen int) (all int) {
	for _, l := range w.tighter {
		w.join(l, rank)
	}
	w.tighter = w.tighter[:0]
	for ; seen < len(w.class); seen++ {
		for _, u := range w.jobs[w.class[seen]].near {
			w.join(u.link, rank)
		}
	}
	return seen
}

// join adds a link to those that are dealt with, and the jobs of a class that transmit on it.
func (w *world) join(link, rank int32) {
	if w.rounds[link] == w.round {
		return
	}
	w.rounds[link] = w.round
	w.links = append(w.links, link)
	for _, o := range w.at[link].of(rank) {
		if !w.sending[o.job] {
			continue
		}
		if j := &w.jobs[o.job]; j.event != w.event {
			j.event = w.event
			w.class = append(w.class, o.job)
		}
	}
}

func (f *filling) take(rate, weight int64) { f.free = max(0, f.free-rate*weight/unit) }

// setRate has a job go on at the rate that was computed.
func (w *world) setRate(i int32) {
	j := &w.jobs[i]
	if j.fresh == j.rate && j.next < 1<<62 {
		return
	}
	moved := min(j.left, network.Moved(j.rate, w.now-j.since))
	j.left -= moved
	j.moved += moved
	j.rate, j.since = j.fresh, w.now
	j.next = w.now + network.Takes(j.left, j.rate)
	w.next[i] = j.next
}

// fillClass raises the rates of the jobs of one class together until one is as fast as alone, or a link is full; fixes
// it, or those that pass the link; and goes on.
func (w *world) fillClass(rank int32) {
	w.deal()
	w.inUse, w.open = append(w.inUse[:0], w.links...), append(w.open[:0], w.class...)
	for _, link := range w.inUse {
		l, f := &w.at[link], &w.fills[link]
		f.free, f.weight = l.cap, 0
		for _, u := range l.users[:l.starts[rank]] {
			if w.sending[u.job] {
				f.take(w.jobs[u.job].rate, u.weight)
			}
		}
		for _, u := range l.of(rank) {
			if w.sending[u.job] {
				f.weight += scale(u.weight, w.jobs[u.job].ratio)
			}
		}
		f.level = share(f.free, f.weight)
	}
	for _, i := range w.class {
		w.frozen[i], w.bounds[i] = false, w.jobs[i].bound()
	}
	for len(w.open) > 0 {
		level := int64(math.MaxInt64)
		n := 0
		for _, l := range w.inUse {
			if f := &w.fills[l]; f.weight > 0 {
				level = min(level, f.level)
				w.inUse[n] = l
				n++
			}
		}
		for _, i := range w.open {
			level = min(level, w.bounds[i])
		}
		if len(w.open) == 1 { // either is what it gets
			j := &w.jobs[w.open[0]]
			j.fresh = scale(level, j.ratio)
			return
		}
		w.inUse, w.fixed, w.touched = w.inUse[:n], w.fixed[:0], w.touched[:0]
		for _, l := range w.inUse {
			if w.fills[l].level > level {
				continue
			}
			for _, u := range w.at[l].of(rank) {
				w.frozen[u.job] = true
			}
		}
		n = 0
		for _, i := range w.open {
			if w.frozen[i] || w.bounds[i] == level {
				w.frozen[i] = true
				w.fixed = append(w.fixed, i)
				continue
			}
			w.open[n] = i
			n++
		}
		w.open = w.open[:n]
		for _, i := range w.fixed {
			j := &w.jobs[i]
			j.fresh = scale(level, j.ratio)
			for _, u := range j.near {
				f := &w.fills[u.link]
				f.weight -= scale(u.weight, j.ratio)
				f.take(j.fresh, u.weight)
				w.touched = append(w.touched, u.link)
			}
		}
		for _, l := range w.touched {
			if f := &w.fills[l]; f.weight > 0 {
				f.level = share(f.free, f.weight)
			}
		}
	}
}

// bound is the level at which a job is as fast as alone.
func (j *run) bound() int64 {
	if j.ratio == unit {
		return j.best
	}
	return int64(float64(j.best) / float64(j.ratio) * unit)
}

// deal says how the rates of the jobs of the class are to one another.
func (w *world) deal() {
	if w.uneven == (cluster.Uneven{}) {
		return
	}
	for _, i := range w.class {
		j := &w.jobs[i]
		j.ratio = j.chance
		for _, k := range w.class {
			if other := &w.jobs[k]; other.sends < j.sends && j.meets(other) {
				j.ratio += j.ratio * int64(w.uneven.Later) / 100
			}
		}
		j.ratio = min(j.ratio, mostRatio)
	}
}

// mostRatio bounds how much larger a job's rate is than another's.
const mostRatio = 16 * unit

// scale is a rate or a weight times a ratio.
func scale(v, ratio int64) int64 {
	if ratio == unit {
		return v
	}
	return max(1, int64(float64(v)*float64(ratio)/unit))
}

// meets reports whether two jobs share a link.
func (j *run) meets(o *run) bool {
	return slices.ContainsFunc(j.on, func(a use) bool {
		return slices.ContainsFunc(o.on, func(b use) bool { return a.link == b.link })
	})
}

// step plays the next instant at which something happens, up to an end; false: there is none.
func (w *world) step(end time.Duration) bool {
	next := end + 1
	for _, at := range w.next {
		next = min(next, at)
	}
	if next > end {
		return false
	}
	w.now = next
	w.changed = w.changed[:0]
	for i, at := range w.next {
		if at > next {
			continue
		}
		j := &w.jobs[i]
		changed := false
		for j.next <= w.now { // several events of one job may be at the same instant
			changed = w.due(j) || changed
		}
		if w.next[i] = j.next; changed {
			w.changed = append(w.changed, int32(i))
		}
	}
	if len(w.changed) > 0 {
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
