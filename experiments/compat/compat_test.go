package compat

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// steps is a job of the world's tests: an iteration takes a second, its stall is 10 s.
func steps(gpus int, at, iterations int) trace.Entry {
	return trace.Entry{Job: cluster.Job{Model: "zz", Submit: cluster.Time(at) * cluster.Time(time.Second),
		Tasks: []cluster.TaskSet{{Count: gpus, Request: cluster.Request{GPUs: 1}}}},
		Work: &trace.Work{Steps: float64(iterations), Step: time.Second}}
}

// staged is a job of 1000 iterations that arrives at the beginning, of a model in the published
// traces.
func staged(model string, gpus int) trace.Entry {
	ms := map[string][4]float64{"dqn": {490, 446, 8, 0}, "gpt2": {426, 0.6, 410, 0}, "vgg19": {109, 114, 80, 0}}[model]
	e := steps(gpus, 0, 1000)
	of := func(k int) time.Duration { return time.Duration(ms[k] * float64(time.Millisecond)) }
	e.Job.Model, e.Run = model, 1000*of(0)
	e.Work.Step, e.Work.Stages = of(0), []time.Duration{of(1), of(2), of(3)}
	return e
}

// Muri's simulator, examples 12.1 to 12.5.
func TestMuriByHand(t *testing.T) {
	t.Parallel()
	three := []trace.Entry{staged("dqn", 1), staged("vgg19", 1), staged("dqn", 1)}
	three[0].Work.Steps, three[1].Work.Steps = 4000, 10_000
	three[1].Job.Tier, three[2].Job.Submit = cluster.BestEffort, cluster.Time(100*time.Second)
	four := []trace.Entry{staged("dqn", 32), staged("gpt2", 32), staged("dqn", 32), staged("gpt2", 32)}
	for _, c := range []struct {
		name    string
		p       Profile
		pol     string
		entries []trace.Entry
		want    string
	}{
		{"12.1", Muri(), "srtf", []trace.Entry{steps(32, 0, 1000), steps(32, 100, 100)},
			"2 568.250000 1035.000000 1035.000000"},
		{"12.2", Muri(), "srtf", []trace.Entry{steps(32, 0, 1000), steps(32, 0, 1000), steps(32, 100, 100)},
			"3 757.666667 1136.500000 1136.500000"},
		{"12.2", Muri(), "srsf", []trace.Entry{steps(32, 0, 1000), steps(32, 0, 1000), steps(32, 100, 100)},
			"3 757.666667 1136.500000 1136.500000"},
		{"12.3", MuriLevels(), "tiresias-l:thresholds=3250/7200", []trace.Entry{steps(8, 0, 1000)},
			"1 1035.000000 1035.000000 1035.000000"},
		{"12.4", MuriAntMan(false), "", three, "3 1368.544211 2004.400000 2004.400000"},
		{"Themis in rounds: arrivals wait for the next round", MuriThemis(true), "",
			[]trace.Entry{steps(32, 0, 1000), steps(32, 100, 100)}, "2 680.000000 1000.000000 1000.000000"},
		{"Themis in rounds: by turns", MuriThemis(true), "", []trace.Entry{steps(64, 0, 1000), steps(64, 0, 1000)},
			"2 1900.000000 2080.000000 2080.000000"},
		{"Themis at events", MuriThemis(false), "",
			[]trace.Entry{steps(32, 0, 1000), steps(32, 0, 1000), steps(32, 100, 100)},
			"3 757.666667 1136.500000 1136.500000"},
		{"12.5", MuriGroups(false, true), "muri:order=s,keep=0", four, "4 594.896552 594.896552 594.896552"},
		{"12.5", MuriGroups(true, true), "muri:order=l,keep=0", four, "4 594.896552 594.896552 594.896552"},
		{"12.5", MuriGroups(true, false), "muri:order=l,keep=0", four, "4 594.896552 594.896552 594.896552"},
	} {
		f, err := Run(context.Background(), c.p, c.entries, 64, c.pol)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %.6f %.6f %.6f", f.Jobs, f.JCT, f.Makespan, f.P99); got != c.want {
			t.Errorf("%s under %s: %s, want %s", c.name, c.pol, got, c.want)
		}
	}
	if _, err := New(MuriGroups(true, true), []trace.Entry{steps(1, 0, 1)}); err == nil {
		t.Error("a job without stages is accepted")
	}
	if _, err := Run(context.Background(), MuriGroups(true, true), []trace.Entry{staged("dqn", 1)}, 64,
		"las"); err == nil {
		t.Error("a policy that pairs no jobs is accepted")
	}
	if _, err := New(Muri(), []trace.Entry{steps(3, 0, 1)}); err == nil {
		t.Error("a size that the world does not know is accepted")
	}
}
