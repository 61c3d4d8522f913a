package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// Jobs get instances as if every assignment had been tried.
func TestAssignParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found, none := 0, 0
	for range 3000 {
		parts, jobs := 1+r.IntN(7), 1+r.IntN(5)
		values := make([][]int64, parts)
		for n := range values {
			for range jobs {
				values[n] = append(values[n], max(0, int64(r.IntN(12))-4))
			}
		}
		var most int64
		var try func(b int, used uint, sum int64)
		try = func(b int, used uint, sum int64) {
			if b == jobs {
				most = max(most, sum)
				return
			}
			for n := range values {
				if used>>n&1 == 0 && values[n][b] > 0 {
					try(b+1, used|1<<n, sum+values[n][b])
				}
			}
		}
		try(0, 0, 0)
		total, at := assignParts(values, jobs)
		if total != most {
			t.Fatalf("%v: %d, the best is %d", values, total, most)
		}
		if total == 0 {
			none++
			continue
		}
		found++
		sum, used := int64(0), 0
		for b, n := range at {
			if used>>n&1 == 1 || values[n][b] == 0 {
				t.Fatalf("%v: %v", values, at)
			}
			sum, used = sum+values[n][b], used|1<<n
		}
		if sum != total {
			t.Fatalf("%v: %v is %d, not %d", values, at, sum, total)
		}
	}
	if found < 500 || none < 500 {
		t.Errorf("%d could be assigned and %d could not: the test is one-sided", found, none)
	}
}

// The layouts of a GPU are those of NVIDIA's MIG user guide, vector 5: 19 of an A100, 5 of an A30.
func TestMISOLayouts(t *testing.T) {
	for name, want := range map[string]int{"A100-40GB": 19, "H100-80GB": 19, "A30-24GB": 5} { // order does not matter
		m, _ := cluster.FindModel(name)
		if got := misoLayouts(&m); len(got) != want {
			t.Errorf("%s: %d layouts, want %d", name, len(got), want)
		}
	}
}
