package check

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// TestLives: a job that is not as its state says is found, and so is one that is not counted.
func TestLives(t *testing.T) {
	jobs := func() []*job.State {
		held := &job.State{Spec: &cluster.Job{ID: 0, Hold: true}, Tenure: &job.Tenure{}}
		held.Parked = job.ParkedHold
		over := &job.State{Spec: &cluster.Job{ID: 2}, Tenure: &job.Tenure{}}
		over.State = job.Done
		return []*job.State{held, nil, over}
	}
	rooms := func(list []*job.State) *Rooms {
		return &Rooms{World: &sched.World{Now: 10}, Jobs: list, Live: 1}
	}
	if err := rooms(jobs()).lives(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(list []*job.State){
		"stored as job 2":        func(l []*job.State) { l[2].Spec = &cluster.Job{ID: 7} },
		"eligible true":          func(l []*job.State) { l[0].Eligible = true },
		"but not pending":        func(l []*job.State) { l[2].Eligible = true },
		"waits for 1":            func(l []*job.State) { l[0].Waits = 1 },
		"on their way":           func(l []*job.State) { l[0].Dest = []inventory.Alloc{{}} },
		"keeps its array":        func(l []*job.State) { l[2].InArray = true },
		"promoted at 11":         func(l []*job.State) { l[0].Promotion = 11 },
		"asks for something":     func(l []*job.State) { l[0].Shape = 3 },
		"1 live jobs, counted 0": func(l []*job.State) { l[0] = nil },
	} {
		list := jobs()
		change(list)
		if err := rooms(list).lives(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestReason: a parked job is parked for a reason that holds.
func TestReason(t *testing.T) {
	r := &Rooms{World: &sched.World{Now: 10}}
	for name, x := range map[string]struct {
		spec   cluster.Job
		parked job.Parked
		holds  bool
	}{
		"held": {cluster.Job{Hold: true}, job.ParkedHold, true}, "released": {cluster.Job{}, job.ParkedHold, false},
		"later": {cluster.Job{Begin: 11}, job.ParkedBegin, true},
		"now":   {cluster.Job{Begin: 10}, job.ParkedBegin, false},
		"array": {cluster.Job{}, job.ParkedArray, true}, "none": {cluster.Job{}, job.NotParked, false},
	} {
		j := &job.State{Spec: &x.spec, Tenure: &job.Tenure{}}
		j.Parked = x.parked
		if err := r.reason(j); (err == nil) != x.holds {
			t.Errorf("%s: %v", name, err)
		}
	}
}
