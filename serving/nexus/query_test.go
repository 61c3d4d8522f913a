package nexus

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// steps is a curve of batches that take half of goals, as many requests as come with each.
func steps(goals []time.Duration, batches []int) (c Curve) {
	for i, g := range goals {
		for len(c) < batches[i] {
			c = append(c, g/2)
		}
	}
	return c
}

// TestSplit: Nexus' example of two models in a row within 100 ms (section 4.2, SOSP 2019): X does 200, 250 or 300
// requests/s within 40, 50 or 60 ms, Y 300, 400 or 500. Which split is best depends on how many requests of Y each of X
// causes.
func TestSplit(t *testing.T) {
	within := []time.Duration{40 * ms, 50 * ms, 60 * ms}
	x, y := steps(within, []int{4, 6, 9}), steps(within, []int{6, 10, 15})
	x[4], x[5] = 24*ms, 24*ms // 6 in 24 ms: 250/s
	for _, c := range []struct {
		each        float64
		first, rate float64 // ms for X; requests/s of the whole on a GPU
	}{{0.1, 60, 272.7}, {1, 50, 153.8}, {10, 40, 40}} {
		q := Query{Serial: []Query{{Stage: &Stage{"x", 1, x}}, {Stage: &Stage{"y", c.each, y}}}}
		list, gpus, err := q.Split(100*ms, 10*ms)
		if err != nil || len(list) != 2 {
			t.Fatalf("%v %v", list, err)
		}
		first := time.Duration(c.first) * ms
		want := []Budget{{"x", first}, {"y", 100*ms - first}}
		if !slices.Equal(list, want) || math.Abs(1/gpus-c.rate) > 0.05 {
			t.Errorf("%v: %v, %.1f/s", c.each, list, 1/gpus)
		}
	}
}

func randomQuery(r *rand.Rand, depth int) Query {
	kind := r.IntN(3)
	if depth == 0 || kind == 0 {
		s := randomSession(r, 1)
		s.Takes = linear(s.Takes[0]/8, (s.Takes[1]-s.Takes[0])/8+1, 12)
		return Query{Stage: &Stage{s.Name, 1 + 100*r.Float64(), s.Takes}}
	}
	var parts []Query
	for range 1 + r.IntN(3) {
		parts = append(parts, randomQuery(r, depth-1))
	}
	if kind == 1 {
		return Query{Serial: parts}
	}
	return Query{Parallel: parts}
}

// stages lists the stages of a query.
func (q *Query) stages() (list []*Stage) {
	if q.Stage != nil {
		return []*Stage{q.Stage}
	}
	for _, parts := range [][]Query{q.Serial, q.Parallel} {
		for i := range parts {
			list = append(list, parts[i].stages()...)
		}
	}
	return list
}

// takes is how long a query takes with the given budgets of its stages.
func (q *Query) takes(budget map[*Stage]time.Duration) (sum time.Duration) {
	if q.Stage != nil {
		return budget[q.Stage]
	}
	for i := range q.Serial {
		sum += q.Serial[i].takes(budget)
	}
	for i := range q.Parallel {
		sum = max(sum, q.Parallel[i].takes(budget))
	}
	return sum
}

// TestSplitTwin compares random queries with all ways to give each stage a time.
func TestSplitTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	possible := 0
	for range 400 {
		q := randomQuery(r, 2)
		list := q.stages()
		if len(list) > 4 {
			continue
		}
		goal, step := time.Duration(20+r.IntN(120))*ms, 10*ms
		budget, best := map[*Stage]time.Duration{}, math.Inf(1)
		var try func(k int, gpus float64)
		try = func(k int, gpus float64) {
			if k == len(list) {
				if q.takes(budget) <= goal/step*step {
					best = min(best, gpus)
				}
				return
			}
			for b := step; b <= goal; b += step {
				budget[list[k]] = b
				if _, rate := list[k].Takes.Saturated(b); rate > 0 {
					try(k+1, gpus+list[k].Rate/rate)
				}
			}
		}
		try(0, 0)
		budgets, gpus, err := q.Split(goal, step)
		if (err != nil) != math.IsInf(best, 1) {
			t.Fatalf("the best is %v, %v", best, err)
		}
		if err != nil {
			continue
		}
		possible++
		sum := 0.0
		for i, b := range budgets {
			if b.Stage != list[i].Name {
				t.Fatalf("%v: stages in another order", budgets)
			}
			_, rate := list[i].Takes.Saturated(b.Goal)
			sum += list[i].Rate / rate
			budget[list[i]] = b.Goal
		}
		if math.Abs(gpus-best) > 1e-9*best || math.Abs(sum-gpus) > 1e-9*best || q.takes(budget) > goal {
			t.Fatalf("%v: %v GPUs, in truth %v, the best is %v; %v of %v", budgets, gpus, sum, best, q.takes(budget),
				goal)
		}
	}
	if possible < 100 {
		t.Errorf("only %d were possible", possible)
	}
}

func TestSplitErrors(t *testing.T) {
	x := Query{Stage: &Stage{"x", 1, linear(5*ms, ms, 8)}}
	for _, c := range []struct {
		q          Query
		goal, step time.Duration
		want       string
	}{
		{x, 10 * ms, ms, "batches of one"},
		{x, 10 * ms, 0, "not divided"},
		{x, time.Hour, ms, "not divided"},
		{Query{}, 10 * ms, ms, "a query is"},
		{Query{Serial: []Query{x, {Stage: &Stage{Name: "y"}}}}, 10 * ms, ms, `stage "y": rate`},
		{Query{Serial: []Query{x}, Parallel: []Query{x}}, 10 * ms, ms, "a query is"},
	} {
		if _, _, err := c.q.Split(c.goal, c.step); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	list, _, err := x.Split(12*ms, ms)
	if err != nil || !slices.Equal(list, []Budget{{"x", 12 * ms}}) {
		t.Errorf("%v %v", list, err)
	}
}
