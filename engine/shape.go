package engine

import (
	"encoding/binary"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

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
	most   nodeMost
	meek   bool                 // its jobs preempt nobody
	stale  bool                 // classes must be computed again: a new class appeared
	suits  []inventory.ClassSet // by task set: all classes on which its tasks can ever run
	any    inventory.ClassSet   // those of the sets with GPUs (without any: of all): the part of the cluster that it competes for
	stages []stage              // single tasks
	gangs  []stage
	gpus   int // devices at the smallest size

	waiting  int32 // jobs in line
	failed   int64
	noneFree int64 // Engine.freed when nothing that no stopping job holds would do

	judged  int // nodes of the cluster when never was decided
	verdict string
	models  []modelShape // what plans have made of it
}

// modelShape is a shape that differs from another in its GPU model alone.
type modelShape struct {
	gpu   string
	shape int32
}

// onModel is the shape on a GPU model, as far as it was asked for (narrowed); else -1.
func (s *shape) onModel(gpu string) int32 {
	for i := range s.models {
		if s.models[i].gpu == gpu {
			return s.models[i].shape
		}
	}
	return -1
}

// narrowed is the shape of a job as a target has it; -1: it can never run so. It
// tries placements: not while one is being looked for.
func (e *Engine) narrowed(of *cluster.Job, t *job.Target, base int32) int32 {
	if t.Tasks == 0 && t.GPU == "" && t.Partition == "" && t.Within == cluster.LevelAny {
		return base
	}
	model := t.Tasks == 0 && t.Partition == "" && t.Within == cluster.LevelAny
	if shape := e.shapes[base].onModel(t.GPU); model && shape >= 0 && e.shapes[shape].judged == len(e.st.Nodes()) {
		if e.shapes[shape].verdict != "" {
			return -1
		}
		return shape
	}
	spec := *of
	if t.Tasks > 0 {
		spec.Tasks = append([]cluster.TaskSet(nil), spec.Tasks...)
		spec.Tasks[0].Count = t.Tasks
		spec.Elastic = cluster.Elastic{}
		if t.Least < t.Tasks {
			spec.Elastic = cluster.Elastic{Min: t.Least, Max: t.Tasks}
		}
	}
	if t.GPU != "" {
		spec.GPUTypes = []string{t.GPU}
	}
	if t.Partition != "" {
		spec.Partitions = []string{t.Partition}
	}
	if t.Within != cluster.LevelAny {
		spec.Topology = cluster.Topology{Level: t.Within, Required: true}
	}
	shape := e.shapeOf(&spec)
	s := e.shapeAt(shape)
	if s.judged != len(e.st.Nodes()) {
		s.judged, s.verdict = len(e.st.Nodes()), e.judge(&job.State{Tenure: &e.none, Spec: &spec, Shape: shape}, s)
	}
	if b := &e.shapes[base]; model && b.onModel(t.GPU) < 0 {
		b.models = append(b.models, modelShape{t.GPU, shape})
	}
	if s.verdict != "" {
		return -1
	}
	return shape
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
	str(j.Reservation)
	return buf
}

