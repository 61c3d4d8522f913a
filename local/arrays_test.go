//go:build linux

package local

import (
	"context"
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// A list with arrays as one entry says the same as one with every element,
// also when some were changed, and after a restart.
func TestListArrays(t *testing.T) {
	opt := testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}})
	m, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()
	u := self(t)
	submit := func(s ask.Submission) []int {
		t.Helper()
		s.Command, s.Dir, s.Output, s.Hold, s.Env = []string{"true"}, "/", "/dev/null", true, []string{"A=B"}
		ids, err := m.Submit(t.Context(), u, &s, "")
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	alone := submit(ask.Submission{})
	first := submit(ask.Submission{Array: "0-298:2"})
	second := submit(ask.Submission{Array: "1-100"})
	name := "renamed"
	if err := m.Update(t.Context(), first[120], &ask.Update{Name: &name}, &User{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Act(t.Context(), first[130], "cancel", ""); err != nil {
		t.Fatal(err)
	}
	same := func(m *Machine, entries int) {
		t.Helper()
		for _, limit := range []int{0, 100} {
			f := store.Filter{States: []string{show.StatePending}, Limit: limit, Before: alone[0] + 10_000}
			each, err := m.Jobs(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			f.Arrays = true
			list, err := m.Jobs(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if limit == 0 && len(list) != entries {
				t.Errorf("%d entries, not %d", len(list), entries)
			}
			list = show.Expand(list)
			for _, l := range [][]show.Job{each, list} {
				for i := range l {
					l[i].Waited = 0 // it grows meanwhile
				}
			}
			if len(each) == 0 || !reflect.DeepEqual(each, list) {
				t.Errorf("limit %d: %d jobs one by one, %d of arrays; or they differ", limit, len(each), len(list))
			}
		}
	}
	// Of 250 the last 50, explained one by one: the first job and elements of the
	// first array. Of those above them: the rest of it in three pieces, and the second.
	same(m, 50+3+1)
	end()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	again := openMachine(t, opt)
	same(again, 50+3+1)
	if again.jobs[cluster.JobID(second[0])].Sub != again.jobs[cluster.JobID(second[99])].Sub {
		t.Error("after a restart the elements of an array have a submission each")
	}
}
