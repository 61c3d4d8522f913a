package engine

// firsts is a list of which only the first few are wanted as a rule, in order: it is
// sorted as far as it is looked at. Its dumb twin, a sorted list, is in the test. Elements are
// compared where they are: a copy of which cmp is given the address would be one on the heap.
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
	f.sort(rest, k)
	f.sorted += k
}

// all sorts the whole list.
func (f *firsts[T]) all() []T {
	f.sort(f.list[f.sorted:], len(f.list)-f.sorted)
	f.sorted = len(f.list)
	return f.list
}

// sort has the first k of a list come first, in order (Hoare's quicksort, of which what
// comes later is left out).
func (f *firsts[T]) sort(list []T, k int) {
	for k > 0 && len(list) > fewFirst {
		at := f.part(list)
		f.sort(list[:at], min(k, at))
		list, k = list[at+1:], k-at-1
	}
	if k <= 0 {
		return
	}
	for i := range list {
		for j := i; j > 0 && f.cmp(&list[j], &list[j-1]) < 0; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// part has one of a list come to its place, with those before it on one side of it and those
// after it on the other, and says where that is.
func (f *firsts[T]) part(list []T) int {
	mid, last := len(list)/2, len(list)-1
	for _, x := range [3][2]int{{0, mid}, {mid, last}, {0, mid}} { // the median of three is in the middle
		if f.cmp(&list[x[1]], &list[x[0]]) < 0 {
			list[x[0]], list[x[1]] = list[x[1]], list[x[0]]
		}
	}
	list[0], list[mid] = list[mid], list[0]
	i, j := 1, last
	for {
		for i <= j && f.cmp(&list[i], &list[0]) < 0 {
			i++
		}
		for f.cmp(&list[0], &list[j]) < 0 { // ends at the first at the latest
			j--
		}
		if i >= j {
			break
		}
		list[i], list[j] = list[j], list[i]
		i, j = i+1, j-1
	}
	list[0], list[j] = list[j], list[0]
	return j
}
