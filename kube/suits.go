package kube

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/nodes"
)

// The nodes that suit a gang are a set, by which its job says where it can be. So its pods can ask for any nodes that
// there are in any words.

// nodesFor finds the nodes that suit a gang with these pods.
func (d *Driver) nodesFor(pods []*pod) *nodes.Set { return d.nodes.Sets.Of(onNodes(pods)) }

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
