package order

import "math/bits"

// Firsts is a list of which only the first few are wanted as a rule, in order: it is
// sorted as far as it is looked at. Its dumb twin, a sorted list, is in the test. Elements are
// compared where they are: a copy of which cmp is given the address would be one on the heap.
type Firsts[T any] struct {
	List   []T
	Sorted int
	Cmp    func(a, b *T) int // a total order
}

// fewFirst is how many are sorted at first, after the very first, which often is all that
// is wanted.
const fewFirst = 8

// At returns the i-th in order.
func (f *Firsts[T]) At(i int) *T {
	for f.Sorted <= i {
		f.extend()
	}
	return &f.List[i]
}

// extend sorts on: as many as there are sorted, so that all together cost about as much as
// one sort.
func (f *Firsts[T]) extend() {
	rest := f.List[f.Sorted:]
	if f.Sorted == 0 {
		least := 0
		for i := 1; i < len(rest); i++ {
			if f.Cmp(&rest[i], &rest[least]) < 0 {
				least = i
			}
		}
		rest[0], rest[least] = rest[least], rest[0]
		f.Sorted = 1
		return
	}
	k := min(max(fewFirst, f.Sorted), len(rest))
	f.sort(rest, k, mostParts(rest))
	f.Sorted += k
}

// All sorts the whole list.
func (f *Firsts[T]) All() []T {
	rest := f.List[f.Sorted:]
	f.sort(rest, len(rest), mostParts(rest))
	f.Sorted = len(f.List)
	return f.List
}

// mostParts is how often a list is parted, each time the larger part of it, before its order is taken
// to be one that makes bad pivots: twice as often as if they were in the middle.
func mostParts[T any](list []T) int { return 2 * bits.Len(uint(len(list))) }

// sort has the first k of a list come first, in order (Hoare's quicksort, of which what comes later is
// left out). What has been parted in vain is sorted as a heap: bad pivots do not make it quadratic.
func (f *Firsts[T]) sort(list []T, k, parts int) {
	for k > 0 && len(list) > fewFirst {
		if parts--; parts < 0 {
			f.heapSort(list)
			return
		}
		at := f.part(list)
		f.sort(list[:at], min(k, at), parts)
		list, k = list[at+1:], k-at-1
	}
	if k <= 0 {
		return
	}
	for i := range list {
		for j := i; j > 0 && f.Cmp(&list[j], &list[j-1]) < 0; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// heapSort sorts a list, whatever its order, in n log n.
func (f *Firsts[T]) heapSort(list []T) {
	for i := len(list)/2 - 1; i >= 0; i-- {
		f.sink(list, i)
	}
	for n := len(list) - 1; n > 0; n-- {
		list[0], list[n] = list[n], list[0]
		f.sink(list[:n], 0)
	}
}

// sink has the i-th of a heap, whose root is the last in order, come below those after it.
func (f *Firsts[T]) sink(heap []T, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && f.Cmp(&heap[child], &heap[child+1]) < 0 {
			child++
		}
		if f.Cmp(&heap[child], &heap[i]) <= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// part has one of a list come to its place, with those before it on one side of it and those
// after it on the other, and says where that is.
func (f *Firsts[T]) part(list []T) int {
	last := len(list) - 1
	mid := f.pivot(list)
	list[0], list[mid] = list[mid], list[0]
	i, j := 1, last
	for {
		for i <= j && f.Cmp(&list[i], &list[0]) < 0 {
			i++
		}
		for f.Cmp(&list[0], &list[j]) < 0 { // ends at the first at the latest
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

// manyFirst is from how many on the pivot is the median of three medians.
const manyFirst = 64

// pivot is where the median of three is, or of three medians of three, all of them inside the list: a list
// that is made of two or three in order, as those of jobs often are, has its ends where the extremes are.
func (f *Firsts[T]) pivot(list []T) int {
	n := len(list)
	a, b, c := n/4, n/2, n/4*3
	if n >= manyFirst {
		d := n / 12
		a, b, c = f.median(list, a-d, a, a+d), f.median(list, b-d, b, b+d), f.median(list, c-d, c, c+d)
	}
	return f.median(list, a, b, c)
}

// median is which of three is between the others.
func (f *Firsts[T]) median(list []T, a, b, c int) int {
	if f.Cmp(&list[b], &list[a]) < 0 {
		a, b = b, a
	}
	if f.Cmp(&list[c], &list[b]) < 0 {
		if b = c; f.Cmp(&list[b], &list[a]) < 0 {
			b = a
		}
	}
	return b
}
