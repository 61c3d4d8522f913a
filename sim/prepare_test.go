package sim

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// Shares are converted as a daemon would convert them, once: a choice is not made again, and the
// workload itself does not change.
func TestPrepareShares(t *testing.T) {
	half := cluster.Request{GPUs: 1, Share: 500}
	for _, c := range []struct {
		sharing cluster.Sharing
		mig     string
		want    cluster.Isolation
		get     cluster.Request
	}{
		{cluster.TimeSlicing, "", cluster.Open, half},
		{cluster.TimeSlicing, "", cluster.OwnMemory, cluster.Request{GPUs: 1, Profile: "4g.40gb"}},
		{cluster.TimeSlicing, "none", cluster.OwnMemory, cluster.Request{GPUs: 1}},
		{cluster.MPS, "none", cluster.Open, cluster.Request{GPUs: 1, Share: 500, Memory: 40_960}},
		{cluster.MPS, "none", cluster.OwnMemory, cluster.Request{GPUs: 1, Share: 500, Memory: 40_960}},
		{cluster.MPS, "none", cluster.Full, cluster.Request{GPUs: 1}},
	} {
		spec := cluster.Spec{Sharing: c.sharing,
			Nodes: []cluster.Node{{Name: "n", Model: "A100-80GB", GPUs: 1, MIG: c.mig}}}
		wl := trace.Workload{
			Jobs: []trace.Entry{
				{Job: cluster.Job{Isolation: c.want, Tasks: []cluster.TaskSet{{Count: 1, Request: half}}}, Run: 1}}}
		for range 2 {
			entries := Prepare(&wl, &spec, Estimates{}, PerNode)
			if got := entries[0].Job.Tasks[0].Request; got != c.get {
				t.Errorf("%v, %s, %v: %+v, want %+v", c.sharing, c.mig, c.want, got, c.get)
			}
			if got := wl.Jobs[0].Job.Tasks[0].Request; got != half && got != c.get {
				t.Errorf("the workload has changed: %+v", got)
			}
			wl.Jobs = entries
		}
	}
}

// Every source of estimates applies, even to jobs that state one themselves: otherwise comparisons
// of backfill under wrong estimates would compare nothing.
func TestPrepareEstimates(t *testing.T) {
	spec := cluster.Spec{Nodes: []cluster.Node{{Name: "n", Model: "A100-80GB", GPUs: 1}}}
	one := []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}
	wl := trace.Workload{Jobs: []trace.Entry{
		{Job: cluster.Job{Tasks: one, Estimate: time.Hour}, Run: 10 * time.Minute},
		{Job: cluster.Job{Tasks: one}, Run: 20 * time.Minute},
		{Job: cluster.Job{Tasks: one}}, // a service, whose run time is not known
	}}
	for _, c := range []struct {
		text string
		want [3]time.Duration
	}{
		{"auto", [3]time.Duration{time.Hour, 20 * time.Minute, 0}},
		{"exact", [3]time.Duration{10 * time.Minute, 20 * time.Minute, 0}},
		{"stated", [3]time.Duration{time.Hour, 0, 0}},
		{"none", [3]time.Duration{}},
		{"noise:0", [3]time.Duration{10 * time.Minute, 20 * time.Minute, 0}},
	} {
		est, err := ParseEstimates(c.text)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range Prepare(&wl, &spec, est, PerNode) {
			if e.Job.Estimate != c.want[i] {
				t.Errorf("%s: job %d: %v, want %v", c.text, i, e.Job.Estimate, c.want[i])
			}
		}
	}
	noisy := Prepare(&wl, &spec, Estimates{From: Noisy, Sigma: 1, Seed: 1}, PerNode)
	for i, exact := range []time.Duration{10 * time.Minute, 20 * time.Minute} {
		if got := noisy[i].Job.Estimate; got == exact || got == wl.Jobs[i].Job.Estimate || got <= 0 {
			t.Errorf("noise: job %d is estimated at %v, its run time is %v", i, got, exact)
		}
	}
	for _, wrong := range []string{"", "noise", "noise:-1", "noise:NaN", "noise:11", "exact:1", "sometimes"} {
		if _, err := ParseEstimates(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
