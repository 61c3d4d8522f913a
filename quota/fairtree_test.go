package quota

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Slurm, Tests 1.
func TestFairTree(t *testing.T) {
	assocs := []Assoc{{},
		{Parent: 0, Shares: 10},                       // 1: A
		{Parent: 0, Shares: 30},                       // 2: B
		{Parent: 1, Shares: 1, Usage: 20, User: true}, // 3: a1
		{Parent: 1, Shares: 1, Usage: 0, User: true},  // 4: a2
		{Parent: 2, Shares: 1, Usage: 5, User: true},  // 5: b1
		{Parent: 2, Shares: 1, Usage: 15, User: true}, // 6: b2
	}
	SumUsage(assocs)
	if assocs[1].Usage != 20 || assocs[2].Usage != 20 || assocs[0].Usage != 40 {
		t.Fatalf("sums: %+v", assocs)
	}
	rank, users := FairTree(assocs)
	if users != 4 || !slices.Equal(rank, []int{0, 0, 0, 1, 2, 4, 3}) {
		t.Errorf("ranks %v of %d: want b1 1.0, b2 .75, a2 .5, a1 .25", rank, users)
	}
}

func TestFairTreeTies(t *testing.T) {
	account := func(parent int, shares int64) Assoc { return Assoc{Parent: parent, Shares: shares} }
	user := func(parent int, shares, usage int64) Assoc { return Assoc{parent, shares, usage, true} }
	for _, c := range []struct {
		name   string
		assocs []Assoc
		want   []int
	}{
		{"equal users", []Assoc{{}, user(0, 1, 5), user(0, 1, 5), user(0, 1, 6)}, []int{0, 3, 3, 1}},
		// Tied accounts: their users compete together, by the LF within their own families.
		{"merged", []Assoc{{}, account(0, 1), account(0, 1), user(1, 1, 2), user(1, 1, 4), user(2, 1, 1),
			user(2, 1, 5)},
			[]int{0, 0, 0, 3, 2, 4, 1}},
		{"merged and equal", []Assoc{{}, account(0, 1), account(0, 2), user(1, 1, 3), user(2, 1, 6)},
			[]int{0, 0, 0, 2, 2}},
		// A user that ties with an account ties with the account's best user.
		{"user and account", []Assoc{{}, account(0, 1), user(0, 1, 4), user(1, 1, 1), user(1, 1, 3)},
			[]int{0, 0, 3, 3, 1}},
		{"never used", []Assoc{{}, account(0, 1), account(0, 9), user(1, 1, 0), user(2, 1, 0), user(2, 1, 0)},
			[]int{0, 0, 0, 3, 3, 3}},
		{"no shares are worth nothing", []Assoc{{}, user(0, 0, 0), user(0, 1, 100), user(0, 0, 7)}, []int{0, 2, 3, 2}},
		{"empty account", []Assoc{{}, account(0, 1), user(0, 1, 1)}, []int{0, 0, 1}},
		{"large numbers", []Assoc{{}, user(0, 1<<40, 1<<60), user(0, 1<<40, 1<<60-1)}, []int{0, 1, 2}},
	} {
		SumUsage(c.assocs)
		if got, _ := FairTree(c.assocs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if rank, users := FairTree(nil); len(rank) != 0 || users != 0 {
		t.Error("no associations")
	}
}

// twinTree is the naive twin: each user's position is the list of level fair-shares on its path
// from the root, compared element by element; users with equal lists tie.
func twinTree(assocs []Assoc) []int {
	lf := func(i int) *big.Rat {
		a := assocs[i]
		var shares, usage int64
		for j := 1; j < len(assocs); j++ {
			if assocs[j].Parent == a.Parent {
				shares += assocs[j].Shares
				usage += assocs[j].Usage
			}
		}
		if a.Usage == 0 {
			return big.NewRat(math.MaxInt64, 1)
		}
		return new(big.Rat).Quo(big.NewRat(a.Shares, shares), big.NewRat(a.Usage, usage))
	}
	way := func(i int) (w []*big.Rat) {
		for ; i != 0; i = assocs[i].Parent {
			w = append([]*big.Rat{lf(i)}, w...)
		}
		return w
	}
	compare := func(a, b int) int {
		wa, wb := way(a), way(b)
		for i := range min(len(wa), len(wb)) {
			if c := wa[i].Cmp(wb[i]); c != 0 {
				return c
			}
		}
		return 0
	}
	rank := make([]int, len(assocs))
	for i := range assocs {
		if assocs[i].User {
			for j := range assocs { // all that are not strictly better
				if assocs[j].User && compare(i, j) >= 0 {
					rank[i]++
				}
			}
		}
	}
	return rank
}

// drawAssocs draws a tree with all users at the same depth, so that the
// twin's comparison of lists is a total preorder.
func drawAssocs(r *rapid.T) []Assoc {
	assocs := []Assoc{{}}
	for range rapid.IntRange(1, 4).Draw(r, "accounts") {
		account := len(assocs)
		assocs = append(assocs, Assoc{Parent: 0, Shares: rapid.Int64Range(1, 3).Draw(r, "shares")})
		for range rapid.IntRange(1, 4).Draw(r, "users") {
			assocs = append(assocs,
				Assoc{account, rapid.Int64Range(1, 3).Draw(r, "shares"), rapid.Int64Range(0, 4).Draw(r, "usage"), true})
		}
	}
	SumUsage(assocs)
	return assocs
}

func TestFairTreeTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		assocs := drawAssocs(r)
		got, users := FairTree(assocs)
		if want := twinTree(assocs); !slices.Equal(got, want) {
			r.Fatalf("%v, want %v", got, want)
		}
		for i, a := range assocs {
			if a.User && (got[i] < 1 || got[i] > users) {
				r.Fatalf("rank %d of %d", got[i], users)
			}
		}
		// The order does not change if all usage is scaled.
		factor := rapid.Int64Range(2, 1<<30).Draw(r, "factor")
		for i := range assocs {
			assocs[i].Usage *= factor
		}
		if scaled, _ := FairTree(assocs); !slices.Equal(got, scaled) {
			r.Fatalf("scaled by %d: %v, before %v", factor, scaled, got)
		}
	})
}

// Every user of a better account is before every user of a worse one.
func TestFairTreeAccountsFirst(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		assocs := drawAssocs(r)
		rank, _ := FairTree(assocs)
		for i, a := range assocs {
			for j, b := range assocs {
				if !a.User || !b.User || a.Parent == b.Parent {
					continue
				}
				pa, pb := assocs[a.Parent], assocs[b.Parent]
				// Siblings: LF is shares/usage up to a common factor.
				if c := cmpProducts(pa.Shares, pb.Usage, pb.Shares, pa.Usage); c != 0 && pa.Usage+pb.Usage > 0 &&
					cmp.Compare(rank[i], rank[j]) != c {
					r.Fatalf("ranks %v of %+v", rank, assocs)
				}
			}
		}
	})
}
