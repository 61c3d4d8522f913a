package engine_test

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// To suspend everybody at once is a rule, not the absence of one; and what a
// caller does to its rules afterwards changes nothing.
func TestStopAllZero(t *testing.T) {
	for how, rules := range map[engine.How]*[3]engine.StopRule{engine.Checkpoint: nil, engine.Suspend: {}} {
		h := newHand(t, "1x2xT4", "srtf", func(c *engine.Config) { c.Stop = rules })
		if rules != nil {
			rules[cluster.Standard] = engine.StopRule{How: engine.Kill, Grace: time.Hour}
		}
		h.want(0, "start 0", submit(job(0, 2, 1000)))
		d := h.e.Step(engine.Batch{Now: cluster.Time(time.Second), Events: []engine.Event{ev(engine.Started, 0), submit(job(1, 2, 10))}})
		grace := engine.DefaultStop[cluster.Standard].Grace
		if rules != nil {
			grace = 0
		}
		if len(d.Actions) != 1 || d.Actions[0].How != how || d.Actions[0].Grace != grace {
			t.Errorf("rules %v: %+v; want %s, grace %s", rules, d.Actions, how, grace)
		}
	}
}
