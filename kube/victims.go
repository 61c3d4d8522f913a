package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
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

// mostLifts bounds how many sets of victims are tried for a gang at a time: each is a
// step of a second engine.
const mostLifts = 4

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
	d.nodes.Without(onNodes(g.aside()), func() { l = d.limitsOf(pods, careful, devices) })
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
	var could []*pod
	for _, q := range d.gangs {
		if d.goes(q, g.spec.Tier) {
			could = append(could, q.here()...)
		}
	}
	pods, then := g.submitted(), fit.Limits{}
	d.nodes.Without(onNodes(could), func() { then = d.confine(g, d.limitsOf(pods, g.fails > 0, true)) })
	if then.Why != "" || len(then.Rivals) > 0 || sameLimits(g.spec, &then) {
		return nil
	}
	b := d.blame(pods, could)
	for _, v := range b.victimsFor(opened(d.nodes.Order(), g.spec, &then), len(pods) == 1) {
		if events := d.liftThese(g, pods, v.list, b, before); events != nil {
			return events
		}
	}
	return nil
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

// opened lists the nodes that take more of a job by other limits.
func opened(order []string, j *cluster.Job, then *fit.Limits) (names []string) {
	was, is := mostOn(j.NodeLimits), mostOn(then.Nodes)
	for _, name := range order {
		if x, has := was[name]; has {
			if y, still := is[name]; !still || y > x {
				names = append(names, name)
			}
		}
	}
	return names
}

func mostOn(list []cluster.NodeLimit) map[string]int {
	most := map[string]int{}
	for i := range list {
		for _, name := range list[i].Nodes {
			if x, ok := most[name]; !ok || list[i].Tasks < x {
				most[name] = list[i].Tasks
			}
		}
	}
	return most
}

// victims is gangs that leave together.
type victims struct {
	list []*gang
	has  map[*gang]bool
	gpus int
}

// worst is the highest tier among them.
func (v *victims) worst() cluster.Tier {
	tier := cluster.BestEffort
	for _, q := range v.list {
		tier = min(tier, q.spec.Tier)
	}
	return tier
}

func (v *victims) add(list ...*gang) {
	for _, q := range list {
		if !v.has[q] {
			v.has[q], v.list = true, append(v.list, q)
			v.gpus += q.spec.GPUs()
		}
	}
}

// sorted puts those first that are easiest done without.
func (v *victims) sorted() *victims {
	slices.SortFunc(v.list, func(a, b *gang) int {
		return cmp.Or(cmp.Compare(b.spec.Tier, a.spec.Tier), cmp.Compare(b.book.Started, a.book.Started),
			cmp.Compare(b.id, a.id))
	})
	return v
}

// victimsFor lists the gangs that may be in the way on nodes that would open: for a single pod those of one node, the
// least harmful first; for a gang those of more and more nodes.
func (b *blame) victimsFor(nodes []string, single bool) (list []*victims) {
	for _, name := range nodes {
		v := b.on(name)
		if len(v.list) > 0 &&
			!slices.ContainsFunc(list, func(w *victims) bool { return slices.Equal(w.list, v.list) }) {
			list = append(list, v)
		}
	}
	slices.SortStableFunc(list, func(a, b *victims) int {
		return cmp.Or(cmp.Compare(b.worst(), a.worst()), cmp.Compare(a.gpus, b.gpus),
			cmp.Compare(len(a.list), len(b.list)))
	})
	if single {
		return list[:min(len(list), mostLifts)]
	}
	var all []*victims
	for n := 1; len(list) > 0 && len(all) < mostLifts; n *= 4 {
		if len(all)+1 == mostLifts {
			n = len(list)
		}
		u := &victims{has: map[*gang]bool{}}
		for _, v := range list[:min(n, len(list))] {
			u.add(v.list...)
		}
		if all = append(all, u.sorted()); n >= len(list) {
			break
		}
	}
	return all
}

// blame is the gangs whose pods can be what keeps others off nodes: by label and value of the nodes, or for one node by
// "" and its name.
type blame struct {
	d    *Driver
	keys []string // the labels
	by   map[[2]string][]*gang
}

func (d *Driver) blame(pods, could []*pod) *blame {
	b := &blame{d: d, by: map[[2]string][]*gang{}}
	distinct := distinctBy(pods, func(p *pod) string { return p.neighbourKey })
	for _, q := range could {
		for _, p := range distinct {
			for _, key := range d.nodes.World.Blocks(&p.Neighbour, &q.Neighbour) {
				b.add(key, q)
			}
		}
	}
	return b
}

