package engine

import (
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// The engine writes a new target over the old one; a caller that was given a record of the job
// must not see it change. A policy may give back the memo that it was shown.
func TestRecordKeepsTarget(t *testing.T) {
	j := &job.State{Tenure: &job.Tenure{}, Spec: &cluster.Job{}}
	e := &Engine{jobs: []*job.State{j}}
	e.plan.SetTarget(j, &job.Target{Rank: 1, Memo: []int64{1, 2}, Slice: &job.Slice{Node: 3}})
	r := e.Record(0)
	e.plan.SetTarget(j, &job.Target{Rank: 2, Memo: j.Target.Memo})
	if !slices.Equal(j.Target.Memo, []int64{1, 2}) || j.Target.Slice != nil {
		t.Errorf("the same memo again is %v, beside slice %v", j.Target.Memo, j.Target.Slice)
	}
	e.plan.SetTarget(j, &job.Target{Rank: 2, Memo: []int64{7, 8}})
	if !r.Target.Same(&job.Target{Rank: 1, Memo: []int64{1, 2}, Slice: &job.Slice{Node: 3}}) {
		t.Errorf("the record's target has become %+v", *r.Target)
	}
}
