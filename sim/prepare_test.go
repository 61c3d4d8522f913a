package sim

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// Shares become what a daemon would make of them, once: what was chosen is not chosen
// again, and the workload itself stays as it is.
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
		spec := cluster.Spec{Sharing: c.sharing, Nodes: []cluster.Node{{Name: "n", Model: "A100-80GB", GPUs: 1, MIG: c.mig}}}
		wl := trace.Workload{Jobs: []trace.Entry{{Job: cluster.Job{Isolation: c.want, Tasks: []cluster.TaskSet{{Count: 1, Request: half}}}, Run: 1}}}
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
