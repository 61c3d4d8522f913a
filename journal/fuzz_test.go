package journal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
)

// FuzzReader: whatever a file holds, reading and replaying it ends, and with an
// error rather than a panic.
func FuzzReader(f *testing.F) {
	spec, err := cluster.ParseShort("2x4xA100")
	if err != nil {
		f.Fatal(err)
	}
	for _, pol := range []string{"fifo", "las:base=1m", "multifactor"} {
		var b bytes.Buffer
		h := Header{Rules: config.Rules{Spec: *spec, Policy: pol, Placer: "best-fit"}}
		h.Spec.Queues = []cluster.Queue{{Name: "a", Guarantee: 1000, Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
		e, err := h.NewEngine()
		if err != nil {
			f.Fatal(err)
		}
		w, err := NewWriter(&b, h)
		if err != nil {
			f.Fatal(err)
		}
		j := cluster.Job{Queue: "a", Tier: cluster.Standard, Estimate: 1e9,
			Tasks: []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 1}}}}
		for i, evs := range [][]engine.Event{{{Type: engine.Submitted, Spec: &j}},
			{{Type: engine.Started, Rate: 500_000}}, {{Type: engine.NodeDown, Node: "n1"}},
			{{Type: engine.Stopped, Reason: engine.NodeLost}}} {
			batch := engine.Batch{Seq: int64(i), Now: cluster.Time(i) * 1e9, Events: evs}
			d := e.Step(batch)
			if err := w.Record(&batch, &d); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := NewReader("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		for {
			if _, _, err := r.Next(); err != nil {
				break
			}
		}
		if r, err = NewReader("fuzz", strings.NewReader(text)); err != nil {
			t.Fatal("read once and not again")
		}
		_, _, _ = Replay(r, cluster.Never)
	})
}
