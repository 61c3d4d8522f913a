package engine_test

import (
	"fmt"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
)

// paced is a job of a model that reports its pace, in units per second.
func paced(id, pace int) engine.Event {
	return engine.Event{Type: engine.Progress, Job: cluster.JobID(id), Pace: int64(pace) * 1_000_000}
}

func modelled(id, tasks int, model string, gpus ...string) cluster.Job {
	j := job(id, 1, 1000)
	j.Model, j.GPUTypes = model, gpus
	j.Tasks[0].Count = tasks
	j.Elastic = cluster.Elastic{Min: 1, Max: 4}
	return j
}

// Jobs of one model on two GPU models: one measurement changes nothing, two say how the GPUs
// compare, also for jobs of the model that were not measured, and for sizes that were not; the
// mean of what is believed of what was measured is what the table says.
func TestPaces(t *testing.T) {
	var cfg engine.Config
	table := &perf.Table{Speed: map[string]map[string]int64{"m": {"T4-16GB": 500_000, "V100-16GB": 500_000}},
		Scale: map[string]map[int]int64{"m": {1: 300_000}}}
	h := newHand(t, "4x4xT4-16GB", "fifo", func(c *engine.Config) {
		for i := 2; i < 4; i++ {
			c.Spec.Nodes[i].Model = "V100-16GB"
		}
		c.Speeds = perf.Belief{Model: table}
		cfg = *c
	})
	h.want(0, "start 0, start 1, start 2", submit(modelled(0, 4, "m", "T4")), submit(modelled(1, 4, "m", "V100")),
		submit(modelled(2, 4, "other", "V100")))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	believe := func(when string, e *engine.Engine, id int, gpu string, tasks int, want int64) {
		t.Helper()
		if got := e.Believed(cluster.JobID(id), gpu, tasks); max(got-want, want-got) > 1 {
			t.Errorf("%s: job %d with %d tasks on %s is believed to be at %d, want %d", when, id, tasks, gpu, got, want)
		}
	}
	h.want(2, "", paced(0, 10))
	believe("one measurement", h.e, 0, "T4-16GB", 4, 500_000)
	believe("one measurement", h.e, 1, "V100-16GB", 4, 500_000)
	h.want(3, "", paced(1, 40), paced(2, 7))
	snap := h.e.Snapshot()
	again, err := engine.Restore(cfg, &snap)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range []*engine.Engine{h.e, again} {
		when := []string{"two measurements", "restored"}[i]
		believe(when, e, 0, "T4-16GB", 4, 250_000) // a quarter of the other, and the geometric mean stays
		believe(when, e, 0, "V100-16GB", 4, 1_000_000)
		believe(when, e, 0, "V100-16GB", 1, 300_000) // from there on as the table says
		believe(when, e, 0, "A100-80GB", 4, 1_000_000)
		believe(when, e, 2, "V100-16GB", 4, 1_000_000)
	}
	want := "[{m 1000 T4-16GB 4 10000000 0 1 0 0s} {m 1000 V100-16GB 4 40000000 0 1 1 0s} {other 1000 V100-16GB 4 7000000 0 1 2 0s}]"
	if got := fmt.Sprint(snap.Paces); got != want {
		t.Errorf("measured: %s\nwant %s", got, want)
	}
	h.want(5, "", paced(1, 20)) // the same run, which knows better now
	if got := h.e.Paces()[1]; got.Pace != 20_000_000 || got.Runs != 1 {
		t.Errorf("after a second look: %+v", got)
	}
}

// What says nothing of the GPUs is not taken for a measurement: one with parts of GPUs, one with
// company, one of no named model, one that is told to stop.
func TestPacesOfOthers(t *testing.T) {
	h := newHand(t, "1x4xT4-16GB", "fifo", nil)
	nameless, part := modelled(0, 1, ""), modelled(1, 1, "m")
	nameless.Elastic, part.Elastic, part.Tasks[0].Request.GPUs, part.Tasks[0].Request.Share = cluster.Elastic{},
		cluster.Elastic{}, 1, 500
	stops := modelled(2, 1, "m")
	stops.Elastic = cluster.Elastic{}
	h.want(0, "start 0, start 1, start 2", submit(nameless), submit(part), submit(stops))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	h.want(2, "preempt 2", engine.Event{Type: engine.Cancelled, Job: 2})
	h.at(3, paced(0, 5), paced(1, 5), paced(2, 5), paced(7, 5))
	if list := h.e.Paces(); len(list) != 0 {
		t.Errorf("measured: %+v", list)
	}
}

// A job that is changed while it waits is believed to be as fast as those of its new model are,
// by a restored engine, too.
func TestPacesOfChanged(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "4x4xT4-16GB", "fifo", func(c *engine.Config) {
		c.Spec.Nodes[2].Model, c.Spec.Nodes[3].Model = "V100-16GB", "V100-16GB"
		cfg = *c
	})
	h.at(0, submit(modelled(0, 4, "m", "T4")), submit(modelled(1, 4, "m", "V100")), submit(modelled(2, 4, "n", "T4")),
		submit(modelled(3, 4, "n", "V100")))
	h.at(1, ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2), ev(engine.Started, 3))
	h.at(2, paced(0, 10), paced(1, 40), paced(2, 90), paced(3, 10))
	waits := modelled(4, 4, "m", "V100")
	h.at(3, submit(waits))
	if got := h.e.Believed(4, "V100-16GB", 4); got != 2_000_000 {
		t.Errorf("believed to be at %d", got)
	}
	waits.Model = "n"
	h.at(4, engine.Event{Type: engine.Updated, Job: 4, Spec: &waits})
	snap := h.e.Snapshot()
	again, err := engine.Restore(cfg, &snap)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*engine.Engine{h.e, again} {
		if got := e.Believed(4, "V100-16GB", 4); got != 333_333 {
			t.Errorf("after the change believed to be at %d", got)
		}
	}
}
