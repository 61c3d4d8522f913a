package kube

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/mig"
)

// A second engine says which gangs would start if nodes were partitioned otherwise: it knows quotas, the order, racks,
// promises to others. It is made as the one that decides is (facts.go), of nodes as they would be, and takes one step.

// migWaiter is a gang that waits: in the engine, or outside of it because nothing of the cluster suits it as it is.
type migWaiter struct {
	g    *gang
	pods []*pod
	spec *cluster.Job // as it would be submitted; nil: the engine has it
	id   cluster.JobID
	old  bool // it has waited for long enough
}

// migNewNode is one more node, like another and partitioned otherwise.
type migNewNode struct {
	like  string
	offer *config.MIGOffer
}

// waiters lists the gangs that wait and are whole, by name.
func (d *Driver) waiters(now cluster.Time) (list []*migWaiter) {
	for _, key := range slices.Sorted(maps.Keys(d.gangs)) {
		g := d.gangs[key]
		w := &migWaiter{g: g, id: g.id}
		switch {
		case g.phase == waiting:
			w.pods = d.membersOf(g)
		case g.phase == gathering && g.refused != "" && g.asks() && g.of == "" && g.retry <= now && len(g.rivals) == 0:
			if w.spec, w.pods = d.wouldBe(g); w.spec == nil {
				continue
			}
		default:
			continue
		}
		if len(w.pods) > 0 {
			w.old = g.book.Lined > 0 && now.Sub(g.book.Lined) >= d.mig.After()
			list = append(list, w)
		}
	}
	id := d.next
	for _, w := range list {
		if w.spec != nil {
			w.id, w.spec.ID = id, id
			id++
		}
	}
	return list
}

// wouldBe is the job of a gang that no node suits as it is; nil: it waits for something else.
func (d *Driver) wouldBe(g *gang) (*cluster.Job, []*pod) {
	m, err := g.need()
	if err != nil {
		return nil, nil
	}
	need, _, _ := d.crew(g, &m)
	if len(need) == 0 || len(need) < max(1, m.Size) {
		return nil, nil
	}
	spec, err := d.specOf(g, need, m)
	if err != nil || d.admits(spec) != nil {
		return nil, nil
	}
	if g.refusedIn != d.era && d.nodesFor(need).Why == "" { // it is not for want of a node, nor was it rejected
		return nil, nil
	}
	l := d.limitsOf(need, false, true)
	if l.Why != "" {
		return nil, nil
	}
	spec.PerNode, spec.NodeLimits = l.Each, l.Nodes
	return spec, need
}

// suppose asks what would happen if nodes were partitioned otherwise, with no pods on them, and there were others
// besides.
func (d *Driver) suppose(list []*migWaiter, as map[string]*config.MIGOffer, more []migNewNode) (*mig.World, error) {
	snap := d.eng.Snapshot()
	w := &mig.World{As: as, Spec: d.cfg.Spec, Starts: map[cluster.JobID][]engine.Alloc{}}
	w.Spec.Nodes = slices.Clone(snap.Nodes)
	other := map[string]*node{} // nodes as they would be
	for i, name := range d.order {
		o := as[name]
		if o == nil {
			continue
		}
		other[name] = d.supposedNode(name, o)
		w.Spec.Nodes[i] = d.nodeSpec(name, other[name], holds.Of{})
		w.Spec.Nodes[i].State = cluster.Up
	}
	snap.Jobs = slices.DeleteFunc(snap.Jobs, func(r engine.JobRecord) bool {
		return r.State == engine.Done ||
			slices.ContainsFunc(r.Allocs, func(a engine.Alloc) bool { return as[d.order[a.Node]] != nil })
	})
	for _, m := range more {
		n := d.supposedNode(m.like, m.offer)
		s := d.nodeSpec(m.like, n, holds.Of{})
		s.Name = m.like + "/" + m.offer.Text()
		for slices.ContainsFunc(w.Spec.Nodes, func(o cluster.Node) bool { return o.Name == s.Name }) {
			s.Name += "'"
		}
		s.State = cluster.Up
		other[s.Name] = n
		w.Spec.Nodes = append(w.Spec.Nodes, s)
	}
	withModels(&w.Spec)
	snap.Nodes = slices.Clone(w.Spec.Nodes)
	events := d.supposedSets(list, &snap, &w.Spec, other)
	_, cfg, err := d.rules(w.Spec)
	if err != nil {
		return nil, err
	}
	cfg.Spec.Queues, snap.Fresh = d.queues.Fitted(), true
	if w.Eng, err = engine.Restore(cfg, &snap); err != nil {
		return nil, err
	}
	w.Eng.Look(d.now)
	dec := w.Eng.Step(engine.Batch{Seq: d.seq + 1, Now: d.now, Events: events})
	for i := range dec.Actions {
		if a := &dec.Actions[i]; a.Type == engine.Start {
			w.Starts[a.Job], w.Order = slices.Clone(a.Allocs), append(w.Order, a.Job)
		}
	}
	w.Line = w.Eng.Line(lookAhead)
	return w, nil
}

