package inventory

import (
	"math/bits"

	"github.com/muster-gpu/muster/cluster"
)

// Single returns the node of a domain that is a node, or (on) an island of one.
func (d Domain) Single() (id int32, on, ok bool) {
	if d.Level == cluster.LevelNode {
		return d.ID, false, true
	}
	id, _, ok = d.Island()
	return id, true, ok
}

// NVLink islands: if a node's GPUs are not all connected (two halves of four, pairs connected by
// bridges), its NVLink domains are parts of the node. A domain of any other level is one or several
// whole nodes.

// Islands is the number of islands that the node's GPUs form.
func (n *Node) Islands() int { return max(1, min(n.spec.Islands, n.spec.GPUs)) }

// Island returns the devices of the i-th island: equal parts, in order.
func (n *Node) Island(i int) uint64 {
	per := (n.spec.GPUs + n.Islands() - 1) / n.Islands()
	return (uint64(1)<<per - 1) << (i * per) & (uint64(1)<<n.spec.GPUs - 1)
}

// FreeOn counts the wholly free devices in a mask.
func (n *Node) FreeOn(on uint64) int {
	if on == AnyDevice {
		return int(n.nfree)
	}
	return bits.OnesCount64(n.free & on)
}

// PickWhole chooses k free devices from a mask, within one NVLink island if possible (the island
// with the fewest free devices that suffice), lowest first.
func (n *Node) PickWhole(k int, on uint64) uint64 {
	pool := n.free & on
	if n.spec.Islands > 1 {
		best := 65
		for i := range n.Islands() {
			m := n.free & on & n.Island(i)
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

// IslandDomain numbers the islands of nodes below zero, where there are no other domains.
func IslandDomain(node int32, i int) Domain {
	return Domain{cluster.LevelNVLink, -1 - (node<<6 | int32(i))}
}

// Island returns the node and the number of the island of a domain.
func (d Domain) Island() (node int32, i int, ok bool) {
	if d.Level != cluster.LevelNVLink || d.ID >= 0 {
		return -1, 0, false
	}
	v := -1 - d.ID
	return v >> 6, int(v & 63), true
}

// Covers reports whether the domain includes a node, or one of its islands.
func (d Domain) Covers(n *Node, id int32) bool {
	if at, _, ok := d.Island(); ok {
		return at == id
	}
	return d.Level == cluster.LevelAny || n.Domain(id, d.Level) == d
}

// Devices is the mask of a node's devices in a domain that contains the node.
func (d Domain) Devices(n *Node) uint64 {
	if _, i, ok := d.Island(); ok {
		return n.Island(i)
	}
	return AnyDevice
}

// Together reports whether allocations are in one domain of a level. Tasks without GPUs count as
// near every island of their node.
func (st *Store) Together(allocs []Alloc, l cluster.Level) bool {
	var gpus uint64
	for i := range allocs {
		a, b := allocs[0].Node, allocs[i].Node
		if st.nodes[a].Domain(a, l) != st.nodes[b].Domain(b, l) {
			return false
		}
		gpus |= allocs[i].GPUs
	}
	if l != cluster.LevelNVLink || gpus == 0 || !st.nodes[allocs[0].Node].split {
		return true
	}
	_, ok := st.islandOf(allocs[0].Node, gpus)
	return ok
}

// islandOf returns the island of a node that contains all these devices.
func (st *Store) islandOf(node int32, gpus uint64) (Domain, bool) {
	n := &st.nodes[node]
	for i := range n.Islands() {
		if gpus&^n.Island(i) == 0 {
			return IslandDomain(node, i), true
		}
	}
	return Domain{}, false
}

// HomeOf is the domain of a level that contains a gang with these allocations.
func (st *Store) HomeOf(allocs []Alloc, l cluster.Level) Domain {
	at := allocs[0].Node
	if l == cluster.LevelNVLink && st.nodes[at].split {
		for i := range allocs {
			if g := allocs[i].GPUs; g != 0 {
				d, _ := st.islandOf(allocs[i].Node, g)
				return d
			}
		}
	}
	return st.nodes[at].Domain(at, l)
}

// Domain restricts a search to one domain of a topology level.
type Domain struct {
	Level cluster.Level
	ID    int32
}

// Domain is the domain of a level that contains the node, whose number is id.
func (n *Node) Domain(id int32, l cluster.Level) Domain {
	switch l {
	case cluster.LevelNVLink:
		return Domain{l, n.nvlink}
	case cluster.LevelNode:
		return Domain{l, id}
	case cluster.LevelRack:
		return Domain{l, n.rack}
	case cluster.LevelFabric:
		return Domain{l, n.fabric}
	case cluster.LevelAny:
		return Domain{}
	}
	if i := int(l - cluster.LevelCore); i < len(n.cores) {
		return Domain{l, n.cores[i]}
	}
	return Domain{l, -1} // nodes that name none share one domain
}

// Farthest is the farthest level of the topology of which nodes name domains, at least that of fabrics.
func Farthest(st *Store) cluster.Level { return cluster.LevelFabric + cluster.Level(st.cores) }
