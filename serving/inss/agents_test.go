package inss

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/learn"
)

// The shipped agents' plans keep every goal, also beside an older plan; and of theirs and the solver's the
// better one is never worse than the solver's. On cases that they have not seen they are better more often than
// worse.
func TestAgents(t *testing.T) {
	a, err := ReadAgents(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		services, g, o := randomServices(r, 1+r.IntN(10)), randomGPU(r), Options{Agents: a}
		plan, err := Make(&g, services, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, &g, services, o, plan)
		solver, err := Make(&g, services, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if both := Better(solver, plan); len(both.Rejected) > len(solver.Rejected) || both.Used() > solver.Used() &&
			len(both.Rejected) == len(solver.Rejected) {
			t.Fatalf("%s is worse than %s", text(both), text(solver))
		}
		for k := range services {
			services[k].Rate *= 0.5 + r.Float64()
		}
		if plan, _, err = Replan(&g, plan, services, o); err != nil {
			t.Fatal(err)
		}
		check(t, &g, services, o, plan)
	}
	if j := a.Judge(500, 11); j.Better <= j.Worse || j.Both[0] > j.Solver[0] || j.Both[0] == j.Solver[0] &&
		j.Both[1] >= j.Solver[1] {
		t.Errorf("%+v", j)
	}
}

// The same training finds the same weights, another seed others; files of something else are refused.
func TestLearn(t *testing.T) {
	train := func(seed uint64) string {
		a := (&Training{Rounds: 1, Seed: seed, Cancelled: func() bool { return false },
			Progress: func(int, float64) {}}).Learn()
		text, err := a.Write("a test")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadAgents(text); err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if one := train(1); one != train(1) || shared.Soak(false, true) && one == train(2) {
		t.Error("two trainings differ, or those of two seeds do not")
	}
	for name, text := range map[string]string{"not weights": "{", "the weights are of": string(learn.Shipped("sched2")),
		"version": `{"version":"muster.weights/v0"}`} {
		if _, err := ReadAgents([]byte(text)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
