// Package search is hyper-parameter search as a state machine: events of trials go in, decisions to start,
// promote and stop trials come out. It has no clock and no randomness of its own (the seed is an argument), and
// every order ends in the number of a trial. Decisions follow from what is known of the trials alone, so a tuner
// that was killed continues from the jobs that it finds.
//
// Terms: a search has trials, one for each configuration. A trial runs to a budget, in the steps that its
// program counts; rungs are the budgets at which trials are compared, and the best of a rung are promoted to the
// next. A bracket is a set of trials that are compared with each other.
package search

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// The methods by name.
const (
	Random  = "random"
	Halving = "successive-halving"
	Band    = "hyperband"
	ASHA    = "asha"
	Hydro   = "hydro"
)

// About describes a method.
type About struct{ Name, What, Knobs, Source string }

// Methods lists all methods, in the order of the documentation.
var Methods = []About{
	{Random, "every trial runs to the whole budget; the yardstick", "trials, budget.max",
		"Bergstra and Bengio, JMLR 2012"},
	{Halving, "all trials run a little, the best 1/eta of them eta times as long, and so on; each rung waits for its slowest trial",
		"trials, budget.min, budget.max, eta", "Jamieson and Talwalkar, AISTATS 2016"},
	{Band, "successive halving several times over, from many trials with little budget to few with all of it: it need not be known how early trials can be told apart",
		"budget.min, budget.max, eta", "Li et al., JMLR 2018"},
	{ASHA, "successive halving without waiting: whenever there is room, the best trial that is among the first 1/eta of its rung is promoted, else another begins; " +
		"stopping: trials run on, and those outside of the first 1/eta are stopped at each rung",
		"trials, budget.min, budget.max, eta, skip (rungs left out at the bottom), stopping", "Li et al., MLSys 2020"},
	{Hydro, "successive halving of narrower models (scale), many of them in one process (fusion); the best is trained at full size as soon as a part of the trials is over (eager)",
		"trials, budget.min, budget.max, eta, scale, eager, fusion", "Hu et al., OSDI 2023"},
}

// Method is a method with its knobs.
type Method struct {
	Name     string
	Trials   int   // configurations; hyperband: determined by the budgets
	Min, Max int64 // budget of the first and of the last rung, in steps
	Eta      int64 // factor by which the budget grows, and the number of trials shrinks, with each rung
	Skip     int   // asha: rungs left out at the bottom (s)
	Stopping bool  // asha: trials run on, and are stopped instead of being promoted
	Scale    int   // hydro: the width of models is divided by it, a power of two; 1: full size
	Eager    int   // hydro: after this many thousandths of the trials the best starts at full size; 1000: after all
	// Fusion is how many trials of a group fit into one process; 0 or 1: one. The caller numbers the groups:
	// trials of one can be fused.
	Fusion []int
	Group  func(trial int) int // index into Fusion; nil: all are in group 0
}

// Upper bounds, so that integer arithmetic cannot overflow.
const (
	MaxTrials = 100_000
	MaxBudget = int64(1) << 40
	maxEta    = 1000
)

// Check says what is wrong with a method's knobs; fields are named as in files.
func (m *Method) Check() error {
	known := false
	for i := range Methods {
		known = known || Methods[i].Name == m.Name
	}
	switch {
	case !known:
		return fmt.Errorf("method: there is no %q; there are %s", m.Name, strings.Join(Names(), ", "))
	case m.Max < 1 || m.Max > MaxBudget:
		return fmt.Errorf("budget.max: %d is not between 1 and %d", m.Max, MaxBudget)
	case m.Name == Random:
	case m.Min < 1 || m.Min > m.Max:
		return fmt.Errorf("budget.min: %d is not between 1 and budget.max, which is %d", m.Min, m.Max)
	case m.Eta < 2 || m.Eta > maxEta:
		return fmt.Errorf("eta: %d is not between 2 and %d", m.Eta, maxEta)
	}
	if m.Name != Band && (m.Trials < 1 || m.Trials > MaxTrials) {
		return fmt.Errorf("trials: %d is not between 1 and %d", m.Trials, MaxTrials)
	}
	if m.Name != ASHA && (m.Skip != 0 || m.Stopping) {
		return fmt.Errorf("skip, stopping: knobs of %s, not of %s", ASHA, m.Name)
	}
	if m.Name == ASHA {
		if top := Log(m.Max/m.Min, m.Eta); m.Skip < 0 || m.Skip > top {
			return fmt.Errorf("skip: %d is not between 0 and %d, the number of rungs above the first", m.Skip, top)
		}
	}
	return m.checkHydro()
}

