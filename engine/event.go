package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// EventType says what happened.
type EventType uint8

// The events. A driver reports facts; the engine answers with decisions.
const (
	Tick    EventType = iota // nothing but the time: a wake-up
	Stopped                  // a job's devices are free again: it ended or was stopped
	// a Start did not happen; the devices are free again (Undo: by no fault of the job, and it is not counted)
	StartFailed
	NodeUp       // a node joined or came back; one that was drained stays so
	NodeDown     // a node is lost
	NodeDrained  // a person drains a node, also one that is down (Undo: takes it back)
	GPUBad       // devices became unhealthy (Undo: healthy again)
	QueueChanged // the queue tree was replaced
	Submitted    // a new job
	Updated      // a pending job's spec was replaced; of a job that runs only what Amended says
	Cancelled    // a person cancels a job
	Held         // a person holds a pending job (Undo: releases it)
	Started      // a Start happened; Rate is known now
	Resized      // a Resize happened
	Progress     // a job reports work done
	// a running job counts as best-effort from now on, until this run is over (Undo: no more)
	Demoted
	// a person asks for moves (Config.Defrag) that let a pending job start, or with NoJob whichever it helps;
	// with Compact, that empty nodes
	Defragment
	NodeAsleep  // a node without jobs is switched off, and takes Wake to be there again (Undo: it is)
	NodeResized // a node has other CPU and RAM than it had (Size)
	NodesNamed  // a set of nodes got a name that jobs can use (Job.Nodes)
	NodeChanged // a node is another than it was (Spare): its GPUs, or where it is in the network
	JobReshaped // a job that runs has other tasks, or holds something else (Reshape)
	Adopted     // a job runs of which the engine did not know (Record)
	// the services that lend what they do not run are these from now on (Lenders)
	LendersChanged
)

// Event is one fact. Which fields count depends on the type.
type Event struct {
	Type EventType     `json:"type"`
	Job  cluster.JobID `json:"job,omitempty"`
	Spec *cluster.Job  `json:"spec,omitempty"` // Submitted, Updated
	// Submitted: what it was given under other numbers; nil: nothing
	Carryover *Carryover     `json:"given,omitempty"`
	Reason    job.StopReason `json:"reason,omitempty"` // Stopped
	Done      time.Duration  `json:"done,omitempty"`   // Stopped, Progress: useful work so far, on the reference GPU
	Saved     time.Duration  `json:"saved,omitempty"`  // Progress: ... of which a checkpoint is safe
	// Started, Resized, Progress: speed against the reference, in ppm; 0: unknown (taken as 1,000,000)
	Rate int64 `json:"rate,omitempty"`
	// Progress: all of its useful work, as it looks now; 0: as before
	Estimate time.Duration `json:"estimate,omitempty"`
	// Progress: most that it has used of any of its GPUs; 0: not measured
	Memory cluster.MiB `json:"memory,omitempty"`
	// Progress, Stopped: what its last stop and start were measured to take
	Switch SwitchCost `json:"switch,omitzero"`
	// Progress, Stopped: whether it saves its work when it is asked for a checkpoint
	Saves Saves `json:"saves,omitempty"`
	// Started, Resized, Progress: millionths of a unit of work per second, by its own account; 0: not measured
	Pace int64        `json:"pace,omitempty"`
	Unit job.PaceUnit `json:"unit,omitempty"` // ... and of what
	// Progress: what of its traffic was measured (zero fields were not); nil: nothing
	Traffic *cluster.Traffic    `json:"traffic,omitempty"`
	Slots   cluster.SlotsReport `json:"slots,omitempty"` // Progress: what it says of its slots
	// Progress: what an iteration takes, of a job that does not say what of it is computing; 0: not measured
	Iteration time.Duration   `json:"iteration,omitempty"`
	Node      string          `json:"node,omitempty"`    // Node*, GPUBad
	Spare     *cluster.Node   `json:"spare,omitempty"`   // NodeUp of a node not seen before, NodeChanged
	GPUs      uint64          `json:"gpus,omitempty"`    // GPUBad: mask of devices
	Undo      bool            `json:"undo,omitempty"`    // NodeDrained, NodeAsleep, GPUBad, Held, Demoted, StartFailed
	Queues    []cluster.Queue `json:"queues,omitempty"`  // QueueChanged
	Compact   Compact         `json:"compact,omitempty"` // Defragment
	Wake      time.Duration   `json:"wake,omitempty"`    // NodeAsleep

	Size *NodeSize        `json:"size,omitempty"` // NodeResized
	Set  *cluster.NodeSet `json:"set,omitempty"`  // NodesNamed

	Reshape *Reshape    `json:"reshape,omitempty"` // JobReshaped
	Record  *job.Record `json:"record,omitempty"`  // Adopted

	Lenders []cluster.Lender `json:"lenders,omitempty"` // LendersChanged
}

