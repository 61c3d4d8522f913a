package past

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// A policy sees completed jobs from its next period on; a restart goes on there, and what cannot be is refused.
func TestLearn(t *testing.T) {
	w := &sched.World{Traits: sched.Traits{Learns: time.Hour}}
	b := New(w)
	b.Completed(&job.State{Tenure: &job.Tenure{Account: job.Account{Ran: time.Minute}}, Spec: &cluster.Job{}})
	if b.Learn() || len(b.Known().Services) != 0 {
		t.Error("it is seen in the period in which it completed")
	}
	w.Now = cluster.Time(time.Hour)
	if !b.Learn() || b.Known().Median != time.Minute || b.Learn() {
		t.Errorf("it is not seen once in the next period: %+v", b.Known())
	}
	again := New(w)
	if err := again.Restore(b.Record()); err != nil || again.Known().Median != time.Minute || again.Check() != nil {
		t.Errorf("restored: %v, %v, %+v", err, again.Check(), again.Known())
	}
	for _, r := range []Record{{InForce: 1}, {Period: -1}, {Jobs: []sched.Earlier{{Ran: -1}}}} {
		if again.Restore(&r) == nil {
			t.Errorf("%+v is taken", r)
		}
	}
}
