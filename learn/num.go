// Package learn has the parts of Muster's learned policy and placer: small networks, their training, the worlds
// of the training, and their weights. It has no clock, no goroutine and no randomness but its own seeded source.
// Products are rounded before they are added (float64(x*y)), because the Go specification allows a compiler to
// fuse the two: so training and inference give the same bits on every machine.
package learn

import (
	"math"

	"github.com/muster-gpu/muster/internal/splitmix"
)

// Rand is a seeded random source (SplitMix64). The zero value is the source of seed 0.
type Rand struct{ splitmix.Source }

// NewRand returns the source of a seed.
func NewRand(seed uint64) *Rand { return &Rand{*splitmix.NewSource(seed)} }

// Float returns a number in [0, 1).
func (r *Rand) Float() float64 { return float64(float64(r.Uint64()>>11) / (1 << 53)) }

// Norm returns a number of mean 0 and variance 1: the sum of twelve uniform ones less six, which needs no
// transcendental function (and is never beyond six deviations).
func (r *Rand) Norm() float64 {
	sum := -6.0
	for range 12 {
		sum += r.Float()
	}
	return sum
}

// Shuffle puts a list in a random order.
func Shuffle[T any](r *Rand, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		k := r.Int(i + 1)
		list[i], list[k] = list[k], list[i]
	}
}

const (
	ln2hi = 6.93147180369123816490e-01
	ln2lo = 1.90821492927058770002e-10
)

// Exp returns e to the x. The standard library's differs in the last bit between architectures, where it is
// written in assembly.
func Exp(x float64) float64 {
	switch {
	case x > 700:
		x = 700
	case x < -700:
		return 0
	}
	k := math.Floor(float64(x/math.Ln2) + 0.5)
	r := x - float64(k*ln2hi)
	r -= float64(k * ln2lo)
	sum, term := 1.0, 1.0
	for n := 1; n <= 14; n++ { // |r| < 0.35: the remainder is below 1e-18
		term = float64(term*r) / float64(n)
		sum += term
	}
	return math.Ldexp(sum, int(k))
}

// Log returns the natural logarithm of a positive number, by the series of the
// inverse hyperbolic tangent.
func Log(x float64) float64 {
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f = float64(f * 2)
		e--
	}
	s := (f - 1) / (f + 1)
	s2 := float64(s * s)
	sum, term := s, s
	for n := 3; n <= 29; n += 2 {
		term = float64(term * s2)
		sum += term / float64(n)
	}
	return float64(2*sum) + float64(float64(e)*math.Ln2)
}

// log2 is the logarithm to the base 2, interpolated linearly between powers of two: exact there, continuous,
// increasing and cheap, which suffices for features.
func log2(x float64) float64 {
	if x <= 0 {
		return -64
	}
	f, e := math.Frexp(x)
	return float64(e-2) + float64(2*f)
}

// within clamps a number.
func within(x, low, high float64) float64 { return min(max(x, low), high) }

// dot is the dot product of two lists of one length.
func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, x := range a {
		sum += float64(x * b[i])
	}
	return sum
}

// axpy adds k times x to y.
func axpy(k float64, x, y []float64) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += float64(k * v)
	}
}
