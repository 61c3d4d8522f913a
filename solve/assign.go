package solve

import (
	"fmt"
	"math"
)

// Impossible is a cost for Assign that no sum of possible ones should reach.
const Impossible = 1 << 50

// Assign gives each row a column of its own, so that the sum of the costs is
// least, and returns the columns. Costs are stored by row. There are at least as many columns as rows;
// costs are between 0 and Impossible. It takes O(rows^2 x columns).
//
// Source: the Hungarian method, as shortest augmenting paths with potentials
// (Jonker and Volgenant 1987, without their initialisation).
func Assign(rows, cols int, costs []int64) []int {
	if cols < rows || len(costs) != rows*cols {
		panic(fmt.Sprintf("solve: %d costs for %d rows and %d columns", len(costs), rows, cols))
	}
	u, v := make([]int64, rows+1), make([]int64, cols+1)
	row := make([]int, cols+1) // of a column, from 1; 0: none. Column 0 is where a path begins.
	from, least, done := make([]int, cols+1), make([]int64, cols+1), make([]bool, cols+1)
	for i := 1; i <= rows; i++ {
		for j := range least {
			least[j], done[j] = math.MaxInt64, false
		}
		row[0] = i
		at := 0
		for row[at] != 0 {
			done[at] = true
			next, delta, high := 0, int64(math.MaxInt64), u[row[at]]
			of := costs[(row[at]-1)*cols : row[at]*cols]
			for j := 1; j <= cols; j++ {
				if done[j] {
					continue
				}
				if c := of[j-1] - high - v[j]; c < least[j] {
					least[j], from[j] = c, at
				}
				if least[j] < delta {
					next, delta = j, least[j]
				}
			}
			for j := range done {
				if done[j] {
					u[row[j]] += delta
					v[j] -= delta
				} else if least[j] != math.MaxInt64 {
					least[j] -= delta
				}
			}
			at = next
		}
		for at != 0 { // along the path each column changes its row
			row[at] = row[from[at]]
			at = from[at]
		}
	}
	columns := make([]int, rows)
	for j := 1; j <= cols; j++ {
		if row[j] > 0 {
			columns[row[j]-1] = j - 1
		}
	}
	return columns
}
