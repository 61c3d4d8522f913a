package kube

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// What pods prefer (preferredDuringScheduling... of node affinity, pod affinity and anti-affinity; no node with a taint
// PreferNoSchedule that they do not tolerate; of single pods the emptiest domain of a spread with ScheduleAnyway)
// decides among nodes that suit a gang at the moment: it is looked for places on the nodes that are liked best, then on
// these and the next, then anywhere. No gang leaves for a preference, and none waits for one.

// mostWishes bounds how many sets of nodes a gang is tried on before it may be
// anywhere: each is a step of the engine.
const mostWishes = 3

// wish is what a gang would like.
type wish struct {
	of []types.UID // the pods that it was asked for
}

// wishes finds where a gang is looked for places first. What was tried in vain is
// not tried again.
func (d *Driver) wishes(g *gang, pods []*pod) {
	if g.repair.patch || !slices.ContainsFunc(pods, func(p *pod) bool { return d.nodes.World.Prefers(&p.Neighbour) }) {
		return
	}
	if of := uids(pods); g.home == 0 || !slices.Equal(of, g.wish.of) {
		g.wish.of, g.home, g.homes = of, 0, d.likedBest(pods)
	}
}

// likedBest lists the sets of nodes that these pods like best, each with those
// before it; not the set of all.
func (d *Driver) likedBest(pods []*pod) (homes []home) {
	names := d.nodesFor(pods).Names
	ask := d.askFor(pods, false, false)
	likes := d.nodes.World.Worth(&ask, names)
	byLike := map[int64][]string{}
	for _, name := range names {
		byLike[likes[name]] = append(byLike[likes[name]], name)
	}
	levels := slices.SortedFunc(maps.Keys(byLike), func(a, b int64) int { return cmp.Compare(b, a) })
	liked := map[string]bool{}
	for _, level := range levels[:min(mostWishes, max(0, len(levels)-1))] {
		liked = maps.Clone(liked)
		for _, name := range byLike[level] {
			liked[name] = true
		}
		homes = append(homes, home{liked: liked})
	}
	return homes
}
