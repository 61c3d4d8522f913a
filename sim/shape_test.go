package sim

import (
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// Offered load counts only the jobs that the cluster can hold: the others are rejected at once, and
// stretching by their GPU time would leave the machines idle.
func TestDemandOn(t *testing.T) {
	spec := cluster.Spec{
		Nodes: []cluster.Node{{Name: "a", Model: "A100-80GB", GPUs: 8}, {Name: "b", Model: "A100-80GB", GPUs: 8},
			{Name: "v", Model: "V100-32GB", GPUs: 4}}}
	job := func(at time.Duration, count, gpus int, types ...string) trace.Entry {
		return trace.Entry{Run: time.Hour, Job: cluster.Job{Submit: cluster.Time(at), GPUTypes: types,
			Tasks: []cluster.TaskSet{{Count: count, Request: cluster.Request{GPUs: gpus}}}}}
	}
	elastic := job(0, 40, 1)
	elastic.Job.Elastic = cluster.Elastic{Min: 2, Max: 40}
	wl := &trace.Workload{Jobs: []trace.Entry{job(0, 2, 8), job(0, 16, 1), elastic, job(0, 4, 1, "V100-32GB"),
		job(0, 1, 16), job(0, 17, 1), job(0, 1, 8, "V100-32GB"), job(time.Hour, 1, 1, "H100-80GB")}}
	work, span, tooLarge := DemandOn(wl, &spec)
	if want := float64(16+16+40+4) * 3600; work != want || span != 3600 || tooLarge != 4 {
		t.Errorf("%g GPU-seconds over %g s, %d jobs too large; want %g, 3600, 4", work, span, tooLarge, want)
	}
	if err := Stretch(wl, &spec, 1); err != nil {
		t.Fatal(err)
	}
	if _, span, _ := DemandOn(wl, &spec); math.Abs(span-work/float64(spec.GPUs())) > 1 {
		t.Errorf("stretched to %g s, want %g", span, work/float64(spec.GPUs()))
	}
}
