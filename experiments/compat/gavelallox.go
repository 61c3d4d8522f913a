package compat

import (
	"math"
	"slices"
)

// gavelAlloX gives idle GPUs to the first jobs in the assignment with the minimal sum of completion
// times; a job that has one keeps it. A place is a GPU and a turn, counted from the end of its
// queue: first all GPUs of the last turn, in the order of gavelModels. GPUs of a model are equal,
// so several assignments are optimal: the method and the last digits of the costs, which are
// computed as in that simulator, decide which one is taken.
func gavelAlloX(g *gavelRules) {
	idle := [3]int{gavelGPUs, gavelGPUs, gavelGPUs}
	var queue []*gavelEntry
	for _, e := range g.entries {
		if k := slices.Index(e.x[:], 1); k >= 0 {
			idle[k]--
		} else {
			queue = append(queue, e)
		}
	}
	var gpus []int // model of each GPU
	for k, n := range idle {
		gpus = append(gpus, slices.Repeat([]int{k}, n)...)
	}
	if len(gpus) == 0 || len(queue) == 0 {
		return
	}
	costs := make([]float64, 0, len(queue)*len(queue)*len(gpus))
	for _, e := range queue {
		j := e.jobs[0]
		for turn := range queue {
			for _, k := range gpus {
				v := j.rate[k]
				if v == 0 {
					v = 1e-10
				}
				costs = append(costs, float64(float64(turn+1)*(j.left/v))+(g.w.clock-j.arrival))
			}
		}
	}
	places := gavelAssign(len(queue), len(queue)*len(gpus), costs)
	first := make([]int, len(gpus)) // the last turn on each GPU, counted from the end
	for _, at := range places {
		first[at%len(gpus)] = max(first[at%len(gpus)], at/len(gpus))
	}
	for i, at := range places {
		if gpu := at % len(gpus); at/len(gpus) == first[gpu] {
			queue[i].x[gpus[gpu]] = 1
		}
	}
}

// munkres is the state of gavelAssign. A star is a zero of the reduced costs that is part of the
// assignment, a prime one that could become part.
type munkres struct {
	rows, cols             int
	costs                  []float64 // by row
	starOf, primeOf        []int     // column of a row's star and prime; -1: none
	starIn                 []int     // row of a column's star; -1: none
	coveredRow, coveredCol []bool
}

// gavelAssign assigns each row a column of its own, so that the sum of the costs (stored by row) is
// minimal, and returns the columns. There are at least as many columns as rows. It overwrites the
// costs.
//
// Among several optimal assignments it returns the one that the simulator found: this is Munkres'
// method of 1957 (steps as in Bourgeois and Lassalle 1971) on doubles, with a row-by-row search for
// zeros. (solve.Assign, which is faster, returns another one.)
func gavelAssign(rows, cols int, costs []float64) []int {
	none := func(n int) []int { return slices.Repeat([]int{-1}, n) }
	m := &munkres{rows: rows, cols: cols, costs: costs, starOf: none(rows), primeOf: none(rows), starIn: none(cols),
		coveredRow: make([]bool, rows), coveredCol: make([]bool, cols)}
	stars := 0
	for i := range rows {
		row := m.row(i)
		least := slices.Min(row)
		for k := range row {
			row[k] -= least
		}
		for k := range row {
			if row[k] == 0 && m.starIn[k] < 0 {
				m.starOf[i], m.starIn[k] = k, i
				stars++
				break
			}
		}
	}
	for ; stars < rows; stars++ {
		for k := range m.coveredCol {
			m.coveredCol[k] = m.starIn[k] >= 0
		}
		m.augment(m.prime())
		clear(m.coveredRow)
		for i := range m.primeOf {
			m.primeOf[i] = -1
		}
	}
	return m.starOf
}

func (m *munkres) row(i int) []float64 { return m.costs[i*m.cols : (i+1)*m.cols] }

// prime primes uncovered zeros until one is in a row without a star, which it returns. A row with a
// star is covered, and the star's column uncovered.
func (m *munkres) prime() (row int) {
	for {
		i, k := m.zero()
		if i < 0 {
			m.reduce()
			continue
		}
		if m.primeOf[i] = k; m.starOf[i] < 0 {
			return i
		}
		m.coveredRow[i], m.coveredCol[m.starOf[i]] = true, false
	}
}

// zero is the first uncovered zero; -1: none.
func (m *munkres) zero() (row, col int) {
	for i := range m.rows {
		if m.coveredRow[i] {
			continue
		}
		for k, c := range m.row(i) {
			if c == 0 && !m.coveredCol[k] {
				return i, k
			}
		}
	}
	return -1, -1
}

// reduce turns the smallest uncovered cost into a zero: it is added to covered rows, then
// subtracted from uncovered columns. Entries with both get both, because they may round.
func (m *munkres) reduce() {
	least := math.Inf(1)
	for i := range m.rows {
		for k, c := range m.row(i) {
			if !m.coveredRow[i] && !m.coveredCol[k] {
				least = min(least, c)
			}
		}
	}
	for i := range m.rows {
		row := m.row(i)
		for k := range row {
			if m.coveredRow[i] {
				row[k] += least
			}
			if !m.coveredCol[k] {
				row[k] -= least
			}
		}
	}
}

// augment turns the primes into stars, and removes the stars, on the alternating path that begins
// with a row's prime: from a prime to the star in its column, from there to the prime in its row.
func (m *munkres) augment(row int) {
	for row >= 0 {
		col := m.primeOf[row]
		next := m.starIn[col]
		m.starOf[row], m.starIn[col] = col, row
		row = next
	}
}
