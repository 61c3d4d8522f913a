package quota

import (
	"cmp"
	"slices"
)

// Assoc is an association in Slurm's sense: an account, or a user in an account. Parents come
// before their children; association 0 is the root.
type Assoc struct {
	Parent int   // ignored for the root
	Shares int64 // not negative; 0: no share
	Usage  int64 // decayed, any unit; an account's includes everything below it
	User   bool  // otherwise an account
}

// SumUsage sets the usage of every account to the sum of its children's.
func SumUsage(assocs []Assoc) {
	for i := range assocs {
		if !assocs[i].User {
			assocs[i].Usage = 0
		}
	}
	for i := len(assocs) - 1; i > 0; i-- {
		assocs[assocs[i].Parent].Usage += assocs[i].Usage
	}
}

// FairTree returns Slurm's Fair Tree ranks: user i's fair-share factor is
// rank[i]/users, larger first; equal users have equal ranks; accounts have 0.
//
// At every level siblings are ordered by level fair-share
//
//	LF = (shares / Σ siblings' shares) / (usage / Σ siblings' usage)
//
// so that every user of a better account is before every user of a worse one.
// Accounts that tie are merged: their children compete as siblings, each with
// the sums of its own family. Shares of 0 are worth 0, otherwise usage of 0
// is worth infinity. Source: slurm fair_tree.c, as in Slurm.
func FairTree(assocs []Assoc) (rank []int, users int) {
	f := fairTree{assocs: assocs, children: make([][]int, len(assocs)),
		num: make([]wide, len(assocs)), den: make([]wide, len(assocs)), rank: make([]int, len(assocs))}
	shares, usage := make([]int64, len(assocs)), make([]int64, len(assocs))
	for i := 1; i < len(assocs); i++ {
		a := &assocs[i]
		f.children[a.Parent] = append(f.children[a.Parent], i)
		shares[a.Parent] += a.Shares
		usage[a.Parent] += a.Usage
		if a.User {
			users++
		}
	}
	for i := 1; i < len(assocs); i++ {
		a := &assocs[i]
		f.num[i] = product(a.Shares, usage[a.Parent])
		f.den[i] = product(a.Usage, shares[a.Parent])
		if a.Usage == 0 { // infinity, or 0 without shares
			f.num[i], f.den[i] = product(min(a.Shares, 1), 1), wide{}
			if a.Shares == 0 {
				f.den[i] = wide{0, 1}
			}
		}
	}
	if len(assocs) > 0 {
		f.last, f.next = users, users
		f.calc(f.children[0], false)
	}
	return f.rank, users
}

// fairTree is the tree walk. Num/den is the level fair-share; 1/0 is infinity.
type fairTree struct {
	assocs   []Assoc
	children [][]int
	num, den []wide
	rank     []int
	last     int // the last rank assigned
	next     int // rank of the next user that does not tie
}

// cmp compares the level fair-shares of a and b.
func (f *fairTree) cmp(a, b int) int {
	infA, infB := f.den[a].zero(), f.den[b].zero()
	switch {
	case infA && infB:
		return 0
	case infA:
		return 1
	case infB:
		return -1
	}
	return cmpWide(f.num[a], f.den[b], f.num[b], f.den[a])
}

// calc ranks a list of siblings; tied says that the first of them ties with the last ranked
// association, because their accounts did.
func (f *fairTree) calc(siblings []int, tied bool) {
	slices.SortFunc(siblings, func(a, b int) int {
		if c := f.cmp(b, a); c != 0 {
			return c
		}
		if f.assocs[a].User != f.assocs[b].User {
			if f.assocs[a].User {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	for i := 0; i < len(siblings); i++ {
		s := siblings[i]
		if i > 0 {
			tied = f.cmp(s, siblings[i-1]) == 0
		}
		if f.assocs[s].User {
			if !tied {
				f.last = f.next
			}
			f.rank[s] = f.last
			f.next--
			continue
		}
		merged := slices.Clone(f.children[s])
		for i+1 < len(siblings) && f.cmp(siblings[i+1], s) == 0 { // all accounts: users come first
			i++
			merged = append(merged, f.children[siblings[i]]...)
		}
		f.calc(merged, tied)
	}
}
