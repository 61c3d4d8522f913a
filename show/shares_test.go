package show

import "testing"

// A queue's fair share is its part of its parent's.
func TestFairShares(t *testing.T) {
	list := []Queue{{Name: "a"}, {Name: "b"}, {Name: "a1", Parent: "a"}, {Name: "a2", Parent: "a"}}
	FairShares(list, []int64{3, 0, 2, 1})
	for i, want := range []int64{750, 250, 500, 250} {
		if list[i].Share != want {
			t.Errorf("%s: %d, not %d", list[i].Name, list[i].Share, want)
		}
	}
}
