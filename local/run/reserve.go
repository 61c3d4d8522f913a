//go:build linux

package run

import (
	"os"
	"sync"
)

// reserved is how many file descriptors are kept back: more than one start takes.
const reserved = 32

// Reserve keeps descriptors that only a start may take.
type Reserve struct {
	mu    sync.Mutex
	files []*os.File
}

// fill takes as many as it is to keep, or as there are.
func (r *Reserve) fill() {
	for len(r.files) < reserved {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // it is tried again with the next start
		}
		r.files = append(r.files, f)
	}
}

// Keep begins to keep descriptors back.
func (r *Reserve) Keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fill()
}

// lend gives the descriptors free for as long as f runs.
func (r *Reserve) lend(f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
	defer r.fill()
	return f()
}

// drop gives the descriptors free.
func (r *Reserve) drop() {
	for _, f := range r.files {
		_ = f.Close()
	}
	r.files = nil
}

// End keeps nothing back any more.
func (r *Reserve) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
}
