package gang

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// MakeElastic makes the job of a gang elastic that can do without so many of its pods. On
// nodes that it only likes better than others it is looked for places as a whole.
func (g *Gang) MakeElastic(spec *cluster.Job, more int) {
	if n := spec.Tasks[0].Count; more > 0 && !g.Search.IsNarrow() {
		spec.Elastic = cluster.Elastic{Min: n - more, Max: n}
	}
}

// AsSubmitted reports whether the engine has a waiting gang with these pods. While
// others leave for it, those that came since do not count: they follow it.
func (g *Gang) AsSubmitted(e *engine.Engine, need, more []*Pod) bool {
	if slices.Equal(UIDs(slices.Concat(need, more)), g.InJob) {
		return true
	}
	r := e.Record(g.Job)
	if r == nil || r.State != engine.Placed || len(need) != len(g.InJob)-len(g.Optional) {
		return false
	}
	return !slices.ContainsFunc(need, func(p *Pod) bool {
		return !slices.Contains(g.InJob, p.Obj.UID) || slices.Contains(g.Optional, p.Obj.UID)
	})
}

// Starters are the pods that a gang starts with as the engine placed it - those
// that it needs, and those that are beyond - and its job with no more than these.
func (g *Gang) Starters(a *engine.Action) (need, beyond []*Pod, spec *cluster.Job) {
	for _, p := range g.Submitted() {
		if !slices.Contains(g.Optional, p.Obj.UID) {
			need = append(need, p)
		}
	}
	room := len(g.Optional) - len(g.InJob)
	for i := range a.Allocs {
		room += int(a.Allocs[i].Tasks)
	}
	for _, uid := range g.Optional[:max(0, min(room, len(g.Optional)))] {
		if p := g.Pods[uid]; p != nil {
			beyond = append(beyond, p)
		}
	}
	if spec = g.Spec; len(g.Optional) > 0 {
		small := *g.Spec
		small.Elastic, small.Tasks = cluster.Elastic{}, slices.Clone(g.Spec.Tasks)
		small.Tasks[0].Count -= len(g.Optional) - max(0, room)
		spec = &small
	}
	return need, beyond, spec
}

// Elastic reports whether the engine takes a gang that started for one that may grow: it
// got its minimum and no more, and those beyond that follow one by one.
func (g *Gang) Elastic(e *engine.Engine) bool {
	if len(g.Optional) == 0 {
		return false
	}
	r := e.Record(g.Job)
	return r != nil && r.Spec.Elastic != (cluster.Elastic{})
}

// NeverPreempts reports whether no other has to leave for a gang: it has a preference, comes beyond a minimum, or says
// so.
func (g *Gang) NeverPreempts(first *v1.Pod) bool {
	return g.Search.IsNarrow() || g.Of != "" && !g.Repair.IsPatch ||
		first.Spec.PreemptionPolicy != nil && *first.Spec.PreemptionPolicy == v1.PreemptNever
}
