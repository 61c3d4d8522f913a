package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Salus (MLSys'20), vector: of 16 GB, J1 and J2 have lanes of their own, J3 shares J1's, which is
// the smaller one; J4 does not fit, not even in a lane that grows.
func TestLanes(t *testing.T) {
	const g = 1024
	jobs := []Footprint{{1 * g, 6 * g}, {1 * g, 7 * g}, {g / 2, 5 * g}, {1 * g, 8 * g}}
	for n, want := range [][]int{{}, {0}, {0, 1}, {0, 1, 0}} {
		if lane, ok := Lanes(jobs[:n], 16*g); !ok || !slices.Equal(lane, want) {
			t.Errorf("%d jobs: %v %v, want %v", n, lane, ok, want)
		}
	}
	if lane, ok := Lanes(jobs, 16*g); ok {
		t.Errorf("four jobs: %v", lane)
	}
	// A lane grows if that takes less memory than another lane.
	if lane, ok := Lanes([]Footprint{{1, 6}, {1, 2}, {1, 7}}, 12); !ok || !slices.Equal(lane, []int{0, 1, 0}) {
		t.Errorf("%v %v", lane, ok)
	}
}

// For any jobs, all persistent parts and the lanes fit, and a lane is as large as its largest
// iteration.
func TestLanesSafe(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shared, refused := 0, 0
	for range 20_000 {
		jobs := make([]Footprint, 1+r.IntN(8))
		for i := range jobs {
			jobs[i] = Footprint{MiB(r.IntN(4)), MiB(r.IntN(12))}
		}
		lane, ok := Lanes(jobs, 24)
		if !ok {
			refused++
			continue
		}
		sizes, used := make([]MiB, len(jobs)), MiB(0)
		for i, j := range jobs {
			sizes[lane[i]] = max(sizes[lane[i]], j.Ephemeral)
			used += j.Persistent
			if slices.Contains(lane[:i], lane[i]) {
				shared++
			}
		}
		for _, size := range sizes {
			used += size
		}
		if used > 24 {
			t.Fatalf("%v in lanes %v take %d of 24", jobs, lane, used)
		}
	}
	if shared < 1000 || refused < 1000 {
		t.Errorf("%d jobs shared a lane, %d lists were refused: the test shows nothing", shared, refused)
	}
}
