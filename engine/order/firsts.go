package order

import "math/bits"

// Firsts is a list of which usually only the first few elements are needed in order: it is sorted
// only as far as it is read. Its naive twin, a sorted list, is in the test. Elements are compared
// in place: passing the address of a copy to Cmp would move the copy to the heap.
type Firsts[T any] struct {
	List   []T
	Sorted int
	Cmp    func(a, b *T) int // a total order
}

// fewFirst is how many elements are sorted next after the very first, which is often the only one
// needed.
const fewFirst = 8

// At returns the i-th element in order.
func (f *Firsts[T]) At(i int) *T {
	for f.Sorted <= i {
		f.extend()
	}
	return &f.List[i]
}

// extend doubles the sorted part, so that the total cost is about that of one sort.
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

// mostParts is how often a list is partitioned, each time in its larger part, before its order is
// assumed to cause bad pivots: twice as often as with pivots in the middle.
func mostParts[T any](list []T) int { return 2 * bits.Len(uint(len(list))) }

// sort puts the first k elements of a list in order at its front (Hoare's quicksort, leaving out
// later parts). After too many partitions it uses heap sort, so that bad pivots do not make it
// quadratic.
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

// heapSort sorts a list in n log n, whatever its order.
func (f *Firsts[T]) heapSort(list []T) {
	for i := len(list)/2 - 1; i >= 0; i-- {
		f.sink(list, i)
	}
	for n := len(list) - 1; n > 0; n-- {
		list[0], list[n] = list[n], list[0]
		f.sink(list[:n], 0)
	}
}

// sink restores a heap, whose root is the last element in order, at its i-th element.
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

// part partitions a list around a pivot and returns the pivot's index.
func (f *Firsts[T]) part(list []T) int {
	last := len(list) - 1
	mid := f.pivot(list)
	list[0], list[mid] = list[mid], list[0]
	i, j := 1, last
	for {
		for i <= j && f.Cmp(&list[i], &list[0]) < 0 {
			i++
		}
		for f.Cmp(&list[0], &list[j]) < 0 { // stops at the first element at the latest
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

// manyFirst is the length from which the pivot is the median of three medians.
const manyFirst = 64

// pivot is the index of the median of three, or of three medians of three, all inside the list: a
// list composed of two or three sorted parts, as those of jobs often are, has its extremes at the
// ends.
func (f *Firsts[T]) pivot(list []T) int {
	n := len(list)
	a, b, c := n/4, n/2, n/4*3
	if n >= manyFirst {
		d := n / 12
		a, b, c = f.median(list, a-d, a, a+d), f.median(list, b-d, b, b+d), f.median(list, c-d, c, c+d)
	}
	return f.median(list, a, b, c)
}

// median is the index of the middle one of three elements.
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
