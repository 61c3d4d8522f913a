package engine

import "github.com/muster-gpu/muster/cluster"

// Waiting is a job in line. Expected is Never beyond the first ones, and where
// no start is in sight.
type Waiting struct {
	Job      cluster.JobID
	Expected cluster.Time
}

// Line lists the jobs that could start if there were room, in the order in
// which a pass considers them, and says when the first most of them (at most as
// many as Why looks ahead) are expected to start. It does not change what the
// engine will decide.
func (e *Engine) Line(most int) []Waiting {
	list := e.line.Order()
	out := make([]Waiting, len(list))
	for i, j := range list {
		out[i] = Waiting{j.Spec.ID, cluster.Never}
	}
	for i := range min(most, maxAhead, len(list)) {
		out[i].Expected = e.expectedStart(list[i], list[:i])
	}
	return out
}
