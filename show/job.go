// Package show has the types in which a scheduler shows its work to people and programs: jobs, nodes, queues,
// why something waits, what was used. Every driver fills these types; how they are transferred is the business
// of the packages above (api, server, client). Amounts are milli-GPU (1000: one whole device), milli-cores and
// MiB.
package show

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/ask"
)

// The states of a job, as users see them.
const (
	StatePending   = "pending"
	StateStarting  = "starting"
	StateRunning   = "running"
	StateSuspended = "suspended"
	StateStopping  = "stopping"
	StateCompleted = "completed"
	StateFailed    = "failed"
	StateCancelled = "cancelled"
	StateTimeout   = "timeout"
	StatePreempted = "preempted" // ended by preemption: not to be requeued
	StateLost      = "lost"      // ended with its node
	StateRejected  = "rejected"
)

// Job is the present state of a job.
type Job struct {
	ID             int            `json:"id"`
	Array          int            `json:"array,omitempty" doc:"Number of the array that it belongs to; 0: none"`
	Index          int            `json:"index,omitempty" doc:"Its index in the array"`
	User           string         `json:"user"`
	State          string         `json:"state" doc:"pending, starting, running, suspended, stopping, completed, failed, cancelled, timeout, preempted, lost, rejected"`
	Reason         string         `json:"reason,omitempty" doc:"One line: why it waits, or how it ended"`
	Code           string         `json:"code,omitempty" doc:"The reason as one of Slurm's codes: Resources, Priority, Dependency, BeginTime, JobHeldUser, ..."`
	Submitted      time.Time      `json:"submitted"`
	Eligible       *time.Time     `json:"eligible,omitempty"`
	Started        *time.Time     `json:"started,omitempty" doc:"Start of the present or last run"`
	FirstStart     *time.Time     `json:"first_start,omitempty"`
	Ended          *time.Time     `json:"ended,omitempty"`
	Expected       *time.Time     `json:"expected,omitempty" doc:"When a waiting job is expected to start"`
	Earliest       *time.Time     `json:"earliest,omitempty" doc:"... and not before: four of five jobs like it start between earliest and latest"`
	Latest         *time.Time     `json:"latest,omitempty" doc:"... and not after, likewise"`
	AtEarliest     bool           `json:"at_earliest,omitempty" doc:"No date can be given: it starts at expected at the earliest or, where that is known, between earliest and latest"`
	ByLimits       bool           `json:"by_limits,omitempty" doc:"The expectation assumes that jobs ahead run to their time limits: if they end sooner, it starts sooner"`
	Scored         bool           `json:"scored,omitempty" doc:"Expected, earliest and latest are corrected by the outcome of earlier answers under this policy"`
	ExpectedEnd    *time.Time     `json:"expected_end,omitempty" doc:"When a running job is expected to end"`
	EndBy          string         `json:"end_by,omitempty" enum:"progress,estimate,history,limit" doc:"How that is known: from its progress, the stated estimate, earlier runs, its time limit"`
	Rough          bool           `json:"rough,omitempty" doc:"The expectation is an estimate from the amount of work ahead: running ahead in virtual time did not reach the job"`
	Promise        string         `json:"deadline_answer,omitempty" enum:"accepted,declined" doc:"The answer of a policy that answers deadlines; declined: it runs when it can"`
	Position       int            `json:"position,omitempty" doc:"Place in the line, from 1; 0: it is not in line"`
	Waited         ask.Duration   `json:"waited" doc:"Time that it waited so far, all waits together"`
	Ran            ask.Duration   `json:"ran" doc:"Time on devices so far, all runs together"`
	GPUHours       float64        `json:"gpu_hours"`
	LostGPUHours   float64        `json:"lost_gpu_hours,omitempty" doc:"GPU-hours of work that stopped runs lost"`
	SwitchCost     ask.Duration   `json:"switch_cost,omitempty" doc:"The mean time on its devices of a stop and the following start, by its progress: saving, starting, and returning to the same step"`
	SwitchGPUHours float64        `json:"switch_gpu_hours,omitempty" doc:"GPU-hours that stops and starts took, as far as its progress shows"`
	SavesNothing   string         `json:"saves_nothing,omitempty" doc:"Why it saves nothing when it is asked for a checkpoint, if that was found; empty: it saves, or it is not known yet"`
	StepRate       *float64       `json:"steps_per_gpu_hour,omitempty" doc:"Reported steps per GPU-hour, without repeated ones"`
	SampleRate     *float64       `json:"samples_per_gpu_hour,omitempty" doc:"Training samples that it computed per GPU-hour, from the samples_per_s that it reported"`
	CPUTime        ask.Duration   `json:"cpu_time,omitempty" doc:"CPU time of the runs that are over"`
	RAMPeak        int64          `json:"ram_peak,omitempty" doc:"MiB of host memory, the most of a run that is over"`
	Moves          bool           `json:"moves,omitempty" doc:"It stops once the job that comes in its place elsewhere answers"`
	Restarts       int            `json:"restarts" doc:"How often it was started again"`
	Preemptions    int            `json:"preemptions"`
	ExitCode       int            `json:"exit_code"`
	ExitSignal     int            `json:"exit_signal,omitempty"`
	Node           string         `json:"node,omitempty"`
	Devices        []Device       `json:"devices,omitempty" doc:"What it holds, or held last"`
	Sharing        string         `json:"sharing,omitempty" doc:"How it shares a GPU, and what enforces that"`
	StdOut         string         `json:"stdout,omitempty" doc:"Path of the output, of the first task"`
	StdErr         string         `json:"stderr,omitempty"`
	Progress       *Progress      `json:"progress,omitempty"`
	Metrics        []Metrics      `json:"metrics,omitempty" doc:"The metrics that it reported: the last ones, and those at the marks of a trial"`
	Idle           *Idle          `json:"idle,omitempty" doc:"It holds GPUs without using them; present from the warning on"`
	Network        *Network       `json:"network,omitempty" doc:"Of a running job whose traffic is not treated as any other"`
	Loan           *Loan          `json:"loan,omitempty" doc:"Of a replica whose service lends: what it got back for its present run"`
	Tasks          []Task         `json:"tasks,omitempty" doc:"On a cluster, of one job: its pods, and where they are"`
	Submission     ask.Submission `json:"submission"`
	Elements       []Element      `json:"elements,omitempty" doc:"In a list with arrays=true: further waiting elements of the array, otherwise the same"`
}

