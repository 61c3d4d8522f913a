package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Against the dumb twin, a sorted list: looked at in part and whole, with and without equals.
func TestFirsts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		list := make([][2]int, n)
		for i := range list {
			list[i] = [2]int{r.IntN(1 + n/(1+r.IntN(4))), i}
		}
		r.Shuffle(n, func(i, k int) { list[i], list[k] = list[k], list[i] })
		order := func(a, b *[2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
		twin := slices.Clone(list)
		slices.SortFunc(twin, func(a, b [2]int) int { return order(&a, &b) })
		f := firsts[[2]int]{list: list, cmp: order}
		for i := range r.IntN(n + 1) {
			if *f.at(i) != twin[i] {
				t.Fatalf("%d of %d is %v, want %v", i, n, *f.at(i), twin[i])
			}
		}
		if n%2 == 0 && !slices.Equal(f.all(), twin) {
			t.Fatalf("all of %d: %v, want %v", n, f.list, twin)
		}
	}
}
