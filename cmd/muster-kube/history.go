package main

import (
	"errors"
	"syscall"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/trace"
)

// history writes what became of gangs to a file that muster sim and muster tune read.
type history struct{ log *trace.Log }

func openHistory(path string) (*history, error) {
	log, err := trace.OpenLog(path, "kubernetes")
	if err != nil {
		return nil, err
	}
	return &history{log}, nil
}

// passing reports whether a file could not be opened for a reason that its name is not to blame for.
func passing(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.ESTALE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (h *history) Cluster(nodes []cluster.Node, queues []cluster.Queue) error {
	return h.log.Cluster(nodes, queues)
}

// Ended writes a gang down. A service has no work of its own: it ended when it was
// deleted.
func (h *history) Ended(job *cluster.Job, did time.Duration, reason engine.StopReason, at cluster.Time) error {
	e := trace.Entry{Job: *job, Run: did}
	switch {
	case job.Kind == cluster.Service:
		e.Run, e.End, e.Outcome = 0, at, trace.Cancelled
	case did <= 0:
		return nil
	case reason == engine.Failed || reason == engine.TimedOut:
		e.Outcome = trace.Failed
	case reason != engine.Completed:
		e.Outcome = trace.Cancelled
	}
	return h.log.Add(&e)
}
