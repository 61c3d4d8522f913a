package kube

import (
	"slices"

	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/gang"
)

// What pods prefer (preferredDuringScheduling... of node affinity, pod affinity and anti-affinity; no node with a taint
// PreferNoSchedule that they do not tolerate; of single pods the emptiest domain of a spread with ScheduleAnyway)
// decides among nodes that suit a gang at the moment: it is looked for places on the nodes that are liked best, then on
// these and the next, then anywhere. No gang leaves for a preference, and none waits for one.

// findLiked finds where a gang is looked for places first.
func (d *Driver) findLiked(g *gang.Gang, pods []*gang.Pod) {
	prefers := func(p *gang.Pod) bool { return d.nodes.World.Prefers(&p.Neighbour) }
	if g.Repair.IsPatch || !slices.ContainsFunc(pods, prefers) {
		return
	}
	g.Search.Prefer(gang.UIDs(pods), func() []areas.Area {
		names, ask := d.nodesFor(pods).Names, d.askFor(pods, false, false)
		return areas.Liked(names, d.nodes.World.Worth(&ask, names))
	})
}