func (e *Engine) shapeOf(j *cluster.Job) int32 {
	e.scratch.key = shapeKey(e.scratch.key[:0], j)
	if j.Shares() { // beside whom it may be
		e.scratch.key = append(binary.AppendVarint(e.scratch.key, int64(len(j.Model))), j.Model...)
		e.scratch.key = binary.AppendVarint(e.scratch.key, j.MinSpeed)
	}
	if e.cfg.Spec.Sharing == cluster.MPS && j.Shares() { // what fits for one user may not for another
		e.scratch.key = append(e.scratch.key, j.User...)
	}
	if id, ok := e.shapeID[string(e.scratch.key)]; ok {
		return id
	}
	s := shape{sets: j.Tasks, types: j.GPUTypes, parts: j.Partitions, topo: j.Topology,
		resv: j.Reservation, most: e.nodeMost(j), meek: j.NoPreempt, stale: true, failed: -1, noneFree: -1}
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
	if s.sliced() {
		e.wanted.shapes = append(e.wanted.shapes, id)
	}
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

// stage is a set of classes to try: where each task set can run.
type stage struct {
	classes []int32            // of all sets
	sets    [][]int32          // of each set; nil: a single set
	gpus    inventory.ClassSet // where the gang's GPUs can be
}

// of lists the classes of one task set.
func (g *stage) of(set int) []int32 {
	if g.sets == nil {
		return g.classes
	}
	return g.sets[set]
}

// computeStages finds the classes on which each task set can run: one stage for
// each acceptable GPU type in order of preference, or a single stage; for gangs
// divided by GPU model. Types and models are a matter of the sets that have
// GPUs: a launcher without any runs wherever it fits.
func (e *Engine) computeStages(s *shape) {
	s.stale, s.stages, s.gangs, s.any = false, nil, nil, inventory.ClassSet{}
	s.suits = make([]inventory.ClassSet, len(s.sets))
	withGPUs := false
	for i := range s.sets {
		withGPUs = withGPUs || s.sets[i].Request.GPUs > 0
	}
	types := s.types
	if len(types) == 0 {
		types = []string{""}
	}
	seen := make([]inventory.ClassSet, len(s.sets))
	for _, typ := range types {
		fits := make([][]int32, len(s.sets))
		for i := range s.sets {
			bound := !withGPUs || s.sets[i].Request.GPUs > 0
			for ci := range e.st.Classes() {
				c := &e.st.Classes()[ci]
				if bound && (seen[i].Has(int32(ci)) || typ != "" && !matchType(c.Model().Name, typ)) || !e.fitsClass(s, i, c) {
					continue
				}
				fits[i] = append(fits[i], int32(ci))
				seen[i].Add(int32(ci))
			}
		}
		e.addStages(s, fits, withGPUs)
	}
	for i := range s.sets {
		if !withGPUs || s.sets[i].Request.GPUs > 0 {
			s.any.Union(&s.suits[i])
		}
	}
}

// addStages adds a stage of the classes that fit each set, whole and, for
// gangs, by model.
func (e *Engine) addStages(s *shape, fits [][]int32, withGPUs bool) {
	if len(s.sets) == 1 {
		if fits[0] == nil {
			return
		}
		g := newStage(s, fits, withGPUs)
		s.stages = append(s.stages, g)
		s.suits[0].Union(&g.gpus)
	}
	if !withGPUs {
		e.addGang(s, fits, withGPUs)
		return
	}
	var models []string // a gang's GPUs are of one model
	for i := range fits {
		for _, ci := range fits[i] {
			if m := e.st.Classes()[ci].Model().Name; s.sets[i].Request.GPUs > 0 && !slices.Contains(models, m) {
				models = append(models, m)
			}
		}
	}
	for _, m := range models {
		same := make([][]int32, len(fits))
		for i := range fits {
			for _, ci := range fits[i] {
				if s.sets[i].Request.GPUs == 0 || e.st.Classes()[ci].Model().Name == m {
					same[i] = append(same[i], ci)
				}
			}
		}
		e.addGang(s, same, withGPUs)
	}
}

// addGang adds a stage for gangs, unless one of the sets has no class in it.
func (e *Engine) addGang(s *shape, fits [][]int32, withGPUs bool) {
	for i := range fits {
		if fits[i] == nil {
			return
		}
	}
	s.gangs = append(s.gangs, newStage(s, fits, withGPUs))
	for i := range fits {
		for _, ci := range fits[i] {
			s.suits[i].Add(ci)
		}
	}
}

func newStage(s *shape, fits [][]int32, withGPUs bool) stage {
	g := stage{classes: fits[0]}
	for i := range fits {
		for _, ci := range fits[i] {
			if !withGPUs || s.sets[i].Request.GPUs > 0 {
				g.gpus.Add(ci)
			}
		}
	}
	if len(fits) > 1 {
		g.sets = fits
		g.classes = slices.Concat(fits...)
		slices.Sort(g.classes)
		g.classes = slices.Compact(g.classes)
	}
	return g
}

// shut reports whether one of the shape's task sets has no class outside t.
func (s *shape) shut(t *inventory.ClassSet) bool {
	for i := range s.suits {
		if s.suits[i].Minus(t) == (inventory.ClassSet{}) {
			return true
		}
	}
	return false
}

// matchType reports whether a node's model is what the job asks for.
func matchType(model, want string) bool { return cluster.MatchModel(model, want) }

// fitsClass reports whether a task set could run on an empty node of c.
func (e *Engine) fitsClass(s *shape, set int, c *inventory.Class) bool {
	return c.Partitions()&e.partMask(s.parts) != 0 && inventory.WhyNotClass(&s.sets[set].Request, c) == ""
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
