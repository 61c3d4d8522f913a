package place

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

// By hand: a share goes to a GPU in use for nothing if there is room, a GPU costs its power limit, and a
// processor costs 120 W when the first of its 32 cores is taken.
func TestAddedWatts(t *testing.T) {
	share := func(gpus int, milli cluster.Milli) cluster.Request { return cluster.Request{GPUs: gpus, Share: milli} }
	for _, c := range []struct {
		name    string
		node    cluster.Node
		free    []int64
		freeCPU int64
		r       cluster.Request
		want    int64
	}{
		{"a share beside another", cluster.Node{Model: "A100-80GB"}, []int64{500, 1000}, 0, share(1, 500), 0},
		{"a share that does not fit", cluster.Node{Model: "A100-80GB"}, []int64{400, 1000}, 0, share(1, 500), 400},
		{"two whole T4", cluster.Node{Model: "T4-16GB"}, []int64{1000, 1000, 300}, 0, cluster.Request{GPUs: 2}, 140},
		{"two shares, one GPU in use", cluster.Node{Model: "T4-16GB"}, []int64{300, 1000}, 0, share(2, 200), 70},
		{"of an unknown model", cluster.Node{Model: "X1-8GB"}, []int64{1000}, 0, cluster.Request{GPUs: 1}, 300},
		{"cores of a processor in use", cluster.Node{CPU: 64_000}, nil, 60_000, cluster.Request{CPU: 28_000}, 0},
		{"more cores than it has left", cluster.Node{CPU: 64_000}, nil, 60_000, cluster.Request{CPU: 29_000}, 120},
		{"the first cores", cluster.Node{CPU: 64_000}, nil, 64_000, cluster.Request{CPU: 33_000}, 240},
	} {
		if got := addedWatts(&c.node, c.free, c.freeCPU, &c.r); got != c.want {
			t.Errorf("%s: %d W, want %d", c.name, got, c.want)
		}
	}
}
