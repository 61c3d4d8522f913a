package shape

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Table is all shapes by number, and the data that determines where their jobs can run.
type Table struct {
	st    *inventory.Store
	nodes map[string]int32 // numbers of nodes by name; looked up only
	mps   bool             // whether a job fits also depends on its user
	parts []cluster.Partition
	in    []map[string]bool // the names of the nodes of each of them; looked up only
	list  []Shape
	ids   map[string]int32    // looked up only
	sets  map[string]*NodeSet // by name; looked up only
	key   []byte              // scratch memory
}

// NewTable makes an empty table for jobs on the nodes of a store; nodes maps their names to
// numbers.
func NewTable(st *inventory.Store, nodes map[string]int32, mps bool) Table {
	return Table{st: st, nodes: nodes, mps: mps, ids: map[string]int32{}}
}

// SetPartitions sets the partitions, which are the bits of masks in their order.
func (t *Table) SetPartitions(parts []cluster.Partition) error {
	if len(parts) > 63 {
		return fmt.Errorf("%d partitions; at most 63 are supported", len(parts))
	}
	seen := map[string]bool{}
	for _, p := range parts {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("partition %q is defined twice or has no name", p.Name)
		}
		seen[p.Name] = true
		in := make(map[string]bool, len(p.Nodes))
		for _, n := range p.Nodes {
			in[n] = true
		}
		t.parts, t.in = append(t.parts, p), append(t.in, in)
	}
	return nil
}

// CheckPartitions checks that the nodes of partitions are there.
func (t *Table) CheckPartitions() error {
	for i := range t.parts {
		for _, name := range t.parts[i].Nodes {
			if _, ok := t.nodes[name]; !ok {
				return fmt.Errorf("partition %q: no node is named %q", t.parts[i].Name, name)
			}
		}
	}
	return nil
}

// HasPartitions reports whether there are partitions.
func (t *Table) HasPartitions() bool { return len(t.parts) > 0 }

// PartitionsOf is the mask of the partitions that a node is in; without partitions it is in the first.
func (t *Table) PartitionsOf(node string) (mask uint64) {
	if len(t.parts) == 0 {
		return 1
	}
	for i := range t.in {
		if t.in[i][node] {
			mask |= 1 << i
		}
	}
	return mask
}

// Recompute makes the classes on which jobs can run be computed again: a class was added.
func (t *Table) Recompute() {
	for i := range t.list {
		t.list[i].Stale = true
	}
}

// Judge makes what can never run be computed again: the size of a node changed.
func (t *Table) Judge() {
	for i := range t.list {
		t.list[i].Judged = 0
	}
}

// Count is the number of shapes.
func (t *Table) Count() int { return len(t.list) }

// Get returns a shape, whose classes may be out of date (see At).
func (t *Table) Get(id int32) *Shape { return &t.list[id] }

// Of returns the shape of a job; first: it is new.
func (t *Table) Of(j *cluster.Job) (id int32, first bool) {
	t.key = shapeKey(t.key[:0], j)
	if j.Shares() { // with which jobs it may share a GPU
		t.key = append(binary.AppendVarint(t.key, int64(len(j.Model))), j.Model...)
		t.key = binary.AppendVarint(t.key, j.MinSpeed)
	}
	if t.mps && j.Shares() { // whether it fits also depends on its user
		t.key = append(t.key, j.User...)
	}
	if id, ok := t.ids[string(t.key)]; ok {
		return id, false
	}
	s := Shape{Sets: j.Tasks, Types: j.GPUTypes, Partitions: j.Partitions, Topo: j.Topology,
		Most: t.nodeMost(j), NoPreempt: j.NoPreempt, Stale: true, Failed: -1}
	s.Min, s.Max = int32(j.Tasks[0].Count), int32(j.Tasks[0].Count)
	if j.Elastic.Max > 0 {
		s.Min, s.Max = int32(j.Elastic.Min), int32(j.Elastic.Max)
	}
	for i := range j.Tasks {
		n := j.Tasks[i].Count
		if i == 0 {
			n = int(s.Min)
		}
		s.GPUs += n * j.Tasks[i].Request.GPUs
	}
	id = int32(len(t.list))
	t.list = append(t.list, s)
	t.ids[string(t.key)] = id
	return id, true
}

// At returns the shape with its classes up to date.
func (t *Table) At(id int32) *Shape {
	s := &t.list[id]
	if s.Stale {
		t.computeStages(s)
	}
	return s
}

// fitsClass reports whether a task set could run on an empty node of c.
func (t *Table) fitsClass(s *Shape, set int, c *inventory.Class) bool {
	return c.Partitions()&t.PartMask(s.Partitions) != 0 && inventory.WhyNotClass(&s.Sets[set].Request, c) == ""
}

// PriorityTier returns the highest priority tier of these partitions, and the highest of all.
func (t *Table) PriorityTier(names []string) (own, most int64) {
	mask := t.PartMask(names)
	for i := range t.parts {
		tier := t.parts[i].PriorityTier
		most = max(most, tier)
		if mask>>i&1 == 1 {
			own = max(own, tier)
		}
	}
	return own, most
}

// DefaultTime is the time limit of jobs in these partitions that state none; 0: there is none.
func (t *Table) DefaultTime(partitions []string) time.Duration {
	if len(t.parts) == 0 {
		return 0
	}
	mask := t.PartMask(partitions)
	for i := range t.parts {
		if mask>>i&1 == 1 && t.parts[i].DefaultTime > 0 {
			return t.parts[i].DefaultTime
		}
	}
	return 0
}

