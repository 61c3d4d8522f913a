// Package heap is a binary min-heap over a slice: what container/heap does,
// without interface calls and allocations.
package heap

// Ordered is a pointer to an element that can say which of two comes first.
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
	s = s[:last]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && P(&s[c+1]).Before(&s[c]) {
			c++
		}
		if !P(&s[c]).Before(&s[i]) {
			return top
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}
