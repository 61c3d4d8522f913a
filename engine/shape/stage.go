package shape

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// Stage is a set of classes to try: where each task set can run.
type Stage struct {
	Classes []int32            // of all task sets
	Sets    [][]int32          // by task set; nil: there is only one
	GPUs    inventory.ClassSet // where the gang's GPUs can be
}

// Without is the stage without some classes; nil if a task set has none left.
func (g *Stage) Without(blocked *inventory.ClassSet) *Stage {
	open := func(classes []int32) []int32 {
		list := classes[:0:0]
		for _, ci := range classes {
			if !blocked.Has(ci) {
				list = append(list, ci)
			}
		}
		return list
	}
	o := Stage{Classes: open(g.Classes), GPUs: g.GPUs.Minus(blocked)}
	if len(o.Classes) == 0 {
		return nil
	}
	for i := range g.Sets {
		o.Sets = append(o.Sets, open(g.Sets[i]))
		if len(o.Sets[i]) == 0 {
			return nil
		}
	}
	return &o
}

// HoldTasks reports whether a stage has room for so many tasks, each with so many free GPUs of one
// node.
func (g *Stage) HoldTasks(in *inventory.Store, gpus, tasks int) bool {
	for _, ci := range g.Classes {
		if !g.GPUs.Has(ci) {
			continue
		}
		c := &in.Classes()[ci]
		for k := len(c.Buckets()) - 1; k >= gpus; k-- {
			if tasks -= c.Buckets()[k].Len() * (k / gpus); tasks <= 0 {
				return true
			}
		}
	}
	return false
}

// Of lists the classes of one task set.
func (g *Stage) Of(set int) []int32 {
	if g.Sets == nil {
		return g.Classes
	}
	return g.Sets[set]
}

// computeStages finds the classes on which each task set can run: one stage per acceptable GPU type
// in order of preference, or a single stage; for gangs divided by GPU model. Types and models
// concern only the sets that have GPUs: a launcher without GPUs runs wherever it fits.
func (t *Table) computeStages(s *Shape) {
	s.Stale, s.Stages, s.Gangs, s.Any = false, nil, nil, inventory.ClassSet{}
	s.Suits = make([]inventory.ClassSet, len(s.Sets))
	withGPUs := false
	for i := range s.Sets {
		withGPUs = withGPUs || s.Sets[i].Request.GPUs > 0
	}
	types := s.Types
	if len(types) == 0 {
		types = []string{""}
	}
	seen, within := make([]inventory.ClassSet, len(s.Sets)), t.classesOf(s)
	for _, typ := range types {
		fits := make([][]int32, len(s.Sets))
		for i := range s.Sets {
			bound := !withGPUs || s.Sets[i].Request.GPUs > 0
			for _, ci := range within {
				c := &t.st.Classes()[ci]
				if bound && (seen[i].Has(ci) || typ != "" && !cluster.MatchModel(c.Model().Name, typ)) ||
					!t.fitsClass(s, i, c) {
					continue
				}
				fits[i] = append(fits[i], ci)
				seen[i].Add(ci)
			}
		}
		t.addStages(s, fits, withGPUs)
	}
	for i := range s.Sets {
		if !withGPUs || s.Sets[i].Request.GPUs > 0 {
			s.Any.Union(&s.Suits[i])
		}
	}
}

// addStages adds a stage of the classes that fit each set, whole and, for
// gangs, by model.
func (t *Table) addStages(s *Shape, fits [][]int32, withGPUs bool) {
	if len(s.Sets) == 1 {
		if fits[0] == nil {
			return
		}
		g := newStage(s, fits, withGPUs)
		s.Stages = append(s.Stages, g)
		s.Suits[0].Union(&g.GPUs)
	}
	if !withGPUs {
		t.addGang(s, fits, withGPUs)
		return
	}
	var models []string // all GPUs of a gang are of one model
	for i := range fits {
		for _, ci := range fits[i] {
			if m := t.st.Classes()[ci].Model().Name; s.Sets[i].Request.GPUs > 0 && !slices.Contains(models, m) {
				models = append(models, m)
			}
		}
	}
	for _, m := range models {
		same := make([][]int32, len(fits))
		for i := range fits {
			for _, ci := range fits[i] {
				if s.Sets[i].Request.GPUs == 0 || t.st.Classes()[ci].Model().Name == m {
					same[i] = append(same[i], ci)
				}
			}
		}
		t.addGang(s, same, withGPUs)
	}
}

// addGang adds a stage for gangs, unless one of the sets has no class in it.
func (t *Table) addGang(s *Shape, fits [][]int32, withGPUs bool) {
	for i := range fits {
		if fits[i] == nil {
			return
		}
	}
	s.Gangs = append(s.Gangs, newStage(s, fits, withGPUs))
	for i := range fits {
		for _, ci := range fits[i] {
			s.Suits[i].Add(ci)
		}
	}
}

func newStage(s *Shape, fits [][]int32, withGPUs bool) Stage {
	g := Stage{Classes: fits[0]}
	for i := range fits {
		for _, ci := range fits[i] {
			if !withGPUs || s.Sets[i].Request.GPUs > 0 {
				g.GPUs.Add(ci)
			}
		}
	}
	if len(fits) > 1 {
		g.Sets = fits
		g.Classes = slices.Concat(fits...)
		slices.Sort(g.Classes)
		g.Classes = slices.Compact(g.Classes)
	}
	return g
}
