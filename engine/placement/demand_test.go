package placement

import "testing"

// Demand is updated for each new job at first, later once about an eighth of them are new, at the latest
// after 128.
func TestDemandUpto(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 15: 15, 16: 16, 17: 16, 31: 30, 33: 32, 1023: 960, 1024: 1024,
		1151: 1024, 5000: 4992} {
		if got := demandUpto(n); got != want {
			t.Errorf("of %d jobs the first %d count, want %d", n, got, want)
		}
	}
}
