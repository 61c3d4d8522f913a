package watch

import (
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// A watch names the jobs that changed since it was read, or says that they are too many.
func TestWatch(t *testing.T) {
	var h Hub
	changed := h.Changed()
	w, stop := h.Watch()
	h.Publish([]cluster.JobID{3, 1})
	h.Publish([]cluster.JobID{3, 2})
	<-changed
	<-w.C
	if jobs, many := w.Take(); many || !slices.Equal(jobs, []int{1, 2, 3}) {
		t.Errorf("changed: %v, many: %v", jobs, many)
	}
	all := make([]cluster.JobID, mostNamed+1)
	for i := range all {
		all[i] = cluster.JobID(i)
	}
	h.Publish(all)
	if jobs, many := w.Take(); !many || len(jobs) > 0 {
		t.Errorf("changed: %v, many: %v", jobs, many)
	}
	stop()
	h.Publish(all)
	if jobs, many := w.Take(); many || len(jobs) > 0 {
		t.Errorf("changed after its end: %v, many: %v", jobs, many)
	}
}
