package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/past"
	"github.com/muster-gpu/muster/engine/sched"
)

// learner looks at completed jobs, or not, and at alike ones, or not.
type learner struct {
	nobody
	traits sched.Traits
}

func (l learner) Traits() sched.Traits { return l.traits }

// Completed jobs keep what makes them alike over a restart, where the policy looks at it.
func TestAlikeRestored(t *testing.T) {
	for _, alike := range []bool{true, false} {
		cfg := Config{Policy: learner{traits: sched.Traits{Learns: time.Minute, Alike: alike}}, Placer: nowhere{},
			Spec: cluster.Spec{Nodes: []cluster.Node{{Name: "a", Model: "T4-16GB", GPUs: 4}}}}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := e.Snapshot()
		s.Past = &past.Record{
			Jobs:    []sched.Earlier{{User: "ann", Name: "train", Submit: 5, Milli: 1000, Ran: time.Hour, Served: 1}},
			InForce: 1, Period: 1}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Snapshot
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if e, err = Restore(cfg, &back); err != nil {
			t.Fatal(err)
		}
		past := e.w.View().Past()
		if got := len(past.All.Jobs) == 1 && len(past.Sizes) == 1 && past.All.Jobs[0].Submit == 5; got != alike ||
			len(past.Services) != 1 {
			t.Errorf("looks at alike jobs %t: %+v", alike, past)
		}
	}
}
