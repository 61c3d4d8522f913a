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
	"github.com/muster-gpu/muster/kube/gang"
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
	seen        int                     // the version of the world that waiting gangs know of
	lookAt      cluster.Time            // not to be asked again before
	turns       turns.Turns[*gang.Gang] // of pods that are in each other's way
	constrained map[*gang.Gang]bool     // gangs in the engine for which it matters what else is on the nodes
	blocked     map[*gang.Gang]bool     // gangs that are settled again when something changes around them
	heldBack    map[*gang.Gang]bool     // gangs that have their places, and wait for those to go that have a claim of theirs
}

func newNeighbours() neighbours {
	none := func() map[*gang.Gang]bool { return map[*gang.Gang]bool{} }
	return neighbours{constrained: none(), blocked: none(), heldBack: none()}
}

// move books where a pod is now.
func (d *Driver) move(p *gang.Pod, gone bool) {
	at := p.At()
	if gone {
		at = ""
	}
	if at == p.Where {
		return
	}
	d.nodes.Move(&p.Pod, at)
	d.nodes.Dirty = d.claims.Moved(&p.Neighbour) || d.nodes.Dirty
}

// requiresCheck reports whether it matters to a gang what is around it.
func (d *Driver) requiresCheck(pods []*gang.Pod) bool {
	return slices.ContainsFunc(pods, func(p *gang.Pod) bool { return d.nodes.World.Matters(&p.Neighbour) })
}

// ask is what the world is asked of a gang with these pods.
func (d *Driver) askFor(pods []*gang.Pod, careful, devices bool) fit.Ask {
	return fit.Ask{Pods: gang.Neighbours(pods), Nodes: d.nodes.Order(), Careful: careful, Binding: !devices}
}

// limitsOf finds what nodes take of a gang with these pods at the moment.
func (d *Driver) limitsOf(pods []*gang.Pod, careful, devices bool) fit.Limits {
	if !d.requiresCheck(pods) { // as of almost all: nothing is asked
		return fit.Limits{}
	}
	return d.nodes.World.LimitsNow(d.askFor(pods, careful, devices))
}

// lookAround tells the engine's job of a gang what nodes take of it now; false:
// it has to wait before the engine hears of it.
func (d *Driver) lookAround(g *gang.Gang, pods []*gang.Pod, spec *cluster.Job) bool {
	if len(pods) == 1 {
		if before := d.takeTurn(g, pods[0]); before != nil {
			g.Refused = "its turn comes after " + before.Name +
				", which asks for the same: where one of them goes decides where the next may"
			return false
		}
	}
	l := d.confine(g, d.limitsOf(pods, g.Fails > 0, true))
	if l.Why != "" {
		g.Refused, d.blocked[g] = l.Why, true
		return false
	}
	if !d.contend(g, pods, spec, &l) {
		return false
	}
	spec.PerNode, spec.NodeLimits, g.KeptOff = l.Each, l.Nodes, l.Text
	if slices.ContainsFunc(pods, func(p *gang.Pod) bool { return p.Needs != nil }) || l.Each > 0 || l.Nodes != nil {
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
			if ids = append(ids, g.Job); g.Phase != gang.Waiting {
				delete(d.constrained, g) // it did not come so far
			}
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if g := d.byID[id]; g != nil && g.Phase == gang.Waiting {
			if d.elsewhere(g.Submitted()) {
				events = append(events, engine.Event{Type: engine.Cancelled, Job: g.Job})
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
func (d *Driver) limit(g *gang.Gang) (engine.Event, bool) {
	pods := g.Submitted()
	if len(g.Spec.NodeLimits) == 0 && g.Spec.PerNode == 0 && !d.requiresCheck(pods) {
		return engine.Event{}, false
	}
	l := d.confine(g, d.limitsFor(g, pods, g.Fails > 0, true))
	if why := l.Why; why != "" || gang.HeldBy(l.Rivals) != "" { // it was possible before: no node takes it for now
		all := slices.Sorted(slices.Values(d.nodes.Order()))
		if l = (fit.Limits{Nodes: []cluster.NodeLimit{{Nodes: all}}}); why != "" {
			l.Text = "all: " + why
		}
	}
	if g.KeptOff = l.Text; l.ToldTo(g.Spec) {
		return engine.Event{}, false
	}
	spec := *g.Spec
	spec.PerNode, spec.NodeLimits = l.Each, l.Nodes
	g.Spec = &spec
	return engine.Event{Type: engine.Updated, Job: g.Job, Spec: &spec}, true
}

// fits says why a gang may not be bound as the engine placed it, because of what
// was bound since it was told; "": it may.
func (d *Driver) fits(g *gang.Gang, a *engine.Action) string {
	on := map[string]int{}
	for i := range a.Allocs {
		on[d.nodes.Order()[a.Allocs[i].Node]] += int(a.Allocs[i].Tasks)
	}
	return d.suit(g, on)
}

// suit is fits for so many pods of a gang on each node.
func (d *Driver) suit(g *gang.Gang, on map[string]int) (why string) {
	pods := g.Submitted()
	if !d.requiresCheck(pods) {
		return ""
	}
	d.nodes.World.Without(gang.Neighbours(g.Aside()), func() {
		l := d.limitsOf(pods, false, false) // its devices are chosen in a moment
		if why = cmp.Or(l.Why, gang.HeldBy(l.Rivals)); why == "" {
			why = d.whyForbidden(&l, pods, on)
		}
	})
	return why
}

// whyForbidden says why so many pods of a gang cannot be on each of these nodes; "": they can.
func (d *Driver) whyForbidden(l *fit.Limits, pods []*gang.Pod, on map[string]int) string {
	ask := d.askFor(pods, false, false)
	return d.nodes.World.Verify(l, &ask, on)
}

// turnKey is the same for pods that are in each other's way and else alike.
func (d *Driver) turnKey(g *gang.Gang, p *gang.Pod) string {
	t, _ := d.terms(g, p.Obj)
	return fmt.Sprintf("%s %+v %+v %s", p.Around, t, p.Request, p.Signature)
}

// takeTurn reports whether it is the turn of a gang of one pod; else the one before it.
func (d *Driver) takeTurn(g *gang.Gang, p *gang.Pod) (before *gang.Gang) {
	if p.Serial {
		g.Turn = d.turnKey(g, p)
		before, _ = d.turns.Take(g.Turn, g)
	}
	return before
}

// endTurn lets the next go: the gang has its place, or asks no more.
func (d *Driver) endTurn(g *gang.Gang) {
	key := g.Turn
	if !d.turns.Has(key, g) {
		return
	}
	g.Turn = ""
	if next, ok := d.turns.End(key, func(o *gang.Gang) bool {
		return d.gangs[o.Key] == o && o.Phase == gang.Gathering && o.Turn != ""
	}); ok {
		d.agenda.touch(next)
	}
}
