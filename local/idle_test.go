//go:build linux

package local

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/local/observe"
)

// idleFor looks at a machine for so long and returns the stage that a job is to
// be taken to at the end, by what its sampler would do.
func idleFor(s *observe.Sampler, from, span time.Duration) {
	for at := from + 10*time.Second; at <= from+span; at += 10 * time.Second {
		s.Sample(t0.Add(at))
	}
}

// A job is idle while all of its GPUs are known to be below the threshold; one
// that tells nothing stops the count, one that computes ends it. How long it
// lasts survives the daemon; another run begins again.
func TestIdleCount(t *testing.T) {
	m, src := accounts(t)
	m.inbox.Init()
	m.SetIdle(&observe.IdleRules{Below: 5, Warn: 24 * time.Hour, Queues: []string{"spared"}})
	src.set(0, 4.9, 100, 100)
	src.set(1, 0, 100, 100)
	src.set(2, 0, 100, 100)
	hold(t, m, 1, "ann", false, 0, 1)
	hold(t, m, 2, "bob", false, 2)
	m.jobs[2].Spec.Queue = "spared"
	s := sampleHour(m) // for an hour
	still := func(want time.Duration, what string) {
		t.Helper()
		if got := s.Meter(1).Still; got != want.Seconds() {
			t.Errorf("%s: idle for %v s, not %v", what, got, want)
		}
	}
	still(time.Hour, "all below")
	if v := s.Meter(2).Still; v != 0 {
		t.Errorf("a job that is left alone is idle for %v s", v)
	}
	src.values[1] = gpu.Sample{}
	idleFor(s, time.Hour, time.Minute)
	still(time.Hour, "one of two tells nothing")
	src.set(1, 0, 100, 100)
	idleFor(s, time.Hour+time.Minute, time.Minute)
	still(time.Hour+time.Minute, "it tells again")
	s.Store()
	s = m.newSampler(t0.Add(2 * time.Hour))
	idleFor(s, 2*time.Hour, time.Minute)
	still(time.Hour+2*time.Minute, "another daemon")
	src.set(0, 60, 100, 100)
	idleFor(s, 2*time.Hour+time.Minute, 10*time.Second)
	still(0, "one of two computes")
	src.set(0, 0, 100, 100)
	idleFor(s, 2*time.Hour+2*time.Minute, time.Minute)
	m.jobs[1].Info.Record.Started++
	idleFor(s, 2*time.Hour+3*time.Minute, 20*time.Second)
	still(20*time.Second, "the next run")
}

// Of a shared GPU, a job whose processes do not show does nothing, where the
// driver tells of each process; else it is not known.
func TestSharedWithoutProcess(t *testing.T) {
	for _, tells := range []bool{false, true} {
		m, src := accounts(t)
		src.set(0, 80, 100, 100)
		src.values[0].PerProcess = tells
		hold(t, m, 1, "ann", false, 0)
		m.jobs[1].Info.Devices[0].Share = 500
		s := sampleHour(m)
		if v := s.Meter(1); (v.GPU > 0) != tells || v.Util != 0 {
			t.Errorf("the driver tells %v: measured %v s at %v", tells, v.GPU, v.Util)
		}
	}
}
