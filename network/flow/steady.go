package flow

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/muster-gpu/muster/network"
)

// Alone is how long an iteration takes when nothing else is on the links.
func (j *Job) Alone(links network.Links) time.Duration {
	d := max(1, j.Compute)
	if size, rate := j.alone(links); size > 0 {
		d = max(d, j.Release+network.Takes(size, rate))
	}
	if j.Period > 0 {
		d = (max(d-j.Period/20, 1) + j.Period - 1) / j.Period * j.Period
	}
	return d
}

// The states that Steady compares are rounded: a locked pattern repeats but for nanoseconds.
const (
	sameTime  = 20 * time.Microsecond
	sameBytes = 1 << 14
)

// Steady is the mean time of an iteration of each job once the jobs have fallen into a pattern. A pattern that
// repeats is found and averaged exactly; otherwise it is the mean over the second half of a run of mostEvents events. A
// job that gets next to nothing takes mostTimes as long as alone. Jobs that share no link, directly or through others,
// are played apart; a link that carries all of its jobs at once does not count.
func Steady(links network.Links, jobs []Job) []time.Duration { return apart(links, jobs, pattern) }

// apart finds the means of each group of jobs that share links, of which those are listed that cannot carry them.
func apart(links network.Links, jobs []Job,
	of func(links network.Links, group []Job, on [][]network.Bytes) []time.Duration) []time.Duration {
	means := make([]time.Duration, len(jobs))
	on := scarce(links, jobs)
	groups := network.Components(on)
	if len(groups) == 1 && len(groups[0]) == len(jobs) {
		return of(links, jobs, on)
	}
	for _, group := range groups {
		some, theirs := make([]Job, len(group)), make([][]network.Bytes, len(group))
		for k, i := range group {
			some[k], theirs[k] = jobs[i], on[i]
		}
		for k, mean := range of(links, some, theirs) {
			means[group[k]] = mean
		}
	}
	for i := range jobs {
		if means[i] == 0 {
			means[i] = jobs[i].Alone(links)
		}
	}
	return means
}

// scarce is what jobs put on links that cannot carry all of their jobs at once: on others no job is slowed.
func scarce(links network.Links, jobs []Job) [][]network.Bytes {
	last := network.LinkID(-1)
	for i := range jobs {
		for _, b := range jobs[i].On {
			last = max(last, b.Link)
		}
	}
	asked := make([]int64, last+1)
	for i := range jobs {
		size, rate := jobs[i].alone(links)
		for _, b := range jobs[i].On {
			asked[b.Link] += most(rate, weight(b.Bytes, size))
		}
	}
	on := make([][]network.Bytes, len(jobs))
	var list []network.Bytes
	for i := range jobs {
		list = list[:0]
		for _, b := range jobs[i].On {
			if asked[b.Link] > links.Capacity(b.Link) {
				list = append(list, b)
			}
		}
		on[i] = slices.Clone(list)
	}
	return on
}

// pattern is Steady of jobs that share links.
func pattern(links network.Links, jobs []Job, on [][]network.Bytes) []time.Duration {
	return newPlay(links, jobs, on).until(mostEvents)
}

// play is a run of jobs that share links.
type play struct {
	w      *world
	alone  []time.Duration // an iteration of each
	slow   int             // the job of which that is longest
	last   int64           // its iterations so far
	seen   map[string]mark
	half   mark
	events int
	found  []time.Duration // means over a pattern that repeats
}

func newPlay(links network.Links, jobs []Job, on [][]network.Bytes) *play {
	p := &play{w: worldOn(links, jobs, on), seen: map[string]mark{}}
	for i := range jobs {
		p.alone = append(p.alone, jobs[i].Alone(links))
		if p.alone[i] > p.alone[p.slow] {
			p.slow = i
		}
	}
	return p
}

// until plays up to a number of events, or until a pattern repeats, and returns the means of iterations over the second
// half of that, or over the pattern; those of jobs that end none there are estimated.
func (p *play) until(events int) []time.Duration {
	w := p.w
	for ; p.found == nil && p.events < events && w.step(1<<61); p.events++ {
		if p.events == events/2 {
			p.half = w.mark()
		}
		if w.uneven.Varies > 0 || w.jobs[p.slow].count == p.last || w.now < w.latest() {
			continue
		}
		p.last = w.jobs[p.slow].count
		p.found = p.repeats()
	}
	if p.found != nil {
		return p.found
	}
	end := w.mark()
	d := end.at - p.half.at
	means := make([]time.Duration, len(w.jobs))
	for i := range w.jobs {
		if end.count[i] > p.half.count[i] {
			means[i] = time.Duration(float64(d) / (end.done[i] - p.half.done[i]))
		} else {
			means[i] = p.unended(i, &end)
		}
		means[i] = min(means[i], mostTimes*p.alone[i])
	}
	return means
}

