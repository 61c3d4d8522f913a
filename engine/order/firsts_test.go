package order

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Compared with the naive twin, a sorted list: read in part and whole, with and without equal
// elements.
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
		f := Firsts[[2]int]{List: list, Cmp: order}
		for i := range r.IntN(n + 1) {
			if *f.At(i) != twin[i] {
				t.Fatalf("%d of %d is %v, want %v", i, n, *f.At(i), twin[i])
			}
		}
		if n%2 == 0 && !slices.Equal(f.All(), twin) {
			t.Fatalf("all of %d: %v, want %v", n, f.List, twin)
		}
	}
}

// Whatever the order of a list, reading part of it takes no more comparisons than a sort.
func TestFirstsOfAnyOrder(t *testing.T) {
	const n = 1 << 13
	for name, at := range map[string]func(i int) int{
		"in order":         func(i int) int { return i },
		"backwards":        func(i int) int { return n - i },
		"all alike":        func(int) int { return 0 },
		"up and down":      func(i int) int { return min(i, n-i) },
		"down and up":      func(i int) int { return max(i, n-i) },
		"two in order":     func(i int) int { return i % (n / 2) },
		"two of unequals":  func(i int) int { return (i + n/8) % n },
		"many in order":    func(i int) int { return i % 100 },
		"one of each half": func(i int) int { return i%2*n + i },
		"thinned out":      func(i int) int { return i % 3 * n / (1 + i%7) },
	} {
		for _, k := range []int{1, 20, n / 4, n} {
			list := make([][2]int, n)
			for i := range list {
				list[i] = [2]int{at(i), i}
			}
			compared := 0
			f := Firsts[[2]int]{List: list, Cmp: func(a, b *[2]int) int {
				compared++
				return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(b[1], a[1]))
			}}
			for i := range k {
				f.At(i)
			}
			if most := 6 * n * 13; compared > most {
				t.Errorf("%s: the first %d of %d cost %d comparisons, more than %d", name, k, n, compared, most)
			}
		}
	}
}

// A list on which the pivots partition next to nothing (McIlroy, 1999, A killer adversary for
// quicksort): the order of two elements is decided when they are compared.
func TestFirstsAgainstAnAdversary(t *testing.T) {
	const n = 1 << 12
	gas := n // larger than all decided values
	order, list := make([]int, n), make([]int, n)
	for i := range list {
		order[i], list[i] = gas, i
	}
	solid, candidate, compared := 0, 0, 0
	f := Firsts[int]{List: list, Cmp: func(a, b *int) int {
		x, y := *a, *b
		compared++
		if order[x] == gas && order[y] == gas && x != y {
			if x != candidate {
				x, y = y, x
			}
			order[x], solid = solid, solid+1
			x, y = *a, *b
		}
		if order[x] == gas {
			candidate = x
		} else if order[y] == gas {
			candidate = y
		}
		return cmp.Compare(order[x], order[y])
	}}
	if most := 6 * n * 12; len(f.All()) != n || compared > most {
		t.Errorf("%d cost %d comparisons, more than %d", n, compared, most)
	}
}
