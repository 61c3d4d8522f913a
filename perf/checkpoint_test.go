package perf

import (
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Vectors of Daly 2006: Daly's interval to a hundredth of a second, Young's first-order one, which
// is close, and the waste.
func TestDaly(t *testing.T) {
	for _, c := range []struct{ cost, mtbf, young, daly float64 }{
		{60, 86400, 3219.94, 3180.06}, {60, 3600, 657.27, 617.88}, {300, 14400, 2939.39, 2742.79},
	} {
		got := Daly(seconds(c.cost), seconds(c.mtbf)).Seconds()
		if first := young(c.cost, c.mtbf); math.Abs(got-c.daly) > 0.01 || math.Abs(first-c.young) > 0.01 {
			t.Errorf("cost %g, MTBF %g: %g and %g, want %g and %g", c.cost, c.mtbf, got, first, c.daly, c.young)
		}
		// No other interval improves Daly's exact run time (without restarts) by a thousandth.
		wall := func(tau float64) float64 { return (math.Exp((tau+c.cost)/c.mtbf) - 1) / tau }
		for tau := got / 10; tau < got*10; tau *= 1.01 {
			if wall(tau) < wall(got)*0.999 {
				t.Errorf("cost %g, MTBF %g: %g s loses less than %g s", c.cost, c.mtbf, tau, got)
			}
		}
	}
	at := func(tau time.Duration) float64 { return Waste(tau, seconds(60), 0, seconds(86400)) }
	best := seconds(young(60, 86400))
	if math.Abs(at(best)-0.03727) > 5e-6 || at(best-time.Minute) <= at(best) || at(best+time.Minute) <= at(best) {
		t.Errorf("waste %g at Young's interval, %g a minute before, %g a minute after", at(best), at(best-time.Minute),
			at(best+time.Minute))
	}
	if w := Waste(time.Minute, time.Hour, time.Hour, time.Hour); w != 1 || Waste(0, 1, 1, 1) != 0 {
		t.Errorf("waste %g where nothing gets done", w)
	}
	if got := Daly(seconds(60), seconds(100)); got != seconds(100) {
		t.Errorf("where a checkpoint takes longer than half the time between failures: %v", got)
	}
	last := time.Duration(0)
	for mtbf := 200.0; mtbf < 1e7; mtbf *= 1.5 { // grows with the MTBF and with the cost
		tau := Daly(seconds(60), seconds(mtbf))
		if tau <= last || Daly(seconds(70), seconds(mtbf)) <= tau && mtbf > 1000 {
			t.Errorf("MTBF %g: %v after %v", mtbf, tau, last)
		}
		last = tau
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestInterruptions(t *testing.T) {
	j := &cluster.Job{Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 8}}}}
	for _, c := range []struct {
		o    Interruptions
		want time.Duration
	}{
		{Interruptions{}, 0}, {Interruptions{Node: 10 * time.Hour}, 5 * time.Hour},
		{Interruptions{GPU: 80 * time.Hour}, 5 * time.Hour},
		{Interruptions{Node: 10 * time.Hour, GPU: 80 * time.Hour}, 150 * time.Minute},
		{Interruptions{Preempted: 7 * time.Hour}, 7 * time.Hour},
		{Interruptions{Node: 10 * time.Hour, GPU: 80 * time.Hour, Preempted: 150 * time.Minute}, 75 * time.Minute},
	} {
		if got := c.o.Of(j); got != c.want {
			t.Errorf("%+v: %v, want %v", c.o, got, c.want)
		}
	}
}

// Daly's interval for all that interrupts a job; never shorter than Min, never longer than Max,
// which binds only standard and critical jobs; rounded to whole steps.
func TestSaving(t *testing.T) {
	job := func(tier cluster.Tier) *cluster.Job {
		return &cluster.Job{Tier: tier, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	}
	day := Interruptions{Node: 24 * time.Hour}
	for _, c := range []struct {
		s          Saving
		tier       cluster.Tier
		cost, step time.Duration
		want       time.Duration
	}{
		{Saving{Interruptions: day}, cluster.Standard, time.Minute, 0, 3180060 * time.Millisecond},
		// an hour, to a second
		{Saving{Interruptions: Interruptions{Node: 24 * time.Hour, Preempted: 3600 * 24 / 23 * time.Second}},
			cluster.Standard, time.Minute, 0, 617880 * time.Millisecond},
		{Saving{Interruptions: day, Min: time.Hour}, cluster.Standard, time.Minute, 0, time.Hour},
		{Saving{Interruptions: day, Max: 20 * time.Minute}, cluster.Standard, time.Minute, 0, 20 * time.Minute},
		{Saving{Interruptions: day, Max: 20 * time.Minute}, cluster.Critical, time.Minute, 0, 20 * time.Minute},
		{Saving{Interruptions: day, Max: 20 * time.Minute}, cluster.BestEffort, time.Minute, 0,
			3180060 * time.Millisecond},
		{Saving{Interruptions: day}, cluster.Standard, time.Minute, 10 * time.Minute, time.Hour},
		{Saving{Interruptions: day, Max: 55 * time.Minute}, cluster.Standard, time.Minute, 10 * time.Minute,
			50 * time.Minute},
		// one step is the minimum
		{Saving{Interruptions: day, Max: 5 * time.Minute}, cluster.Standard, time.Minute, 10 * time.Minute,
			10 * time.Minute},
		{Saving{Max: time.Hour}, cluster.Standard, time.Minute, 0, time.Hour},
		{Saving{Min: time.Hour}, cluster.Standard, time.Minute, 0, 0},
		{Saving{Max: time.Hour}, cluster.BestEffort, time.Minute, 0, 0},
	} {
		if got := c.s.Every(job(c.tier), c.cost, c.step); got < c.want-time.Second || got > c.want+time.Second {
			t.Errorf("%+v: %v", c, got)
		}
		if (c.s.Check() != nil) != (c.s.Max > 0 && c.s.Min > c.s.Max) {
			t.Errorf("%+v: %v", c.s, c.s.Check())
		}
	}
	if err := (&Saving{Min: 2 * time.Hour, Max: time.Hour}).Check(); err == nil {
		t.Error("at least two hours apart, at most one old")
	}
}
