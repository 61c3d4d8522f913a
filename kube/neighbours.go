package kube

import (
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
	l := d.reader.Confine(g, d.reader.Limits(pods, g.Fails > 0, true))
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
			if d.reader.Elsewhere(g.Submitted()) {
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
	if len(g.Spec.NodeLimits) == 0 && g.Spec.PerNode == 0 && !d.reader.IsToBeChecked(pods) {
		return engine.Event{}, false
	}
	l := d.reader.Confine(g, d.reader.LimitsFor(g, pods, g.Fails > 0, true))
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

// turnKey is the same for pods that are in each other's way and else alike.
func (d *Driver) turnKey(g *gang.Gang, p *gang.Pod) string {
	t, _ := d.reader.Terms(g, p.Obj)
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
