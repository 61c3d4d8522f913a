package kube

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/relocations"
)

// The nodes that suit a gang are a set, by which its job says where it can be. So its pods can ask for any nodes that
// there are in any words.

// setEvents tell the engine of gangs that wait whose set of nodes is another now. One that no node suits any more is
// taken back.
func (d *Driver) setEvents() (events []engine.Event) {
	d.nodes.Sets.Seen()
	var others []*gang.Gang
	for _, g := range d.byID {
		if g.Phase != gang.Waiting || g.Nodes == nil {
			continue
		}
		if d.nodes.Sets.BringUp(g.Nodes); g.Nodes.Why != "" || g.Nodes.Within() != g.Spec.Nodes {
			others = append(others, g)
		}
	}
	slices.SortFunc(others, gang.ByJob)
	for _, g := range others {
		if g.Nodes.Why != "" {
			events = append(events, engine.Event{Type: engine.Cancelled, Job: g.Job})
			d.withdraw(g)
			continue
		}
		spec := *g.Spec
		d.nodes.Loans.Confine(&spec, g.Nodes.Within())
		g.Spec = &spec
		events = append(append(events, d.nodes.Sets.Name(g.Nodes)...),
			engine.Event{Type: engine.Updated, Job: g.Job, Spec: &spec})
	}
	return events
}

// forgetSets forgets the sets of nodes of gangs that are bound.
func (d *Driver) forgetSets() {
	used := map[*nodes.Set]bool{}
	for _, g := range d.gangs {
		if g.Phase <= gang.Waiting && g.Nodes != nil {
			used[g.Nodes] = true
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
		if g != nil && g.Phase == gang.Waiting {
			g.Nodes = nil
			if pods := g.Submitted(); len(pods) > 0 {
				g.Nodes = d.reader.NodesFor(pods)
				confine(&spec, g.Nodes)
			}
		}
		r.Spec = &spec
		if g != nil {
			if p := relocations.ComesBack(g, &spec); p != nil {
				confine(&spec, d.nodes.Sets.Of(p.Pods))
			}
			g.Spec = &spec
		}
	}
}
