package engine

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Beside a 2g on the first slices a 1g goes to slice 3, where it leaves room for a 3g; where two
// 2g come after it in line it goes to 6, and both fit.
func TestStartServesNext(t *testing.T) {
	for _, c := range []struct {
		first []string // one after the other
		line  []string // at once
		want  []uint8  // memory slices of those in line; 0: it waits
	}{
		{[]string{"2g", "2g", "2g"}, []string{"1g"}, []uint8{0b0000_1000}},
		{[]string{"2g", "2g", "2g"}, []string{"1g", "2g", "2g"}, []uint8{0b0100_0000, 0b0011_0000, 0b0000_1100}},
		{[]string{"2g", "2g", "2g"}, []string{"1g", "3g"}, []uint8{0b0000_1000, 0b1111_0000}},
	} {
		e, err := New(Config{Spec: cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "H100-80GB", GPUs: 1}}},
			Policy: nobody{}, Placer: anyPlacer()})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		submit := func(profile string) Event {
			j := &cluster.Job{ID: cluster.JobID(n), Tier: cluster.Standard, Estimate: time.Hour,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Profile: profile}}}}
			n++
			return Event{Type: Submitted, Job: j.ID, Spec: j}
		}
		for _, p := range c.first {
			e.Step(Batch{Events: []Event{submit(p), {Type: Started, Job: cluster.JobID(n - 1)}}})
		}
		for id := range c.first { // the one at the first slices stays
			if e.jobs[id].Allocs[0].Slots != 0b11 {
				e.Step(Batch{Now: 1, Events: []Event{{Type: Stopped, Job: cluster.JobID(id), Reason: job.Completed}}})
			}
		}
		var evs []Event
		for _, p := range c.line {
			evs = append(evs, submit(p))
		}
		e.Step(Batch{Now: 2, Events: evs})
		for i, want := range c.want {
			j := e.jobs[len(c.first)+i]
			if got := j.Allocs; len(got) != 1 || got[0].Slots != want {
				t.Errorf("%v: the %s is on %+v, not on slices %08b", c.line, c.line[i], got, want)
			}
		}
	}
}
