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
// repeats is found and averaged exactly; otherwise it is the mean over the second half of a run of at most mostEvents
// events for each job.
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
	type mark struct {
		at    time.Duration
		count []int64
	}
	seen := map[string]mark{}
	counts := func() []int64 {
		list := make([]int64, len(w.jobs))
		for i := range w.jobs {
			list[i] = w.jobs[i].count
		}
		return list
	}
	var half mark
	last := int64(0)
	for events := 0; events < mostEvents*len(jobs) && w.step(1<<61); events++ {
		if w.jobs[slow].count == last || w.now < w.latest() {
			continue
		}
		last = w.jobs[slow].count
		if events > mostEvents*len(jobs)/2 && half.count == nil {
			half = mark{w.now, counts()}
		}
		key := w.key()
		before, again := seen[key]
		if !again {
			if len(seen) < mostStates {
				seen[key] = mark{w.now, counts()}
			}
			continue
		}
		if w.average(means, before.at, before.count) {
			return means
		}
	}
	if half.count != nil {
		w.average(means, half.at, half.count)
	}
	return means
}

const (
	mostEvents = 600
	mostStates = 400
)

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

// average sets the means since a time; false: a job has ended no iteration since.
func (w *world) average(means []time.Duration, at time.Duration, count []int64) bool {
	for i := range w.jobs {
		if w.jobs[i].count == count[i] {
			return false
		}
	}
	for i := range w.jobs {
		means[i] = (w.now - at) / time.Duration(w.jobs[i].count-count[i])
	}
	return true
}
