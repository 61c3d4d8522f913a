package trace

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// The last jobs by their submission are held out and numbered again; the others keep their numbers.
func TestHoldOut(t *testing.T) {
	var list []Entry
	for i, at := range []cluster.Time{50, 10, 40, 20, 30} {
		list = append(list, Entry{Job: cluster.Job{ID: cluster.JobID(i), Submit: at}})
	}
	rest, held := HoldOut(list, 0.4)
	if len(rest) != 3 || rest[0].Job.ID != 1 || rest[2].Job.ID != 4 {
		t.Errorf("%+v are left", rest)
	}
	if len(held) != 2 || held[0].Job.Submit != 40 || held[0].Job.ID != 0 || held[1].Job.ID != 1 {
		t.Errorf("%+v are held out", held)
	}
}
