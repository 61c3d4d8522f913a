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
