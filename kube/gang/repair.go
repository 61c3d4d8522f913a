package gang

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
)

// Repair keeps what a gang needs to be repaired.
type Repair struct {
	Wanted  bool // rather than leaving as a whole
	Missing places.Missing
	Repairs int  // repairs that its plan has seen
	IsPatch bool // it is a patch, of the gang that it belongs to
}

// PatchKey is the key of the gang's patch.
func (g *Gang) PatchKey() string { return g.Key + "/patch" }

// IsLost reports whether a place is on a node that is not there, or takes no pods.
func IsLost(s *places.Place, all *nodes.Room) bool { return s.Lost || all.Lost(s.Node) }

// NeedsRepair reports whether a running gang lost places and is to be repaired: some
// of it is still there.
func (g *Gang) NeedsRepair(all *nodes.Room) bool {
	if g.Phase != Running || !g.Repair.Wanted || g.Leaves != "" {
		return false
	}
	some, left := false, false
	for i := range g.Places {
		s := &g.Places[i]
		p := g.Pods[s.Pod]
		if IsLost(s, all) {
			some = true
		} else if p != nil && !p.Over() && p.Obj.DeletionTimestamp == nil {
			left = true
		}
	}
	return some && left
}

// PatchNeed is how many pods a patch has, which is as old as its gang.
func (g *Gang) PatchNeed() gangs.Membership {
	m := gangs.Membership{Size: g.Missing.Size()}
	if g.Spec != nil {
		m.Submit = time.Unix(0, int64(g.Spec.Submit))
	}
	return m
}

// Partly reports whether a running gang is not whole any more, or will not be.
func (g *Gang) Partly() bool {
	return len(g.Missing) > 0 || slices.ContainsFunc(g.Places, func(s places.Place) bool {
		p := g.Pods[s.Pod]
		return p == nil || p.Obj.DeletionTimestamp != nil
	})
}
