package kube

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/nodes"
)

// The nodes that suit a gang are a set, by which its job says where it can be. So its pods can ask for any nodes that
// there are in any words.

// nodesFor finds the nodes that suit a gang with these pods.
func (d *Driver) nodesFor(pods []*pod) *nodes.Set {
	distinct, key := distinctBy(pods, func(p *pod) string { return p.signature }), ""
	for _, p := range distinct {
		key += p.signature + "\n"
	}
	return d.nodes.Sets.For(key, func() []fit.Pod { return askedOf(distinct) })
}

// distinctBy lists one pod of each kind: pods of a gang are mostly alike.
func distinctBy(pods []*pod, kind func(*pod) string) (list []*pod) {
	for _, p := range pods {
		if !slices.ContainsFunc(list, func(q *pod) bool { return kind(p) == kind(q) }) {
			list = append(list, p)
		}
	}
	return list
}

func askedOf(pods []*pod) []fit.Pod {
	list := make([]fit.Pod, len(pods))
	for i, p := range pods {
		list[i] = p.asked()
	}
	return list
}

// asked is a pod as node predicates see it.
func (p *pod) asked() fit.Pod {
	return fit.Pod{Obj: p.Obj, Requests: gpus.Requests(p.Obj), Replica: p.Replica, Want: p.Want}
}

// sign writes down what decides on which nodes a pod may run.
func (p *pod) sign(suits fit.Nodes) {
	p.signature = p.base + suits.Settled(&fit.Pod{Obj: p.Obj, Replica: p.Replica, Want: p.Want})
}

// key is what of a pod decides which nodes suit it, but for what is settled with its gang.
func (p *pod) key(suits fit.Nodes) string {
	asked := p.asked()
	return suits.Key(&asked)
}

// setEvents tell the engine of gangs that wait whose set of nodes is another now. One that no node suits any more is
// taken back.
func (d *Driver) setEvents() (events []engine.Event) {
	d.nodes.Sets.Seen()
	var others []*gang
	for _, g := range d.byID {
		if g.phase != waiting || g.nodes == nil {
			continue
		}
		if d.nodes.Sets.BringUp(g.nodes); g.nodes.Why != "" || g.nodes.Within() != g.spec.Nodes {
			others = append(others, g)
		}
	}
	slices.SortFunc(others, func(a, b *gang) int { return cmp.Compare(a.id, b.id) })
	for _, g := range others {
		if g.nodes.Why != "" {
			events = append(events, engine.Event{Type: engine.Cancelled, Job: g.id})
			d.withdraw(g)
			continue
		}
		spec := *g.spec
		d.nodes.Loans.Confine(&spec, g.nodes.Within())
		g.spec = &spec
		events = append(append(events, d.nodes.Sets.Name(g.nodes)...),
			engine.Event{Type: engine.Updated, Job: g.id, Spec: &spec})
	}
	return events
}

// forgetSets forgets the sets of nodes of gangs that are bound.
func (d *Driver) forgetSets() {
	used := map[*nodes.Set]bool{}
	for _, g := range d.gangs {
		if g.phase <= waiting && g.nodes != nil {
			used[g.nodes] = true
		}
	}
	d.nodes.Sets.Keep(used)
}

// setNodes gives the jobs of a snapshot that wait the nodes that suit them now, and writes down these sets.
func (d *Driver) setNodes(snap *engine.Snapshot) {
	d.nodes.Sets.NameAgain() // a gang that no node suits is taken back
	snap.Sets = nil
	confine := func(spec *cluster.Job, s *nodes.Set) {
		d.nodes.Loans.Confine(spec, s.Within())
		for _, ev := range d.nodes.Sets.Name(s) {
			snap.Sets = append(snap.Sets, *ev.Set)
		}
	}
	for i := range snap.Jobs {
		r := &snap.Jobs[i]
		g := d.byID[r.Spec.ID]
		spec := *r.Spec // the engine before this one still has it
		spec.Nodes, spec.Partitions = "", nil
		if g != nil && g.phase == waiting {
			g.nodes = nil
			if pods := g.submitted(); len(pods) > 0 {
				g.nodes = d.nodesFor(pods)
				confine(&spec, g.nodes)
			}
		}
		r.Spec = &spec
		if g != nil {
			d.comesBack(g, &spec, confine)
			g.spec = &spec
		}
	}
}
