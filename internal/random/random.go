// Package random draws from distributions that the standard library lacks.
package random

import (
	"math"
	"math/rand/v2"
)

// Gamma draws from the gamma distribution with mean 1 and the given coefficient of variation (Marsaglia and Tsang, A
// Simple Method for Generating Gamma Variables, 2000); 1 is the exponential.
func Gamma(r *rand.Rand, cv float64) float64 {
	if cv == 1 {
		return r.ExpFloat64()
	}
	shape := 1 / (cv * cv)
	boost := 1.0
	k := shape
	if k < 1 {
		boost = math.Pow(1-r.Float64(), 1/k)
		k++
	}
	d := k - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-r.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v * boost / shape
		}
	}
}
