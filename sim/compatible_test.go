package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/trace"
)

// racked is 16 nodes of 4 GPUs in four racks: 25 Gbit/s from a node, half of what its nodes can send from a rack.
func racked() *cluster.Spec {
	spec := &cluster.Spec{Models: []cluster.GPUModel{{Name: "G", Memory: 80 << 10}},
		Network: &cluster.Network{Classes: 8, Rates: []int64{25e9, 50e9}, Models: network.Models()}}
	for i := range 16 {
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1), Model: "G", GPUs: 4,
			Rack: fmt.Sprintf("r%d", i/4)})
	}
	return spec
}

// gangs draws jobs of one to eight tasks of one or two GPUs, most of which transmit.
func gangs(seed uint64, n int) (list []trace.Entry) {
	r := rand.New(rand.NewPCG(seed, 7))
	at := time.Duration(0)
	for i := range n {
		at += time.Duration(r.ExpFloat64() * float64(7*time.Minute))
		tasks := []int{1, 2, 2, 3, 4, 4, 6, 8}[r.IntN(8)]
		list = append(list, trace.Entry{Run: time.Duration((0.3 + r.ExpFloat64()) * float64(40*time.Minute)),
			Job: cluster.Job{ID: cluster.JobID(i), Submit: cluster.Time(at), Tier: cluster.Standard,
				Model: []string{"vgg16", "resnet50", "bert-large-uncased", "gpt2-medium"}[r.IntN(4)],
				Tasks: []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: 1 + r.IntN(2)}}}}})
	}
	return list
}

// TestCompatible: on drawn mixes of gangs jobs lose much less on the network where a placer keeps them together and
// looks at links than where none does. Under make soak it prints the whole table of docs/reference/placers.md.
func TestCompatible(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	seeds := shared.Soak(2, 240)
	type sums struct{ lost, jct float64 }
	for _, treat := range shared.Soak([]string{"none"}, []string{"none", "cassini", "crux"}) {
		got := map[string]*sums{}
		for _, p := range shared.Soak([]string{"best-fit", "compatible"},
			[]string{"best-fit", "topology", "compatible"}) {
			got[p] = &sums{}
			for seed := range uint64(seeds) {
				out := Run(context.Background(), racked(), gangs(seed, 150),
					Setup{Policy: "fifo", Placer: p, Traffic: treat})
				if out.Err != nil {
					t.Fatal(out.Err)
				}
				s := out.Run.Summarise()
				got[p].lost += s.ContendedHours / float64(seeds)
				got[p].jct += s.JCT.Mean / 60 / float64(seeds)
			}
			t.Logf("%-8s %-11s %6.2f GPU-hours lost, %6.1f min mean", treat, p, got[p].lost, got[p].jct)
		}
		if a, b := got["compatible"], got["best-fit"]; a.lost > 0.7*b.lost || a.jct >= b.jct {
			t.Errorf("%s: %+v, by best-fit %+v", treat, *a, *b)
		}
	}
}
