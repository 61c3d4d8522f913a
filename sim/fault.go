package sim

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// mpsFault has a job that fails in a share under MPS end its GPU's server, where chance has
// it so: all others that compute on the GPU end with it, and start again from their last
// checkpoints, as live (NVIDIA's MPS documentation). Whose fault it was the world knows: that job fails at once.
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
