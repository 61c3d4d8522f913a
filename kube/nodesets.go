package kube

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Which nodes suit the pods of a gang - labels, taints, what a node has at all - is a set of nodes (cluster.NodeSet)
// that the gang's job names. Sets are named after what they contain, so all gangs that the same nodes suit have one,
// and a change of a node makes other sets and changes none. There can be any number of them.

// everyNode is the partition of all nodes, where some are lent: else the engine has no partitions.
const everyNode = "every node"

// nodeSet is the nodes on which all pods of a gang may run.
type nodeSet struct {
	pods    []*pod // as they were when it was made, one of each kind
	lists   []v1.ResourceList
	keptOff []int16 // by the engine's number of a node: 0: it suits, notThere, else a reason
	reasons []string
	upTo    int  // changes of nodes (Driver.nodeLog) that it knows of
	changed bool // ... and that the rest has yet to follow

	names []string // in the order of the engine's nodes
	name  string
	off   string // the other nodes, counted by what keeps them off; "": there are none
	why   string // ... in full if no node is left
}

// notThere stands for a node that is gone.
const notThere = -1

// within is the set as a job names it; "": all nodes suit.
func (s *nodeSet) within() string {
	if s.off == "" {
		return ""
	}
	return s.name
}

// nodesFor finds the nodes that suit a gang with these pods.
func (d *Driver) nodesFor(pods []*pod) *nodeSet {
	var distinct []*pod // pods of a gang are mostly alike
	for _, p := range pods {
		if !slices.ContainsFunc(distinct, func(q *pod) bool { return p.signature == q.signature }) {
			distinct = append(distinct, p)
		}
	}
	key := ""
	for _, p := range distinct {
		key += p.signature + "\n"
	}
	s := d.sets[key]
	if s == nil {
		s = &nodeSet{upTo: len(d.nodeLog), changed: true}
		for _, p := range distinct {
			like := *p
			s.pods, s.lists = append(s.pods, &like), append(s.lists, requestsOf(p.obj))
		}
		d.sets[key] = s
	}
	d.bringUp(s)
	return s
}

// bringUp brings a set up to date with the nodes.
func (d *Driver) bringUp(s *nodeSet) {
	for ; s.upTo < len(d.nodeLog); s.upTo++ {
		if i := d.nodeLog[s.upTo]; i < len(s.keptOff) {
			d.judge(s, i)
		}
	}
	for len(s.keptOff) < len(d.order) {
		s.keptOff, s.changed = append(s.keptOff, notThere), true
		d.judge(s, len(s.keptOff)-1)
	}
	if s.changed {
		d.sumUp(s)
	}
}

// judge looks whether the set contains a node now.
func (d *Driver) judge(s *nodeSet, i int) {
	is := int16(notThere)
	if n := d.nodes[d.order[i]]; n != nil && n.obj != nil {
		why := ""
		for k := 0; k < len(s.pods) && why == ""; k++ {
			why = d.unsuitable(s.pods[k], s.lists[k], d.order[i], n)
		}
		is = s.code(why)
	}
	if s.keptOff[i] != is {
		s.keptOff[i], s.changed = is, true
	}
}

// code is the number of a reason.
func (s *nodeSet) code(reason string) int16 {
	if reason == "" {
		return 0
	}
	i := slices.Index(s.reasons, reason)
	if i < 0 {
		i = len(s.reasons)
		s.reasons = append(s.reasons, reason)
	}
	return int16(i + 1)
}

// sumUp writes down what the set contains.
func (d *Driver) sumUp(s *nodeSet) {
	s.changed, s.names, s.why = false, nil, ""
	count, nodes := make([]int, len(s.reasons)), 0
	for i, code := range s.keptOff {
		if code == notThere {
			continue
		}
		nodes++
		if code == 0 {
			s.names = append(s.names, d.order[i])
		} else {
			count[code-1]++
		}
	}
	var parts []string
	for i, k := range count {
		if k > 0 {
			parts = append(parts, fmt.Sprintf("%d: %s", k, s.reasons[i]))
		}
	}
	slices.Sort(parts)
	s.off, s.name = strings.Join(parts, "; "), setName(s.names)
	if len(s.names) > 0 {
		return
	}
	s.why = fmt.Sprintf("none of %d nodes suits it (%s)", nodes, s.off)
	if slices.ContainsFunc(s.pods, func(p *pod) bool { return p.want != want{} }) {
		s.why += "; there are " + d.offers()
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

// confineTo has a job run on a set of nodes only.
func (d *Driver) confineTo(spec *cluster.Job, s *nodeSet) {
	spec.Nodes, spec.Partitions = s.within(), nil
	if len(d.opt.Loans) > 0 {
		spec.Partitions = []string{everyNode}
	}
}

// naming is the event by which the engine learns of a set that a job is to name; nil: it knows it, or needs not.
func (d *Driver) naming(s *nodeSet) []engine.Event {
	name := s.within()
	if _, known := d.named[name]; known || name == "" {
		return nil
	}
	return []engine.Event{{Type: engine.NodesNamed, Set: &cluster.NodeSet{Name: name, Nodes: s.names}}}
}

// name makes a set known to the engine.
func (d *Driver) name(s *nodeSet) []engine.Event {
	events := d.naming(s)
	if len(events) > 0 {
		d.named[s.name] = s.names
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
		if d.bringUp(g.nodes); g.nodes.why != "" || g.nodes.within() != g.spec.Nodes {
			others = append(others, g)
		}
	}
	slices.SortFunc(others, func(a, b *gang) int { return cmp.Compare(a.id, b.id) })
	for _, g := range others {
		if g.nodes.why != "" {
			events = append(events, engine.Event{Type: engine.Cancelled, Job: g.id})
			d.withdraw(g)
			continue
		}
		spec := *g.spec
		d.confineTo(&spec, g.nodes)
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
		d.confineTo(spec, s)
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
			if pods := d.membersOf(g); len(pods) > 0 {
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
	d.setsAt = true // whom no node suits is taken back
}

// kindOfNode is what makes the kind of a node in the engine.
type kindOfNode struct {
	model string
	gpus  int
}

// limitKinds sets nodes aside where they are of more kinds than an engine tells apart: those on which gangs have
// something come first, then the order in which nodes came.
func (d *Driver) limitKinds(nodes []cluster.Node, helds map[string]held) {
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

// setName is that of a set of nodes.
func setName(names []string) string {
	h := sha256.New() // tenants choose sets: nobody must be able to find two with one name
	for _, n := range names {
		_, _ = h.Write([]byte(n))
		_, _ = h.Write([]byte{0})
	}
	return fmt.Sprintf("nodes-%x", h.Sum(nil)[:16])
}
