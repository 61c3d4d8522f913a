//go:build linux

package local

import (
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// endOf is when a running job is expected to end, and how one knows: from its
// progress, an estimate that was stated, earlier runs, or its time limit.
func endOf(info *Info, sub *ask.Submission, now cluster.Time) (end cluster.Time, by string) {
	r := &info.Record
	if r.State < engine.Starting || r.State > engine.Running || r.EndKey == 0 ||
		cluster.Time(r.EndKey) == cluster.Never {
		return cluster.Never, ""
	}
	switch end = cluster.Time(r.EndKey); {
	case info.Progress != nil && info.Progress.Steps > 0 && info.Pace.Rate > 0:
		by = show.EndByProgress
	case sub.Estimate > 0:
		by = show.EndByEstimate
	case info.Guessed:
		by = show.EndByHistory
	}
	if end <= now { // it was expected earlier: as the engine does
		end = now.Add(max(time.Minute, progress.RanAt(r, now)/20))
	}
	if end >= r.LimitAt {
		return r.LimitAt, show.EndByLimit
	}
	return end, by
}
