package cluster

import (
	"slices"
	"time"
)

// JobID numbers jobs densely in the order in which they reach the engine.
type JobID int32

// NoJob is the absence of a job.
const NoJob JobID = -1

// Kind says what a job is for.
type Kind uint8

// The kinds of job.
const (
	Training Kind = iota
	Batch         // batch inference
	Service       // real-time inference; runs until it is cancelled
	Interactive
	Trial // one trial of a hyper-parameter search
)

// Tier determines which jobs may preempt a job, and how.
type Tier uint8

// The tiers. Critical is never preempted; standard is checkpointed first; best-effort runs on what
// no higher tier needs.
const (
	Critical Tier = iota
	Standard
	BestEffort
)

// Level is a level of the topology, from near to far.
type Level uint8

// The topology levels. LevelNVLink is an NVLink/NVSwitch domain: an island
// inside a node, or several nodes joined by switches.
const (
	LevelAny Level = iota // no constraint
	LevelNVLink
	LevelNode
	LevelRack
	LevelFabric
	LevelCore // of the nearest core switches; three more levels may be above
)

// MostCores bounds the levels above the fabric.
const MostCores = 4

// LevelTop is the farthest level.
const LevelTop = LevelCore + MostCores - 1

// Request is what one task needs. A task lives on one node.
type Request struct {
	GPUs   int   `json:"gpus,omitempty"`   // devices
	Share  Milli `json:"share,omitempty"`  // milli-GPU of each device; 0 or 1000: whole devices
	Memory MiB   `json:"memory,omitempty"` // GPU memory needed on each device, MiB
	// the part of Memory that it also needs between iterations (Footprint); 0: unknown
	Resident MiB    `json:"resident,omitempty"`
	Profile  string `json:"profile,omitempty"` // MIG profile instead of a device ("1g.10gb")
	CPU      Milli  `json:"cpu,omitempty"`     // milli-cores
	RAM      MiB    `json:"ram,omitempty"`     // host memory, MiB
}

// Milli returns the milli-GPU that the request counts for in quotas and reports. A slice counts by
// its compute share, which the engine resolves.
func (r Request) Milli() Milli {
	if r.Share > 0 && r.Share < Whole {
		return Milli(r.GPUs) * r.Share
	}
	return Milli(r.GPUs) * Whole
}

// Fractional reports whether the request shares its devices.
func (r Request) Fractional() bool { return r.Share > 0 && r.Share < Whole }

// TaskSet is Count equal tasks of a gang.
type TaskSet struct {
	Count   int     `json:"count"`
	Request Request `json:"request"`
}

// Topology constrains how far apart the tasks of a gang may be.
type Topology struct {
	Level    Level `json:"level,omitempty"`
	Required bool  `json:"required,omitempty"` // otherwise preferred
}

// Elastic lets the first task set run with Min..Max tasks. Zero: rigid.
type Elastic struct {
	Min int `json:"min,omitempty"`
	Max int `json:"max,omitempty"`
}

// Checkpoint says how often a job saves its state, and at what cost.
type Checkpoint struct {
	Interval time.Duration `json:"interval,omitempty"` // between periodic checkpoints; 0: only when asked
	Cost     time.Duration `json:"cost,omitempty"`     // to write one
	Restart  time.Duration `json:"restart,omitempty"`  // from start to useful work after a restore
	Suspend  time.Duration `json:"suspend,omitempty"`  // total time of being frozen and resuming in place
	None     bool          `json:"none,omitempty"`     // the job cannot checkpoint: stopping it loses everything
}

// DependencyType is the condition of a Dependency, as in Slurm's --dependency.
type DependencyType uint8

// The dependency types.
const (
	AfterOK    DependencyType = iota // the other job succeeded
	AfterAny                         // the other job ended
	AfterNotOK                       // the other job failed
	Singleton                        // no earlier job of the same name and user is left
	AfterStart                       // the other job started (or ended without), Delay ago
)

// Dependency delays a job until its condition holds. A condition that can no longer hold ends the
// job (cancelled: dependency never satisfied). If it names several jobs, all of them must have
// started, succeeded or ended; AfterNotOK holds when all have ended and one of them failed.
type Dependency struct {
	Type     DependencyType `json:"type"`
	Job      JobID          `json:"job,omitempty"`      // not for Singleton
	Elements int            `json:"elements,omitempty"` // number of jobs from Job on, an array; 0: one
	Delay    time.Duration  `json:"delay,omitempty"`    // AfterStart only
}

// Last is the last job that the dependency names.
func (d *Dependency) Last() JobID { return d.Job + JobID(max(1, d.Elements)) - 1 }

// Array makes a job an element of a job array.
type Array struct {
	ID    JobID `json:"id"`            // the array's first element
	Index int   `json:"index"`         // the element's number
	Cap   int   `json:"cap,omitempty"` // maximum elements at once; 0: no cap
}

