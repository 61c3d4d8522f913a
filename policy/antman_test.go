package policy

import "testing"

// AntMan's vector (OSDI'20): on a GPU of 32 GB whose guaranteed job has used at most 20, guests may
// have 11, with 1 GB of headroom; the limit is never negative.
func TestMemoryLimit(t *testing.T) {
	const g = 1024
	for _, c := range [][3]int64{{32 * g, 20 * g, 11 * g}, {32 * g, 0, 31 * g}, {32 * g, 31 * g, 0},
		{32 * g, 40 * g, 0}} {
		if got := memoryLimit(c[0], c[1], g); got != c[2] {
			t.Errorf("%d of %d used: %d, want %d", c[1], c[0], got, c[2])
		}
	}
	for _, text := range []string{"antman:memory=all", "antman:headroom=-1", "antman:headroom=1GiB"} {
		if _, err := New(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
