package place

import (
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/splitmix"
)

// TestPublishedScores: examples E3 to E6 of FGD's simulator. Muster's scores are the same before
// they are rounded to 0..100.
func TestPublishedScores(t *testing.T) {
	// E3: 64 cores and 2 GPUs free, 12 cores and one GPU requested: 73.4375.
	if left := leftover(64000-12000, 2000-1000); 100*(256000-left) != 73_4375*256000/10000 {
		t.Errorf("E3: %d of 256000 left", left)
	}
	// E4: the same: 0.5 x 0.09375 + 0.25 x 0.125 = 0.078125.
	if a := alignment(64000, 12000, 2000, 1000); a != 78125*(128000*128000/1000000) {
		t.Errorf("E4: %d", a)
	}
	for _, c := range []struct {
		name  string
		sizes uint64
		size  int
		want  int64
	}{{"only shares, a share comes", 0b1, 0, 93}, {"shares and tasks of two", 0b101, 0, 68}, {"no tasks", 0, 0, 43},
		{"only tasks of one", 0b10, 0, 18}} {
		if got := ClusteringScore(c.sizes, c.size, 2000); got != c.want {
			t.Errorf("E5, %s: %d, want %d", c.name, got, c.want)
		}
	}
	idle := func(n int) (free []int64) {
		for range n {
			free = append(free, 1000)
		}
		return free
	}
	for _, c := range []struct {
		name string
		free []int64
		each int64
		gpus int
		want int64
	}{
		{"0.2 beside what leaves 0.3", []int64{1000, 300}, 200, 1, 97},
		{"0.5 must open the free one", []int64{1000, 300}, 500, 1, 49},
		{"an untouched node of 8", idle(8), 200, 1, 25}, {"an untouched node of 2", idle(2), 1000, 2, 31},
		{"two whole ones beside one in use", []int64{0, 1000, 1000, 1000}, 1000, 2, 48},
		{"many", append(idle(20), 0), 1000, 20, 33},
	} {
		if got := PackingScore(c.free, c.each, c.gpus); got != c.want {
			t.Errorf("E6, %s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestNth: all elements are picked about equally often.
func TestNth(t *testing.T) {
	var count [5]int
	for i := range uint64(10_000) {
		count[nth(splitmix.Mix(i), func(f func(int) bool) {
			for k := 0; k < len(count) && f(k); k++ {
			}
		})]++
	}
	for k, n := range count {
		if n < 1800 || n > 2200 {
			t.Errorf("%d is drawn %d times of 10,000; 2,000 are expected, within five standard deviations", k, n)
		}
	}
	if got := nth(7, func(func(int) bool) {}); got != -1 {
		t.Errorf("of nothing %d is drawn", got)
	}
}

// Knobs go to placers that have some.
func TestKnobs(t *testing.T) {
	for text, want := range map[string]string{
		"best-fit:x=1": "placer best-fit has no knobs", "meta-rl:x=1": `unknown knob "x"`, "best": "unknown placer",
	} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if p, err := New("pack"); err != nil || p.Name() != "best-fit" {
		t.Errorf("%v, %v", p, err)
	}
}
