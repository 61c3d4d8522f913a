package inventory

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Idle reports whether nobody has any of a node's devices.
func (n *Node) Idle() bool {
	return n.hosts == 0 && n.guested == 0 && n.free == n.Whole() && n.frozen == 0 &&
		!slices.ContainsFunc(n.devs, func(d Device) bool { return d.tenants > 0 })
}

// SameHardware reports whether two descriptions of a node are of the same devices.
func SameHardware(a, b *cluster.Node) bool {
	return a.GPUs == b.GPUs && a.Model == b.Model && a.MIG == b.MIG && a.Islands == b.Islands
}

// Change makes a node another, with GPUs of a model. It is idle, or has the devices that it had. What jobs hold of its
// CPU and RAM they keep, and it stays in its partitions. first: it is the first of its class.
func (st *Store) Change(id int32, spec cluster.Node, model cluster.GPUModel, clients int) (first bool, err error) {
	n := &st.nodes[id]
	layout, err := fixedOf(&spec, &model)
	if err != nil {
		return false, err
	}
	class, first, err := classOf(&st.classes, spec.GPUs, model, st.classes[n.class].parts, clients)
	if err != nil {
		return false, err
	}
	was, same := n.class, SameHardware(&n.spec, &spec)
	n.cpu += modelled(spec.CPU) - modelled(n.spec.CPU)
	n.ram += modelled(spec.RAM) - modelled(n.spec.RAM)
	n.spec, n.fixed, n.class, n.changed, n.resized = spec, layout, class, true, false
	if !same {
		n.devs = blankDevices(spec.GPUs, &model)
		n.setHealthy(spec.Bad)
	}
	n.locate(st.domain)
	if class != was {
		st.classes[was].without(id)
		st.classes[class].with(id)
		st.classes[was].reindex(st.nodes)
	}
	st.classes[class].reindex(st.nodes)
	st.changed(n)
	return first, nil
}

// with adds a node to a class, and without takes one out; both leave the lists as they are that others may have.
func (c *Class) with(id int32) {
	list := slices.Clone(c.nodes)
	at, _ := slices.BinarySearch(list, id)
	c.nodes = slices.Insert(list, at, id)
}

func (c *Class) without(id int32) {
	c.nodes = slices.DeleteFunc(slices.Clone(c.nodes), func(o int32) bool { return o == id })
}

// reindex rebuilds what a class knows of its nodes.
func (c *Class) reindex(nodes []Node) {
	c.buckets, c.partial = make([]bitset, c.gpus+1), bitset{}
	c.free, c.cpu, c.ram, c.split = 0, 0, 0, false
	c.grow(len(c.nodes))
	for pos, id := range c.nodes {
		n := &nodes[id]
		n.pos = int32(pos)
		c.cpu, c.ram = max(c.cpu, modelled(n.spec.CPU)), max(c.ram, modelled(n.spec.RAM))
		c.split = c.split || n.split
		if n.indexed {
			c.buckets[n.nfree].add(n.pos)
			c.free += int(n.nfree)
		}
		c.indexPartial(n)
	}
}
