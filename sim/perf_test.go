package sim

import (
	"context"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/report"
	"github.com/muster-gpu/muster/trace"
)

// job makes an entry that is submitted at a time and runs for another.
func job(id int, submit, run time.Duration, model string, tasks ...cluster.TaskSet) trace.Entry {
	return trace.Entry{Run: run,
		Job: cluster.Job{ID: cluster.JobID(id), Submit: cluster.Time(submit), Tier: cluster.Standard,
			Model: model, Tasks: tasks, Estimate: run}}
}

func gang(count, gpus int) cluster.TaskSet {
	return cluster.TaskSet{Count: count, Request: cluster.Request{GPUs: gpus}}
}

func half() cluster.TaskSet {
	return cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 1, Share: 500}}
}

// endTimes replays the entries and returns when each job ended.
func endTimes(t *testing.T, spec *cluster.Spec, opt Options, entries ...trace.Entry) []time.Duration {
	t.Helper()
	o := Run(context.Background(), spec, entries, Setup{Policy: "fifo", Placer: "best-fit", World: opt})
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	var out []time.Duration
	for i := range o.Run.Records {
		r := &o.Run.Records[i]
		if r.Outcome != report.Completed {
			t.Fatalf("job %d: outcome %d: %s", i, r.Outcome, r.Why)
		}
		out = append(out, time.Duration(r.End))
	}
	return out
}

func same(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: job %d ends at %v, want %v", what, i, got[i], want[i])
		}
	}
}

// Speed depends on the GPU model, on the distance between a gang's tasks and on the jobs that share
// the GPU, and changes at the moment at which one of these does.
func TestSpeeds(t *testing.T) {
	tab := &perf.Table{
		Speed:    map[string]map[string]int64{"r": {"T4-16GB": 500_000}},
		Distance: map[string]map[cluster.Level]int64{"*": {cluster.LevelRack: 800_000, cluster.LevelFabric: 400_000}},
		Pairs:    map[perf.Pair]int64{{"*", "*"}: 600_000},
	}
	const m = time.Minute
	t4 := shared.Must(cluster.ParseShort("1x1xT4"))
	same(t, "half as fast on a T4", endTimes(t, t4, Options{Model: tab}, job(0, 0, 10*m, "r", gang(1, 1))), 20*m)
	same(t, "sharers slow each other down", endTimes(t, t4, Options{Model: tab},
		job(0, 0, 10*m, "x", half()), job(1, 5*m, 10*m, "x", half())), 13*m+20*time.Second, 18*m+20*time.Second)
	near := shared.Must(cluster.ParseShort("2x4xA100-80GB"))
	same(t, "two nodes of a rack", endTimes(t, near, Options{Model: tab}, job(0, 0, 8*m, "x", gang(2, 4))), 10*m)
	near.Nodes[0].Rack, near.Nodes[1].Rack = "a", "b"
	same(t, "two racks", endTimes(t, near, Options{Model: tab}, job(0, 0, 8*m, "x", gang(2, 4))), 20*m)
	near.Nodes[0].NVLink, near.Nodes[1].NVLink = "d", "d"
	same(t, "one NVLink domain over racks", endTimes(t, near, Options{Model: tab}, job(0, 0, 8*m, "x", gang(2, 4))),
		8*m)
}

// Overheads: start-up, periodic checkpoints, and the cost of a lost node.
func TestOverheads(t *testing.T) {
	const m = time.Minute
	spec := shared.Must(cluster.ParseShort("1x1xT4"))
	same(t, "start-up", endTimes(t, spec, Options{Startup: m}, job(0, 0, 10*m, "", gang(1, 1))), 11*m)
	ck := job(0, 0, 12*m, "", gang(1, 1))
	ck.Job.Checkpoint = cluster.Checkpoint{Interval: 4 * m, Cost: m, Restart: 2 * m}
	same(t, "a minute of checkpoint every four", endTimes(t, spec, Options{}, ck), 15*m)
	ck.Job.Checkpoint.Cost = 0
	// At 7m the node is lost: three minutes since the checkpoint at 4m are gone.
	// It is back at 9m; restoring takes 2m; eight minutes are left.
	lost := Options{Script: []Scripted{{At: cluster.Time(7 * m), Event: nodeDown("n1")},
		{At: cluster.Time(9 * m), Event: nodeUp("n1")}}}
	same(t, "a lost node", endTimes(t, spec, lost, ck), 19*m)
}

func nodeDown(name string) engine.Event { return engine.Event{Type: engine.NodeDown, Node: name} }

func nodeUp(name string) engine.Event { return engine.Event{Type: engine.NodeUp, Node: name} }
