package traffic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
)

// crowd draws jobs of two to sixteen nodes on 22 leaf switches of 16 nodes at 4:1, where nearly all share links.
func crowd(seed uint64, n int) (Fabric, []Job) {
	spec := &cluster.Network{Classes: 8}
	clos := network.Clos{NodesPerLeaf: 16, Cards: 1, CardRate: 200e9, Spines: 4, SpineRate: 200e9}
	var nodes []cluster.Node
	for i := range 22 * 16 {
		nodes = append(nodes, cluster.Node{Name: fmt.Sprint("n", i), Model: "A", GPUs: 8})
		clos.Nodes = append(clos.Nodes, nodes[i].Name)
	}
	spec.Links = clos.Links()
	f := network.New(nodes, spec)
	r := rand.New(rand.NewPCG(seed, 1))
	models := slices.DeleteFunc(network.Models(), func(m cluster.ModelTraffic) bool {
		return !slices.Contains([]string{"vgg16", "resnet50", "bert-large-uncased", "gpt2-xl", "llama-2-7b"}, m.Model)
	})
	var jobs []Job
	for i := range n {
		var held []network.Held
		for _, at := range r.Perm(len(nodes))[:[]int{2, 2, 2, 4, 4, 8, 8, 16}[r.IntN(8)]] {
			held = append(held, network.Held{Node: int32(at), Ranks: 8})
		}
		t := models[r.IntN(len(models))].Traffic
		d := f.Demand(cluster.JobID(i), t, held)
		jobs = append(jobs, NewJob(f, cluster.JobID(i), int64(8*len(held)), t, d, time.Duration(r.Int64N(1e12)),
			cluster.Treatment{}))
	}
	return Fabric{Links: f, Classes: 8}, jobs
}

// BenchmarkCrowd decides for a group of many jobs that meet on an overloaded network, each time another one. A replay
// with such groups is BenchmarkRecorded in experiments/results.
func BenchmarkCrowd(b *testing.B) {
	for _, name := range []string{"none", "crux", "muster"} {
		for _, n := range []int{30, 60, 120, 300} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				seed := uint64(0)
				f, _ := crowd(0, 0)
				p, _ := New(name)
				for b.Loop() {
					_, jobs := crowd(seed, n)
					seed++
					p.Treat(f, jobs)
				}
			})
		}
	}
}
