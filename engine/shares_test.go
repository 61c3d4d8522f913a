package engine_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// TestFairShares: what people are shown of fair shares is what was used, and changes nothing.
func TestFairShares(t *testing.T) {
	spec, err := cluster.ParseShort("1x4xH100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	pol, err := policy.New("multifactor:size=4000")
	if err != nil {
		t.Fatal(err)
	}
	pl, err := place.New("best-fit")
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Spec: *spec, Policy: pol, Placer: pl})
	if err != nil {
		t.Fatal(err)
	}
	var events []engine.Event
	for i, user := range []string{"ann", "ann", "bob"} {
		j := &cluster.Job{ID: cluster.JobID(i), User: user, Name: "x", Priority: int64(i),
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 3}}}}
		events = append(events, engine.Event{Type: engine.Submitted, Job: j.ID, Spec: j})
	}
	e.Step(engine.Batch{Events: events})
	e.Step(engine.Batch{Now: cluster.Time(1000 * time.Second)})
	before := e.Snapshot()
	list, counted := e.FairShares()
	if !counted || len(list) != 3 || list[0].Queue != "default" || list[0].User != "" ||
		list[0].Usage < 2_990_000_000 || list[0].Usage > 3_000_000_000 {
		t.Fatalf("%+v: the queue should have used 3,000 GPU-seconds, of which little has decayed", list)
	}
	for _, s := range list[1:] { // bob's job came first, by its priority
		if want := map[string]int64{"bob": list[0].Usage}[s.User]; s.Usage != want || s.Of != list[0].Usage ||
			(s.Factor == 1_000_000) != (s.User == "ann") {
			t.Errorf("%+v", s)
		}
	}
	weights, jobs := e.Factors()
	if weights == nil || weights.Size != 4000 || len(jobs) != 2 {
		t.Fatalf("%v %v", weights, jobs)
	}
	if f := jobs[1]; f.FairShare != 1_000_000 || f.Size != 750_000 || f.Own != 1_000_000 || f.Age == 0 {
		t.Errorf("%+v", f)
	}
	if after := e.Snapshot(); !reflect.DeepEqual(before, after) {
		t.Error("asking changed the engine")
	}
}
