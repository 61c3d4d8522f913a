package mig

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
)

// World is what a second engine did.
type World struct {
	As     map[string]*config.MIGOffer // what nodes were supposed to have, with no pods on them
	Eng    *engine.Engine
	Spec   cluster.Spec
	Starts map[cluster.JobID][]engine.Alloc
	Order  []cluster.JobID // of those that start
	Line   []engine.Waiting
}

// On reports whether a gang starts on a node.
func (w *World) On(id cluster.JobID, name string, order []string) bool {
	return slices.ContainsFunc(w.Starts[id], func(a engine.Alloc) bool {
		return int(a.Node) < len(order) && order[a.Node] == name
	})
}

// Later reports whether a gang that comes before another in line would start later than without the changes.
func Later(base, w *World, id cluster.JobID) bool {
	then := map[cluster.JobID]cluster.Time{}
	for _, l := range w.Line {
		then[l.Job] = l.Expected
	}
	for _, l := range base.Line {
		if l.Job == id {
			return false
		}
		at, waits := then[l.Job]
		if l.Expected != cluster.Never && waits && at > l.Expected.Add(time.Second) {
			return true
		}
	}
	return false
}

// Free is what of each resource is left on a node behind whole GPUs: those that are not healthy, or held, are not.
func (w *World) Free(names []string) map[string]map[string]int {
	list := map[string]map[string]int{}
	for _, n := range w.Eng.Nodes() {
		model, _ := w.Spec.Model(n.Model)
		have := map[string]int{}
		list[n.Name] = have
		if n.State != cluster.Up || !slices.Contains(names, n.Name) {
			continue
		}
		geometry, _, err := n.Geometry(&model)
		if err != nil {
			continue
		}
		for dev := range n.GPUs {
			if n.Bad>>dev&1 != 0 {
				continue
			}
			if dev >= len(geometry) || geometry[dev] == nil {
				have[""]++
				continue
			}
			for _, in := range geometry[dev] {
				have[in.Profile]++
			}
		}
	}
	nodes := w.Eng.Nodes()
	for _, b := range w.Eng.Beliefs() {
		r := w.Eng.Record(b.Job)
		for i := range b.Allocs {
			a := &b.Allocs[i]
			have := list[nodes[a.Node].Name]
			if p := holds.Profile(r, a); p != "" {
				have[p] -= int(a.Tasks)
				continue
			}
			for dev := range nodes[a.Node].GPUs {
				if a.GPUs>>dev&1 != 0 {
					have[""]--
				}
			}
		}
	}
	return list
}