func (b *blame) add(key string, q *pod) {
	at := [2]string{"", q.Where}
	if key != "" {
		value, ok := b.d.nodes.World.Domain(q.Where, key)
		if !ok {
			return
		}
		if at = [2]string{key, value}; !slices.Contains(b.keys, key) {
			b.keys = append(b.keys, key)
		}
	}
	if !slices.Contains(b.by[at], q.gang) {
		b.by[at] = append(b.by[at], q.gang)
	}
}

// on is the gangs that may be in the way on a node.
func (b *blame) on(name string) *victims {
	v := &victims{has: map[*gang]bool{}}
	v.add(b.by[[2]string{"", name}]...)
	for _, key := range b.keys {
		if value, ok := b.d.nodes.World.Domain(name, key); ok {
			v.add(b.by[[2]string{key, value}]...)
		}
	}
	return v.sorted()
}

// liftThese lets gangs leave if another starts then; those without which it starts as well, stay. nil: it would not
// start.
func (d *Driver) liftThese(g *gang, pods []*pod, gone []*gang, b *blame, before []engine.Event) []engine.Event {
	events, on := d.ifGone(g, pods, gone, before)
	if on == nil {
		return nil
	}
	near := &victims{has: map[*gang]bool{}} // on the nodes that it gets
	for name := range on {
		near.add(b.on(name).list...)
	}
	less := slices.DeleteFunc(slices.Clone(gone), func(q *gang) bool { return !near.has[q] })
	less = spare(less, func(gone []*gang) bool { return d.lets(g, pods, gone, on) })
	if len(less) > 0 && len(less) < len(gone) {
		if ev, at := d.ifGone(g, pods, less, before); at != nil {
			events, gone = ev, less
		}
	}
	g.lifted = hereOf(gone)
	for _, q := range gone {
		q.leaves, q.grace = fmt.Sprintf("preempted for %s, which cannot be where it is", g.name), 30
	}
	g.spec = events[len(events)-1].Spec
	return events
}

// mostLooks bounds how often a gang is tried without one of them.
const mostLooks = 32

// spare takes those out of a list that need not leave, the most valuable first: they are
// the last. Where many leave, it tries many at once, so that a few looks suffice.
func spare(gone []*gang, enough func([]*gang) bool) []*gang {
	looks := 0
	for size := (len(gone) + 7) / 8; size > 0; size /= 2 {
		for end := len(gone); end > 0 && looks < mostLooks; end -= size {
			looks++
			if fewer := slices.Delete(slices.Clone(gone), max(0, end-size), end); enough(fewer) {
				gone = fewer
			}
		}
	}
	return gone
}

// hereOf lists the pods of gangs that have a place.
func hereOf(list []*gang) (pods []*pod) {
	for _, q := range list {
		pods = append(pods, q.here()...)
	}
	return pods
}

// lets reports whether a gang may be on some nodes if others are gone.
func (d *Driver) lets(g *gang, pods []*pod, gone []*gang, on map[string]int) (ok bool) {
	d.nodes.Without(onNodes(hereOf(gone)), func() {
		l := d.confine(g, d.limitsOf(pods, g.fails > 0, true))
		ok = d.whyForbidden(&l, pods, on) == ""
	})
	return ok
}

// ifGone is what the engine is told if gangs leave for another, and on which nodes that
// has its places then; nil: it has none.
func (d *Driver) ifGone(g *gang, pods []*pod, gone []*gang, before []engine.Event) (events []engine.Event,
	on map[string]int) {
	var l fit.Limits
	d.nodes.Without(onNodes(hereOf(gone)), func() { l = d.confine(g, d.limitsOf(pods, g.fails > 0, true)) })
	if l.Why != "" || len(l.Rivals) > 0 {
		return nil, nil
	}
	for _, q := range gone {
		events = append(events, engine.Event{Type: engine.Cancelled, Job: q.id})
	}
	spec := *g.spec
	spec.PerNode, spec.NodeLimits = l.Each, l.Nodes
	events = append(events, engine.Event{Type: engine.Updated, Job: g.id, Spec: &spec})
	r := d.foreseen(g.id, slices.Concat(before, events))
	if r == nil {
		return nil, nil
	}
	on = map[string]int{}
	for i := range r.Allocs {
		on[d.nodes.Order()[r.Allocs[i].Node]] += int(r.Allocs[i].Tasks)
	}
	return events, on
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
