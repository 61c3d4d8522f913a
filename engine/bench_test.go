package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/placement"
)

// BenchmarkFind compares best fit by the index with the linear scan that is
// its dumb twin, on half-full clusters. Neither allocates.
func BenchmarkFind(b *testing.B) {
	for _, nodes := range []int{1_250, 12_500} {
		r := rand.New(rand.NewPCG(1, 1))
		list := make([]cluster.Node, nodes)
		for i := range list {
			list[i].GPUs = 8
		}
		e := store(b, "V100-16GB", list...)
		one := siteFor(e, cluster.Request{GPUs: 1}, 8)
		for id := range list {
			if k := r.IntN(9); k > 0 {
				one.Take(id, 0, k)
			}
		}
		for _, gpus := range []int{1, 4, 8} {
			s := siteFor(e, cluster.Request{GPUs: gpus}, 1)
			b.Run(fmt.Sprintf("nodes=%d/gpus=%d/index", nodes, gpus), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if s.Find(0, 1, placement.Fullest) < 0 {
						b.Fatal("no node")
					}
				}
			})
			b.Run(fmt.Sprintf("nodes=%d/gpus=%d/scan", nodes, gpus), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					if scanFind(s, 0, 1, placement.Fullest) < 0 {
						b.Fatal("no node")
					}
				}
			})
		}
	}
}
