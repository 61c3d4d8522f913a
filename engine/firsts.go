package engine

import "slices"

// firsts is a list of which only the first few are wanted as a rule, in order: it is
// sorted as far as it is looked at. Its dumb twin, a sorted list, is in the test.
type firsts[T any] struct {
	list   []T
	sorted int
	cmp    func(a, b *T) int // a total order
}

// fewFirst is how many are sorted at first, after the very first, which often is all that
// is wanted.
const fewFirst = 8

// at returns the i-th in order.
func (f *firsts[T]) at(i int) *T {
	for f.sorted <= i {
		f.extend()
	}
	return &f.list[i]
}

// extend sorts on: as many as there are sorted, so that all together cost about as much as
// one sort.
func (f *firsts[T]) extend() {
	rest := f.list[f.sorted:]
	if f.sorted == 0 {
		least := 0
		for i := 1; i < len(rest); i++ {
			if f.cmp(&rest[i], &rest[least]) < 0 {
				least = i
			}
		}
		rest[0], rest[least] = rest[least], rest[0]
		f.sorted = 1
		return
	}
	k := min(max(fewFirst, f.sorted), len(rest))
	f.pick(rest, k)
	slices.SortFunc(rest[:k], func(a, b T) int { return f.cmp(&a, &b) })
	f.sorted += k
}

// all sorts the whole list.
func (f *firsts[T]) all() []T {
	rest := f.list[f.sorted:]
	slices.SortFunc(rest, func(a, b T) int { return f.cmp(&a, &b) })
	f.sorted = len(f.list)
	return f.list
}

// pick has the first k of a list come first, in any order (Hoare's quickselect).
func (f *firsts[T]) pick(list []T, k int) {
	for k > 0 && k < len(list) {
		mid, last := len(list)/2, len(list)-1
		for _, x := range [3][2]int{{0, mid}, {mid, last}, {0, mid}} { // the median of three is in the middle
			if f.cmp(&list[x[1]], &list[x[0]]) < 0 {
				list[x[0]], list[x[1]] = list[x[1]], list[x[0]]
			}
		}
		pivot := list[mid]
		i, j := 0, last
		for i <= j {
			for f.cmp(&list[i], &pivot) < 0 {
				i++
			}
			for f.cmp(&pivot, &list[j]) < 0 {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch { // those up to j do not come after the pivot, those from i on not before it
		case k <= j:
			list = list[:j+1]
		case k >= i:
			list, k = list[i:], k-i
		default:
			return
		}
	}
}
