//go:build linux

package local

import (
	"maps"
	"slices"
	"sync"

	"github.com/muster-gpu/muster/cluster"
)

// Watch is told what changed since it was last asked. A watcher that is slow
// costs nothing: what it did not fetch yet is one set.
type Watch struct {
	// C holds a value when there is something to take.
	C <-chan struct{}

	c    chan struct{}
	mu   sync.Mutex
	jobs map[cluster.JobID]bool
	many bool
}

// mostNamed bounds how many jobs a watch names; beyond that it says many.
const mostNamed = 100

// Take returns the jobs that changed since the last call, by number, or that
// they are too many to be named.
func (w *Watch) Take() (jobs []int, many bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs = []int{}
	for id := range w.jobs {
		jobs = append(jobs, int(id))
	}
	slices.Sort(jobs)
	many, w.many = w.many, false
	w.jobs = map[cluster.JobID]bool{}
	return jobs, many
}

func (w *Watch) tell(jobs []cluster.JobID) {
	w.mu.Lock()
	for _, id := range jobs {
		if len(w.jobs) == mostNamed && !w.jobs[id] {
			w.jobs, w.many = map[cluster.JobID]bool{}, true
		}
		if w.many {
			break
		}
		w.jobs[id] = true
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// watches are those who want to know which jobs changed.
type watches struct {
	mu  sync.Mutex
	all map[*Watch]bool
}

// Watch begins to watch; stop ends it.
func (m *Machine) Watch() (w *Watch, stop func()) {
	c := make(chan struct{}, 1)
	w = &Watch{C: c, c: c, jobs: map[cluster.JobID]bool{}}
	m.watches.mu.Lock()
	defer m.watches.mu.Unlock()
	if m.watches.all == nil {
		m.watches.all = map[*Watch]bool{}
	}
	m.watches.all[w] = true
	return w, func() {
		m.watches.mu.Lock()
		defer m.watches.mu.Unlock()
		delete(m.watches.all, w)
	}
}

func (s *watches) tell(jobs []cluster.JobID) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, w := range all {
		w.tell(jobs)
	}
}