// NodeSize is what a node has for jobs besides GPUs, what they hold included.
type NodeSize struct {
	CPU cluster.Milli `json:"cpu,omitempty"` // 0: it is not counted
	RAM cluster.MiB   `json:"ram,omitempty"`
}

// SwitchCost is what stopping a job and starting it again was measured to take: time
// on its devices in which it got nothing done that is left. What is 0 was not measured.
type SwitchCost struct {
	Save    time.Duration `json:"save,omitempty"`    // to write a checkpoint, when it was asked to
	Restart time.Duration `json:"restart,omitempty"` // from the start until it was where it had stopped
	Suspend time.Duration `json:"suspend,omitempty"` // to be frozen and to go on in place
}

// Saves says whether a job saves its work when it is asked for a checkpoint, as far as its driver
// found out. It does not change what the submission states (Checkpoint.None): the job is
// asked all the same, since its code may have changed.
type Saves uint8

// The findings.
const (
	SavesUnknown Saves = iota // nothing new
	SavesNothing              // no process in it handles the request
	SavesWork                 // a process handled it
)

// Batch is the events of one instant.
type Batch struct {
	Seq    int64        `json:"seq"`
	Now    cluster.Time `json:"now"`
	Events []Event      `json:"events,omitempty"`
}

// ActionType says what the driver is asked to do.
type ActionType uint8

// The actions.
const (
	Start   ActionType = iota // bind the gang to its devices and run it
	Preempt                   // stop a job (How says how); report Stopped when its devices are free
	Resize                    // change an elastic job to the given tasks and devices
	Reject                    // the job cannot ever run; it is done
	Treat                     // a running job's traffic is treated otherwise from now on (Treatment)
)

// Action is one thing to do.
type Action struct {
	Type   ActionType        `json:"type"`
	Job    cluster.JobID     `json:"job"`
	Allocs []inventory.Alloc `json:"allocs,omitempty"` // Start, Resize
	How    job.How           `json:"how,omitempty"`    // Preempt
	Grace  time.Duration     `json:"grace,omitempty"`  // Preempt
	// Preempt, Reject: what it counts as; Resize: NodeLost where tasks were lost
	Reason job.StopReason `json:"reason,omitempty"`
	For    cluster.JobID  `json:"for,omitempty"` // Preempt: the job that needs the devices; NoJob: none
	// Start beside another: of that one's speed it is to keep so much, ppm (Target)
	Yield int64  `json:"yield,omitempty"`
	Text  string `json:"text,omitempty"` // Reject: what it asked and the most there is
	// Start, Treat: how the network treats its traffic; Start: nil is as any other
	Treatment *cluster.Treatment `json:"treatment,omitempty"`
}

// Decision is the engine's answer to a batch. Actions is valid until the next
// Step: a driver that keeps them copies them.
type Decision struct {
	Actions []Action     `json:"actions,omitempty"`
	WakeAt  cluster.Time `json:"wake_at,omitempty"` // send a Tick then, if nothing happens before; Never: no need
	Hash    uint64       `json:"hash"`              // of all decisions so far
}
