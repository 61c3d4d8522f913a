package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/victims"
)

// What keeps a gang off a node can be pods that are there: by anti-affinity, its own or theirs, a host port, an even
// spread, what the node attaches, how many pods it takes. The engine knows none of that; it is told that the node takes
// nothing, and looks for no gang there that might leave. So a gang that finds no place is looked for one as if pods of
// a lower tier were gone, first a few, then more. Like those that have a claim which it needs alone (displace.go) they
// leave only if a second engine says that it starts then; both are told to the engine in one batch. Until they have
// left, they do not count for the gang, and the gang counts where it will be for all others.

// lifting is the pods that leave for a gang, besides those that the engine chooses.
type lifting struct {
	lifted []*pod
	tried  stamp // when it was last looked for
	turns  int   // ... and as which of all
}

// stamp changes when it is worth looking again: with what is around, and now and then.
type stamp struct {
	moves   int
	checked cluster.Time
}

// victimSearch is when gangs that wait were last looked at.
type victimSearch struct {
	done  stamp // all gangs were looked at
	at    cluster.Time
	turns int
}

func (d *Driver) stamp() stamp { return stamp{d.nodes.World.Version(), d.checked} }

// aside lists the pods that do not count when a gang is looked at for which others
// leave: these, and its own, which have their places.
func (g *gang) aside() []*pod {
	if len(g.lifted) == 0 {
		return nil
	}
	list := slices.Clone(g.lifted)
	for _, p := range g.sorted() {
		if p.node == "" {
			list = append(list, p)
		}
	}
	return list
}

// limitsFor is limitsOf for a gang's pods, without those that leave for it.
func (d *Driver) limitsFor(g *gang, pods []*pod, careful, devices bool) (l fit.Limits) {
	d.nodes.World.Without(neighboursOf(g.aside()), func() { l = d.limitsOf(pods, careful, devices) })
	return l
}

// expect has a pod count where it will be, once others have left.
func (d *Driver) expect(p *pod, node string) {
	p.assumed = node
	d.move(p, false)
}

// unlift forgets which pods leave for a gang: it has not the place that it was to have.
func (d *Driver) unlift(g *gang) {
	if len(g.lifted) == 0 {
		return
	}
	g.lifted = nil
	for _, p := range g.sorted() {
		if !p.binding && p.assumed != "" {
			d.expect(p, "")
		}
	}
	d.nodes.World.Changed()
}

// goes reports whether a running gang would leave for one of a tier: it is of a lower one, and has run for as long as
// the configuration lets any gang.
func (d *Driver) goes(q *gang, tier cluster.Tier) bool {
	return q != nil && q.phase == running && q.leaves == "" && q.spec.Tier > tier &&
		(tier == cluster.Critical || d.now.Sub(q.book.Started) >= d.opt.Rules.MinRuntime)
}

// liftNext lets pods leave for a gang that finds no place on account of them; before is
// what the engine is told besides.
func (d *Driver) liftNext(before []engine.Event, now cluster.Time) (events []engine.Event) {
	if d.stale != "" || d.victimSearch.done == d.stamp() || now < d.victimSearch.at {
		return nil
	}
	g, later := d.stuck()
	switch {
	case g != nil:
		d.victimSearch.turns++
		g.tried, g.turns = d.stamp(), d.victimSearch.turns
		events = d.liftFor(g, before)
	case later:
		return nil
	default:
		d.victimSearch.done = d.stamp()
	}
	// What it costs grows with the cluster: it may take a twentieth of the time.
	d.victimSearch.at = now.Add(max(50*time.Millisecond, 20*d.clock().Sub(now)))
	return events
}

// stuck is the gang that is looked at next: of those that wait in the engine and are
// kept off some nodes, the one that was looked at the longest ago. later: there is one of
// which the engine has yet to hear.
func (d *Driver) stuck() (next *gang, later bool) {
	if len(d.constrained) == 0 && !d.nodes.World.Active() {
		return nil, false
	}
	lowest := cluster.Critical
	for _, q := range d.gangs {
		if q.phase == running {
			lowest = max(lowest, q.spec.Tier)
		}
	}
	for id, g := range d.byID {
		switch {
		case g.phase != waiting || len(g.spec.NodeLimits) == 0 || g.spec.Tier >= lowest || g.spec.NoPreempt ||
			len(g.lifted) > 0 || g.tried == d.stamp():
			continue
		case g.search.Asked == d.seq+1:
			later = true
			continue
		}
		if r := d.eng.Record(id); r != nil && r.State == engine.Pending &&
			(next == nil || cmp.Or(g.turns-next.turns, int(g.id)-int(next.id)) < 0) {
			next = g
		}
	}
	return next, later
}

// liftFor looks for gangs that leave so that another starts.
func (d *Driver) liftFor(g *gang, before []engine.Event) []engine.Event {
	q := &victims.Question{World: d.nodes.World, Job: g.spec, Ask: d.askFor(g.submitted(), g.fails > 0, true),
		Search: &g.search,
		Starts: func(job *cluster.Job, gone []cluster.JobID) map[string]int {
			return d.startsOn(g.id, slices.Concat(before, lifts(gone, job)))
		}}
	for _, o := range d.gangs {
		if d.goes(o, g.spec.Tier) {
			q.Gangs = append(q.Gangs, &victims.Gang{Job: o.id, Tier: o.spec.Tier, Started: o.book.Started,
				GPUs: o.spec.GPUs(), Pods: neighboursOf(o.here())})
		}
	}
	a := q.Find()
	if a == nil {
		return nil
	}
	var gone []cluster.JobID
	for _, v := range a.Gone {
		o := d.byID[v.Job]
		gone = append(gone, o.id)
		g.lifted = append(g.lifted, o.here()...)
		o.leaves, o.grace = fmt.Sprintf("preempted for %s, which cannot be where it is", g.name), 30
	}
	g.spec = a.Job
	return lifts(gone, a.Job)
}

// lifts is what the engine is told if jobs leave for another, which is this from then on.
func lifts(gone []cluster.JobID, job *cluster.Job) (events []engine.Event) {
	for _, id := range gone {
		events = append(events, engine.Event{Type: engine.Cancelled, Job: id})
	}
	return append(events, engine.Event{Type: engine.Updated, Job: job.ID, Spec: job})
}

// startsOn is how many places a job has on which nodes after the next step with these events; nil: it has none.
func (d *Driver) startsOn(id cluster.JobID, events []engine.Event) map[string]int {
	r := d.foreseen(id, events)
	if r == nil {
		return nil
	}
	on := map[string]int{}
	for i := range r.Allocs {
		on[d.nodes.Order()[r.Allocs[i].Node]] += int(r.Allocs[i].Tasks)
	}
	return on
}

// here lists the pods of a gang that have a place.
func (g *gang) here() (list []*pod) {
	for _, p := range g.sorted() {
		if p.Where != "" {
			list = append(list, p)
		}
	}
	return list
}

// awaits reports whether a pod that leaves for a gang is still there.
func (g *gang) awaits() bool {
	return slices.ContainsFunc(g.lifted, func(p *pod) bool { return p.Where != "" })
}

// overtaken says why a gang that waited until others had left cannot be where it was to
// be all the same; "": it can.
func (d *Driver) overtaken(g *gang) string {
	if len(g.lifted) == 0 {
		return ""
	}
	return d.suit(g, g.places.Needed().PerNode())
}
