package flow

import (
	"encoding/binary"
	"time"

	"github.com/muster-gpu/muster/network"
)

// Alone is how long an iteration takes when nothing else is on the links.
func (j *Job) Alone(links network.Links) time.Duration {
	w := newWorld(links, []Job{*j})
	r := &w.jobs[0]
	return r.alone()
}

func (j *run) alone() time.Duration {
	d := max(1, j.Compute)
	if j.size > 0 {
		d = max(d, j.Release+network.Takes(j.size, j.best))
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
// job that gets next to nothing takes mostTimes as long as alone.
func Steady(links network.Links, jobs []Job) []time.Duration {
	w := newWorld(links, jobs)
	means := make([]time.Duration, len(jobs))
	slow := 0
	for i := range w.jobs {
		means[i] = w.jobs[i].alone()
		if means[i] > means[slow] {
			slow = i
		}
	}
	if !w.shares() {
		return means
	}
	seen := map[string]mark{}
	var half mark
	last := int64(0)
	for events := 0; events < mostEvents && w.step(1<<61); events++ {
		if events == mostEvents/2 {
			half = w.mark()
		}
		if w.jobs[slow].count == last || w.now < w.latest() {
			continue
		}
		last = w.jobs[slow].count
		key := w.key()
		before, again := seen[key]
		switch {
		case !again:
			seen[key] = w.mark()
		case w.allEnded(&before):
			w.average(means, &before)
			return means
		}
	}
	w.average(means, &half)
	return means
}

const (
	mostEvents = 4000
	mostTimes  = 1000
)

// mark is how far the jobs are at a time.
type mark struct {
	at    time.Duration
	count []int64
	moved []int64
}

func (w *world) mark() mark {
	m := mark{at: w.now}
	for i := range w.jobs {
		j := &w.jobs[i]
		m.count, m.moved = append(m.count, j.count), append(m.moved, j.movedBy(w.now))
	}
	return m
}

// movedBy is the bytes that passed up to now.
func (j *run) movedBy(now time.Duration) int64 {
	if !j.active {
		return j.moved
	}
	return j.moved + min(j.left, network.Moved(j.rate, now-j.since))
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

// average sets the means since a mark. A job that ended no iteration is judged by what it transmitted.
func (w *world) average(means []time.Duration, m *mark) {
	d := w.now - m.at
	for i := range w.jobs {
		j := &w.jobs[i]
		most := mostTimes * means[i]
		switch n, bytes := j.count-m.count[i], j.movedBy(w.now)-m.moved[i]; {
		case n > 0:
			means[i] = d / time.Duration(n)
		case bytes > 0:
			means[i] = time.Duration(float64(d) / float64(bytes) * float64(j.size))
		default:
			means[i] = most
		}
		means[i] = min(means[i], most)
	}
}

// shares reports whether two jobs are on one link.
func (w *world) shares() bool {
	used := make([]bool, len(w.cap))
	for i := range w.jobs {
		for _, u := range w.jobs[i].on {
			if used[u.link] {
				return true
			}
			used[u.link] = true
		}
	}
	return false
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
