package engine

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// classSet is a set of node classes.
type classSet [maxClasses / 64]uint64

func (s *classSet) add(c int32)      { s[c>>6] |= 1 << (c & 63) }
func (s *classSet) has(c int32) bool { return s[c>>6]>>(c&63)&1 == 1 }

// minus returns the members of s that are not in t; meets whether they share any.
func (s *classSet) minus(t *classSet) (r classSet) {
	for i := range s {
		r[i] = s[i] &^ t[i]
	}
	return r
}

func (s *classSet) union(t *classSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

func (s *classSet) empty() bool { return *s == classSet{} }

// shape is a class of identical requirements: what fits for one job of a shape
// fits for all, and what failed for one fails for all.
type shape struct {
	sets   []cluster.TaskSet
	min    int32 // least tasks of the first set (elastic), else its count
	max    int32
	types  []string
	parts  []string
	topo   cluster.Topology
	resv   string
	stale  bool     // classes must be computed again: a new class appeared
	any    classSet // all classes on which a task can ever run
	stages [][]int32
	gpus   int // devices at the smallest size
	failed int64

	judged  int // nodes of the cluster when never was decided
	verdict string
}

// shapeKey writes what makes up a shape into buf. It is compared byte by byte.
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
	str(j.Reservation)
	return buf
}

func (e *Engine) shapeOf(j *cluster.Job) int32 {
	e.scratch.key = shapeKey(e.scratch.key[:0], j)
	if id, ok := e.shapeID[string(e.scratch.key)]; ok {
		return id
	}
	s := shape{sets: j.Tasks, types: j.GPUTypes, parts: j.Partitions, topo: j.Topology,
		resv: j.Reservation, stale: true, failed: -1}
	s.min, s.max = int32(j.Tasks[0].Count), int32(j.Tasks[0].Count)
	if j.Elastic.Max > 0 {
		s.min, s.max = int32(j.Elastic.Min), int32(j.Elastic.Max)
	}
	for i := range j.Tasks {
		n := j.Tasks[i].Count
		if i == 0 {
			n = int(s.min)
		}
		s.gpus += n * j.Tasks[i].Request.GPUs
	}
	id := int32(len(e.shapes))
	e.shapes = append(e.shapes, s)
	e.shapeID[string(e.scratch.key)] = id
	return id
}

// shapeAt returns the shape with its classes up to date.
func (e *Engine) shapeAt(id int32) *shape {
	s := &e.shapes[id]
	if s.stale {
		e.computeStages(s)
	}
	return s
}

// computeStages finds the classes on which the shape can run: one stage for
// each acceptable GPU type in order of preference, or a single stage.
func (e *Engine) computeStages(s *shape) {
	s.stale, s.stages, s.any = false, nil, classSet{}
	stage := func(typ string) {
		var list []int32
		for ci := range e.st.classes {
			c := &e.st.classes[ci]
			if (typ == "" || matchType(c.model.Name, typ)) && !s.any.has(int32(ci)) && e.fitsClass(s, c) {
				list = append(list, int32(ci))
			}
		}
		for _, ci := range list {
			s.any.add(ci)
		}
		if list != nil {
			s.stages = append(s.stages, list)
		}
	}
	if len(s.types) == 0 {
		stage("")
	}
	for _, t := range s.types {
		stage(t)
	}
}

// matchType reports whether a node's model is what the job asks for: the same
// name, or its family ("A100" accepts A100-40GB and A100-80GB).
func matchType(model, want string) bool {
	return strings.EqualFold(model, want) ||
		len(model) > len(want) && model[len(want)] == '-' && strings.EqualFold(model[:len(want)], want)
}

// fitsClass reports whether every task set could run on an empty node of c.
func (e *Engine) fitsClass(s *shape, c *class) bool {
	if c.parts&e.partMask(s.parts) == 0 {
		return false
	}
	for i := range s.sets {
		if whyNotClass(&s.sets[i].Request, c) != "" {
			return false
		}
	}
	return true
}

// whyNotClass says why one task can never run on a node of the class.
func whyNotClass(r *cluster.Request, c *class) string {
	switch {
	case r.GPUs > c.gpus:
		return fmt.Sprintf("needs %d GPUs on one node; %s nodes have %d", r.GPUs, c.model.Name, c.gpus)
	case r.GPUs > 0 && r.Memory > c.model.Memory:
		return fmt.Sprintf("needs %d MiB of GPU memory; %s has %d", r.Memory, c.model.Name, c.model.Memory)
	case r.CPU > c.cpu:
		return fmt.Sprintf("needs %g CPU cores on one node; the largest has %g", float64(r.CPU)/1000, float64(c.cpu)/1000)
	case r.RAM > c.ram:
		return fmt.Sprintf("needs %d MiB of RAM on one node; the largest has %d", r.RAM, c.ram)
	}
	if r.Profile != "" {
		if _, ok := c.model.Profile(r.Profile); !ok {
			return fmt.Sprintf("needs MIG profile %s; %s does not offer it", r.Profile, c.model.Name)
		}
	}
	return ""
}

// partMask resolves partition names; none means the default partitions, or
// every partition where none is marked default.
func (e *Engine) partMask(names []string) uint64 {
	if len(e.parts) == 0 {
		return 1
	}
	var mask, all uint64
	for i := range e.parts {
		all |= 1 << i
		if len(names) == 0 && e.parts[i].spec.Default {
			mask |= 1 << i
		}
		for _, n := range names {
			if n == e.parts[i].spec.Name {
				mask |= 1 << i
			}
		}
	}
	if len(names) == 0 && mask == 0 {
		return all
	}
	return mask
}
