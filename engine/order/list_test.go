package order

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
)

func compareItems(a, b Item) int {
	return cmp.Or(slices.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
}

// TestOlistTwin plays random insertions and removals on the list and on a plain
// sorted slice. Phases of growth and of shrinkage make chunks split and vanish.
func TestOlistTwin(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l List
		var twin, spare []Item
		keys := []int{3, 50, 1 << 30}[seed%3] // many ties, some, none
		ascending := seed%4 == 0              // as fifo's lists grow
		beside := 0                           // index in the twin of the last change
		for step := range 6000 {
			it := Item{Key: Key{int64(r.IntN(keys)), int64(r.IntN(2)), int64(r.IntN(2))},
				Submit: cluster.Time(r.IntN(3)), ID: int32(r.IntN(4000))}
			if ascending {
				it = Item{Key: Key{int64(step)}, ID: int32(step)}
			}
			at, have := slices.BinarySearchFunc(twin, it, compareItems)
			switch grow := step%2000 < 1400; {
			case !have && (grow || r.IntN(4) == 0):
				// near the last change
				if near := twin[min(beside, max(0, len(twin)-1)):]; r.IntN(2) == 0 && len(near) > 0 {
					it = near[0]
					it.Submit += cluster.Time(r.IntN(3) - 1)
					it.ID += int32(r.IntN(3) - 1)
					if at, have = slices.BinarySearchFunc(twin, it, compareItems); have {
						break
					}
				}
				l.Insert(it)
				twin, beside = slices.Insert(twin, at, it), at
			case len(twin) > 0:
				k := r.IntN(len(twin))
				switch r.IntN(6) {
				case 0, 1:
					k = 0 // the head is removed most often
				case 2, 3:
					k = min(beside, len(twin)-1) // the one after the last one,
				case 4:
					k = min(max(0, beside-1), len(twin)-1) // or before it
				}
				beside = k
				if !l.Remove(twin[k]) {
					t.Fatalf("seed %d, step %d: %+v is missing", seed, step, twin[k])
				}
				twin = slices.Delete(twin, k, k+1)
			}
			if absent := (Item{Key: Key{-1}, ID: int32(step)}); l.Remove(absent) {
				t.Fatalf("seed %d: removed what was never there", seed)
			}
			if step%89 == 0 { // all keys grow, or some jobs change places
				of := []int64{0, 1, 7}[r.IntN(3)]
				change := func(it Item) Item {
					it.Key[0] += 5 + int64(it.ID)*of%3*int64(keys)
					return it
				}
				for k := range twin {
					twin[k] = change(twin[k])
				}
				slices.SortFunc(twin, compareItems)
				spare = l.Rewrite(spare, change)
			}
			if step%97 == 0 {
				checkOlist(t, &l, twin, it)
			}
		}
	}
}

func checkOlist(t *testing.T, l *List, twin []Item, probe Item) {
	t.Helper()
	items, err := l.Items()
	if err != nil || !slices.Equal(items, twin) {
		t.Fatalf("the list has %d items, its twin %d: %v", len(items), len(twin), err)
	}
	var back []Item
	l.WalkBack(func(it Item) bool { back = append(back, it); return true })
	slices.Reverse(back)
	if !slices.Equal(back, twin) {
		t.Fatal("backwards it is another list")
	}
	place := l.Reverse()
	for i := len(twin) - 1; i >= -1; i-- {
		it := place.Item()
		if (it == nil) != (i < 0) || it != nil && *it != twin[i] {
			t.Fatalf("backwards, one by one, item %d is %v", i, it)
		}
		if it != nil {
			place.Next()
		}
	}
	n := 0
	l.Walk(func(Item) bool { n++; return n < 5 })
	if n != min(5, len(twin)) {
		t.Fatalf("a walk that stops after 5 saw %d of %d", n, len(twin))
	}
	first, ok := l.First()
	if ok != (len(twin) > 0) || ok && first != twin[0] {
		t.Fatalf("first is %+v (%v)", first, ok)
	}
	at, have := slices.BinarySearchFunc(twin, probe, compareItems)
	if have {
		at++
	}
	above := l.Seek(&probe)
	next, ok := l.At(&above)
	if ok != (at < len(twin)) || ok && next != twin[at] {
		t.Fatalf("after %+v comes %+v (%v), not item %d of %d", probe, next, ok, at, len(twin))
	}
	for _, c := range l.chunks {
		if len(c) == 0 || len(c) > chunkMax {
			t.Fatalf("a chunk of %d items", len(c))
		}
	}
}

// TestCandidateHeap: the heap of jobs beyond their group's first is in order.
func TestCandidateHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var h, twin []Item
	for range 2000 {
		if len(h) == 0 || r.IntN(5) < 3 {
			it := Item{Key: Key{int64(r.IntN(9))}, ID: int32(r.IntN(1 << 20))}
			heap.Push(&h, it)
			at, _ := slices.BinarySearchFunc(twin, it, compareItems)
			twin = slices.Insert(twin, at, it)
			continue
		}
		if got := heap.Pop(&h); got != twin[0] {
			t.Fatalf("%+v comes out, not %+v", got, twin[0])
		}
		twin = twin[1:]
	}
}
