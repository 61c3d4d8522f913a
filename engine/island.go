package engine

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// NVLink islands: where a node's GPUs are not all joined (two halves of four,
// pairs joined by bridges), its NVLink domains are parts of the node. A domain
// of the other kinds is one or several whole nodes.

// islands is how many islands the node's GPUs form.
func (n *nodeState) islands() int { return max(1, min(n.spec.Islands, n.spec.GPUs)) }

// island returns the devices of the i-th island: equal parts, in order.
func (n *nodeState) island(i int) uint64 {
	per := (n.spec.GPUs + n.islands() - 1) / n.islands()
	return (uint64(1)<<per - 1) << (i * per) & (uint64(1)<<n.spec.GPUs - 1)
}

// freeOn counts wholly free devices among some.
func (n *nodeState) freeOn(on uint64) int {
	if on == anyDevice {
		return int(n.nfree)
	}
	return bits.OnesCount64(n.free & on)
}

// pickWhole chooses k free devices among some of the node's, within one NVLink
// island where that is possible (the island with the fewest free that suffice),
// lowest first.
func (n *nodeState) pickWhole(k int, on uint64) uint64 {
	pool := n.free & on
	if n.spec.Islands > 1 {
		best := 65
		for i := range n.islands() {
			m := n.free & on & n.island(i)
			if c := bits.OnesCount64(m); c >= k && c < best {
				best, pool = c, m
			}
		}
	}
	if bits.OnesCount64(pool) == k {
		return pool
	}
	var mask uint64
	for range k {
		low := pool & -pool
		mask |= low
		pool &^= low
	}
	return mask
}

// islandDomain numbers the islands of nodes below zero, where no other domain is.
func islandDomain(node int32, i int) Domain {
	return Domain{cluster.LevelNVLink, -1 - (node<<6 | int32(i))}
}

// island returns the node and the number of the island that a domain is.
func (d Domain) island() (node int32, i int, ok bool) {
	if d.Level != cluster.LevelNVLink || d.ID >= 0 {
		return -1, 0, false
	}
	v := -1 - d.ID
	return v >> 6, int(v & 63), true
}

// covers reports whether a node, or one of its islands, is in the domain.
func (d Domain) covers(n *nodeState, id int32) bool {
	if at, _, ok := d.island(); ok {
		return at == id
	}
	return d.Level == cluster.LevelAny || n.domain(id, d.Level) == d
}

// devices is the mask of a node's devices in a domain that contains the node.
func (d Domain) devices(n *nodeState) uint64 {
	if _, i, ok := d.island(); ok {
		return n.island(i)
	}
	return anyDevice
}

// together reports whether allocations lie in one domain of a level. Tasks
// without GPUs are near every island of their node.
func (e *Engine) together(allocs []Alloc, l cluster.Level) bool {
	var gpus uint64
	for i := range allocs {
		a, b := allocs[0].Node, allocs[i].Node
		if e.st.nodes[a].domain(a, l) != e.st.nodes[b].domain(b, l) {
			return false
		}
		gpus |= allocs[i].GPUs
	}
	if l != cluster.LevelNVLink || gpus == 0 || !e.st.nodes[allocs[0].Node].split {
		return true
	}
	_, ok := e.islandOf(allocs[0].Node, gpus)
	return ok
}

// islandOf finds the island of a node that contains all these devices.
func (e *Engine) islandOf(node int32, gpus uint64) (Domain, bool) {
	n := &e.st.nodes[node]
	for i := range n.islands() {
		if gpus&^n.island(i) == 0 {
			return islandDomain(node, i), true
		}
	}
	return Domain{}, false
}

// homeOf is the domain of a level in which a running gang is.
func (e *Engine) homeOf(j *jobState, l cluster.Level) Domain {
	at := j.allocs[0].Node
	if l == cluster.LevelNVLink && e.st.nodes[at].split {
		for i := range j.allocs {
			if g := j.allocs[i].GPUs; g != 0 {
				d, _ := e.islandOf(j.allocs[i].Node, g)
				return d
			}
		}
	}
	return e.st.nodes[at].domain(at, l)
}
