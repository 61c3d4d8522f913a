package controlplane

import (
	"context"
	"slices"
	"sync"
	"testing"
)

// Planes are control planes that the tests of a package share, one test at a time: starting one takes 4 to 5 s of a
// processor. They last until End.
type Planes struct {
	mu   sync.Mutex
	list []*reused
}

// reused is a control plane that several tests use.
type reused struct {
	opt    Options
	taken  bool
	p      *Plane
	before map[thing]bool
	ends   []func()
}

// Take is a control plane for a test, on which nothing is but what Kubernetes makes: one that no other test has, or a
// new one. A test that fails is the last on its plane. If tests are short, it is skipped.
func (s *Planes) Take(t *testing.T, opt Options) *Plane {
	t.Helper()
	skipShort(t)
	r := s.free(opt)
	t.Cleanup(func() { s.giveBack(t, r) })
	if r.p == nil {
		h := &outlasting{Host: t, reused: r}
		r.p = Start(h, opt)
		r.before = r.p.For(t).all()
	}
	return r.p.For(t)
}

// free takes a plane with these options; if none is free, it is a new one that is yet to be started.
func (s *Planes) free(opt Options) *reused {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(r *reused) bool {
		return !r.taken && r.opt.Controllers == opt.Controllers && slices.Equal(r.opt.Args, opt.Args)
	})
	if i < 0 {
		i, s.list = len(s.list), append(s.list, &reused{opt: opt})
	}
	s.list[i].taken = true
	return s.list[i]
}

// giveBack clears a plane for the next test, or ends it if the test has failed.
func (s *Planes) giveBack(t *testing.T, r *reused) {
	t.Helper()
	again := false
	defer func() { // also where the test fails only now
		if !again {
			r.end()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.taken = false; !again {
			s.list = slices.DeleteFunc(s.list, func(o *reused) bool { return o == r })
		}
	}()
	if !t.Failed() && !t.Skipped() && r.p != nil && r.p.ended.Load() == nil {
		r.p.For(&afterwards{T: t}).reset(r.before)
		again = true
	}
}

// End ends all of them.
func (s *Planes) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.list {
		r.end()
	}
	s.list = nil
}

func (r *reused) end() {
	for _, f := range slices.Backward(r.ends) {
		f()
	}
	r.ends = nil
}

// outlasting is the host of a plane that goes on when the test is over for which it is started. Only its start can
// fail, and only that test.
type outlasting struct {
	Host
	*reused
}

func (h *outlasting) Context() context.Context { return context.Background() }
func (h *outlasting) Cleanup(f func())         { h.ends = append(h.ends, f) }

// afterwards is a test that is over, but for what clears up after it.
type afterwards struct{ *testing.T }

func (*afterwards) Context() context.Context { return context.Background() }
