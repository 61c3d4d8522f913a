package sim

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// mpsFault lets a job that fails in a share under MPS take down its GPU's server, with the
// probability Options.Faults: all other jobs that compute on the GPU end with it and restart from
// their last checkpoints (as documented for NVIDIA MPS). The world knows which job caused it: that
// job fails at once.
func (w *World) mpsFault(j *jobRun) {
	if w.opt.Faults <= 0 || w.spec.Sharing != cluster.MPS || w.rng.Float64() >= w.opt.Faults {
		return
	}
	for _, id := range w.others(j) {
		v := &w.jobs[id]
		if v.phase != running {
			continue
		}
		w.idle(v)
		done := v.entry.Run - v.left
		kept := v.lastCheckpoint(done)
		w.book.lost(v, done-kept)
		v.left, v.saved = v.entry.Run-kept, max(v.saved, kept)
		w.depart(v, engine.NodeLost)
		w.reports = append(w.reports, engine.Event{Type: engine.Stopped, Job: id, Reason: engine.NodeLost, Done: kept})
	}
}
