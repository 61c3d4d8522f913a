package inventory

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// TestValid: allocations are valid where the devices that they name are there, and free if they must be; what is tried
// to find that out is undone.
func TestValid(t *testing.T) {
	var st Store
	if _, err := st.Add(cluster.Node{Name: "a", Model: "T4", GPUs: 2}, cluster.GPUModel{Name: "T4"}, 1, 0); err != nil {
		t.Fatal(err)
	}
	st.Take(&Alloc{Node: 0, GPUs: 1, Tasks: 1})
	st.Commit()
	for _, x := range []struct {
		name        string
		alloc       Alloc
		there, free bool
	}{
		{"free", Alloc{GPUs: 2, Tasks: 1}, true, true},
		{"taken", Alloc{GPUs: 1, Tasks: 1}, true, false},
		{"no such device", Alloc{GPUs: 4, Tasks: 1}, false, false},
		{"no such node", Alloc{Node: 1, GPUs: 1, Tasks: 1}, false, false},
		{"negative node", Alloc{Node: -1, GPUs: 1, Tasks: 1}, false, false},
	} {
		if got := Valid(&st, []Alloc{x.alloc}, false); got != x.there {
			t.Errorf("%s: it is there: %v", x.name, got)
		}
		if got := Valid(&st, []Alloc{x.alloc}, true); got != x.free {
			t.Errorf("%s: it is free: %v", x.name, got)
		}
	}
	if st.Nodes()[0].FreeGPUs() != 1 || st.Tentative() {
		t.Error("what was tried is left")
	}
}
