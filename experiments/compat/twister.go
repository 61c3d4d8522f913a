package compat

import "math/bits"

// twister is the generator of CPython's module random: MT19937 (Matsumoto and Nishimura 1998),
// seeded with an integer as in that module.
type twister struct {
	state [624]uint32
	next  int
}

// newTwister returns the stream of a seed below 2^32.
func newTwister(seed uint32) *twister {
	t := &twister{next: len(twister{}.state)}
	s := &t.state
	s[0] = 19650218
	for i := 1; i < len(s); i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	// init_by_array with the seed's single word.
	i := 1
	step := func(mix func(i int, before uint32) uint32) {
		s[i] = mix(i, s[i-1]^s[i-1]>>30)
		if i++; i == len(s) {
			s[0], i = s[len(s)-1], 1
		}
	}
	for range len(s) {
		step(func(i int, before uint32) uint32 { return s[i] ^ before*1664525 + seed })
	}
	for range len(s) - 1 {
		step(func(i int, before uint32) uint32 { return s[i] ^ before*1566083941 - uint32(i) })
	}
	s[0] = 1 << 31
	return t
}

// word is the next 32 bits.
func (t *twister) word() uint32 {
	s := &t.state
	if t.next == len(s) {
		for i := range s {
			y := s[i]&(1<<31) | s[(i+1)%len(s)]&(1<<31-1)
			s[i] = s[(i+397)%len(s)] ^ y>>1 ^ -(y&1)&0x9908b0df
		}
		t.next = 0
	}
	y := s[t.next]
	t.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// random is a number in [0, 1), of 53 bits.
func (t *twister) random() float64 {
	a, b := t.word()>>5, t.word()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

// uniform is a number in [a, b).
func (t *twister) uniform(a, b float64) float64 { return a + (b-a)*t.random() }

// below is a whole number in [0, n), n > 0: as many random bits as n has, repeated until they are
// less than n.
func (t *twister) below(n int) int {
	for {
		if v := int(t.word() >> (32 - bits.Len(uint(n)))); v < n {
			return v
		}
	}
}
