package foresight

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// A forecast holds while nothing happens, for a few seconds; one that was
// costly holds for longer, whatever happens.
func TestForecastHolds(t *testing.T) {
	made := time.Unix(1000, 0)
	for _, c := range []struct {
		took, age time.Duration
		seq       int64
		want      bool
		job       cluster.JobID
	}{
		{time.Millisecond, 0, 8, true, AnyJob},
		{time.Millisecond, 19 * time.Millisecond, 8, true, AnyJob},
		{time.Millisecond, 21 * time.Millisecond, 8, false, AnyJob},
		{time.Millisecond, 4 * time.Second, 7, true, AnyJob},
		{time.Millisecond, 6 * time.Second, 7, false, AnyJob},
		{time.Second, 19 * time.Second, 8, true, AnyJob},
		{time.Second, 21 * time.Second, 7, false, AnyJob},
		{time.Millisecond, 19 * time.Millisecond, 8, true, 1},
		{time.Millisecond, 5 * time.Millisecond, 8, false, 2},
		{time.Second, 5 * time.Second, 8, true, 2},
	} {
		f := &Forecast{Seq: 7, At: made, Took: c.took, Waiting: map[cluster.JobID]bool{1: true}}
		if got := f.Fresh(c.job, c.seq, made.Add(c.age)); got != c.want {
			t.Errorf("one of step 7 that took %v holds after %v, in step %d: %v", c.took, c.age, c.seq, got)
		}
	}
}
