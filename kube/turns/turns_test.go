package turns

import "testing"

// One goes at a time, in the order in which they came, without those that do not wait any more; and nothing is kept
// once all have gone.
func TestTurns(t *testing.T) {
	var list Turns[string]
	for i, g := range []string{"a", "b", "c", "b", "d", "a"} {
		wait, taken := list.Take("x", g)
		if taken != (g == "a") || !taken && wait != "a" {
			t.Errorf("%d: %s takes the turn: %v; it waits for %q", i, g, taken, wait)
		}
	}
	if _, taken := list.Take("y", "b"); !taken {
		t.Error("others are in its way")
	}
	if !list.Has("x", "a") || list.Has("x", "b") || !list.Has("y", "b") || list.Has("z", "a") {
		t.Error("it is not a's turn")
	}
	waits := func(g string) bool { return g != "b" }
	for _, want := range []string{"c", "d"} {
		next, ok := list.End("x", waits)
		if !ok || next != want {
			t.Fatalf("next is %q, not %q", next, want)
		}
		if _, taken := list.Take("x", next); !taken {
			t.Fatalf("%s cannot take it", next)
		}
	}
	if next, ok := list.End("x", waits); ok || len(list.by) != 1 {
		t.Errorf("after all %q goes, and %d are kept", next, len(list.by))
	}
}
