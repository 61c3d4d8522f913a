//go:build linux

package local

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
)

// What a waiting job is told: at the earliest while nothing is known, at the latest where others run to their limits, and what
// became of earlier answers corrects it. Others are said to leave as the same look ahead has it.
func TestQuoted(t *testing.T) {
	at := func(s int64) cluster.Time { return cluster.Time(s * 1e9) }
	spec := &cluster.Job{ID: 1, Submit: at(10), Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	j := &job{id: 1, spec: spec, info: &Info{Record: engine.JobRecord{Spec: spec}}}
	m := &Machine{}
	f := &forecast{waiting: map[cluster.JobID]bool{1: true}, mid: &forward.Result{Starts: map[cluster.JobID]cluster.Time{1: at(1000)},
		Limits: map[cluster.JobID]bool{}, Leaves: map[cluster.JobID]forward.Leaving{7: {At: at(900), Reason: engine.TimedOut}, 8: {At: at(50), Reason: engine.Completed}}}}
	told := func() api.Job {
		v := api.Job{ID: 1}
		f.tell(&v, at(100))
		m.quoted(&v, j, f, at(100))
		return v
	}
	if v := told(); !v.AtEarliest || v.ByLimits || v.Latest != nil || !v.Expected.Equal(time.Unix(1000, 0)) {
		t.Errorf("nothing is known: %+v", v)
	}
	f.mid.Limits[1] = true
	if v := told(); v.AtEarliest || !v.ByLimits {
		t.Errorf("it rests on a limit: %+v", v)
	}
	for i := range 60 { // it takes always half as long again
		a := forward.Asked{Job: cluster.JobID(100 + i), Now: at(100), Start: at(1000), Milli: 1000}
		m.quotes.Told(&a)
		m.quotes.Started(a.Job, at(1480))
	}
	if v := told(); v.AtEarliest || v.ByLimits || !v.Scored || v.Earliest == nil || !v.Expected.Equal(time.Unix(1480, 0)) {
		t.Errorf("earlier answers are known: %+v", v)
	}
	if ends := f.ends(at(100)); len(ends) != 1 || ends[7] != (engine.ForeseenEnd{At: at(900), Limit: true}) {
		t.Errorf("ends %+v", ends)
	}
}
