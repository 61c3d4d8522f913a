package quota

import (
	"encoding/json"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

func TestCaps(t *testing.T) {
	tree := mustTree(t, 16,
		queue("org", "", 16, func(q *cluster.Queue) { q.UserGPUs = 6 * gpu }),
		queue("a", "org", 8, func(q *cluster.Queue) { q.MaxJobs, q.UserJobs = 3, 2 }),
		queue("b", "org", 8))
	a, b := at(t, tree, "a"), at(t, tree, "b")
	caps := NewCaps(tree)
	const ann, bob = 0, 7
	caps.Charge(b, ann, 4*gpu, 1)
	if r := caps.Check(a, ann, 3*gpu, 1); r.Rule != RuleUserGPUs || r.Name != "org" || r.Used != 4*gpu {
		t.Errorf("ann holds 4 in b: %+v", r)
	}
	if r := caps.Check(a, ann, 2*gpu, 1); !r.OK() {
		t.Error(r)
	}
	caps.Charge(a, bob, 1*gpu, 1)
	caps.Charge(a, bob, 1*gpu, 1)
	r := caps.Check(a, bob, 1*gpu, 1)
	if r.Rule != RuleUserJobs || r.String() != `queue "a": the user runs 2 jobs, at most 2` {
		t.Errorf("%+v %v", r, r)
	}
	if r := caps.Check(a, bob, 1*gpu, 0); !r.OK() {
		t.Errorf("a running job may grow: %v", r)
	}
	caps.Charge(a, ann, 1*gpu, 1)
	if r := caps.Check(a, 3, 1*gpu, 1); r.Rule != RuleMaxJobs || r.Used != 3 {
		t.Errorf("%+v", r)
	}
	caps.Charge(a, bob, -1*gpu, -1)
	if r := caps.Check(a, bob, 1*gpu, 1); !r.OK() || caps.Jobs(a) != 2 {
		t.Errorf("%v, %d jobs", r, caps.Jobs(a))
	}
}

func TestRuleNames(t *testing.T) {
	for r := Allowed; int(r) < len(ruleNames); r++ {
		var back Rule
		b, err := json.Marshal(Refusal{Rule: r, Name: "q"})
		if err != nil {
			t.Fatal(err)
		}
		refusal := Refusal{}
		if err := json.Unmarshal(b, &refusal); err != nil || refusal.Rule != r {
			t.Errorf("%s: %v %v", b, refusal.Rule, err)
		}
		if refusal.String() == "" || refusal.Rule.String() == back.String() && r != Allowed {
			t.Errorf("%v has no text of its own", r)
		}
	}
	var r Rule
	if err := r.UnmarshalText([]byte("limt")); err == nil {
		t.Error("unknown rule")
	}
	for m, want := range map[Milli]string{4000: "4", 500: "0.5", 1250: "1.25", 1: "0.001", -2000: "-2", 0: "0"} {
		if got := FormatGPUs(m); got != want {
			t.Errorf("FormatGPUs(%d) = %q, want %q", m, got, want)
		}
	}
}
