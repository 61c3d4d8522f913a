package solve

import (
	"fmt"
	"math"
)

// Impossible is the cost of a forbidden pair in Assign; no sum of possible costs should reach it.
const Impossible = 1 << 50

// Assign assigns each row a column of its own so that the sum of the costs is minimal, and returns
// the columns. Costs are stored by row and are between 0 and Impossible. There are at least as many
// columns as rows. It takes O(rows^2 x columns).
//
// Source: the Hungarian method, as shortest augmenting paths with potentials
// (Jonker and Volgenant 1987, without their initialisation).
func Assign(rows, cols int, costs []int64) []int {
	if cols < rows || len(costs) != rows*cols {
		panic(fmt.Sprintf("solve: %d costs for %d rows and %d columns", len(costs), rows, cols))
	}
	u, v := make([]int64, rows+1), make([]int64, cols+1)
	row := make([]int, cols+1) // row of each column, from 1; 0: none. Column 0 is where a path begins.
	from, least, done := make([]int, cols+1), make([]int64, cols+1), make([]bool, cols+1)
	reached := make([]int64, cols+1) // distance of each finished column
	path := make([]int, 0, cols+1)   // finished columns, in order
	for i := 1; i <= rows; i++ {
		for j := range least {
			least[j], done[j] = math.MaxInt64, false
		}
		row[0], path = i, path[:0]
		at, far := 0, int64(0)
		for row[at] != 0 {
			done[at], reached[at], path = true, far, append(path, at)
			next, nearest, high := 0, int64(math.MaxInt64), u[row[at]]-far
			of := costs[(row[at]-1)*cols : row[at]*cols]
			for j, cost := range of {
				if j++; done[j] {
					continue
				}
				if c := cost - high - v[j]; c < least[j] {
					least[j], from[j] = c, at
				}
				if least[j] < nearest {
					next, nearest = j, least[j]
				}
			}
			at, far = next, nearest
		}
		for _, j := range path {
			u[row[j]] += far - reached[j]
			v[j] -= far - reached[j]
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
