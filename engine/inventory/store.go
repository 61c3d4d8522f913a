// Package inventory is the resources of the cluster: nodes, their GPUs, shares and slices of them,
// CPU and RAM, what of them is free, and the log that makes changes tentative. It knows jobs only
// by number.
package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Store is all nodes with their index, and the log that undoes tentative changes. A what-if is:
// mark, change, look, rollback.
type Store struct {
	nodes   []Node
	classes []Class
	cores   int              // levels above fabrics of which nodes name domains
	domains map[string]int32 // names of racks, fabrics and NVLink domains to ids; looked up only
	undo    []undoRec
	notes   []note
	// undoes a note: charges a job's holdings to its queue (1) or refunds them (-1)
	recharge func(job int32, sign int64)
	commits  int    // number of commits that had changes
	changes  uint64 // counter for versions of nodes
	asleep   int    // number of sleeping nodes
	frag     fragCache
	kinds    kindsMemo
}

// Add adds a node with GPUs of a model. parts is its partitions, one bit each; clients is the
// maximum number of shares of a device (0: unlimited). first: the node is the first of its class.
func (st *Store) Add(n cluster.Node, model cluster.GPUModel, parts uint64, clients int) (first bool, err error) {
	ns := Node{spec: n, drained: n.State == cluster.Draining}
	if ns.fixed, err = fixedOf(&n, &model); err != nil {
		return false, err
	}
	if ns.class, first, err = classOf(&st.classes, n.GPUs, model, parts, clients); err != nil {
		return false, err
	}
	ns.empty(&model)
	ns.setHealthy(n.Bad)
	ns.locate(st.domain)
	st.cores = max(st.cores, len(ns.cores))
	c := &st.classes[ns.class]
	ns.pos = int32(len(c.nodes))
	c.nodes = append(c.nodes, int32(len(st.nodes)))
	c.cpu, c.ram, c.split = max(c.cpu, ns.cpu), max(c.ram, ns.ram), c.split || ns.split
	c.grow(len(c.nodes))
	st.nodes = append(st.nodes, ns)
	if n.Asleep > 0 {
		st.asleep++
	}
	st.index(&st.nodes[len(st.nodes)-1], n.State == cluster.Up)
	return first, nil
}

// classOf returns the class of a node, creating it if needed; first: the node is the first of it.
func classOf(list *[]Class, gpus int, model cluster.GPUModel, parts uint64, clients int) (id int32, first bool,
	err error) {
	id = int32(slices.IndexFunc(*list, func(c Class) bool {
		return c.model.Name == model.Name && c.gpus == gpus && c.parts == parts
	}))
	if id >= 0 {
		return id, false, nil
	}
	if len(*list) == MaxKinds {
		return 0, false, fmt.Errorf("more than %d kinds of node (GPU model x GPUs per node x partitions)", MaxKinds)
	}
	c := Class{model: model, gpus: gpus, parts: parts, buckets: make([]bitset, gpus+1), clients: clients}
	*list = append(*list, c)
	return int32(len(*list)) - 1, true, nil
}

// locate sets the domains of a node, by number.
func (n *Node) locate(domain func(level, name string) int32) {
	n.rack, n.fabric, n.split = domain("rack", n.spec.Rack), domain("fabric", n.spec.Fabric), false
	n.cores = nil
	for i, name := range n.spec.Cores[:min(len(n.spec.Cores), cluster.MostCores)] {
		n.cores = append(n.cores, domain((cluster.LevelCore+cluster.Level(i)).String(), name))
	}
	if n.spec.NVLink != "" {
		n.nvlink = domain("nvlink", n.spec.NVLink)
		return
	}
	n.nvlink, n.split = domain("node", n.spec.Name), n.Islands() > 1
}

// domain numbers the named domain; nodes that name none share one domain.
func (st *Store) domain(level, name string) int32 {
	if st.domains == nil {
		st.domains = map[string]int32{}
	}
	key := level + "/" + name
	id, ok := st.domains[key]
	if !ok {
		id = int32(len(st.domains))
		st.domains[key] = id
	}
	return id
}

// Described lists the nodes in the order in which they joined, with their states and the GPUs that are bad.
func Described(st *Store) []cluster.Node {
	list := make([]cluster.Node, len(st.nodes))
	for i := range list {
		n := &st.nodes[i]
		list[i] = *n.Spec()
		list[i].Bad = (uint64(1)<<n.Spec().GPUs - 1) &^ n.Healthy()
	}
	return list
}

// Whole is the milli-GPU of all nodes, in whatever state they are.
func Whole(st *Store) (m cluster.Milli) {
	for i := range st.nodes {
		m += cluster.Whole * cluster.Milli(st.nodes[i].Spec().GPUs)
	}
	return m
}

// Blank returns a store of the same nodes, empty and healthy.
func (st *Store) Blank() *Store {
	b := &Store{nodes: make([]Node, len(st.nodes)), classes: make([]Class, len(st.classes)), cores: st.cores}
	for i := range st.classes {
		c := st.classes[i]
		c.free = 0
		c.buckets = make([]bitset, c.gpus+1)
		c.partial = bitset{}
		b.classes[i] = c
		b.classes[i].grow(len(c.nodes))
	}
	for i := range st.nodes {
		n := &b.nodes[i]
		*n = st.nodes[i]
		n.indexed = false
		n.empty(&b.classes[n.class].model)
		n.setHealthy(0)
		b.index(n, true)
	}
	return b
}

