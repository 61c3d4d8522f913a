package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/turns"
)

// What else is on a node can forbid a pod: ports, neighbours, how many there are
// in a zone, anything that is counted besides CPU, memory and GPUs. The engine
// knows none of that. It is told for each gang what single nodes, or the nodes of
// a domain together, take of it at the moment (cluster.NodeLimit). That is
// brought up to date as pods come and go; and because others may have started
// since, it is asked once more before a gang is bound.

// neighbours is which pods are where.
type neighbours struct {
	seen        int                // the version of the world that waiting gangs know of
	lookAt      cluster.Time       // not to be asked again before
	turns       turns.Turns[*gang] // of pods that are in each other's way
	constrained map[*gang]bool     // gangs in the engine for which it matters what else is on the nodes
	blocked     map[*gang]bool     // gangs that are settled again when something changes around them
	heldBack    map[*gang]bool     // gangs that have their places, and wait for those to go that have a claim of theirs
}

func newNeighbours() neighbours {
	return neighbours{constrained: map[*gang]bool{}, blocked: map[*gang]bool{}, heldBack: map[*gang]bool{}}
}

// at is where a pod is, or is going; "": nowhere.
func (p *pod) at() string {
	switch {
	case p.Over():
		return ""
	case p.node != "":
		return p.node
	case p.gang == nil:
		return p.Obj.Status.NominatedNodeName // another scheduler is making room for it
	}
	return p.assumed
}

// move books where a pod is now.
func (d *Driver) move(p *pod, gone bool) {
	at := p.at()
	if gone {
		at = ""
	}
	if at == p.Where {
		return
	}
	d.nodes.Move(&p.Pod, at)
	d.nodes.Dirty = d.claims.Moved(&p.Neighbour) || d.nodes.Dirty
}

func neighboursOf(pods []*pod) []*fit.Neighbour {
	list := make([]*fit.Neighbour, len(pods))
	for i, p := range pods {
		list[i] = &p.Neighbour
	}
	return list
}

func onNodes(pods []*pod) []*nodes.Pod {
	list := make([]*nodes.Pod, len(pods))
	for i, p := range pods {
		list[i] = &p.Pod
	}
	return list
}

// podOf is a pod of the world as the driver knows it.
func podOf(p *fit.Neighbour) *pod { return p.Record.(*pod) }

func recordsOf(list []*fit.Neighbour) []*pod {
	pods := make([]*pod, len(list))
	for i, p := range list {
		pods[i] = podOf(p)
	}
	return pods
}

// requiresCheck reports whether it matters to a gang what is around it.
func (d *Driver) requiresCheck(pods []*pod) bool {
	return slices.ContainsFunc(pods, func(p *pod) bool { return d.nodes.World.Matters(&p.Neighbour) })
}

// ask is what the world is asked of a gang with these pods.
func (d *Driver) askFor(pods []*pod, careful, devices bool) fit.Ask {
	return fit.Ask{Pods: neighboursOf(pods), Nodes: d.nodes.Order(), Careful: careful, Binding: !devices}
}

// limitsOf finds what nodes take of a gang with these pods at the moment.
func (d *Driver) limitsOf(pods []*pod, careful, devices bool) fit.Limits {
	if !d.requiresCheck(pods) { // as of almost all: nothing is asked
		return fit.Limits{}
	}
	return d.nodes.World.LimitsNow(d.askFor(pods, careful, devices))
}

// lookAround tells the engine's job of a gang what nodes take of it now; false:
// it has to wait before the engine hears of it.
func (d *Driver) lookAround(g *gang, pods []*pod, spec *cluster.Job) bool {
	if len(pods) == 1 {
		if before := d.takeTurn(g, pods[0]); before != nil {
			g.refused = "its turn comes after " + before.name +
				", which asks for the same: where one of them goes decides where the next may"
			return false
		}
	}
	l := d.confine(g, d.limitsOf(pods, g.fails > 0, true))
	if l.Why != "" {
		g.refused, d.blocked[g] = l.Why, true
		return false
	}
	if !d.contend(g, pods, spec, &l) {
		return false
	}
	spec.PerNode, spec.NodeLimits, g.keptOff = l.Each, l.Nodes, l.Text
	if slices.ContainsFunc(pods, func(p *pod) bool { return p.Needs != nil }) || l.Each > 0 || l.Nodes != nil {
		d.constrained[g] = true
	}
	return true
}