// unended is about how long an iteration takes of a job that ended none in the second half of a run: by how fast it
// transmits there or, if it rather computed, in all of the run. How long it computes says nothing of the others.
func (p *play) unended(i int, end *mark) time.Duration {
	d := end.at - p.half.at
	bytes, sent := end.moved[i]-p.half.moved[i], end.sent[i]-p.half.sent[i]
	waited := sent >= d/2
	if !waited {
		bytes, sent = end.moved[i], end.sent[i]
	}
	switch {
	case bytes > 0:
		j := &p.w.jobs[i]
		return max(p.alone[i], j.Release+time.Duration(float64(sent)/float64(bytes)*float64(j.size)))
	case waited:
		return mostTimes * p.alone[i]
	}
	return p.alone[i]
}

// repeats are the means of iterations since the run was in this state before; nil: it was not.
func (p *play) repeats() []time.Duration {
	w := p.w
	key := w.key()
	before, again := p.seen[key]
	if !again {
		p.seen[key] = w.mark()
		return nil
	}
	if !w.allEnded(&before) {
		return nil
	}
	means := make([]time.Duration, len(w.jobs))
	for i := range w.jobs {
		means[i] = min(mostTimes*p.alone[i], (w.now-before.at)/time.Duration(w.jobs[i].count-before.count[i]))
	}
	return means
}

const (
	mostEvents = 4000
	mostTimes  = 1000
)

// mark is how far the jobs are at a time.
type mark struct {
	at    time.Duration
	count []int64   // iterations that ended
	done  []float64 // and the part of the one that has begun
	moved []int64
	sent  []time.Duration // for which they transmitted
}

func (w *world) mark() mark {
	m := mark{at: w.now}
	for i := range w.jobs {
		j := &w.jobs[i]
		m.count, m.done = append(m.count, j.count), append(m.done, float64(j.count)+j.part(w.now))
		m.moved, m.sent = append(m.moved, j.movedBy(w.now)), append(m.sent, j.sentBy(w.now))
	}
	return m
}

// part is how much of an iteration is over, by what would be left of it alone.
func (j *run) part(now time.Duration) float64 {
	compute, send := max(0, j.begun+j.Compute-now), time.Duration(0)
	switch {
	case j.active:
		send = network.Takes(j.left-min(j.left, network.Moved(j.rate, now-j.since)), j.best)
	case !j.over:
		send = max(0, j.begun+j.Release-now) + network.Takes(j.size, j.best)
	}
	return 1 - float64(max(compute, send))/float64(max(1, j.Compute, j.Release+network.Takes(j.size, j.best)))
}

// movedBy is the bytes that passed up to now.
func (j *run) movedBy(now time.Duration) int64 {
	if !j.active {
		return j.moved
	}
	return j.moved + min(j.left, network.Moved(j.rate, now-j.since))
}

// sentBy is for how long it transmitted up to now.
func (j *run) sentBy(now time.Duration) time.Duration {
	if !j.active {
		return j.sent
	}
	return j.sent + now - j.sends
}

// allEnded reports whether each job ended an iteration since a mark.
func (w *world) allEnded(m *mark) bool {
	for i := range w.jobs {
		if w.jobs[i].count == m.count[i] {
			return false
		}
	}
	return true
}

// latest is when the last job has begun its first iteration.
func (w *world) latest() (t time.Duration) {
	for i := range w.jobs {
		t = max(t, w.jobs[i].First)
	}
	return t
}

// key is the state of the run, without its time: what follows depends on it alone.
func (w *world) key() string {
	var b []byte
	for i := range w.jobs {
		j := &w.jobs[i]
		kind, left := uint8(0), int64(0)
		switch {
		case j.active:
			kind, left = 1, j.left-min(j.left, network.Moved(j.rate, w.now-j.since))
		case j.over:
			kind = 2
		}
		b = append(b, kind)
		b = binary.AppendVarint(b, int64((j.begun-w.now)/sameTime))
		b = binary.AppendVarint(b, left/sameBytes)
		if j.Period > 0 {
			b = binary.AppendVarint(b, int64(w.now%j.Period/sameTime))
		}
	}
	return string(b)
}
