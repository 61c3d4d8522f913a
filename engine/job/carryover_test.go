package job

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// A job that ran for 10 s on two GPUs, of which 4 s of work are saved, and has run for 6 s more at full speed.
func ran() *State {
	return &State{
		Spec:   &cluster.Job{ID: 3},
		Facts:  Facts{State: Running, FirstStart: cluster.Time(time.Second), Preemptions: 2},
		Weight: 500, Milli: 2 * cluster.Whole,
		Tenure: &Tenure{Account: Account{Acc: cluster.Time(20 * time.Second), Attained: 20_000_000,
			Ran: 10 * time.Second, Done: 8 * time.Second, Saved: 4 * time.Second, Rate: Million, Speed: Million}},
	}
}

// TestCarryover: what a job carries over is what it was given up to then, without work that is not saved; the one that
// goes on in its place has just that, and so has its record.
func TestCarryover(t *testing.T) {
	now := cluster.Time(26 * time.Second)
	served := []Served{{GPU: "V100-16GB", Time: 16 * time.Second}}
	c := ran().CarryoverAt(now, served)
	want := &Carryover{Attained: 32_000_000, Service: 16_000_000, Ran: 16 * time.Second, Done: 4 * time.Second,
		Rate: Million, Preemptions: 2, FirstStart: cluster.Time(time.Second), Served: served}
	if !reflect.DeepEqual(c, want) || !c.Possible(now) {
		t.Fatalf("%+v, want %+v", c, want)
	}
	next := &State{Spec: &cluster.Job{ID: 4}, Facts: Facts{FirstStart: cluster.Never}, Weight: cluster.Whole,
		Tenure: &Tenure{}}
	next.GoOn(c)
	if again := next.CarryoverAt(now, next.Served); !reflect.DeepEqual(again, c) {
		t.Errorf("it goes on with %+v, not %+v", again, c)
	}
	var r Record
	if !c.To(&r, now) || !reflect.DeepEqual(r.Account, next.Account) || !reflect.DeepEqual(r.Facts, next.Facts) {
		t.Errorf("its record has %+v, its state %+v", r.Account, next.Account)
	}
	waits := &State{Facts: Facts{FirstStart: cluster.Never}, Tenure: &Tenure{}}
	if waits.CarryoverAt(now, nil) != nil {
		t.Error("a job that has only waited carries something over")
	}
}

// TestImpossibleCarryover: numbers that no job can have are refused, and written nowhere.
func TestImpossibleCarryover(t *testing.T) {
	now := cluster.Time(26 * time.Second)
	for name, change := range map[string]func(*Carryover){
		"negative":           func(c *Carryover) { c.Attained = -1 },
		"too much":           func(c *Carryover) { c.Attained = mostCarried + 1 },
		"in the future":      func(c *Carryover) { c.FirstStart = now + 1 },
		"promoted too late":  func(c *Carryover) { c.Promotion = now + 1 },
		"more before":        func(c *Carryover) { c.Before = c.Service + 1 },
		"longer before":      func(c *Carryover) { c.RanBefore = c.Ran + 1 },
		"served longer":      func(c *Carryover) { c.Served = []Served{{GPU: "V100-16GB", Time: c.Ran + 1}} },
		"preempted for ever": func(c *Carryover) { c.Preemptions = 1<<20 + 1 },
	} {
		c := ran().CarryoverAt(now, nil)
		change(c)
		var r Record
		if c.Possible(now) || c.To(&r, now) || !reflect.DeepEqual(r, Record{}) {
			t.Errorf("%s: %+v is possible", name, c)
		}
	}
}

// TestRecordChecks: a record of a job that is found running may say nothing of others, and nothing that cannot be.
func TestRecordChecks(t *testing.T) {
	now := cluster.Time(26 * time.Second)
	if r := ran().Record(false); !r.Independent() || !r.Possible(now) {
		t.Fatalf("%+v is refused", r)
	}
	for name, change := range map[string]func(*Record){
		"guest": func(r *Record) { r.GuestOf = 1 }, "host": func(r *Record) { r.Guests = []cluster.JobID{1} },
		"array":   func(r *Record) { r.Spec = &cluster.Job{Array: &cluster.Array{}} },
		"elastic": func(r *Record) { r.Spec = &cluster.Job{Elastic: cluster.Elastic{Min: 1, Max: 2}} },
		"resized": func(r *Record) { r.Resizing = true }, "planned": func(r *Record) { r.Target = &Target{} },
	} {
		r := ran().Record(false)
		if change(r); r.Independent() {
			t.Errorf("%s: it is independent", name)
		}
	}
	for name, change := range map[string]func(*Record){
		"late": func(r *Record) { r.Started = now + 1 }, "negative": func(r *Record) { r.Done = -1 },
		"weighted": func(r *Record) { r.Unweighted = r.Attained + 1 },
		"promoted": func(r *Record) { r.ServedBefore = r.Attained },
	} {
		r := ran().Record(false)
		if change(r); r.Possible(now) {
			t.Errorf("%s: it is possible", name)
		}
	}
}

// TestRecordPromises: the promise of a job that waits is in its record where promises are kept over a restart.
func TestRecordPromises(t *testing.T) {
	j := &State{Spec: &cluster.Job{}, Tenure: &Tenure{}, Weight: cluster.Whole, Promise: 7}
	if j.Record(true).Promise != 7 || j.Record(false).Promise != 0 {
		t.Error("promises are written down where they are not kept, or not where they are")
	}
	if r := ran().Record(true); r.Weight != 500 || r.Promise != 0 {
		t.Errorf("%+v", r)
	}
}