// Element is a compact form of one of many similar jobs: its number, and its index in the array.
type Element [2]int

// Expand returns the list with every element as a job of its own.
func Expand(list []Job) []Job {
	n := len(list)
	for i := range list {
		n += len(list[i].Elements)
	}
	if n == len(list) {
		return list
	}
	all := make([]Job, 0, n)
	for i := range list {
		j := &list[i]
		more := j.Elements
		j.Elements = nil
		all = append(all, *j)
		for _, e := range more {
			all = append(all, *j)
			last := &all[len(all)-1]
			last.ID, last.Index = e[0], e[1]
		}
	}
	return all
}

// The steps taken with a job that does not use its GPUs.
const (
	IdleWarned  = "warned"
	IdleDemoted = "demoted"
	IdleStopped = "stopped"
)

// How the expected end of a running job is known.
const (
	EndByProgress = "progress"
	EndByEstimate = "estimate"
	EndByHistory  = "history"
	EndByLimit    = "limit"
)

// Idle says since when a running job has not used its GPUs, and what happens to it.
type Idle struct {
	Since time.Time `json:"since"`
	Stage string    `json:"stage" enum:"warned,demoted,stopped" doc:"warned; demoted: it counts as best-effort; stopped: it was told to stop"`
	Text  string    `json:"text" doc:"One line: what follows from it, and when"`
}

// Loan is GPUs of a service that other jobs held while it did not need them.
type Loan struct {
	Jobs   []int         `json:"jobs" doc:"That were asked to make room"`
	Asked  time.Time     `json:"asked"`
	Back   time.Time     `json:"back,omitzero" doc:"Left out: it waits for it"`
	Within time.Duration `json:"within_ns" doc:"What was promised of the time between"`
}

// Device is a GPU, or part of one, that a job holds.
type Device struct {
	Index   int    `json:"index"`
	UUID    string `json:"uuid"`
	Share   int64  `json:"share,omitempty" doc:"Milli-GPU, if it is not the whole device"`
	Profile string `json:"profile,omitempty" doc:"MIG profile, if it is a slice"`
	Parent  string `json:"parent,omitempty" doc:"UUID of the GPU of a slice"`
}

// GPU returns the UUID of the device, or of the GPU to which the slice belongs.
func (d *Device) GPU() string { return cmp.Or(d.Parent, d.UUID) }

