//go:build linux

package local

import (
	"context"
	"errors"
	"testing"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// An array of which a later element's dependency can never hold is refused as a whole: no element of it is left
// behind, and nothing is counted.
func TestRefusedArray(t *testing.T) {
	var opt Options
	m, err := Open(t.Context(),
		testOptions(t, &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "T4-16GB", GPUs: 2}}}))
	if err != nil {
		t.Fatal(err)
	}
	opt = m.opt
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()
	u := self(t)
	first, err := m.Submit(t.Context(), u,
		&ask.Submission{Command: []string{"sh", "-c", "exit $SLURM_ARRAY_TASK_ID"}, Dir: "/", Output: "/dev/null",
			Array: "0-1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, m, first[0], show.StateCompleted)
	until(t, m, first[1], show.StateFailed)
	cancel()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	m = alive(t, func(o *Options) { *o = opt }) // the engine does not know the jobs any more
	m.mu.Lock()
	next, jobs, counted := m.next, len(m.jobs), m.tally[u.Name]
	m.mu.Unlock()
	s := &ask.Submission{Command: []string{"true"}, Dir: "/", Output: "/dev/null", Array: "0-1",
		After: []ask.After{{Type: "aftercorr", Job: first[0]}}}
	var field *ask.FieldError
	if ids, err := m.Submit(t.Context(), u, s, ""); !errors.As(err, &field) {
		t.Fatalf("%v, %v", ids, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != next || len(m.jobs) != jobs || m.tally[u.Name] != counted {
		t.Errorf("the refused array leaves behind: next number %d instead of %d, %d jobs instead of %d, counted %+v instead of %+v",
			m.next, next, len(m.jobs), jobs, m.tally[u.Name], counted)
	}
}
