// Package watch says that jobs changed, and which.
package watch

import (
	"slices"
	"sync"

	"github.com/muster-gpu/muster/cluster"
)

// Hub passes on what changed. Its zero value is ready; its methods may be called by several goroutines.
type Hub struct {
	mu      sync.Mutex
	next    chan struct{} // closed at the next change; nil: nothing waits for it
	watches map[*Watch]bool
}

// Changed returns a channel that is closed at the next change.
func (h *Hub) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next == nil {
		h.next = make(chan struct{})
	}
	return h.next
}

// Publish says that something changed, and which jobs did.
func (h *Hub) Publish(jobs []cluster.JobID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next != nil {
		close(h.next)
		h.next = nil
	}
	for w := range h.watches {
		w.add(jobs)
	}
}

// Watch begins to watch; stop ends it.
func (h *Hub) Watch() (w *Watch, stop func()) {
	c := make(chan struct{}, 1)
	w = &Watch{C: c, c: c, jobs: map[cluster.JobID]bool{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches == nil {
		h.watches = map[*Watch]bool{}
	}
	h.watches[w] = true
	return w, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watches, w)
	}
}

// Watch collects what changed since it was last read. One that is read seldom costs nothing: what is not read yet is
// one set.
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

func (w *Watch) add(jobs []cluster.JobID) {
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
