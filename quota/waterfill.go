package quota

import (
	"cmp"
	"slices"
)

// Claim is one party's claim in a Waterfill, in milli-GPU.
type Claim struct {
	Weight int64 // any scale; 0: nothing beyond the floor
	Floor  Milli // given first (a guarantee)
	Cap    Milli // never exceeded (a limit or a request); a Floor above it is kept
}

// Waterfill divides total by weighted max-min: every claim gets clamp(level × weight, floor, cap)
// with the one level at which total is used up or all caps are reached. Floors that sum up to more
// than total are reduced by the same rule, with the floors as weights and caps.
//
// Shares are whole multiples of unit as far as floors, caps and total allow: they are rounded down,
// and the rest is handed out in units by largest remainder, ties by index. The sum never exceeds
// total.
func Waterfill(total, unit Milli, claims []Claim) []Milli {
	share := make([]Milli, len(claims))
	work := slices.Clone(claims)
	var floors Milli
	for i := range work {
		c := &work[i]
		c.Floor, c.Weight = max(0, c.Floor), max(0, c.Weight)
		c.Cap = max(c.Cap, c.Floor)
		if c.Weight == 0 {
			c.Cap = c.Floor
		}
		floors += c.Floor
	}
	if total <= 0 {
		return share
	}
	if floors > total {
		for i := range work {
			work[i] = Claim{Weight: work[i].Floor, Cap: work[i].Floor}
		}
	}
	fillExact(total, work, max(1, unit), share)
	return share
}

// edge is a level (amount/weight) at which a claim leaves its floor or
// reaches its cap.
type edge struct {
	amount Milli
	weight int64
	claim  int
	cap    bool
}

// fillExact finds the level by sweeping over the edges in ascending order. Between edges, the sum
// of shares is fixed + level × weight with constant weight.
func fillExact(total Milli, claims []Claim, unit Milli, share []Milli) {
	edges := make([]edge, 0, 2*len(claims))
	var fixed, weight int64
	for i, c := range claims {
		fixed += c.Floor
		if c.Weight > 0 && c.Cap > c.Floor {
			edges = append(edges, edge{c.Floor, c.Weight, i, false}, edge{c.Cap, c.Weight, i, true})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if c := cmpProducts(a.amount, b.weight, b.amount, a.weight); c != 0 {
			return c
		}
		return cmp.Compare(a.claim, b.claim)
	})
	state := make([]int8, len(claims)) // 0: at the floor, 1: rising, 2: at the cap
	for _, e := range edges {
		// Would the level of this edge use more than total?
		if weight > 0 && cmpProducts(e.amount, weight, max(0, total-fixed), e.weight) >= 0 {
			break
		}
		c := &claims[e.claim]
		if e.cap {
			state[e.claim] = 2
			weight -= c.Weight
			fixed += c.Cap
		} else {
			state[e.claim] = 1
			weight += c.Weight
			fixed -= c.Floor
		}
	}
	rem := make([]int64, len(claims)) // of each share's part below a unit, as a numerator over weight
	for i, c := range claims {
		switch state[i] {
		case 0:
			share[i] = c.Floor
		case 2:
			share[i] = c.Cap
		default:
			share[i], rem[i] = mulDiv(total-fixed, c.Weight, weight)
		}
	}
	roundDown(total, claims, unit, share, rem)
}

// roundDown rounds shares down to units, but not below the floor, and hands out the rest by largest
// remainder (the part cut off, then rem), ties by index.
func roundDown(total Milli, claims []Claim, unit Milli, share []Milli, rem []int64) {
	cut := make([]Milli, len(share))
	order := make([]int, len(share))
	for i, c := range claims {
		cut[i] = min(share[i]%unit, share[i]-c.Floor)
		share[i] -= cut[i]
		total -= share[i]
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(cut[b], cut[a]), cmp.Compare(rem[b], rem[a]), cmp.Compare(a, b))
	})
	for given := true; given && total > 0; {
		given = false
		for _, i := range order {
			c := &claims[i]
			give := min(unit-share[i]%unit, c.Cap-share[i])
			if c.Weight > 0 && give > 0 && give <= total {
				share[i] += give
				total -= give
				given = true
			}
		}
	}
}

// Jain returns Jain's fairness index of the values, (Σx)²/(n Σx²): 1 if all
// are equal, 1/n if one has everything. For reports only, never for decisions.
func Jain(values []int64) float64 {
	var sum, squares float64
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(values)) * squares)
}
