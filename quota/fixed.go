package quota

import (
	"cmp"
	"math/big"
	"math/bits"
)

// Fixed-point arithmetic instead of floating point, so that every architecture computes the same
// bits (fused multiply-add and assembly versions of math.Exp2 differ).

// one is 1 in Q62: fixed point with 62 bits after the point.
const one = 1 << 62

// roots[i] is 2^-(2^-(i+1)) in Q62, rounded to nearest: 0.5^½, 0.5^¼, ... Integer square roots of
// big integers give every machine the same table.
var roots = func() (r [62]uint64) {
	const frac = 128
	x := new(big.Int).Lsh(big.NewInt(1), frac-1) // 0.5
	for i := range r {
		x.Lsh(x, frac).Sqrt(x)
		y := new(big.Int).Rsh(x, frac-62-1)
		r[i] = (y.Uint64() + 1) / 2
	}
	return r
}()

// mulQ62 returns a×b, both Q62 and at most 1, rounded to nearest.
func mulQ62(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, one/2, 0)
	return (hi+carry)<<2 | lo>>62
}

// halving returns 0.5^(num/den) in Q62. den must be positive, num not negative.
// The error is below 2^-55.
func halving(num, den int64) uint64 {
	whole := num / den
	if whole > 62 {
		return 0
	}
	f, d, rest := uint64(one), uint64(den), uint64(num%den)
	for i := range roots {
		rest <<= 1 // below 2×den, which fits
		if rest >= d {
			rest -= d
			f = mulQ62(f, roots[i])
		}
	}
	return f >> whole
}

// scale returns v × f for f in Q62, rounded down. v must not be negative.
func scale(v int64, f uint64) int64 {
	hi, lo := bits.Mul64(uint64(v), f)
	return int64(hi<<2 | lo>>62)
}

// mulDiv returns a×b/c and the remainder; none may be negative, c positive,
// and the quotient must fit.
func mulDiv(a, b, c int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	return int64(q), int64(r)
}

// wide is an unsigned number of 128 bits.
type wide struct{ hi, lo uint64 }

// product returns a×b in full; neither may be negative.
func product(a, b int64) wide {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return wide{hi, lo}
}

func (a wide) zero() bool { return a.hi|a.lo == 0 }

// times returns a×b in full, most significant word first.
func (a wide) times(b wide) [4]uint64 {
	h1, l1 := bits.Mul64(a.lo, b.lo)
	h2, l2 := bits.Mul64(a.lo, b.hi)
	h3, l3 := bits.Mul64(a.hi, b.lo)
	h4, l4 := bits.Mul64(a.hi, b.hi)
	w1, c := bits.Add64(h1, l2, 0)
	w2, c2 := bits.Add64(h2, h3, c)
	w1, c = bits.Add64(w1, l3, 0)
	w2, c3 := bits.Add64(w2, l4, c)
	return [4]uint64{h4 + c2 + c3, w2, w1, l1}
}

// cmpWide compares a×b with c×d.
func cmpWide(a, b, c, d wide) int {
	x, y := a.times(b), c.times(d)
	for i := range x {
		if x[i] != y[i] {
			return cmp.Compare(x[i], y[i])
		}
	}
	return 0
}

// cmpProducts compares a×b with c×d; none may be negative.
func cmpProducts(a, b, c, d int64) int {
	x, y := product(a, b), product(c, d)
	if x.hi != y.hi {
		return cmp.Compare(x.hi, y.hi)
	}
	return cmp.Compare(x.lo, y.lo)
}
