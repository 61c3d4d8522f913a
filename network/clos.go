package network

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// Clos describes a folded Clos network ("fat tree", "leaf and spine"), of two layers of switches, or of three if it has
// cores. Rates are bits per second.
type Clos struct {
	Nodes        []string
	NodesPerLeaf int
	Cards        int  // network cards of a node
	Rails        bool // card i of a node is on leaf i of its group, otherwise all of them are on one leaf
	Planes       bool // each rail has spines (and cores) of its own
	Spines       int  // of a pod, in each plane
	LeavesPerPod int  // groups of leaves that share spines; 0: all
	Cores        int  // in each plane; 0: two layers
	CardRate     int64
	SpineRate    int64 // of each link between leaf and spine
	CoreRate     int64
}

// Links generates the network's links.
func (c *Clos) Links() (links []cluster.Link) {
	rails := 1
	if c.Rails {
		rails = c.Cards
	}
	planes := 1
	if c.Planes {
		planes = rails
	}
	groups := (len(c.Nodes) + c.NodesPerLeaf - 1) / c.NodesPerLeaf
	leaf := func(group, rail int) string {
		if rails == 1 {
			return fmt.Sprintf("leaf%d", group)
		}
		return fmt.Sprintf("leaf%d-%d", group, rail)
	}
	suffix := func(plane int) string {
		if planes == 1 {
			return ""
		}
		return fmt.Sprintf("-%d", plane)
	}
	perPod := c.LeavesPerPod
	if perPod == 0 {
		perPod = groups
	}
	spine := func(pod, s, plane int) string {
		if perPod >= groups {
			return fmt.Sprintf("spine%d%s", s, suffix(plane))
		}
		return fmt.Sprintf("spine%d.%d%s", pod, s, suffix(plane))
	}
	for i, n := range c.Nodes {
		for card := range c.Cards {
			links = append(links, cluster.Link{A: n, B: leaf(i/c.NodesPerLeaf, card%rails), Rate: c.CardRate})
		}
	}
	for g := range groups {
		for r := range rails {
			for s := range c.Spines {
				links = append(links, cluster.Link{A: leaf(g, r), B: spine(g/perPod, s, r%planes), Rate: c.SpineRate})
			}
		}
	}
	for pod := range (groups + perPod - 1) / perPod {
		for plane := range planes {
			for s := range c.Spines {
				for k := range c.Cores {
					links = append(links, cluster.Link{A: spine(pod, s, plane),
						B: fmt.Sprintf("core%d%s", k, suffix(plane)), Rate: c.CoreRate})
				}
			}
		}
	}
	return links
}
