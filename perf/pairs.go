package perf

import (
	"maps"
	"math"
	"slices"
	"sort"
)

// Unknown interference of pairs is estimated in three ways; of those that apply, the one with the
// smallest error in cross-validation is used. For job models with other known pairs, a tenth of the
// pairs is hidden at a time, both directions together; for job models without known pairs, all
// pairs of a tenth of the job models are hidden.

// The ways of estimating a pair.
const (
	byLike     = iota // from the most similar job models (Gavel)
	byLinear          // by gpulet's linear model, fitted to the known pairs
	byRoofline        // from the sum of what the two use
	ways
)

// PairWays are the names of the ways.
var PairWays = [ways]string{"like models", "linear", "roofline"}

// folds is the number of parts in cross-validation; enough the number of known pairs that the
// linear model needs; mostTried the maximum number of pairs on which a way is tried.
const folds, enough, mostTried = 10, 8, 1500

// PairError is the error of one way of estimating pairs.
type PairError struct {
	Way    string
	Pairs  Error // pairs of job models with other known pairs
	Models Error // pairs with a job model without known pairs
}

// pairEntry is a known pair: the part of its speed that one job model keeps next to another.
type pairEntry struct {
	i, k int
	v    float64
}

// pairData is what is known of pairs; job models are in order of their names.
type pairData struct {
	names []string
	list  []pairEntry
	use   []Use
	used  []bool // whether the job model's use is known
}

// pairsOf merges a table's pairs with others, which take precedence.
func pairsOf(t *Table, others map[[2]string]int64) *pairData {
	all := map[Pair]int64{}
	maps.Copy(all, t.Pairs)
	for k, v := range others { // map order does not matter: it is sorted below
		all[k] = v
	}
	d := &pairData{}
	var keys []Pair
	for k := range all { // map order does not matter: likewise
		if k[0] != "*" && k[1] != "*" && k[0] != "" && k[1] != "" {
			keys = append(keys, k)
			d.names = append(d.names, k[0], k[1])
		}
	}
	for m := range t.Use { // map order does not matter: likewise
		d.names = append(d.names, m)
	}
	d.names = sorted(d.names)
	sort.Slice(keys, func(a, b int) bool { return slices.Compare(keys[a][:], keys[b][:]) < 0 })
	for _, k := range keys {
		i, _ := slices.BinarySearch(d.names, k[0])
		j, _ := slices.BinarySearch(d.names, k[1])
		d.list = append(d.list, pairEntry{i, j, min(1, float64(all[k])/Million)})
	}
	d.use, d.used = make([]Use, len(d.names)), make([]bool, len(d.names))
	for i, m := range d.names {
		d.use[i], d.used[i] = t.Use[m], t.Use[m] != Use{}
	}
	return d
}

// pairFit estimates pairs from the known ones.
type pairFit struct {
	d      *pairData
	like   *matrix
	linear *linearFit // nil: too little is known
	met    []bool     // by job model: whether some pair of it is known
}

func (d *pairData) fit() *pairFit {
	f := &pairFit{d: d, like: &matrix{rows: d.names, columns: d.names, pairs: true}, met: make([]bool, len(d.names))}
	for range d.names {
		row := make([]float64, len(d.names))
		for k := range row {
			row[k] = math.NaN()
		}
		f.like.at = append(f.like.at, row)
	}
	for _, p := range d.list {
		f.like.at[p.i][p.k] = p.v
		f.met[p.i], f.met[p.k] = true, true
	}
	if len(d.list) >= enough {
		f.linear = fitLinear(d)
	}
	return f
}

// by estimates a pair in one way; false: this way does not apply.
func (f *pairFit) by(way, i, k int) (v float64, ok bool) {
	d := f.d
	switch way {
	case byLike:
		return f.like.estimate(i, k)
	case byLinear:
		if ok = f.linear != nil && (f.met[i] || d.used[i]) && (f.met[k] || d.used[k]); ok {
			l := f.linear
			v = l.weights.At(l.uses[i], l.uses[k], 1, 1) + l.own[i] + l.beside[k]
		}
	case byRoofline:
		if ok = d.used[i] && d.used[k]; ok {
			v = 1 / Roofline(d.use[i], d.use[k])
		}
	}
	return min(1, max(0, v)), ok
}

// trial holds the absolute errors of estimates.
type trial []float64