// withModels states the models of the nodes: so each is looked up once, and not for every node.
func withModels(spec *cluster.Spec) {
	spec.Models = slices.Clone(spec.Models)
	for i := range spec.Nodes {
		name := spec.Nodes[i].Model
		if name == "" || slices.ContainsFunc(spec.Models, func(m cluster.GPUModel) bool { return m.Name == name }) {
			continue
		}
		if m, ok := cluster.FindModel(name); ok && m.Name == name {
			spec.Models = append(spec.Models, m)
		}
	}
}

// supposedNode is a node as it would be, with no GPUs taken.
func (d *Driver) supposedNode(name string, o *config.MIGOffer) *node {
	n := d.nodes[name]
	as := &node{obj: mig.Offering(n.obj, o), pods: map[*pod]bool{}, foreign: map[*pod]bool{}, other: n.other}
	as.other.gpus = 0
	return as
}

// supposedSets tells gangs that wait which nodes suit them, as these would be, and returns how those are submitted that
// the engine does not have.
func (d *Driver) supposedSets(list []*migWaiter, snap *engine.Snapshot, spec *cluster.Spec,
	other map[string]*node) (events []engine.Event) {
	known, sets := map[string]bool{}, map[string]cluster.NodeSet{}
	for i := range snap.Sets {
		known[snap.Sets[i].Name] = true
	}
	spec.Partitions = slices.Clone(spec.Partitions)
	for i := range spec.Partitions {
		if p := &spec.Partitions[i]; p.Name == everyNode {
			p.Nodes = nil
			for k := range spec.Nodes {
				p.Nodes = append(p.Nodes, spec.Nodes[k].Name)
			}
		}
	}
	records := map[cluster.JobID]int{}
	for i := range snap.Jobs {
		records[snap.Jobs[i].Spec.ID] = i
	}
	for _, w := range list {
		key := ""
		for _, p := range w.pods {
			if !slices.ContainsFunc(w.pods, func(q *pod) bool {
				return q != p && q.signature == p.signature && podOrder(q, p) < 0
			}) {
				key += p.signature + "\n"
			}
		}
		set, ok := sets[key]
		if !ok {
			set = d.supposedSet(w.pods, spec.Nodes, other)
			sets[key] = set
		}
		if len(set.Nodes) == 0 {
			continue
		}
		if !known[set.Name] {
			snap.Sets, known[set.Name] = append(snap.Sets, set), true
		}
		if w.spec != nil {
			job := *w.spec
			d.confineTo(&job, set.Name)
			events = append(events, engine.Event{Type: engine.Submitted, Job: job.ID, Spec: &job})
		} else if i, ok := records[w.id]; ok {
			job := *snap.Jobs[i].Spec
			d.confineTo(&job, set.Name)
			snap.Jobs[i].Spec = &job
		}
	}
	return events
}

// supposedSet is the nodes that suit a gang's pods.
func (d *Driver) supposedSet(pods []*pod, nodes []cluster.Node, other map[string]*node) (set cluster.NodeSet) {
	now := d.nodesFor(pods)
	asked := askedOf(distinctBy(pods, func(p *pod) string { return p.signature }))
	for i := range nodes {
		name := nodes[i].Name
		n := other[name]
		if n == nil && slices.Contains(now.Names, name) || n != nil && d.fit.Unsuitable(asked, n.obj) == "" {
			set.Nodes = append(set.Nodes, name)
		}
	}
	set.Name = fit.SetName(set.Nodes)
	return set
}

// mayBeOn reports whether labels and taints of a node let all pods of a gang be there, whatever it has.
func (d *Driver) mayBeOn(pods []*pod, obj *v1.Node) bool {
	return !slices.ContainsFunc(pods, func(p *pod) bool { return d.fit.Suits(&fit.Pod{Obj: p.obj}, obj) != "" })
}
