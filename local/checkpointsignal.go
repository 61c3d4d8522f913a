//go:build linux

package local

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/run"
)

// Inspected takes over what the handlers of the job's processes show.
func (r *runner) Inspected(found run.Response) {
	r.m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) {
		if r.job.run != r || !r.job.NoteSignalResponse(found, false) {
			return nil, nil
		}
		return []engine.Event{{Type: engine.Progress, Job: r.ID, Saves: found.Saves()}}, nil
	})
}
