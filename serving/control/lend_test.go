package control

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/show"
)

// TestLoans: what a service does not run is lent, the jobs that have it are told, and how long it took to have it back
// is counted once, also by the next controller.
func TestLoans(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	w.lent = []int{70, 71}
	w.apply(c, text("serve", 1, 3)+"lend: {within: 20s}\n")
	w.pass(c, 3*time.Second)
	v, err := c.Service("vision")
	if err != nil || w.wouldAdd != 2 || len(v.Loans.Jobs) != 2 || v.Loans.Within != 20 || len(w.lentBy) != 2 ||
		!strings.Contains(w.lentBy[71], "service vision lends it GPUs") {
		t.Fatalf("%v, %d more replicas, %+v, %v", err, w.wouldAdd, v.Loans, w.lentBy)
	}
	if len(w.lenders) != 1 || w.lenders[0][0].Replicas != 3 || w.lenders[0][0].Service.Name != "vision" {
		t.Errorf("the scheduler was told that these lend: %+v", w.lenders)
	}
	asked := w.now
	w.mu.Lock()
	w.jobs[1].Loan = &show.Loan{Jobs: []int{70}, Asked: asked, Back: asked.Add(21 * time.Second),
		Within: 20 * time.Second}
	w.mu.Unlock()
	w.lent = nil
	w.pass(c, 5*time.Second)
	c = w.controller()
	w.pass(c, 5*time.Second)
	v, err = c.Service("vision")
	if l := v.Loans; err != nil || l.Returns != 1 || l.Late != 1 || l.Longest != 21 || l.Mean != 21 {
		t.Errorf("%v %+v", err, v.Loans)
	}
	if text := strings.Join(v.Why, "\n"); !strings.Contains(text, "what 2 more replicas would hold is lent") ||
		!strings.Contains(text, "given back so far: 1 times") {
		t.Error(text)
	}
	if len(w.lentBy) != 0 {
		t.Errorf("%v have something lent, but none has", w.lentBy)
	}
	w.lent = []int{72}
	for v.Loans.Jobs = nil; len(v.Loans.Jobs) == 0; {
		w.pass(c, time.Second)
		if v, err = c.Service("vision"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Scale(t.Context(), "vision", service.Replicas{Min: 1, Max: 1}, Caller{User: "ann"}); err != nil {
		t.Fatal(err)
	}
	w.pass(c, time.Second) // sooner than it is asked again which jobs would make room
	if v, err = c.Service("vision"); err != nil || len(v.Loans.Jobs) != 0 || len(w.lentBy) != 0 {
		t.Errorf("nothing is lent any more: %v %+v %v", err, v.Loans, w.lentBy)
	}
	if l := w.lenders[len(w.lenders)-1]; len(l) != 1 || l[0].Replicas != 1 {
		t.Errorf("the scheduler was told that these lend: %+v", l)
	}
	if v, err = c.Service("vision"); err != nil || !strings.Contains(strings.Join(v.Why, "\n"), "it lends nothing") {
		t.Errorf("%v %q", err, v.Why)
	}
}
