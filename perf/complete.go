package perf

import (
	"math"
	"slices"
	"strings"
)

// Completes implements speed.Completer for tables with Predict: the speed of a job model on a GPU
// model on which it was not measured is taken from the job models with the most nearly proportional
// speeds, in proportion. The reference of measured speeds is unknown, so only proportions count,
// and two known speeds are the minimum (compare matrix.nearest).
func (b Belief) Completes(model string, known map[string]int64) map[string]int64 {
	t, ok := b.Model.(*Table)
	if !ok || t.Given == nil {
		return nil
	}
	m := newMatrix(false, func(add func(row, column string, v float64)) {
		for other, row := range t.Given.Speed { // map order does not matter: the matrix is sorted
			for gpu, v := range row { // map order does not matter: likewise
				if other != "*" && other != model && !strings.Contains(gpu, "/") {
					add(other, gpu, math.Log(float64(v)/Million))
				}
			}
		}
		for gpu, v := range known { // map order does not matter: likewise
			add(model, gpu, math.Log(float64(v)/Million))
		}
	})
	i, _ := slices.BinarySearch(m.rows, model)
	guessed := map[string]int64{}
	for k, gpu := range m.columns {
		if !math.IsNaN(m.at[i][k]) {
			continue
		}
		if v, ok := m.proportional(i, k); ok {
			guessed[gpu] = ppm(math.Exp(v), 100)
		}
	}
	return guessed
}

// proportional is the entry of the rows that are nearest up to a constant difference.
func (m *matrix) proportional(i, k int) (v float64, ok bool) {
	var near []reference
	for r := range m.rows {
		if r == i || math.IsNaN(m.at[r][k]) {
			continue
		}
		sum, squares, n := 0.0, 0.0, 0.0
		for c := range m.columns {
			if d := m.at[i][c] - m.at[r][c]; !math.IsNaN(d) {
				sum, squares, n = sum+d, squares+d*d, n+1
			}
		}
		if n > 1 {
			near = append(near, reference{max(0, squares/n-sum/n*sum/n), m.at[r][k] + sum/n})
		}
	}
	return weigh(near)
}
