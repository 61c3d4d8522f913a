package inventory

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestBitsetTwin compares the bitset with a slice of booleans.
func TestBitsetTwin(t *testing.T) {
	for _, size := range []int{1, 63, 64, 65, 4096, 4097, 300_000} {
		r := rand.New(rand.NewPCG(uint64(size), 2))
		var b bitset
		b.grow(size)
		twin := make([]bool, size)
		for range 400 {
			i := int32(r.IntN(size))
			if r.IntN(3) == 0 {
				b.del(i)
				twin[i] = false
			} else {
				b.add(i)
				twin[i] = true
			}
			if err := b.check(); err != nil {
				t.Fatal(err)
			}
			from := r.IntN(size)
			want := slices.Index(twin[from:], true)
			if want >= 0 {
				want += from
			}
			if got := b.Next(int32(from)); int(got) != want {
				t.Fatalf("size %d: next(%d) = %d, not %d", size, from, got, want)
			}
			if b.has(i) != twin[i] {
				t.Fatalf("size %d: has(%d) = %v", size, i, b.has(i))
			}
		}
		if b.Next(int32(len(b.words)*64)) != -1 {
			t.Fatal("a member beyond the end")
		}
	}
}