// Progress is a job's latest report.
type Progress struct {
	At            time.Time `json:"at"`
	Step          float64   `json:"step"`
	Steps         float64   `json:"steps,omitempty"`
	Predicted     bool      `json:"predicted,omitempty" doc:"steps is predicted from its metric (converge)"`
	Epoch         float64   `json:"epoch,omitempty"`
	SamplesPerSec float64   `json:"samples_per_s,omitempty"`
	Checkpoint    string    `json:"checkpoint,omitempty" doc:"The last checkpoint that it reported"`
	IterationSec  float64   `json:"iteration_s,omitempty" doc:"Seconds of an iteration, without waiting for its slot"`
	CommSec       float64   `json:"comm_s,omitempty" doc:"Seconds of it in which it communicates and does not compute"`
	Bytes         int64     `json:"bytes,omitempty" doc:"Bytes that each rank communicates in an iteration"`
	Slots         string    `json:"slots,omitempty" doc:"held: its iterations begin in their slots; too-short: they take longer than the period"`
}

// What jobs report of the slots in which their iterations are to begin.
const (
	SlotsHeld     = "held"
	SlotsTooShort = "too-short"
)

// Network says how the network is to treat a job's traffic, and how far that is carried out.
type Network struct {
	Class  int          `json:"class,omitempty" doc:"1 is the most urgent; 0: none"`
	DSCP   string       `json:"dscp,omitempty" doc:"Of its class"`
	Marks  string       `json:"marks,omitempty" doc:"What became of marking what it sends over TCP and UDP: applied, or not, and why"`
	Verbs  string       `json:"verbs,omitempty" doc:"What holds for InfiniBand and RoCE, whose libraries read their settings when the job starts"`
	Spread int          `json:"spread,omitempty" doc:"Connections of each pair of ranks"`
	Path   string       `json:"path,omitempty" doc:"What became of the choice of paths"`
	Shift  ask.Duration `json:"shift,omitempty" doc:"Its iterations begin so long after multiples of period"`
	Period ask.Duration `json:"period,omitempty"`
	Slots  string       `json:"slots,omitempty" doc:"Whether they do, as it reports"`

	Traffic string       `json:"traffic,omitempty" doc:"What it transmits in an iteration, as far as that is known"`
	Source  string       `json:"source,omitempty" doc:"From where that is known: measured, stated by the job, of its model"`
	Counted string       `json:"counted,omitempty" doc:"What it was found to send, if that is more than it says; it is believed"`
	Alone   ask.Duration `json:"alone,omitempty" doc:"Time of an iteration without other jobs on its links, by the model of the network"`
	Takes   ask.Duration `json:"takes,omitempty" doc:"... and beside those that run"`
	Loses   []Loss       `json:"loses,omitempty" doc:"Jobs that slow it on the network, the worst first"`
}

// Loss is what a job loses to another on the network.
type Loss struct {
	Job  int          `json:"job"`
	Link string       `json:"link" doc:"The busiest that they share"`
	Lost ask.Duration `json:"lost" doc:"How much shorter its iteration would be without that job"`
}

// Link is one direction of a link of the network, and what the running jobs put on it by the model.
type Link struct {
	Name    string      `json:"name"`
	Rate    int64       `json:"rate" doc:"Bits per second"`
	Load    float64     `json:"load" doc:"Part of the rate"`
	Classes []ClassLoad `json:"classes" doc:"... by class of traffic"`
	Counted *float64    `json:"counted,omitempty" doc:"Part of the rate that the network card of this machine counted within some seconds, if this is its link"`
}

// ClassLoad is the part of a link's rate that a class of traffic takes.
type ClassLoad struct {
	Class int     `json:"class" doc:"1 is the most urgent; 0: none"`
	Load  float64 `json:"load"`
}

// Why says what keeps a job from starting, and what would change that.
type Why struct {
	Job      Job      `json:"job"`
	Blockers []string `json:"blockers" doc:"Everything that blocks it, not the first thing only"`
	Holders  []string `json:"holders,omitempty" doc:"Running jobs that hold what it needs, soonest end first"`
	Changes  []string `json:"changes,omitempty" doc:"Single changes that would start it now"`
	Moves    string   `json:"moves,omitempty" doc:"Which running jobs could be moved so that it starts, and what that costs"`
	Text     string   `json:"text,omitempty"`
}

// MIG is a MIG instance of a GPU.
type MIG struct {
	Profile string `json:"profile" doc:"Such as 3g.40gb"`
	Start   int    `json:"start" doc:"First memory slice"`
	UUID    string `json:"uuid"`
	Job     *int   `json:"job,omitempty" doc:"The job that holds it"`
}

