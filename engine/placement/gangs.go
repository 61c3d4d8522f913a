package placement

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/order"
)

// Crowds returns, by node, the number of multi-node gangs with tasks there: they use its links. It
// reuses the memory of buf.
func (s *Site) Crowds(buf []int32) []int32 {
	n := buf[:0]
	for range s.r.In.Nodes() {
		n = append(n, 0)
	}
	var at order.Cursor
	running := s.f.Around.Running()
	for it, ok := running.At(&at); ok; it, ok = running.At(&at) {
		at.Next()
		allocs := s.f.Around.Jobs()[it.ID].Allocs
		if len(allocs) < 2 || s.f.World.Store.Together(allocs, cluster.LevelNode) {
			continue
		}
		for i := range allocs {
			if !s.uses(allocs[:i], allocs[i].Node) {
				n[allocs[i].Node]++
			}
		}
	}
	return n
}

// Losses returns the shares of its speed that a gang is expected to lose on several nodes of a
// rack, and of several racks, on the GPUs that it prefers.
func (s *Site) Losses() [2]float64 {
	gpu := ""
	if len(s.stage.Classes) > 0 {
		gpu = s.r.In.Classes()[s.stage.Classes[0]].Model().Name
	}
	return s.f.World.View().Losses(s.Job(), gpu)
}
