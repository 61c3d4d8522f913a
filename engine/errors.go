package engine

import (
	"fmt"

	"github.com/muster-gpu/muster/cluster"
)

// JobError says which job of a snapshot cannot be restored. A driver that goes on without that job can try again.
type JobError struct {
	Job  cluster.JobID
	Text string
}

func (e *JobError) Error() string { return fmt.Sprintf("snapshot: job %d: %s", e.Job, e.Text) }

// NodeError says which node an engine cannot be built with.
type NodeError struct {
	Node, Text string
}

func (e *NodeError) Error() string { return fmt.Sprintf("node %q: %s", e.Node, e.Text) }
