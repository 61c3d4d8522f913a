package kube

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// An engine tells at most 63 partitions and engine.MaxKinds kinds of node apart. Any tenant can ask for one more set of
// nodes, so a set beyond these is not a partition: its gang may be anywhere in the engine's eyes, but is told that the
// nodes outside its set take none of it (cluster.NodeLimit), of which there can be any number. Such a gang waits, and is
// not refused, where its set is too small for it.

// everyNode is the partition of gangs whose set of nodes is none.
const everyNode = "every node"

// kinds counts the kinds of node that an engine would tell apart.
type kinds struct {
	at map[string]int // by node: its kind
	n  int
}

// kindOfNode is what makes the kind of a node besides partitions.
type kindOfNode struct {
	model string
	gpus  int
}

// kindsOf are the kinds of nodes, without partitions.
func kindsOf(nodes []cluster.Node) *kinds {
	k := &kinds{at: map[string]int{}}
	known := map[kindOfNode]int{}
	for i := range nodes {
		key := kindOfNode{nodes[i].Model, nodes[i].GPUs}
		id, ok := known[key]
		if !ok {
			id = k.n
			known[key] = id
			k.n++
		}
		k.at[nodes[i].Name] = id
	}
	return k
}

// split makes a partition of some nodes, which divides the kinds that it has a part of; false: they would be too many,
// and nothing is changed.
func (k *kinds) split(names []string) bool {
	all, in := make([]int, k.n), make([]int, k.n)
	for _, id := range k.at { // counting: the order does not matter
		all[id]++
	}
	for _, name := range names {
		if id, ok := k.at[name]; ok {
			in[id]++
		}
	}
	next, to := k.n, make([]int, k.n)
	for id := range all {
		if to[id] = id; in[id] > 0 && in[id] < all[id] {
			to[id] = next
			next++
		}
	}
	if next > engine.MaxKinds {
		return false
	}
	for _, name := range names {
		if id, ok := k.at[name]; ok {
			k.at[name] = to[id]
		}
	}
	k.n = next
	return true
}

// limitKinds sets nodes aside where they are of more kinds than an engine tells apart: those on which gangs have
// something come first, then the order in which nodes came.
func (d *Driver) limitKinds(nodes []cluster.Node, helds map[string]held) {
	known := map[kindOfNode]bool{{}: true}
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
			d.setNodeAside(n.Name, "the cluster has more kinds of node (model and number of GPUs) than Muster tells apart")
			n.MIG, n.GPUs, n.Model = "", 0, ""
		}
	}
}

// partitioner finds the partitions of an engine that is being built.
type partitioner struct {
	kinds *kinds
	most  int
	list  []cluster.Partition
	known map[string]bool
	full  bool
}

// partitioner counts what the engine has besides the sets of nodes that gangs ask for.
func (d *Driver) partitioner(nodes []cluster.Node) *partitioner {
	p := &partitioner{kinds: kindsOf(nodes), most: maxParts - len(d.opt.Loans) - 1, known: map[string]bool{}} // one for every node
	for i := range d.opt.Loans {
		var lent []string
		for _, name := range d.order {
			if d.loanOf(d.nodes[name]) == i {
				lent = append(lent, name)
			}
		}
		p.full = !p.kinds.split(lent) || p.full
	}
	return p
}

// add makes a set of nodes a partition; false: the engine cannot have more.
func (p *partitioner) add(s *nodeSet) bool {
	if p.known[s.name] {
		return true
	}
	if p.full = p.full || !p.kinds.split(s.names); p.full {
		return false
	}
	p.known[s.name] = true
	p.list = append(p.list, cluster.Partition{Name: s.name, Nodes: s.names})
	p.full = len(p.list) >= p.most
	return true
}

// outside lists the nodes that are not of a set.
func (d *Driver) outside(s *nodeSet) (list []string) {
	in := make(map[string]bool, len(s.names))
	for _, name := range s.names {
		in[name] = true
	}
	for _, name := range d.order {
		if !in[name] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// fence adds to what nodes take of a gang that those outside its set of nodes take nothing, where that set is no
// partition of the engine. The fence is the first of the limits.
func (d *Driver) fence(g *gang, pods []*pod, l limits) limits {
	g.fenced = false
	if len(pods) == 0 || !d.full || l.why != "" {
		return l
	}
	s := d.partition(pods)
	if d.parts[s.name] {
		return l
	}
	outside := d.outside(s)
	if len(outside) == 0 {
		return l
	}
	g.fenced = true
	l.nodes = append([]cluster.NodeLimit{{Nodes: outside}}, l.nodes...)
	if l.text != "" && s.off != "" {
		l.text = "; " + l.text
	}
	l.text = s.off + l.text
	return l
}

// place tells the job of a gang that waits, in an engine that is being built, in which partition it may be, or which
// nodes take none of it.
func (d *Driver) place(g *gang, spec *cluster.Job, s *nodeSet, part bool) {
	if g.fenced {
		spec.NodeLimits, g.fenced = slices.Clone(spec.NodeLimits[1:]), false
	}
	if part {
		spec.Partitions = []string{s.name}
		return
	}
	spec.Partitions = []string{everyNode}
	if outside := d.outside(s); len(outside) > 0 {
		spec.NodeLimits, g.fenced = append([]cluster.NodeLimit{{Nodes: outside}}, spec.NodeLimits...), true
	}
}
