package inventory

import "math/bits"

// bitset is a set of small integers with a summary level, so that the next
// member is found in a few words even among a hundred thousand.
type bitset struct {
	words []uint64
	sum   []uint64 // bit i: words[i] != 0
	n     int
}

func (b *bitset) add(i int32) {
	w := i >> 6
	bit := uint64(1) << (i & 63)
	if b.words[w]&bit == 0 {
		b.words[w] |= bit
		b.sum[w>>6] |= 1 << (w & 63)
		b.n++
	}
}

func (b *bitset) del(i int32) {
	w := i >> 6
	bit := uint64(1) << (i & 63)
	if b.words[w]&bit != 0 {
		b.words[w] &^= bit
		if b.words[w] == 0 {
			b.sum[w>>6] &^= 1 << (w & 63)
		}
		b.n--
	}
}

// Next returns the lowest member >= i, or -1.
func (b *bitset) Next(i int32) int32 {
	w := int(i >> 6)
	if w >= len(b.words) {
		return -1
	}
	if rest := b.words[w] >> (i & 63); rest != 0 {
		return i + int32(bits.TrailingZeros64(rest))
	}
	w++
	s := w >> 6
	if s >= len(b.sum) {
		return -1
	}
	rest := b.sum[s] >> (w & 63) << (w & 63)
	for rest == 0 {
		if s++; s >= len(b.sum) {
			return -1
		}
		rest = b.sum[s]
	}
	w = s<<6 + bits.TrailingZeros64(rest)
	return int32(w<<6 + bits.TrailingZeros64(b.words[w]))
}

// Len is the number of members.
func (b *bitset) Len() int { return b.n }

func (b *bitset) grow(n int) {
	for len(b.words) < (n+63)/64 {
		b.words = append(b.words, 0)
	}
	for len(b.sum) < (len(b.words)+63)/64 {
		b.sum = append(b.sum, 0)
	}
}
