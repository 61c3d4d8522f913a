package gang

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// VictimSearch is the pods that leave for a gang, besides those that the engine chooses.
type VictimSearch struct {
	Victims []*Pod
	Tried   Stamp // when it was last looked for
	Turns   int   // ... and as which of all
}

// Stamp changes when it is worth looking again: with what is around, and now and then.
type Stamp struct {
	Moves   int
	Checked cluster.Time
}

// Aside lists the pods that do not count when a gang is looked at for which others
// leave: these, and its own, which have their places.
func (g *Gang) Aside() []*Pod {
	if len(g.Victims) == 0 {
		return nil
	}
	list := slices.Clone(g.Victims)
	for _, p := range g.Sorted() {
		if p.Node == "" {
			list = append(list, p)
		}
	}
	return list
}

// Here lists the pods of a gang that have a place.
func (g *Gang) Here() (list []*Pod) {
	for _, p := range g.Sorted() {
		if p.Where != "" {
			list = append(list, p)
		}
	}
	return list
}

// Awaits reports whether a pod that leaves for a gang is still there.
func (g *Gang) Awaits() bool {
	return slices.ContainsFunc(g.Victims, func(p *Pod) bool { return p.Where != "" })
}