// Within reports whether all allocations are on nodes of some partitions; false if there are none.
func (t *Table) Within(allocs []inventory.Alloc, partitions []string) bool {
	mask := t.PartMask(partitions)
	for i := range allocs {
		if t.st.Classes()[t.st.Nodes()[allocs[i].Node].Class()].Partitions()&mask == 0 {
			return false
		}
	}
	return len(allocs) > 0
}

// PartMask resolves partition names; no names means the default partitions, or all partitions if
// none is marked as default.
func (t *Table) PartMask(names []string) uint64 {
	if len(t.parts) == 0 {
		return 1
	}
	var mask, all uint64
	for i := range t.parts {
		all |= 1 << i
		if len(names) == 0 && t.parts[i].Default {
			mask |= 1 << i
		}
		for _, n := range names {
			if n == t.parts[i].Name {
				mask |= 1 << i
			}
		}
	}
	if len(names) == 0 && mask == 0 {
		return all
	}
	return mask
}

// MilliOf is the milli-GPU of a job of the shape with so many tasks of its first set.
func (t *Table) MilliOf(s *Shape, tasks int) cluster.Milli {
	var sum cluster.Milli
	for i := range s.Sets {
		n := s.Sets[i].Count
		if i == 0 {
			n = tasks
		}
		r := &s.Sets[i].Request
		m := r.Milli()
		if r.Profile != "" {
			m = t.sliceMilli(&s.Suits[i], r.Profile)
		}
		sum += cluster.Milli(n) * m
	}
	return sum
}

// sliceMilli is the milli-GPU of a MIG slice, the largest over some classes.
func (t *Table) sliceMilli(suits *inventory.ClassSet, profile string) (most cluster.Milli) {
	for ci := range t.st.Classes() {
		model := t.st.Classes()[ci].Model()
		if p, ok := model.Profile(profile); ok && suits.Has(int32(ci)) {
			most = max(most, cluster.Milli(p.Compute)*cluster.Whole/cluster.Milli(model.Compute))
		}
	}
	return most
}

// SuitsOf is the classes on which a task of the job can ever run.
func (t *Table) SuitsOf(j *cluster.Job, r *cluster.Request) (suits inventory.ClassSet) {
	parts := t.PartMask(j.Partitions)
	for ci := range t.st.Classes() {
		c := &t.st.Classes()[ci]
		if c.Partitions()&parts != 0 && inventory.WhyNotClass(r, c) == "" &&
			(len(j.GPUTypes) == 0 ||
				slices.ContainsFunc(j.GPUTypes, func(want string) bool {
					return cluster.MatchModel(c.Model().Name, want)
				})) {
			suits.Add(int32(ci))
		}
	}
	return suits
}

// Reach is the classes on which GPUs of a job can be, and the milli-GPU of all of its tasks. No such job need be known.
func (t *Table) Reach(j *cluster.Job) (classes inventory.ClassSet, milli cluster.Milli) {
	for i := range j.Tasks {
		r := &j.Tasks[i].Request
		if r.GPUs == 0 {
			continue
		}
		suits, each := t.SuitsOf(j, r), r.Milli()
		if r.Profile != "" {
			each = t.sliceMilli(&suits, r.Profile)
		}
		classes.Union(&suits)
		milli += cluster.Milli(j.Tasks[i].Count) * each
	}
	return classes, milli
}

// A plan may place a job that asks for one GPU on a MIG instance (NVIDIA's MIG user guide; MISO)
// given by Target.Slice. Such a job is never in line, and no placer is asked: it starts on its
// instance as soon as that is free. If the instances of a GPU cannot be changed, the instance must
// be one of them; otherwise it is created.

// shapeKey appends the fields that identify a shape to buf, which is compared byte by byte.
func shapeKey(buf []byte, j *cluster.Job) []byte {
	num := func(v int64) { buf = binary.AppendVarint(buf, v) }
	str := func(s string) { num(int64(len(s))); buf = append(buf, s...) }
	num(int64(len(j.Tasks)))
	for i := range j.Tasks {
		t := &j.Tasks[i]
		num(int64(t.Count))
		num(int64(t.Request.GPUs))
		num(t.Request.Share)
		num(t.Request.Memory)
		str(t.Request.Profile)
		num(t.Request.CPU)
		num(t.Request.RAM)
	}
	num(int64(len(j.GPUTypes)))
	for _, s := range j.GPUTypes {
		str(s)
	}
	num(int64(len(j.Partitions)))
	for _, s := range j.Partitions {
		str(s)
	}
	num(int64(j.Topology.Level) << 1)
	if j.Topology.Required {
		num(1)
	}
	num(int64(j.Elastic.Min))
	num(int64(j.Elastic.Max))
	num(j.Skew)
	num(int64(j.PerNode))
	num(int64(len(j.NodeLimits)))
	for i := range j.NodeLimits {
		num(int64(j.NodeLimits[i].Tasks))
		num(int64(len(j.NodeLimits[i].Nodes)))
		for _, n := range j.NodeLimits[i].Nodes {
			str(n)
		}
	}
	if j.NoPreempt {
		num(1)
	}
	str(j.Nodes)
	str(j.Reservation)
	if j.Service != "" {
		str(j.Service)
	}
	return buf
}
