package kube

import (
	"slices"

	"github.com/muster-gpu/muster/kube/areas"
)

// What pods prefer (preferredDuringScheduling... of node affinity, pod affinity and anti-affinity; no node with a taint
// PreferNoSchedule that they do not tolerate; of single pods the emptiest domain of a spread with ScheduleAnyway)
// decides among nodes that suit a gang at the moment: it is looked for places on the nodes that are liked best, then on
// these and the next, then anywhere. No gang leaves for a preference, and none waits for one.

// findLiked finds where a gang is looked for places first.
func (d *Driver) findLiked(g *gang, pods []*pod) {
	if g.repair.patch || !slices.ContainsFunc(pods, func(p *pod) bool { return d.nodes.World.Prefers(&p.Neighbour) }) {
		return
	}
	g.search.Prefer(uids(pods), func() []areas.Area {
		names, ask := d.nodesFor(pods).Names, d.askFor(pods, false, false)
		return areas.Liked(names, d.nodes.World.Worth(&ask, names))
	})
}