// refresh tells the engine of waiting gangs what changed around them.
func (d *Driver) refresh(now cluster.Time) (events []engine.Event) {
	if d.seen == d.nodes.World.Version() || now < d.lookAt {
		return nil
	}
	d.seen = d.nodes.World.Version()
	for g := range d.blocked {
		delete(d.blocked, g)
		d.agenda.touch(g)
	}
	ids := slices.Collect(maps.Keys(d.byID))
	if !d.nodes.World.Active() { // only those that asked for something
		ids = ids[:0]
		for g := range d.constrained {
			if ids = append(ids, g.id); g.phase != waiting {
				delete(d.constrained, g) // it did not come so far
			}
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if g := d.byID[id]; g != nil && g.phase == waiting {
			if d.elsewhere(g.submitted()) {
				events = append(events, engine.Event{Type: engine.Cancelled, Job: g.id})
				d.withdraw(g)
				continue
			}
			if ev, ok := d.limit(g); ok {
				events = append(events, ev)
			}
		}
	}
	// What it costs grows with the cluster: it may take a twentieth of the time.
	d.lookAt = d.clock().Add(max(50*time.Millisecond, 20*d.clock().Sub(now)))
	return events
}

// limit says what the engine has to know of a waiting gang's limits, if they
// are others now.
func (d *Driver) limit(g *gang) (engine.Event, bool) {
	pods := g.submitted()
	if len(g.spec.NodeLimits) == 0 && g.spec.PerNode == 0 && !d.requiresCheck(pods) {
		return engine.Event{}, false
	}
	l := d.confine(g, d.limitsFor(g, pods, g.fails > 0, true))
	if why := l.Why; why != "" || heldBy(l.Rivals) != "" { // it was possible before: no node takes it for now
		all := slices.Sorted(slices.Values(d.nodes.Order()))
		if l = (fit.Limits{Nodes: []cluster.NodeLimit{{Nodes: all}}}); why != "" {
			l.Text = "all: " + why
		}
	}
	if g.keptOff = l.Text; l.ToldTo(g.spec) {
		return engine.Event{}, false
	}
	spec := *g.spec
	spec.PerNode, spec.NodeLimits = l.Each, l.Nodes
	g.spec = &spec
	return engine.Event{Type: engine.Updated, Job: g.id, Spec: &spec}, true
}

// submitted lists the pods that the engine's job stands for, as far as they are
// there.
func (g *gang) submitted() (pods []*pod) {
	for _, uid := range g.members {
		if p := g.pods[uid]; p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, podOrder)
	return pods
}

// fits says why a gang may not be bound as the engine placed it, because of what
// was bound since it was told; "": it may.
func (d *Driver) fits(g *gang, a *engine.Action) string {
	on := map[string]int{}
	for i := range a.Allocs {
		on[d.nodes.Order()[a.Allocs[i].Node]] += int(a.Allocs[i].Tasks)
	}
	return d.suit(g, on)
}

// suit is fits for so many pods of a gang on each node.
func (d *Driver) suit(g *gang, on map[string]int) (why string) {
	pods := g.submitted()
	if !d.requiresCheck(pods) {
		return ""
	}
	d.nodes.World.Without(neighboursOf(g.aside()), func() {
		l := d.limitsOf(pods, false, false) // its devices are chosen in a moment
		if why = cmp.Or(l.Why, heldBy(l.Rivals)); why == "" {
			why = d.whyForbidden(&l, pods, on)
		}
	})
	return why
}

// whyForbidden says why so many pods of a gang cannot be on each of these nodes; "": they can.
func (d *Driver) whyForbidden(l *fit.Limits, pods []*pod, on map[string]int) string {
	ask := d.askFor(pods, false, false)
	return d.nodes.World.Verify(l, &ask, on)
}

// turnKey is the same for pods that are in each other's way and else alike.
func (d *Driver) turnKey(g *gang, p *pod) string {
	t, _ := d.terms(g, p.Obj)
	return fmt.Sprintf("%s %+v %+v %s", p.Around, t, p.Request, p.Signature)
}

// takeTurn reports whether it is the turn of a gang of one pod; else the one before it.
func (d *Driver) takeTurn(g *gang, p *pod) (before *gang) {
	if p.Serial {
		g.turn = d.turnKey(g, p)
		before, _ = d.turns.Take(g.turn, g)
	}
	return before
}

// endTurn lets the next go: the gang has its place, or asks no more.
func (d *Driver) endTurn(g *gang) {
	key := g.turn
	if !d.turns.Has(key, g) {
		return
	}
	g.turn = ""
	if next, ok := d.turns.End(key, func(o *gang) bool {
		return d.gangs[o.key] == o && o.phase == gathering && o.turn != ""
	}); ok {
		d.agenda.touch(next)
	}
}
