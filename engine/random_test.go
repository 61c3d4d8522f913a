package engine_test

import (
	"errors"
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/policy"
)

// TestMain has the collector of garbage run more seldom, except under benchmarks: the heaps of tests are small.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}

// TestRandom throws random events at the engine, policy by policy, and checks
// every invariant after every step, every decision against a world that keeps
// its own books, and a second engine that gets the same events (every other
// scenario with its memory of failed attempts disabled). MUSTER_SOAK is the
// number of events per policy; MUSTER_SEED replays one scenario.
func TestRandom(t *testing.T) {
	want := shared.Soaking(t, 250)
	if testing.Short() {
		want /= 10
	}
	for _, pol := range append(policy.Names(), "scatter", "scatter:round", "scatter:gated", "scatter:packs",
		"scatter:slices", "scatter:divides", "scatter:parts", "scatter:some") {
		t.Run(pol, func(t *testing.T) {
			t.Parallel()
			if s := os.Getenv("MUSTER_SEED"); s != "" {
				seed, err := strconv.ParseUint(s, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				randomRun(t, pol, seed)
				return
			}
			invalid := 0
			for seed, n := uint64(1), 0; n < want; seed++ {
				k := randomRun(t, pol, seed).events
				if k == 0 {
					if invalid++; invalid > 100+int(seed)/2 {
						t.Fatal("too many invalid configurations")
					}
				}
				n += k
			}
		})
	}
}

// TestRandomAgain plays scenarios in which something was wrong once.
func TestRandomAgain(t *testing.T) {
	t.Parallel()
	for pol, seeds := range map[string][]uint64{"elasticflow": {10, 18}, "chronus": {9, 34}, "scatter": {2, 10},
		"scatter:slices": {5}, "scatter:divides": {2, 13, 26, 52}} {
		for _, seed := range seeds {
			randomRun(t, pol, seed)
		}
	}
}

const stimuliPerRun = 120

// randomRun plays one scenario; a failing one is made smaller and printed. No event was played if its configuration is
// not valid.
func randomRun(t *testing.T, pol string, seed uint64) *randomWorld {
	t.Helper()
	sc, err := generate(seed, pol, stimuliPerRun)
	if err != nil {
		t.Fatal(err)
	}
	w, err := play(sc, false)
	if err == nil || errors.Is(err, errInvalid) {
		return w
	}
	small, last := shrink(sc, err)
	w, _ = play(small, true)
	t.Fatalf("MUSTER_SEED=%d go test -run 'TestRandom/%s$' ./engine\n%s\n%v\nsmallest: %v\nnodes %+v\nqueues %+v\npartitions %+v\nreservations %+v\nstop %v minruntime %v starvation %v\n%s",
		seed, pol, sc.label, err, last, small.cfg.Spec.Nodes, small.cfg.Spec.Queues, small.cfg.Spec.Partitions,
		small.cfg.Spec.Reservations,
		small.cfg.Stop, small.cfg.MinRuntime, small.cfg.Starvation, strings.Join(w.log, "\n"))
	return nil
}

// kindOf is the part of an error that stays the same while a scenario shrinks.
func kindOf(err error) string {
	s := err.Error()
	if _, rest, ok := strings.Cut(s, "so far: "); ok {
		s = rest
	}
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || b.Len() > 60 {
			break
		}
		if r < '0' || r > '9' {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shrink drops stimuli, parts of the configuration and parts of jobs as long
// as the run fails in the same way.
func shrink(sc *scenario, err error) (*scenario, error) {
	kind := kindOf(err)
	fails := func(c *scenario) bool {
		_, e := play(c, false)
		if e == nil || errors.Is(e, errInvalid) || kindOf(e) != kind {
			return false
		}
		err = e
		return true
	}
	for _, cut := range []func(*engine.Config){
		func(c *engine.Config) { c.Spec.Reservations = nil }, func(c *engine.Config) {
			c.Spec.Loans = nil
		}, func(c *engine.Config) { c.Spec.Partitions, c.Spec.Loans = nil, nil },
		func(c *engine.Config) { c.Defrag = nil }, func(c *engine.Config) {
			c.Spec.Queues = nil
		}, func(c *engine.Config) { c.Starvation = 0 }, func(c *engine.Config) { c.MinRuntime = 0 },
	} {
		c := *sc
		cut(&c.cfg)
		if fails(&c) {
			sc = &c
		}
	}
	for size := len(sc.stimuli); size > 0; size /= 2 {
		for i := 0; i+size <= len(sc.stimuli); {
			c := *sc
			c.stimuli = append(append([]stimulus(nil), sc.stimuli[:i]...), sc.stimuli[i+size:]...)
			if fails(&c) {
				sc = &c
			} else {
				i += size
			}
		}
	}
	return sc, err
}