func (t trial) error() (e Error) {
	if len(t) == 0 {
		return e
	}
	sort.Float64s(t)
	sum := 0.0
	for _, v := range t {
		sum += v
	}
	return Error{Known: len(t), Mean: sum / float64(len(t)), P95: t[len(t)*19/20]}
}

// errors cross-validates each way: on pairs of job models with other known pairs, and on pairs with
// a job model without any.
func (d *pairData) errors() (list [ways]PairError) {
	var pairs, models [ways]trial
	step := 1 + (len(d.list)-1)/mostTried
	for fold := range folds {
		d.hide(&pairs, step, true, func(p *pairEntry) bool { return (31*min(p.i, p.k)+max(p.i, p.k))%folds == fold })
		if slices.Contains(d.used, true) { // without its use, nothing can be said of a job model without pairs
			d.hide(&models, step, false, func(p *pairEntry) bool { return p.i%folds == fold || p.k%folds == fold })
		}
	}
	for w := range list {
		list[w] = PairError{PairWays[w], pairs[w].error(), models[w].error()}
	}
	return list
}

// hide tries each way on a part of the pairs, every step-th of them: on pairs whose job models both
// occur in other pairs (met), or on the others.
func (d *pairData) hide(to *[ways]trial, step int, met bool, hidden func(*pairEntry) bool) {
	rest := &pairData{names: d.names, use: d.use, used: d.used}
	for i := range d.list {
		if !hidden(&d.list[i]) {
			rest.list = append(rest.list, d.list[i])
		}
	}
	f := rest.fit()
	for n := range d.list {
		p := &d.list[n]
		if n%step != 0 || !hidden(p) || (f.met[p.i] && f.met[p.k]) != met {
			continue
		}
		for w := range to {
			if v, ok := f.by(w, p.i, p.k); ok {
				to[w] = append(to[w], math.Abs(v-p.v))
			}
		}
	}
}

// best orders the ways by error, the smallest first; ways that were never tried come last.
func best(list *[ways]PairError, of func(*PairError) *Error) (order [ways]int) {
	for w := range order {
		order[w] = w
	}
	slices.SortStableFunc(order[:], func(a, b int) int {
		x, y := of(&list[a]), of(&list[b])
		switch {
		case (x.Known > 0) != (y.Known > 0):
			return y.Known - x.Known
		case x.Mean < y.Mean:
			return -1
		case x.Mean > y.Mean:
			return 1
		}
		return 0
	})
	return order
}

// estimates holds the estimated pairs and their errors.
type estimates struct {
	fit           *pairFit
	errors        [ways]PairError
	pairs, models [ways]int // the ways in order of preference
}

func (d *pairData) estimates() *estimates {
	e := &estimates{fit: d.fit(), errors: d.errors()}
	e.pairs = best(&e.errors, func(x *PairError) *Error { return &x.Pairs })
	e.models = best(&e.errors, func(x *PairError) *Error { return &x.Models })
	return e
}

// of estimates a pair, and says in which way; false: no way applies.
func (e *estimates) of(i, k int) (v float64, way int, ok bool) {
	order := &e.models
	if e.fit.met[i] && e.fit.met[k] {
		order = &e.pairs
	}
	for _, way := range order {
		if v, ok := e.fit.by(way, i, k); ok {
			return v, way, true
		}
	}
	return 0, 0, false
}

// Estimator returns a function that estimates pairs, in ppm, from the listed and the measured ones;
// nil: the table does not predict. The function returns false for pairs that the table lists, and
// for pairs of which nothing is known.
func (t *Table) Estimator(measured map[[2]string]int64) func(model, beside string) (ppm int64, ok bool) {
	if t.Given == nil {
		return nil
	}
	d := pairsOf(t.Given, measured)
	e := d.estimates()
	return func(model, beside string) (int64, bool) {
		i, known := slices.BinarySearch(d.names, model)
		k, too := slices.BinarySearch(d.names, beside)
		if _, listed := t.Given.Pairs[Pair{model, beside}]; listed || !known || !too {
			return 0, false
		}
		v, _, ok := e.of(i, k)
		return ppm(v, 1), ok
	}
}

// Estimates implements speed.Estimator.
func (b Belief) Estimates(measured map[[2]string]int64) func(model, beside string) (ppm int64, ok bool) {
	if t, ok := b.Model.(*Table); ok {
		return t.Estimator(measured)
	}
	return nil
}
