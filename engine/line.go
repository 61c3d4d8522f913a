package engine

import (
	"sort"

	"github.com/muster-gpu/muster/cluster"
)

// Waiting is a job in line. Expected is Never beyond the first ones, and where
// no start is in sight.
type Waiting struct {
	Job      cluster.JobID
	Expected cluster.Time
}

// Line lists the jobs that could start if there were room, the next first, and
// promises starts to the first most of them (at most as many as Why does, and
// the same). It does not change what the engine will decide.
func (e *Engine) Line(most int) []Waiting {
	list := e.inLine()
	out := make([]Waiting, len(list))
	for i, j := range list {
		out[i] = Waiting{j.spec.ID, cluster.Never}
	}
	resv, held := e.resv, e.held
	e.resv = nil
	defer func() { e.resv, e.held = resv, held }()
	for i := range min(most, maxAhead, len(list)) {
		s, at := e.shapeAt(list[i].shape), e.quotaFree(list[i])
		for k := range e.resv {
			if r := &e.resv[k]; e.mode == Strict && s.any.minus(&r.any) != s.any {
				at = max(at, r.at) // nothing passes it
			}
		}
		r, ok := e.earliest(list[i], true)
		if !ok {
			continue
		}
		e.resv = append(e.resv, r)
		if at = max(at, r.at); at < e.now.Add(cluster.MaxDuration/2) {
			out[i].Expected = at
		}
	}
	return out
}

// inLine lists the eligible jobs in their order.
func (e *Engine) inLine() (list []*jobState) {
	for li := range e.lanes {
		e.lanes[li].groups.walk(func(gi item) bool {
			e.groups[e.jobs[gi.id].group].jobs.walk(func(it item) bool {
				list = append(list, e.jobs[it.id])
				return true
			})
			return true
		})
	}
	keys := make(map[cluster.JobID]item, len(list))
	for _, j := range list {
		keys[j.spec.ID] = e.groupItem(&e.groups[j.group], j.key)
	}
	sort.SliceStable(list, func(a, b int) bool {
		x, y := list[a], list[b]
		kx, ky := keys[x.spec.ID], keys[y.spec.ID]
		return e.laneLess(int(e.groups[x.group].lane), &kx, int(e.groups[y.group].lane), &ky)
	})
	return list
}
