package network

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// Clos describes a folded Clos network ("fat tree", "leaf and spine"), of two layers of switches, or of three if it has
// cores. Rates are bits per second.
type Clos struct {
	Nodes        []string
	Places       []Place // of each node; none: NodesPerLeaf and LeavesPerPod say it
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

// Place is the leaf switch that a node is on (with rails, the group of them), and the pod of which that is.
type Place struct{ Leaf, Pod string }

// places are those of the nodes, one leaf filled after the other.
func (c *Clos) places() []Place {
	if len(c.Places) > 0 {
		return c.Places
	}
	list := make([]Place, len(c.Nodes))
	for i := range list {
		leaf := i / c.NodesPerLeaf
		list[i].Leaf = fmt.Sprintf("leaf%d", leaf)
		if c.LeavesPerPod > 0 {
			list[i].Pod = fmt.Sprint(leaf / c.LeavesPerPod)
		}
	}
	return list
}

// Links generates the network's links.
func (c *Clos) Links() (links []cluster.Link) {
	rails, planes := 1, 1
	if c.Rails {
		rails = c.Cards
	}
	if c.Planes {
		planes = rails
	}
	of := func(name string, number, all int) string {
		if all == 1 {
			return name
		}
		return fmt.Sprintf("%s-%d", name, number)
	}
	var leaves []Place
	var pods []string
	listed, known := map[Place]bool{}, map[string]bool{}
	for i, p := range c.places() {
		if !listed[p] {
			listed[p] = true
			leaves = append(leaves, p)
		}
		if !known[p.Pod] {
			known[p.Pod] = true
			pods = append(pods, p.Pod)
		}
		for card := range c.Cards {
			links = append(links, cluster.Link{A: c.Nodes[i], B: of(p.Leaf, card%rails, rails), Rate: c.CardRate})
		}
	}
	spine := func(pod string, s, plane int) string {
		if len(pods) == 1 {
			return of(fmt.Sprintf("spine%d", s), plane, planes)
		}
		return of(fmt.Sprintf("spine%s.%d", pod, s), plane, planes)
	}
	for _, p := range leaves {
		for r := range rails {
			for s := range c.Spines {
				links = append(links,
					cluster.Link{A: of(p.Leaf, r, rails), B: spine(p.Pod, s, r%planes), Rate: c.SpineRate})
			}
		}
	}
	for _, pod := range pods {
		for plane := range planes {
			for s := range c.Spines {
				for k := range c.Cores {
					links = append(links, cluster.Link{A: spine(pod, s, plane),
						B: of(fmt.Sprintf("core%d", k), plane, planes), Rate: c.CoreRate})
				}
			}
		}
	}
	return links
}
