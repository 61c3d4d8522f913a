package compat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// worst is the objective that fairShares minimizes.
func worst(claims []claim, shares []float64) (most float64) {
	for i, c := range claims {
		most = max(most, (c.age+c.work/shares[i])/c.alone)
	}
	return most
}

// No change of the shares, of one job or from one job to another, is better: neither for the worst
// job nor, among shares that are equally good for it, for the centre.
func TestFairShares(t *testing.T) {
	t.Parallel()
	const gpus = 64
	open, tight := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		claims := make([]claim, 2+r.IntN(12))
		for i := range claims {
			c := claim{gpus: float64(int(1) << r.IntN(6)), age: 1000 * r.Float64(), work: 1 + 5000*r.Float64()}
			c.alone = (c.age*r.Float64() + c.work) * (1 + 3*r.Float64())
			claims[i] = c
		}
		shares := fairShares(claims, gpus)
		value, held, bound := worst(claims, shares), 0.0, 0.0
		for i, x := range shares {
			if x <= 0 || x > 1 {
				t.Fatalf("seed %d: share %g", seed, x)
			}
			held += claims[i].gpus * x
			bound = max(bound, (claims[i].age+claims[i].work)/claims[i].alone)
		}
		if held > gpus*(1+1e-9) {
			t.Fatalf("seed %d: %g GPUs", seed, held)
		}
		if value > bound*(1+1e-9) { // the GPUs are the bound: all jobs have the value, and all GPUs are used
			tight++
			for i, c := range claims {
				if v := (c.age + c.work/shares[i]) / c.alone; math.Abs(v-value) > 1e-6*value {
					t.Errorf("seed %d: job %d at %g, another at %g", seed, i, v, value)
				}
			}
			if held < gpus*(1-1e-6) {
				t.Errorf("seed %d: %g GPUs given, and a job is at %g", seed, held, value)
			}
			continue
		}
		open++
		central(t, claims, shares, value, gpus)
	}
	if open < 50 || tight < 50 {
		t.Errorf("%d cases with a choice, %d without; want both", open, tight)
	}
}

// central checks that the distances to all bounds are balanced.
func central(t *testing.T, claims []claim, shares []float64, value, gpus float64) {
	t.Helper()
	height := func(x []float64) float64 {
		sum, left := 0.0, gpus
		for i := range x {
			left -= claims[i].gpus * x[i]
			if 1-claims[i].least(value) > 1e-8 {
				sum += 1.5*math.Log(x[i]-claims[i].least(value)) + math.Log(1-x[i])
			}
		}
		return sum + math.Log(left)
	}
	at := height(shares)
	for i := range shares {
		for _, step := range []float64{-1e-3, 1e-3} {
			x := append([]float64(nil), shares...)
			if x[i] += step * (1 - x[i]); 1-claims[i].least(value) > 1e-8 && height(x) > at+1e-9 {
				t.Errorf("share %g of job %d: with %g it would be nearer to the centre", shares[i], i, x[i])
			}
		}
	}
}
