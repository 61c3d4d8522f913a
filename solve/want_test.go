package solve

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/internal/shared"
)

// crowd makes a line with many equal elements, some in an adverse order.
func crowd(r *rand.Rand) []Want {
	list := make([]Want, r.IntN(200))
	values := 1 + r.IntN(50)
	for i := range list {
		list[i] = Want{float64(r.IntN(values)), int64(r.IntN(3)), int32(i), int32(r.IntN(9))}
		switch r.IntN(40) {
		case 0:
			list[i].Worth = math.Inf(1)
		case 1:
			list[i].GPUs = 64
		}
	}
	switch r.IntN(4) {
	case 0:
		slices.SortFunc(list, inLine)
	case 1:
		slices.SortFunc(list, func(a, b Want) int { return inLine(b, a) })
	case 2:
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return list
}

func inLine(a, b Want) int {
	return cmp.Or(cmp.Compare(b.Worth, a.Worth), cmp.Compare(a.Since, b.Since), cmp.Compare(a.At, b.At))
}

// The naive twin of Line sorts the whole list.
func TestLine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range shared.Soak(8_000, 20_000) {
		list := crowd(r)
		twin, k := slices.Clone(list), r.IntN(len(list)+1)
		slices.SortFunc(twin, inLine)
		Line(list, k)
		if !slices.Equal(list[:k], twin[:k]) {
			t.Fatalf("the first %d: %v, want %v", k, list[:k], twin[:k])
		}
		if slices.SortFunc(list, inLine); !slices.Equal(list, twin) {
			t.Fatalf("others than before: %v, want %v", list, twin)
		}
	}
}

// The naive twin of Serve goes along a sorted line.
func TestServe(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range shared.Soak(8_000, 20_000) {
		list, gpus := crowd(r), r.IntN(300)
		line, left := slices.Clone(list), gpus
		slices.SortFunc(line, inLine)
		var twin []Want
		for _, w := range line {
			if int(w.GPUs) <= left {
				twin, left = append(twin, w), left-int(w.GPUs)
			}
		}
		n, rest := Serve(list, gpus)
		slices.SortFunc(list[:n], inLine)
		if !slices.Equal(list[:n], twin) || rest != left {
			t.Fatalf("%d GPUs: served %v, %d left, want %v, %d", gpus, list[:n], rest, twin, left)
		}
	}
}