// NodeLimit bounds the tasks of a job on some nodes together. It is a temporary fact that the
// engine cannot see (a port in use, a pod that must not be a neighbour), so the job waits for it to
// change and is not rejected.
type NodeLimit struct {
	Nodes []string `json:"nodes"`
	Tasks int      `json:"tasks,omitempty"` // 0: none
}

// NodeSet is a named set of nodes. Its contents never change; nodes that join later are in no
// existing set.
type NodeSet struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// Job is a user's request. It does not change while the engine holds it, except through an Updated
// event.
type Job struct {
	ID          JobID     `json:"id"`
	Name        string    `json:"name,omitempty"`
	User        string    `json:"user,omitempty"`
	Queue       string    `json:"queue,omitempty"`
	Kind        Kind      `json:"kind,omitempty"`
	Tier        Tier      `json:"tier,omitempty"`
	Priority    int64     `json:"priority,omitempty"` // higher first, within what the policy allows
	Submit      Time      `json:"submit,omitempty"`
	Tasks       []TaskSet `json:"tasks"`
	GPUTypes    []string  `json:"gpu_types,omitempty"`  // acceptable models in order of preference; none: any
	Partitions  []string  `json:"partitions,omitempty"` // acceptable partitions; none: the default ones
	Nodes       string    `json:"nodes,omitempty"`      // the set of nodes (NodeSet) that it runs on; none: any
	Reservation string    `json:"reservation,omitempty"`
	Topology    Topology  `json:"topology,omitzero"`
	Elastic     Elastic   `json:"elastic,omitzero"`
	// maximum tasks on one node; 0: as many as fit (Slurm: --ntasks-per-node)
	PerNode    int         `json:"per_node,omitempty"`
	NodeLimits []NodeLimit `json:"node_limits,omitempty"` // current bounds of its tasks on some nodes
	Isolation  Isolation   `json:"isolation,omitempty"`   // isolation required from other jobs on its GPUs
	// minimum speed on a shared GPU, in ppm of that alone; 0: the cluster's
	MinSpeed   int64         `json:"min_speed,omitempty"`
	NoPreempt  bool          `json:"no_preempt,omitempty"` // it waits instead of preempting other jobs
	Limit      time.Duration `json:"limit,omitempty"`      // wall-clock limit, enforced; 0: the partition's default
	Estimate   time.Duration `json:"estimate,omitempty"`   // expected run time on the reference GPU; 0: unknown
	Checkpoint Checkpoint    `json:"checkpoint,omitzero"`
	Deadline   Time          `json:"deadline,omitempty"` // 0: none
	After      []Dependency  `json:"after,omitempty"`
	AnyOf      bool          `json:"any_of,omitempty"` // one of After is enough
	Array      *Array        `json:"array,omitempty"`
	Begin      Time          `json:"begin,omitempty"` // not before
	Hold       bool          `json:"hold,omitempty"`
	NoRequeue  bool          `json:"no_requeue,omitempty"` // a lost or preempted job ends instead of waiting again
	Model      string        `json:"model,omitempty"`      // what it computes: a key of the throughput tables
	Skew       Milli         `json:"skew,omitempty"`       // largest message / model size, in thousandths (Tiresias)
	Traffic    Traffic       `json:"traffic,omitzero"`     // between its nodes
	Hosts      []string      `json:"hosts,omitempty"`      // ... or between these (Network.Hosts)
	Service    string        `json:"service,omitempty"`    // that lends, and of which it is a replica (Lender)
	// within which another job comes in its place (Replaces) when it is to be moved, and it goes on until then; 0: none
	// does
	Replace  time.Duration `json:"replace,omitempty"`
	Replaces JobID         `json:"replaces,omitempty"` // the job in whose place it comes; 0: none
}

// Shares reports whether tasks of the job get shares of GPUs.
func (j *Job) Shares() bool {
	return slices.ContainsFunc(j.Tasks, func(t TaskSet) bool {
		return t.Request.Fractional() && t.Request.Profile == ""
	})
}

// NumTasks returns the size of the gang at its requested (largest) size.
func (j *Job) NumTasks() int {
	n := 0
	for i := range j.Tasks {
		n += j.Tasks[i].Count
	}
	return n
}

// GPUMilli returns the milli-GPU of the whole gang; slices count as zero.
func (j *Job) GPUMilli() Milli {
	var n Milli
	for i := range j.Tasks {
		n += Milli(j.Tasks[i].Count) * j.Tasks[i].Request.Milli()
	}
	return n
}

// GPUs returns the number of devices that the gang touches at its requested size.
func (j *Job) GPUs() int {
	n := 0
	for i := range j.Tasks {
		n += j.Tasks[i].Count * j.Tasks[i].Request.GPUs
	}
	return n
}
