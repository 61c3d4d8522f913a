package control

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway"
)

// TestBeside: how much longer batches take beside a replica of another service is learnt from what both did in the same
// time; it is what the policy, the gateway and the scheduler go by, and the next controller knows it.
func TestBeside(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	a := text("serve", 1, 1)
	w.apply(c, a)
	w.apply(c, strings.ReplaceAll(a, "name: vision", "name: words"))
	w.pass(c, 3*time.Second)
	w.mu.Lock()
	w.jobs[1].GPUs, w.jobs[2].GPUs = []string{"g0"}, []string{"g0"}
	w.mu.Unlock()
	done := map[string]*gateway.Size{"1": {Requests: 1}, "2": {Requests: 1}}
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision", Each: []gateway.Counted{{ID: "1"}}},
		{Name: "words", Each: []gateway.Counted{{ID: "2"}}}}}
	w.pass(c, 2*time.Second)
	compute := func(id string, batches int64, each time.Duration) {
		done[id].Batches += batches
		done[id].Took += time.Duration(batches) * each
	}
	says := func() {
		w.said = &gateway.Report{Services: []gateway.Served{
			{Name: "vision", Each: []gateway.Counted{{ID: "1", Sizes: []gateway.Size{*done["1"]}}}},
			{Name: "words", Each: []gateway.Counted{{ID: "2", Sizes: []gateway.Size{*done["2"]}}}}}}
		w.pass(c, 2*time.Second) // what is decided by and what is booked
	}
	for range 5 {
		compute("1", 10, 4*time.Millisecond) // alone
		says()
	}
	for range 5 {
		compute("1", 10, 6*time.Millisecond) // beside the other
		compute("2", 10, 5*time.Millisecond) // which is hardly slower than its profile says
		says()
	}
	c.keptAll(t)
	for range 2 {
		v, err := c.Service("vision")
		if err != nil || len(v.Variants[0].Beside) != 1 || v.Variants[0].Beside[0].Other != "words/a" ||
			math.Abs(v.Variants[0].Beside[0].Factor-1.5) > 0.01 || v.Variants[0].Beside[0].Batches != 50 {
			t.Fatalf("%v %+v", err, v.Variants[0].Beside)
		}
		if slow := c.services["vision"].slowed().Variants[0].Profile[0].Latency; slow != 7500*time.Microsecond {
			t.Errorf("a batch is expected to take %v", slow)
		}
		if got := w.told.Services[0].TakesMS[0]; got != 7.5 {
			t.Errorf("the gateway expects %v ms", got)
		}
		if math.Abs(w.slowed[1]-1/1.5) > 0.01 {
			t.Errorf("the scheduler was told %v", w.slowed)
		}
		c = w.controller()
		w.pass(c, 3*time.Second)
	}
}

// keptAll waits until what is known is stored.
func (c *Controller) keptAll(t *testing.T) {
	t.Helper()
	for _, s := range c.services {
		s.keptAt = time.Time{}
	}
	if err := c.keep(t.Context(), c.opt.Now()); err != nil {
		t.Fatal(err)
	}
}

// TestBesideTraining: what a job that is no replica does to batches on its GPU is learnt like what a replica does, and
// is not taken for how long they take alone; beside two jobs nothing is learnt of either.
func TestBesideTraining(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	w.apply(c, text("serve", 1, 1))
	w.pass(c, 3*time.Second)
	beside := func(models ...string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.jobs[1].GPUs, w.jobs[1].Beside = []string{"g0"}, models
	}
	done := gateway.Size{Requests: 1}
	compute := func(each time.Duration) {
		for range 5 {
			done.Batches += 10
			done.Took += 10 * each
			w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision",
				Each: []gateway.Counted{{ID: "1", Sizes: []gateway.Size{done}}}}}}
			w.pass(c, 2*time.Second)
		}
	}
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision", Each: []gateway.Counted{{ID: "1"}}}}}
	w.pass(c, 2*time.Second)
	for _, x := range []struct {
		each   time.Duration
		models []string
	}{{4 * time.Millisecond, nil}, {40 * time.Millisecond, []string{"a", "b"}},
		{8 * time.Millisecond, []string{"bert"}}} {
		beside(x.models...)
		w.pass(c, 2*time.Second)
		compute(x.each)
	}
	v, err := c.Service("vision")
	if b := v.Variants[0].Beside; err != nil || len(b) != 1 || b[0].Other != "jobs of bert" ||
		math.Abs(b[0].Factor-2) > 0.01 {
		t.Fatalf("%v %+v", err, b)
	}
	s := c.services["vision"]
	slow, alone := s.slowed().Variants[0].Profile[0].Latency, s.Variants[0].Profile[0].Latency
	if slow != 2*alone || math.Abs(w.slowed[1]-0.5) > 0.01 {
		t.Errorf("a batch is expected to take %v, alone %v; the scheduler was told %v", slow, alone, w.slowed)
	}
	beside()
	w.pass(c, 2*time.Second)
	if now := s.slowed().Variants[0].Profile[0].Latency; now != alone {
		t.Errorf("%v when it is alone again", now)
	}
}
