package reader

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/nodes"
)

// What pods prefer (preferredDuringScheduling... of node affinity, pod affinity and anti-affinity; no node with a taint
// PreferNoSchedule that they do not tolerate; of single pods the emptiest domain of a spread with ScheduleAnyway)
// decides among nodes that suit a gang at the moment: it is looked for places on the nodes that are liked best, then on
// these and the next, then anywhere. No gang leaves for a preference, and none waits for one.

// IsToBeChecked reports whether it matters to a gang what is around it.
func (r *Reader) IsToBeChecked(pods []*gang.Pod) bool {
	return slices.ContainsFunc(pods, func(p *gang.Pod) bool { return r.Nodes.World.Matters(&p.Neighbour) })
}

// Ask is what the world is asked of a gang with these pods.
func (r *Reader) Ask(pods []*gang.Pod, careful, devices bool) fit.Ask {
	return fit.Ask{Pods: gang.Neighbours(pods), Nodes: r.Nodes.Order(), Careful: careful, Binding: !devices}
}

// Limits finds what nodes take of a gang with these pods at the moment.
func (r *Reader) Limits(pods []*gang.Pod, careful, devices bool) fit.Limits {
	if !r.IsToBeChecked(pods) { // as of almost all: nothing is asked
		return fit.Limits{}
	}
	return r.Nodes.World.LimitsNow(r.Ask(pods, careful, devices))
}

// KeptOff says why the volumes of a pod that takes the place of another cannot be used on its node now; "": they can.
func (r *Reader) KeptOff(p *gang.Pod, node string) string {
	return r.Volumes.KeptOff(r.Nodes.World, &p.Neighbour, node)
}

// FreeFor is how many of the gang's pods the engine finds GPUs for on a node.
func (r *Reader) FreeFor(pods []*gang.Pod, node string) int {
	need := cluster.Milli(0)
	for _, p := range pods {
		if m := p.Request.Milli(); m > 0 && (need == 0 || m < need) {
			need = m
		}
	}
	if need == 0 {
		return len(pods)
	}
	return r.Nodes.FreeFor(need, node)
}

// FindLiked finds where a gang is looked for places first.
func (r *Reader) FindLiked(g *gang.Gang, pods []*gang.Pod) {
	prefers := func(p *gang.Pod) bool { return r.Nodes.World.Prefers(&p.Neighbour) }
	if g.Repair.IsPatch || !slices.ContainsFunc(pods, prefers) {
		return
	}
	g.Search.Prefer(gang.UIDs(pods), func() []areas.Area {
		names, ask := r.NodesFor(pods).Names, r.Ask(pods, false, false)
		return areas.Liked(names, r.Nodes.World.Worth(&ask, names))
	})
}

// NodesFor finds the nodes that suit a gang with these pods.
func (r *Reader) NodesFor(pods []*gang.Pod) *nodes.Set { return r.Nodes.Sets.Of(gang.OnNodes(pods)) }

// IsPinned reports whether a pod's claims that are allocated can be used on a node, and its volumes are reached from
// there.
func (r *Reader) IsPinned(p *gang.Pod, node string) bool {
	n := r.Nodes.Object(node)
	return (n == nil || r.Volumes.Reach(&p.Neighbour, n)) && r.Claims.Reach(&p.Neighbour, n)
}

// Rivals lists the pods that have the claims of a pod that are for one pod at a time.
func (r *Reader) Rivals(p *gang.Pod) []fit.Rival {
	return r.Volumes.Rivals(r.Nodes.World, &p.Neighbour)
}

// WouldBe is the job of a gang that no node suits as it is; nil: it waits for something else. In this epoch the engine
// may have refused it for good.
func (r *Reader) WouldBe(g *gang.Gang, epoch int) (*cluster.Job, []*gang.Pod) {
	m, err := g.Need()
	if err != nil {
		return nil, nil
	}
	need, _, _ := r.StartingPods(g, &m)
	if len(need) == 0 || len(need) < max(1, m.Size) {
		return nil, nil
	}
	spec, err := r.Spec(g, need, m)
	if err != nil || r.Queues.Tree().Admits(spec) != nil {
		return nil, nil
	}
	// it is not for want of a node, nor was it rejected
	if g.RefusedIn != epoch && r.NodesFor(need).Why == "" {
		return nil, nil
	}
	l := r.Limits(need, false, true)
	if l.Why != "" {
		return nil, nil
	}
	spec.PerNode, spec.NodeLimits = l.Each, l.Nodes
	return spec, need
}

// Fits says why a gang may not be bound as the engine placed it, because of what
// was bound since it was told; "": it may.
func (r *Reader) Fits(g *gang.Gang, a *engine.Action) string {
	return r.Suit(g, holds.TasksOn(a.Allocs, r.Nodes.Order()))
}

// Suit is Fits for so many pods of a gang on each node.
func (r *Reader) Suit(g *gang.Gang, on map[string]int) (why string) {
	pods := g.Submitted()
	if !r.IsToBeChecked(pods) {
		return ""
	}
	r.Nodes.World.Without(gang.Neighbours(g.Aside()), func() {
		l := r.Limits(pods, false, false) // its devices are chosen in a moment
		if why = cmp.Or(l.Why, gang.HeldBy(l.Rivals)); why == "" {
			ask := r.Ask(pods, false, false)
			why = r.Nodes.World.Verify(&l, &ask, on)
		}
	})
	return why
}

// Confine adds to what nodes take of a gang that those outside the area in which it is looked for places take nothing.
func (r *Reader) Confine(g *gang.Gang, l fit.Limits) fit.Limits {
	return g.Search.Confine(l, r.Nodes.Order(), r.Nodes.World)
}

// LimitsFor is Limits for a gang's pods, without those that leave for it.
func (r *Reader) LimitsFor(g *gang.Gang, pods []*gang.Pod, careful, devices bool) (l fit.Limits) {
	r.Nodes.World.Without(gang.Neighbours(g.Aside()), func() { l = r.Limits(pods, careful, devices) })
	return l
}
