// Package heap is a binary min-heap over a slice, like container/heap without interface calls and allocations.
package heap

// Ordered is a pointer to an element that can be compared with another.
type Ordered[T any] interface {
	*T
	Before(*T) bool
}

// Push adds an element.
func Push[T any, P Ordered[T]](h *[]T, v T) {
	*h = append(*h, v)
	s := *h
	for i := len(s) - 1; i > 0; {
		p := (i - 1) / 2
		if !P(&s[i]).Before(&s[p]) {
			return
		}
		s[i], s[p] = s[p], s[i]
		i = p
	}
}

// Pop removes and returns the first element of a heap that is not empty.
func Pop[T any, P Ordered[T]](h *[]T) T {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	down[T, P](s[:last], 0)
	return top
}

// Init makes a heap of elements in any order.
func Init[T any, P Ordered[T]](s []T) {
	for i := len(s)/2 - 1; i >= 0; i-- {
		down[T, P](s, i)
	}
}

// down moves an element down to where it belongs.
func down[T any, P Ordered[T]](s []T, i int) {
	for {
		c := 2*i + 1
		if c >= len(s) {
			return
		}
		if c+1 < len(s) && P(&s[c+1]).Before(&s[c]) {
			c++
		}
		if !P(&s[c]).Before(&s[i]) {
			return
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}
