package inventory

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Idle reports whether none of a node's devices is in use.
func (n *Node) Idle() bool {
	return n.hosts == 0 && n.guested == 0 && n.free == n.Whole() && n.frozen == 0 &&
		!slices.ContainsFunc(n.devs, func(d Device) bool { return d.tenants > 0 })
}

// SameHardware reports whether two descriptions of a node have the same devices.
func SameHardware(a, b *cluster.Node) bool {
	return a.GPUs == b.GPUs && a.Model == b.Model && a.MIG == b.MIG && a.Islands == b.Islands
}

// Change replaces the description of a node, with GPUs of a model. The node must be idle, or keep
// its devices. Jobs keep the CPU and RAM that they hold, and the node stays in its partitions. Classes have the numbers
// then that they would have had the nodes joined as they are: what they were before leaves no trace.
func (st *Store) Change(id int32, spec cluster.Node, model cluster.GPUModel, clients int) error {
	n := &st.nodes[id]
	layout, err := fixedOf(&spec, &model)
	if err != nil {
		return err
	}
	list := slices.Clone(st.classes)
	class, _, err := classOf(&list, spec.GPUs, model, st.classes[n.class].parts, clients)
	if err != nil {
		return err
	}
	same := SameHardware(&n.spec, &spec)
	n.cpu += modelled(spec.CPU) - modelled(n.spec.CPU)
	n.ram += modelled(spec.RAM) - modelled(n.spec.RAM)
	n.spec, n.fixed, n.changed, n.resized = spec, layout, true, false
	if !same {
		n.devs = blankDevices(spec.GPUs, &model)
		n.setHealthy(spec.Bad)
	}
	n.locate(st.domain)
	st.cores = max(st.cores, len(n.cores))
	if class != n.class {
		n.class = class
		st.classes = renumber(list, st.nodes)
	} else {
		st.classes[class].reindex(st.nodes)
	}
	st.changed(n)
	return nil
}

// renumber numbers the classes of nodes in the order of their first nodes, and drops those without any.
func renumber(classes []Class, nodes []Node) (list []Class) {
	number := make([]int32, len(classes)) // 1 + the new one; 0: none yet
	for id := range nodes {
		n := &nodes[id]
		if number[n.class] == 0 {
			c := classes[n.class]
			c.nodes = nil // the old list may be shared
			list = append(list, c)
			number[n.class] = int32(len(list))
		}
		n.class = number[n.class] - 1
		list[n.class].nodes = append(list[n.class].nodes, int32(id))
	}
	for i := range list {
		list[i].reindex(nodes)
	}
	return list
}

// reindex rebuilds the index of a class.
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

// Valid reports whether all that allocations name is there, and free if it must be.
func Valid(s *Store, allocs []Alloc, free bool) bool {
	for i := range allocs {
		a := &allocs[i]
		if a.Node < 0 || int(a.Node) >= len(s.nodes) || a.GPUs>>s.nodes[a.Node].Spec().GPUs != 0 {
			return false
		}
	}
	if !free {
		return true
	}
	mark := s.Mark()
	ok := s.TakeBack(allocs, false, true)
	s.Rollback(mark)
	return ok
}
