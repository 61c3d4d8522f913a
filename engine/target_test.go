package engine

import (
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// The engine writes a new target over the old one; who was given a record of the job
// must not see it change. A policy may give back the memo that it was shown.
func TestRecordKeepsTarget(t *testing.T) {
	j := &jobState{tenure: &tenure{}, spec: &cluster.Job{}}
	e := &Engine{jobs: []*jobState{j}}
	e.setTarget(j, &Target{Rank: 1, Memo: []int64{1, 2}, Slice: &Slice{Node: 3}})
	r := e.Record(0)
	e.setTarget(j, &Target{Rank: 2, Memo: j.target.Memo})
	if !slices.Equal(j.target.Memo, []int64{1, 2}) || j.target.Slice != nil {
		t.Errorf("the same memo again is %v, beside slice %v", j.target.Memo, j.target.Slice)
	}
	e.setTarget(j, &Target{Rank: 2, Memo: []int64{7, 8}})
	if !r.Target.same(&Target{Rank: 1, Memo: []int64{1, 2}, Slice: &Slice{Node: 3}}) {
		t.Errorf("the record's target has become %+v", *r.Target)
	}
}
