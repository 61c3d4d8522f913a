package engine_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// restart lets the second engine end, now and then, and go on from its
// snapshot: what it decides must stay the same.
func (w *randomWorld) restart() error {
	if w.draw(-3, uint32(w.events), 0).IntN(100) > 0 {
		return nil
	}
	text, err := json.Marshal(w.twin.Snapshot())
	if err != nil {
		return err
	}
	var s engine.Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	cfg := w.sc.cfg
	cfg.Spec.Queues = s.Queues
	e, err := engine.Restore(cfg, &s)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	again, err := json.Marshal(e.Snapshot())
	if err != nil {
		return err
	}
	if i := firstDifference(text, again); i >= 0 {
		from := max(0, i-300)
		return fmt.Errorf("a snapshot of the restored engine is\n%s\ninstead of\n%s",
			again[from:min(len(again), i+200)], text[from:min(len(text), i+200)])
	}
	w.twin = e
	if err := e.CheckBooks(); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	return nil
}

// firstDifference is where two texts part; -1: nowhere.
func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// keepRecords writes down what the step changed.
func (w *randomWorld) keepRecords() {
	for _, id := range w.e.Changed() {
		w.records[id] = *w.e.Record(id)
	}
}

// keepTwinRecords does so for the second engine, which is restarted.
func (w *randomWorld) keepTwinRecords() {
	for _, id := range w.twin.Changed() {
		w.twinRecords[id] = *w.twin.Record(id)
	}
}

// checkRecords compares what was written down step by step with what is.
func (w *randomWorld) checkRecords() error {
	if w.draw(-4, uint32(w.events), 0).IntN(150) > 0 {
		return nil // what changed unnoticed stays so
	}
	for i := range w.jobs {
		id := cluster.JobID(i)
		if w.e.Record(id) == nil {
			continue
		}
		if err := unnoticed(w.records[id], *w.e.Record(id)); err != nil {
			return fmt.Errorf("the record of job %d %w", id, err)
		}
		if err := unnoticed(w.twinRecords[id], *w.twin.Record(id)); err != nil {
			return fmt.Errorf("in the second engine the record of job %d %w", id, err)
		}
	}
	return nil
}

// unnoticed fails if a record is not as it was written down. The texts decide: an empty list is as good as none.
func unnoticed(have, want engine.JobRecord) error {
	if reflect.DeepEqual(have, want) {
		return nil // as nearly all are, and texts take long
	}
	if have, want := recordText(have), recordText(want); have != want {
		return fmt.Errorf("changed unnoticed:\n%s\nis\n%s", have, want)
	}
	return nil
}

// recordText is a record without the expected end, which moves for jobs that
// are overdue whenever they are looked at.
func recordText(r engine.JobRecord) string {
	r.EndKey = 0
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Which jobs a singleton waits for is settled when it comes: a restart does not ask
// again which bear its name by then.
func TestRestoreSingleton(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { cfg = *c })
	named := func(name string, after ...cluster.Dependency) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Name, j.User, j.After = name, "u", after }
	}
	h.want(0, "start 0", submit(job(0, 2, 1000, named("a"))))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "", submit(job(1, 2, 10, named("b"))))
	h.want(3, "", submit(job(2, 2, 10, named("b", cluster.Dependency{Type: cluster.Singleton}))))
	renamed := job(1, 2, 10, named("c"))
	h.want(4, "", engine.Event{Type: engine.Updated, Job: 1, Spec: &renamed})
	snap := h.e.Snapshot()
	e, err := engine.Restore(cfg, &snap)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []*hand{h, {t: t, e: e, now: h.now}} { // the one that went on, and the restored one
		h.want(5, "start 1", stopped(0, engine.Completed))
		h.want(6, "", ev(engine.Started, 1))
		h.want(7, "start 2", stopped(1, engine.Completed))
	}
}
