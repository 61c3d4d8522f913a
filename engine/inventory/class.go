package inventory

import (
	"fmt"
	"math"

	"github.com/muster-gpu/muster/cluster"
)

// ClassSet is a set of node classes.
type ClassSet [MaxKinds / 64]uint64

// Add adds a class.
func (s *ClassSet) Add(c int32) { s[c>>6] |= 1 << (c & 63) }

// Has reports whether a class is in the set.
func (s *ClassSet) Has(c int32) bool { return s[c>>6]>>(c&63)&1 == 1 }

// Minus returns the members of s that are not in t.
func (s *ClassSet) Minus(t *ClassSet) (r ClassSet) {
	for i := range s {
		r[i] = s[i] &^ t[i]
	}
	return r
}

// Union adds all of another set.
func (s *ClassSet) Union(t *ClassSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

// Empty reports whether the set is empty.
func (s *ClassSet) Empty() bool { return *s == ClassSet{} }

// WhyNotClass explains why a task can never run on a node of the class.
func WhyNotClass(r *cluster.Request, c *Class) string {
	switch {
	case r.GPUs > c.gpus:
		return fmt.Sprintf("needs %d GPUs on one node; %s nodes have %d", r.GPUs, c.model.Name, c.gpus)
	case r.GPUs > 0 && r.Memory > c.model.Memory:
		return fmt.Sprintf("needs %d MiB of GPU memory; %s has %d", r.Memory, c.model.Name, c.model.Memory)
	case r.CPU > c.cpu:
		return fmt.Sprintf("needs %g CPU cores on one node; the largest has %g", float64(r.CPU)/1000,
			float64(c.cpu)/1000)
	case r.RAM > c.ram:
		return fmt.Sprintf("needs %d MiB of RAM on one node; the largest has %d", r.RAM, c.ram)
	}
	if r.Profile != "" {
		if _, ok := c.model.Profile(r.Profile); !ok {
			return c.model.Lacks(r.Profile).Error()
		}
	}
	return ""
}

// Class is a set of nodes that no job can tell apart by its constraints: same GPU model, same
// partitions, same node size.
type Class struct {
	model   cluster.GPUModel
	gpus    int           // per node
	cpu     cluster.Milli // largest total of a node
	ram     cluster.MiB
	parts   uint64 // partitions that contain it
	nodes   []int32
	buckets []bitset // by number of wholly free devices; positions of indexed nodes
	partial bitset   // positions of indexed nodes with a partly used device
	split   bool     // some of its nodes have islands
	free    int      // wholly free devices on indexed nodes
	clients int      // most shares of a device; 0: unlimited
}

// Seats is how many more shares a device takes: under MPS its server has a maximum number of
// clients (NVIDIA's MPS documentation). Instances are no clients.
func (c *Class) Seats(d *Device) int {
	if c.clients == 0 || d.slots != 0 {
		return math.MaxInt32
	}
	return max(0, c.clients-int(d.tenants))
}

func (c *Class) grow(n int) {
	for i := range c.buckets {
		c.buckets[i].grow(n)
	}
	c.partial.grow(n)
}

// MaxKinds bounds the kinds of node (GPU model, GPUs per node, partitions): a set of them is four machine words.
const MaxKinds = 256

// Model is the GPUs' model.
func (c *Class) Model() *cluster.GPUModel { return &c.model }

// GPUs is the number of GPUs per node.
func (c *Class) GPUs() int { return c.gpus }

// Partitions is the partitions that contain it, one bit each.
func (c *Class) Partitions() uint64 { return c.parts }

// Nodes is its nodes, in the order in which they joined.
func (c *Class) Nodes() []int32 { return c.nodes }

// Buckets is the positions of nodes that take jobs, by number of wholly free devices.
func (c *Class) Buckets() []bitset { return c.buckets }

// Partial is the positions of nodes that take jobs and have a partly used device.
func (c *Class) Partial() *bitset { return &c.partial }

// Split reports whether some of its nodes have islands.
func (c *Class) Split() bool { return c.split }

// Free is the number of wholly free devices on nodes that take jobs.
func (c *Class) Free() int { return c.free }

// Clients is the maximum number of shares of a device; 0: unlimited.
func (c *Class) Clients() int { return c.clients }
