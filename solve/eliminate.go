package solve

import "math"

// Eliminate solves a x = b, a small system, by Gaussian elimination with pivoting, and leaves x in
// b. It overwrites a. Products are rounded before they are added, so that every machine gives the
// same result.
func Eliminate(a [][]float64, b []float64) {
	for c := range a {
		best := c
		for r := c + 1; r < len(a); r++ {
			if math.Abs(a[r][c]) > math.Abs(a[best][c]) {
				best = r
			}
		}
		a[c], a[best], b[c], b[best] = a[best], a[c], b[best], b[c]
		for r := c + 1; r < len(a); r++ {
			f := a[r][c] / a[c][c]
			for k := c; k < len(a); k++ {
				a[r][k] -= float64(f * a[c][k])
			}
			b[r] -= float64(f * b[c])
		}
	}
	for c := len(a) - 1; c >= 0; c-- {
		for k := c + 1; k < len(a); k++ {
			b[c] -= float64(a[c][k] * b[k])
		}
		b[c] /= a[c][c]
	}
}
