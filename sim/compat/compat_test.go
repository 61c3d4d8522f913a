package compat

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// steps is a job of the world's tests: an iteration takes a second, its stall is 10s.
func steps(gpus int, at, iterations int) trace.Entry {
	return trace.Entry{Job: cluster.Job{Model: "zz", Submit: cluster.Time(at) * cluster.Time(time.Second),
		Tasks: []cluster.TaskSet{{Count: gpus, Request: cluster.Request{GPUs: 1}}}},
		Work: &trace.Work{Steps: float64(iterations), Step: time.Second}}
}

// G-muri-simulator, 12.1 to 12.3.
func TestMuriByHand(t *testing.T) {
	for _, c := range []struct {
		name    string
		p       Profile
		pol     string
		entries []trace.Entry
		want    string
	}{
		{"12.1", Muri(), "srtf", []trace.Entry{steps(32, 0, 1000), steps(32, 100, 100)}, "2 568.250000 1035.000000 1035.000000"},
		{"12.2", Muri(), "srtf", []trace.Entry{steps(32, 0, 1000), steps(32, 0, 1000), steps(32, 100, 100)}, "3 757.666667 1136.500000 1136.500000"},
		{"12.2", Muri(), "srsf", []trace.Entry{steps(32, 0, 1000), steps(32, 0, 1000), steps(32, 100, 100)}, "3 757.666667 1136.500000 1136.500000"},
		{"12.3", MuriLevels(), "tiresias-l:thresholds=3250/7200", []trace.Entry{steps(8, 0, 1000)}, "1 1035.000000 1035.000000 1035.000000"},
	} {
		f, err := Run(context.Background(), c.p, c.entries, 64, c.pol)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %.6f %.6f %.6f", f.Jobs, f.JCT, f.Makespan, f.P99); got != c.want {
			t.Errorf("%s under %s: %s, want %s", c.name, c.pol, got, c.want)
		}
	}
	if _, err := New(Muri(), []trace.Entry{steps(3, 0, 1)}); err == nil {
		t.Error("a size that the world does not know is accepted")
	}
}
