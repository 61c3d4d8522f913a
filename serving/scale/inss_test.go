package scale

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/inss"
)

// TestLearntSays: inss-rl says of each plan whether the agents' or the solver's was taken, and what the other came to;
// inss has nothing to say.
func TestLearntSays(t *testing.T) {
	a, b := parted(1, 1, 2, service.Use{}, 50*ms), parted(2, 2, 2, service.Use{}, 80*ms)
	for name, want := range map[string]string{"inss-rl": "plan is taken", "inss": ""} {
		p := policy(t, name)
		if text := Says(p); text != "" {
			t.Errorf("%s before any plan: %q", name, text)
		}
		Decide(p, []*View{seen(a, time.Second, 300, 4), seen(b, time.Second, 100, 4)})
		if text := Says(p); !strings.Contains(text, want) || (text == "") != (want == "") {
			t.Errorf("%s: %q", name, text)
		}
	}
	plan := func(percents ...int) *inss.Plan {
		p := &inss.Plan{}
		for _, x := range percents {
			p.GPUs = append(p.GPUs, []inss.Placed{{Percent: x}})
		}
		return p
	}
	for _, c := range []struct {
		solver, learnt *inss.Plan
		takes          int // percent on the first GPU
		says           string
	}{{plan(50), plan(40), 40, "the learnt plan is taken: 0.4 GPUs' shares on 1; the solver's has 0.5 GPUs' shares on 1"},
		{plan(60), plan(30, 30), 60, "the solver's plan is taken instead of the learnt one, which is worse: " +
			"0.6 GPUs' shares on 1, not 0.6 GPUs' shares on 2"},
		{plan(50), plan(50), 50, "the solver's plan is taken, as good as the learnt one: 0.5 GPUs' shares on 1"},
		{plan(50), &inss.Plan{Rejected: []string{"a 0"}}, 50, "not 0 GPUs' shares on 0, replicas without room: 1"}} {
		got, says := chosenOf(c.solver, c.learnt)
		if got.GPUs[0][0].Percent != c.takes || !strings.HasSuffix(says, c.says) {
			t.Errorf("%s", says)
		}
	}
}

// TestWeights: inss-rl has the weights that the program was given, unless its text names a file, which no program that
// runs services for others reads.
func TestWeights(t *testing.T) {
	t.Cleanup(func() { Weights = nil })
	Weights = []byte("{}")
	if _, err := New("inss-rl"); err == nil || !strings.Contains(err.Error(), "weights: ") {
		t.Errorf("weights that are none: %v", err)
	}
	agents, err := inss.ReadAgents(nil)
	if err != nil {
		t.Fatal(err)
	}
	if Weights, err = agents.Write("a test"); err != nil {
		t.Fatal(err)
	}
	if _, err := New("inss-rl"); err != nil {
		t.Error(err)
	}
	if _, err := New("inss-rl:weights=/etc/passwd"); err == nil || !strings.Contains(err.Error(), "services.weights") {
		t.Errorf("a file of a service: %v", err)
	}
}