// SetState sets whether a node is up, draining or down.
func (st *Store) SetState(id int32, s cluster.NodeState) {
	n := &st.nodes[id]
	n.spec.State = s
	st.index(n, s == cluster.Up)
}

// SetDrained sets whether an operator has drained a node.
func (st *Store) SetDrained(id int32, drained bool) { st.nodes[id].drained = drained }

// SetSize changes a node's total CPU and RAM (0: not modelled). It reports whether the largest node
// of its class has changed, which affects what fits on the class.
func (st *Store) SetSize(id int32, cpu cluster.Milli, ram cluster.MiB) bool {
	n := &st.nodes[id]
	hadCPU, hadRAM := modelled(n.spec.CPU), modelled(n.spec.RAM)
	n.cpu += modelled(cpu) - hadCPU
	n.ram += modelled(ram) - hadRAM
	n.spec.CPU, n.spec.RAM, n.resized = cpu, ram, true
	st.changed(n)
	c := &st.classes[n.class]
	if hadCPU < c.cpu && modelled(cpu) <= c.cpu && hadRAM < c.ram && modelled(ram) <= c.ram {
		return false // another node is the largest
	}
	c.cpu, c.ram = 0, 0
	for _, id := range c.nodes {
		c.cpu, c.ram = max(c.cpu, modelled(st.nodes[id].spec.CPU)), max(c.ram, modelled(st.nodes[id].spec.RAM))
	}
	return true
}

// modelled is the total CPU or RAM that counts: unlimited if the node declares none.
func modelled(total int64) int64 { return cmp.Or(total, notModelled) }

// SetLent marks a node as part of a loan.
func (st *Store) SetLent(id int32) { st.nodes[id].lent = true }

// SetGiven sets whether a node has been returned to its lender.
func (st *Store) SetGiven(id int32, given bool) { st.nodes[id].given = given }

// SetAsleep marks a node as powered down, with the time it takes to wake; 0: it is on.
func (st *Store) SetAsleep(id int32, wake time.Duration) {
	n := &st.nodes[id]
	if n.spec.Asleep > 0 {
		st.asleep--
	}
	if n.spec.Asleep = wake; wake > 0 {
		st.asleep++
	}
}

// Spoil marks devices of a node as bad. Nothing may be on them.
func (st *Store) Spoil(id int32, mask uint64) {
	n := &st.nodes[id]
	n.healthy &^= mask
	st.setFree(n, n.free&^mask)
	st.changed(n)
	st.classes[n.class].indexPartial(n)
}

// Heal marks devices of a node as healthy; held reports whether a job holds a device (one bit)
// whole.
func (st *Store) Heal(id int32, mask uint64, held func(dev uint64) bool) {
	n := &st.nodes[id]
	back := mask & (uint64(1)<<n.spec.GPUs - 1) &^ n.healthy
	n.healthy |= back
	for i := range n.devs {
		if dev := uint64(1) << i; back&n.Whole()&dev != 0 && n.devs[i].tenants == 0 && !held(dev) {
			st.setFree(n, n.free|dev)
		}
	}
	st.changed(n)
	st.classes[n.class].indexPartial(n)
}

// Resume sets the health of an empty node from a snapshot.
func (st *Store) Resume(id int32, bad uint64) {
	n := &st.nodes[id]
	n.healthy = (uint64(1)<<n.spec.GPUs - 1) &^ bad
	st.setFree(n, n.Whole())
	st.changed(n)
}

// Leaving records that a job still holds devices of a node that the books have given away.
func (st *Store) Leaving(id int32, job cluster.JobID) {
	if n := &st.nodes[id]; !slices.Contains(n.stopping, job) {
		n.stopping = append(n.stopping, job)
	}
}

// Left is the inverse of Leaving.
func (st *Store) Left(id int32, job cluster.JobID) {
	n := &st.nodes[id]
	if i := slices.Index(n.stopping, job); i >= 0 {
		n.stopping = slices.Delete(n.stopping, i, i+1)
	}
}

// Freeze records that the memory of a suspended job is on these allocations, Thaw that it no longer
// is.
func (st *Store) Freeze(allocs []Alloc) {
	for i := range allocs {
		st.nodes[allocs[i].Node].frozen++
	}
}

// Thaw is the inverse of Freeze.
func (st *Store) Thaw(allocs []Alloc) {
	for i := range allocs {
		st.nodes[allocs[i].Node].frozen--
	}
}

// Nodes is all nodes, in the order in which they joined.
func (s *Store) Nodes() []Node { return s.nodes }

// Classes is the classes of nodes.
func (s *Store) Classes() []Class { return s.classes }

// Asleep is the number of sleeping nodes.
func (s *Store) Asleep() int { return s.asleep }

// Memory returns the cache of computed data.
func (s *Store) Memory() *fragCache { return &s.frag }

// Parted counts the GPUs of a class that have only shares and slices.
func (st *Store) Parted(ci int32) (count int) {
	if st.classes[ci].partial.n == 0 {
		return 0
	}
	for _, id := range st.classes[ci].nodes {
		n := &st.nodes[id]
		for i := range n.devs {
			if n.indexed && n.Whole()>>i&1 == 1 && n.devs[i].tenants > 0 {
				count++
			}
		}
	}
	return count
}

// AnyFrozen reports whether a suspended job has memory anywhere.
func (st *Store) AnyFrozen() bool {
	for i := range st.nodes {
		if st.nodes[i].frozen > 0 {
			return true
		}
	}
	return false
}