func (m *Method) checkHydro() error {
	if m.Name != Hydro {
		if m.Scale != 0 || m.Eager != 0 || m.Fusion != nil {
			return fmt.Errorf("scale, eager, fusion: knobs of %s, not of %s", Hydro, m.Name)
		}
		return nil
	}
	switch {
	case m.Scale < 1 || m.Scale > 1<<16 || m.Scale&(m.Scale-1) != 0:
		return fmt.Errorf("scale: %d is not a power of two between 1 and %d", m.Scale, 1<<16)
	case m.Eager < 1 || m.Eager > 1000:
		return errors.New("eager: give a part of the trials above 0, at most 1")
	}
	return nil
}

// Names are the names of all methods.
func Names() (list []string) {
	for i := range Methods {
		list = append(list, Methods[i].Name)
	}
	return list
}

// Log is the largest k with base^k <= n, by multiplication: logarithms of
// floating-point numbers give 3.9999999 for 81 and 3. n is at least 1, base at
// least 2.
func Log(n, base int64) (k int) {
	for p := base; p <= n; p *= base {
		k++
		if p > math.MaxInt64/base {
			break
		}
	}
	return k
}

// power is base^k, which must not overflow.
func power(base int64, k int) int64 {
	p := int64(1)
	for range k {
		p *= base
	}
	return p
}

// Rung is a budget at which trials are compared, and the most trials that reach it.
type Rung struct {
	Trials int
	Budget int64
}

// Bracket is a set of trials that are compared with each other, from First on.
type Bracket struct {
	First int
	Rungs []Rung
}

// Trials is how many trials the bracket has.
func (b *Bracket) Trials() int { return b.Rungs[0].Trials }

// Paid is the budget of the bracket; restart: promoted trials start from the beginning instead of continuing
// from their checkpoints.
func (b *Bracket) Paid(restart bool) (sum int64) {
	before := int64(0)
	for _, r := range b.Rungs {
		sum += int64(r.Trials) * (r.Budget - before)
		if !restart {
			before = r.Budget
		}
	}
	return sum
}

// Plan is the brackets of a method that Check accepts. For asha, which does not wait, the numbers in rungs are
// those at the end.
func (m *Method) Plan() []Bracket {
	switch m.Name {
	case Random:
		return []Bracket{{Rungs: []Rung{{m.Trials, m.Max}}}}
	case Band:
		return m.hyperband()
	}
	b := Bracket{}
	n := m.Trials
	for k := m.Skip; k <= Log(m.Max/m.Min, m.Eta) && n > 0; k++ { // r*eta^k
		b.Rungs = append(b.Rungs, Rung{n, m.Min * power(m.Eta, k)})
		if n /= int(m.Eta); m.Stopping {
			n = max(1, n) // trials run on without being promoted: the rungs follow from the budgets alone
		}
	}
	if top := b.Rungs[len(b.Rungs)-1]; m.Stopping && top.Budget < m.Max {
		b.Rungs = append(b.Rungs, Rung{top.Trials, m.Max})
	}
	return []Bracket{b}
}

// Reached is the budget to which trials are promoted: Max, or less if Max is not of the form Min*Eta^k, or if
// the trials are too few for all rungs.
func (m *Method) Reached() (budget int64) {
	for _, b := range m.Plan() {
		budget = max(budget, b.Rungs[len(b.Rungs)-1].Budget)
	}
	return budget
}

// hyperband: for s from s_max to 0, n = ceil((s_max+1)/(s+1) * eta^s) trials start with R*eta^-s; n_i =
// floor(n*eta^-i) of them get R*eta^(i-s).
func (m *Method) hyperband() (list []Bracket) {
	top := Log(m.Max/m.Min, m.Eta)
	first := 0
	for s := top; s >= 0; s-- {
		b := Bracket{First: first}
		n := (int64(top+1)*power(m.Eta, s) + int64(s)) / int64(s+1)
		for i := range s + 1 {
			b.Rungs = append(b.Rungs, Rung{int(n / power(m.Eta, i)), m.Max / power(m.Eta, s-i)})
		}
		first += int(n)
		list = append(list, b)
	}
	return list
}

// Total is how many trials the brackets have.
func Total(plan []Bracket) (n int) {
	for i := range plan {
		n += plan[i].Trials()
	}
	return n
}
