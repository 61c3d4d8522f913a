package perf

import (
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
)

// What a table does not list can be estimated from the most similar job models: those with about
// equal speeds where both were measured. This is Gavel's estimator (OSDI'20, section 6: a few
// measurements are a fingerprint, and the nearest reference job stands for the rest) with three
// references instead of one, which has smaller errors on Gavel's own measurements
// (docs/howto/share-a-gpu.md). Pairs have further ways (pairs.go).

// references is the number of similar job models per estimate.
const references = 3

// sharpness is the squared distance of factors below which references count as equally near:
// measurements are no more precise than that.
const sharpness = 1e-3

// Error is the error of estimates where the truth is known: each entry is hidden in turn and
// estimated from the others.
type Error struct {
	Filled int     // estimated entries that are unknown
	Known  int     // entries over which the error was taken
	Mean   float64 // mean absolute error of a factor
	P95    float64 // 95th percentile
}

// Predict fills in speeds on GPU models and factors of pairs that the table does not list, from the
// most similar job models, for job models with some listed entries or a known use of a GPU; entries
// for "*" stay unchanged. It returns a new table and the errors of speeds, relative to the true
// ones, and of pairs of job models with other listed pairs; Ways has more detail.
func (t *Table) Predict() (filled *Table, speeds, pairs Error) {
	c := *t
	s := newMatrix(false, func(add func(row, column string, v float64)) {
		for model, row := range t.Speed { // map order does not matter: the matrix is sorted
			for gpu, v := range row { // map order does not matter: likewise
				if model != "*" && !strings.Contains(gpu, "/") { // MIG instances are in proportion to their GPU
					add(model, gpu, math.Log(float64(v)/Million))
				}
			}
		}
	})
	c.Speed = map[string]map[string]int64{}
	for model, row := range t.Speed { // map order does not matter: the matrix is sorted
		c.Speed[model] = maps.Clone(row)
	}
	speeds = s.fill(func(row, column string, v float64) {
		c.Speed[row][column] = ppm(math.Exp(v), 100)
	}, math.Exp)
	c.Given, c.Pairs = t, maps.Clone(t.Pairs)
	if c.Pairs == nil {
		c.Pairs = map[Pair]int64{}
	}
	d := pairsOf(t, nil)
	e := d.estimates()
	var by [ways]struct{ pairs, models int }
	for i, a := range d.names {
		for k, b := range d.names {
			if _, listed := t.Pairs[Pair{a, b}]; listed {
				continue
			}
			v, way, ok := e.of(i, k)
			if !ok {
				continue
			}
			c.Pairs[Pair{a, b}] = ppm(v, 1)
			if pairs.Filled++; e.fit.met[i] && e.fit.met[k] {
				by[way].pairs++
			} else {
				by[way].models++
			}
		}
	}
	c.Ways = e.errors[:]
	for w := range c.Ways {
		c.Ways[w].Pairs.Filled, c.Ways[w].Models.Filled = by[w].pairs, by[w].models
	}
	first := &e.errors[e.pairs[0]].Pairs
	pairs.Known, pairs.Mean, pairs.P95 = first.Known, first.Mean, first.P95
	return &c, speeds, pairs
}

// ppm is a factor in ppm, clamped to 1 and most.
func ppm(v, most float64) int64 {
	return int64(math.Round(min(most, max(1.0/Million, v)) * Million))
}

// matrix holds the known entries by row and column; NaN: unknown. In a square one, of pairs, the
// columns also say something of a job.
type matrix struct {
	rows, columns []string
	at            [][]float64
	pairs         bool
}

// newMatrix makes a matrix of the entries that each passes to add; for pairs, rows and columns are
// the same.
func newMatrix(pairs bool, each func(add func(row, column string, v float64))) *matrix {
	known := map[[2]string]float64{}
	m := &matrix{pairs: pairs}
	each(func(row, column string, v float64) {
		known[[2]string{row, column}] = v
		m.rows, m.columns = append(m.rows, row), append(m.columns, column)
	})
	if pairs {
		m.rows = append(m.rows, m.columns...)
		m.columns = m.rows
	}
	m.rows, m.columns = sorted(m.rows), sorted(m.columns)
	for _, row := range m.rows {
		var list []float64
		for _, column := range m.columns {
			v, ok := known[[2]string{row, column}]
			if !ok {
				v = math.NaN()
			}
			list = append(list, v)
		}
		m.at = append(m.at, list)
	}
	return m
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	sort.Strings(list)
	return slices.Compact(list)
}

// fill estimates the unknown entries, and the error of estimates; truth maps an entry to the value
// that errors are relative to; nil: errors are absolute.
func (m *matrix) fill(take func(row, column string, v float64), truth func(float64) float64) (e Error) {
	var off []float64
	type entry struct {
		i, k int
		v    float64
	}
	var list []entry
	for i := range m.rows {
		for k := range m.columns {
			v := m.at[i][k]
			m.at[i][k] = math.NaN()
			got, ok := m.estimate(i, k)
			m.at[i][k] = v
			switch {
			case !ok:
			case math.IsNaN(v):
				list = append(list, entry{i, k, got})
			case truth != nil:
				off = append(off, math.Abs(truth(got)/truth(v)-1))
			default:
				off = append(off, math.Abs(got-v))
			}
		}
	}
	for _, x := range list { // after all estimates, which use known entries only
		take(m.rows[x.i], m.columns[x.k], x.v)
	}
	e.Filled, e.Known = len(list), len(off)
	if len(off) > 0 {
		sort.Float64s(off)
		sum := 0.0
		for _, v := range off {
			sum += v
		}
		e.Mean, e.P95 = sum/float64(len(off)), off[len(off)*19/20]
	}
	return e
}

// estimate is the entry of the rows that are nearest where both are known; for pairs, of the
// columns, too, as far as too little of the row is known.
func (m *matrix) estimate(i, k int) (v float64, ok bool) {
	near := m.nearest(i, func(r int) float64 { return m.at[r][k] })
	if m.pairs {
		near = append(near, m.nearest(k, func(r int) float64 { return m.at[i][r] })...)
	}
	return weigh(near)
}

// weigh is the weighted mean of the nearest references, with larger weights for nearer ones; false:
// there is none.
func weigh(near []reference) (v float64, ok bool) {
	slices.SortStableFunc(near, func(a, b reference) int {
		switch {
		case a.distance < b.distance:
			return -1
		case a.distance > b.distance:
			return 1
		}
		return 0
	})
	sum, weight := 0.0, 0.0
	for _, n := range near[:min(references, len(near))] {
		w := 1 / (n.distance + sharpness)
		sum, weight = sum+w*n.value, weight+w
	}
	if weight == 0 {
		return 0, false
	}
	return sum / weight, true
}

// reference is a row that has the wanted value.
type reference struct{ distance, value float64 }

// nearest lists the rows that have the value and known entries in common with row i, with their
// mean squared difference.
func (m *matrix) nearest(i int, value func(row int) float64) (list []reference) {
	for r := range m.rows {
		v := value(r)
		if r == i || math.IsNaN(v) {
			continue
		}
		sum, n := 0.0, 0
		compare := func(a, b float64) {
			if d := a - b; !math.IsNaN(d) {
				sum, n = sum+d*d, n+1
			}
		}
		for c := range m.columns {
			compare(m.at[i][c], m.at[r][c])
			if m.pairs {
				compare(m.at[c][i], m.at[c][r])
			}
		}
		if n > 0 {
			list = append(list, reference{sum / float64(n), v})
		}
	}
	return list
}
