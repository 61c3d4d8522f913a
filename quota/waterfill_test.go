package quota

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestWaterfill(t *testing.T) {
	for _, c := range []struct {
		name        string
		total, unit Milli
		claims      []Claim
		want        []Milli
	}{
		// Volcano, Tests, Proportion.
		{"volcano", 10, 1, []Claim{{1, 0, 1}, {1, 0, 10}, {2, 0, 10}}, []Milli{1, 3, 6}},
		{"floor", 10, 1, []Claim{{1, 5, 10}, {9, 0, 10}}, []Milli{5, 5}},
		{"floor above cap is kept", 10, 1, []Claim{{1, 4, 2}, {1, 0, 10}}, []Milli{4, 6}},
		{"all capped", 10, 1, []Claim{{1, 0, 2}, {1, 0, 3}}, []Milli{2, 3}},
		{"ties by index", 10, 1, []Claim{{1, 0, 10}, {1, 0, 10}, {1, 0, 10}}, []Milli{4, 3, 3}},
		{"units", 10_000, 1000, []Claim{{1, 0, 10_000}, {2, 0, 10_000}}, []Milli{3000, 7000}},
		{"largest remainder", 10, 1, []Claim{{15, 0, 10}, {18, 0, 10}, {67, 0, 10}}, []Milli{1, 2, 7}},
		{"floors beyond total", 10, 1, []Claim{{1, 10, 10}, {9, 10, 10}}, []Milli{5, 5}},
		{"no weight", 10, 1, []Claim{{0, 0, 10}, {1, 0, 4}}, []Milli{0, 4}},
		{"nothing", 0, 1, []Claim{{1, 3, 10}}, []Milli{0}},
		{"cap below a unit", 2500, 1000, []Claim{{1, 0, 500}, {1, 0, 9000}}, []Milli{500, 2000}},
		{"no claims", 5, 1, nil, []Milli{}},
	} {
		if got := Waterfill(c.total, c.unit, c.claims); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// exactShares is the naive twin: it tries the level of every edge and of every interval between two
// edges, in rational numbers.
func exactShares(total int64, claims []Claim) []*big.Rat {
	at := func(level *big.Rat) ([]*big.Rat, *big.Rat) {
		shares, sum := make([]*big.Rat, len(claims)), new(big.Rat)
		for i, c := range claims {
			hi := max(c.Cap, c.Floor)
			if c.Weight == 0 {
				hi = c.Floor
			}
			s := new(big.Rat).Mul(level, new(big.Rat).SetInt64(c.Weight))
			if s.Cmp(new(big.Rat).SetInt64(c.Floor)) < 0 {
				s.SetInt64(c.Floor)
			}
			if s.Cmp(new(big.Rat).SetInt64(hi)) > 0 {
				s.SetInt64(hi)
			}
			shares[i] = s
			sum.Add(sum, s)
		}
		return shares, sum
	}
	levels := []*big.Rat{new(big.Rat)}
	for _, c := range claims {
		if c.Weight > 0 {
			levels = append(levels, big.NewRat(c.Floor, c.Weight), big.NewRat(max(c.Cap, c.Floor), c.Weight))
		}
	}
	slices.SortFunc(levels, func(a, b *big.Rat) int { return a.Cmp(b) })
	want := new(big.Rat).SetInt64(total)
	for i := range levels[1:] {
		low, sumLow := at(levels[i])
		_, sumHigh := at(levels[i+1])
		if sumHigh.Cmp(want) < 0 {
			continue
		}
		if sumHigh.Cmp(sumLow) == 0 {
			return low
		}
		// Linear in between.
		part := new(big.Rat).Quo(new(big.Rat).Sub(want, sumLow), new(big.Rat).Sub(sumHigh, sumLow))
		step := new(big.Rat).Sub(levels[i+1], levels[i])
		shares, _ := at(step.Add(step.Mul(step, part), levels[i]))
		return shares
	}
	shares, _ := at(levels[len(levels)-1])
	return shares
}

func drawClaims(r *rapid.T) []Claim {
	claim := rapid.Custom(func(r *rapid.T) Claim {
		return Claim{rapid.Int64Range(0, 5).Draw(r, "weight"), rapid.Int64Range(0, 6).Draw(r, "floor") * 1000,
			rapid.Int64Range(0, 20_000).Draw(r, "cap")}
	})
	return rapid.SliceOfN(claim, 1, 6).Draw(r, "claims")
}

func TestWaterfillTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		claims := drawClaims(r)
		total := rapid.Int64Range(0, 60_000).Draw(r, "total")
		unit := rapid.SampledFrom([]Milli{1, 250, 1000}).Draw(r, "unit")
		got := Waterfill(total, unit, claims)
		var sum, floors, most Milli
		for i, c := range claims {
			sum += got[i]
			floors += c.Floor
			if most += c.Floor; c.Weight > 0 {
				most += max(0, c.Cap-c.Floor)
			}
		}
		if sum > total {
			r.Fatalf("%v sums up to %d of %d", got, sum, total)
		}
		if floors > total {
			return
		}
		if unit == 1 && sum != min(total, most) {
			r.Fatalf("%v sums up to %d, %d could be given", got, sum, min(total, most))
		}
		for i, want := range exactShares(total, claims) {
			if got[i] < claims[i].Floor || got[i] > max(claims[i].Floor, claims[i].Cap) {
				r.Fatalf("share %d = %d is outside floor and cap of %+v", i, got[i], claims[i])
			}
			diff := new(big.Rat).Sub(want, new(big.Rat).SetInt64(got[i]))
			if diff.Abs(diff).Cmp(new(big.Rat).SetInt64(unit)) >= 0 && unit == 1 {
				r.Fatalf("share %d = %d, exactly %s", i, got[i], want.FloatString(3))
			}
			if diff.Cmp(new(big.Rat).SetInt64(-unit)) <= 0 {
				r.Fatalf("share %d = %d, exactly %s", i, got[i], want.FloatString(3))
			}
		}
	})
}

func TestJain(t *testing.T) {
	if Jain([]int64{3, 3, 3}) != 1 || Jain([]int64{4, 0, 0, 0}) != 0.25 || Jain(nil) != 1 {
		t.Error("Jain")
	}
}