// GPU is a device of the machine.
type GPU struct {
	Index       int      `json:"index"`
	UUID        string   `json:"uuid"`
	Model       string   `json:"model"`
	Memory      int64    `json:"memory" doc:"MiB"`
	Simulated   bool     `json:"simulated,omitempty" doc:"The device is simulated"`
	MIG         bool     `json:"mig,omitempty" doc:"It is in MIG mode"`
	Instances   []MIG    `json:"instances,omitempty" doc:"Its MIG instances"`
	Healthy     bool     `json:"healthy"`
	Fault       string   `json:"fault,omitempty" doc:"What is wrong with it"`
	Jobs        []int    `json:"jobs,omitempty"`
	Free        int64    `json:"free" doc:"Milli-GPU"`
	Utilisation *float64 `json:"utilisation,omitempty" doc:"Percent; absent: not measured"`
	MemoryUsed  *int64   `json:"memory_used,omitempty" doc:"MiB"`
	Power       *float64 `json:"power,omitempty" doc:"Watt"`
	Temperature *float64 `json:"temperature,omitempty" doc:"Celsius"`
}

// Node is a machine with its GPUs.
type Node struct {
	Name   string `json:"name"`
	State  string `json:"state" enum:"up,draining,down"`
	Reason string `json:"reason,omitempty" doc:"Why it is drained, by which user and when"`
	CPU    int64  `json:"cpu" doc:"Milli-cores"`
	RAM    int64  `json:"ram" doc:"MiB"`
	GPUs   []GPU  `json:"gpus"`
	Usable *int64 `json:"usable,omitempty" doc:"Milli-GPU that are free and that the tasks submitted last could use on average; absent: not known"`
}

// Queue is a queue of the tree with its use.
type Queue struct {
	Name      string `json:"name"`
	Parent    string `json:"parent,omitempty"`
	Guarantee int64  `json:"guarantee" doc:"Milli-GPU"`
	Limit     int64  `json:"limit" doc:"Milli-GPU; -1: none"`
	Used      int64  `json:"used" doc:"Milli-GPU"`
	Share     int64  `json:"share" doc:"Its fair-tree share of the whole, in thousandths: what the multifactor policy aims at over time"`
	Running   int    `json:"running"`
	Pending   int    `json:"pending"`
}

// Partition is a named group of nodes with rules of its own.
type Partition struct {
	Name         string       `json:"name"`
	Default      bool         `json:"default,omitempty"`
	Nodes        []string     `json:"nodes"`
	MaxTime      ask.Duration `json:"max_time,omitempty" doc:"A longer limit is rejected; absent: none"`
	DefaultTime  ask.Duration `json:"default_time,omitempty" doc:"Limit of jobs that state none; absent: none"`
	PriorityTier int64        `json:"priority_tier,omitempty" doc:"Higher is considered first"`
}

// Task is a task of a job on a cluster: a pod.
type Task struct {
	Name  string `json:"name" doc:"Name of the pod, in the job's namespace"`
	State string `json:"state" doc:"waiting, gated, binding, bound, running, succeeded, failed, leaving"`
	Node  string `json:"node,omitempty"`
	GPUs  int    `json:"gpus,omitempty"`
}

// Live are the states of jobs that are not over; in a list, active stands for them.
var Live = []string{StatePending, StateStarting, StateRunning, StateSuspended, StateStopping}

// FairShares computes each queue's share of the whole, in thousandths. Parents come before their children.
func FairShares(queues []Queue, shares []int64) {
	sum, whole := map[string]int64{}, map[string]float64{"": 1000}
	for i := range queues {
		sum[queues[i].Parent] += max(1, shares[i])
	}
	for i := range queues {
		q := &queues[i]
		v := whole[q.Parent] * float64(max(1, shares[i])) / float64(sum[q.Parent])
		whole[q.Name], q.Share = v, int64(v+0.5)
	}
}

// Joined is what a process needs to become part of a task, besides the control group into which it was put.
type Joined struct {
	Env    []string `json:"env" doc:"Environment of the task"`
	Dir    string   `json:"dir" doc:"Working directory of the task"`
	UID    int      `json:"uid" doc:"User of the job"`
	GID    int      `json:"gid"`
	Groups []int    `json:"groups,omitempty"`
}

// Moment is an event in the history of a job.
type Moment struct {
	At    time.Time `json:"at"`
	State string    `json:"state"`
	Text  string    `json:"text,omitempty"`
}

// Metrics are the values that a job, or a trial of a fused group, reported at a step.
type Metrics struct {
	Trial int                 `json:"trial" doc:"Which trial of a fused group; 0 otherwise"`
	Mark  int64               `json:"mark,omitempty" doc:"The step that was asked for; 0: the last report"`
	Step  float64             `json:"step"`
	At    time.Time           `json:"at"`
	Of    map[string]*float64 `json:"of" doc:"By name; null: not a number, or infinite"`
}
