package kube

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/holds"
)

// Which nodes suit the pods of a gang - labels, taints, what a node has at all - is a set of nodes (cluster.NodeSet)
// that the gang's job names. Sets are named after what they contain, so all gangs that the same nodes suit have one,
// and a change of a node makes other sets and changes none. There can be any number of them.

// nodeSet is the nodes on which all pods of a gang may run.
type nodeSet struct {
	*fit.Set
	upTo int // changes of nodes (Driver.nodeLog) that it knows of
}

// nodesFor finds the nodes that suit a gang with these pods.
func (d *Driver) nodesFor(pods []*pod) *nodeSet {
	distinct := distinctBy(pods, func(p *pod) string { return p.signature })
	key := ""
	for _, p := range distinct {
		key += p.signature + "\n"
	}
	s := d.sets[key]
	if s == nil {
		s = &nodeSet{fit.NewSet(askedOf(distinct)), len(d.nodeLog)}
		d.sets[key] = s
	}
	d.bringUp(s)
	return s
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

// bringUp brings a set up to date with the nodes.
func (d *Driver) bringUp(s *nodeSet) {
	for ; s.upTo < len(d.nodeLog); s.upTo++ {
		if i := d.nodeLog[s.upTo]; i < s.Len() {
			s.Judge(d.fit, i, d.nodes[d.order[i]].object())
		}
	}
	for i := s.Len(); i < len(d.order); i++ {
		s.Judge(d.fit, i, d.nodes[d.order[i]].object())
	}
	if s.SumUp(d.order) && s.Why != "" && s.Wants() {
		s.Why += "; there are " + d.gpus.Offers(d.nodes.objects())
	}
}

// nodeTurned notes that other pods may suit a node of the engine than before.
func (d *Driver) nodeTurned(name string) {
	if i, ok := d.number[name]; ok {
		d.nodeLog, d.setsAt = append(d.nodeLog, i), true
	}
}

// lookAgain has gangs looked at again that are not in the engine: other nodes may be what they wait for.
func (d *Driver) lookAgain() {
	d.era++
	for _, g := range d.gangs {
		if g.phase == gathering {
			d.touch(g)
		}
	}
}

// naming is the event by which the engine learns of a set that a job is to name; nil: it knows it, or needs not.
func (d *Driver) naming(s *nodeSet) []engine.Event {
	name := s.Within()
	if _, known := d.named[name]; known || name == "" {
		return nil
	}
	return []engine.Event{{Type: engine.NodesNamed, Set: &cluster.NodeSet{Name: name, Nodes: s.Names}}}
}

// name makes a set known to the engine.
func (d *Driver) name(s *nodeSet) []engine.Event {
	events := d.naming(s)
	if len(events) > 0 {
		d.named[s.Name] = s.Names
	}
	return events
}

// setEvents tell the engine of gangs that wait whose set of nodes is another now. One that no node suits any more is
// taken back.
func (d *Driver) setEvents() (events []engine.Event) {
	d.setsAt = false
	var others []*gang
	for _, g := range d.byID {
		if g.phase != waiting || g.nodes == nil {
			continue
		}
		if d.bringUp(g.nodes); g.nodes.Why != "" || g.nodes.Within() != g.spec.Nodes {
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
		d.loans.Confine(&spec, g.nodes.Within())
		g.spec = &spec
		events = append(append(events, d.name(g.nodes)...), engine.Event{Type: engine.Updated, Job: g.id, Spec: &spec})
	}
	return events
}

// forgetSets forgets sets that no gang has that is not bound, and the changes of nodes that all others know of.
func (d *Driver) forgetSets() {
	used := map[*nodeSet]bool{}
	for _, g := range d.gangs {
		if g.phase <= waiting && g.nodes != nil {
			used[g.nodes] = true
		}
	}
	maps.DeleteFunc(d.sets, func(_ string, s *nodeSet) bool { return !used[s] })
	for _, s := range d.sets {
		d.bringUp(s)
		s.upTo = 0
	}
	d.nodeLog = nil
}

// setNodes gives the jobs of a snapshot that wait the nodes that suit them now, and writes down these sets.
func (d *Driver) setNodes(snap *engine.Snapshot) {
	d.named, snap.Sets = map[string][]string{}, nil
	confine := func(spec *cluster.Job, s *nodeSet) {
		d.loans.Confine(spec, s.Within())
		for _, ev := range d.name(s) {
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
	d.setsAt = true // a gang that no node suits is taken back
}

// kindOfNode is what makes the kind of a node in the engine.
type kindOfNode struct {
	model string
	gpus  int
}

// limitKinds sets nodes aside where they are of more kinds than an engine tells apart: those on which gangs have
// something come first, then the order in which nodes came.
func (d *Driver) limitKinds(nodes []cluster.Node, helds map[string]holds.Of) {
	known := map[kindOfNode]bool{{}: true}
	d.kinds = known
	for _, busy := range []bool{true, false} {
		for i := range nodes {
			n := &nodes[i]
			_, has := helds[n.Name]
			key := kindOfNode{n.Model, n.GPUs}
			if has != busy || known[key] {
				continue
			}
			if len(known) < engine.MaxKinds {
				known[key] = true
				continue
			}
			d.setNodeAside(n.Name,
				"the cluster has more kinds of node (model and number of GPUs) than Muster tells apart")
			n.MIG, n.GPUs, n.Model = "", 0, ""
		}
	}
}
