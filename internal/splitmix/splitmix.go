// Package splitmix spreads numbers evenly over 64 bits (SplitMix64: Steele, Lea and Flood, 2014).
package splitmix

// Step is the difference of two successive states of the generator.
const Step = 0x9e3779b97f4a7c15

// Mix is the generator's output at a state.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Source is a seeded source of random numbers. The zero value is that of seed 0.
type Source struct{ state uint64 }

// NewSource returns the source of a seed.
func NewSource(seed uint64) *Source { return &Source{seed} }

// Uint64 returns 64 random bits.
func (s *Source) Uint64() uint64 {
	s.state += Step
	return Mix(s.state)
}

// Int returns a number in [0, n); n must be positive.
func (s *Source) Int(n int) int { return int(s.Uint64() % uint64(n)) }
