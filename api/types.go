// Package api holds the types that travel between muster serve and whoever
// talks to it: the command line, the dashboard, scripts. Amounts are milli-GPU
// (1000: one whole device), milli-cores and MiB; times are RFC 3339; durations
// are text such as "1h30m" or "2d4h".
package api

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Duration is a time span that reads and writes as text ("1h30m", "2d4h").
type Duration time.Duration

// MarshalText writes the duration as people say it.
func (d Duration) MarshalText() ([]byte, error) {
	return []byte(cluster.FormatDuration(time.Duration(d))), nil
}

// UnmarshalText reads "90s", "1h30m", "2d4h" or "1w".
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := cluster.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// String is the duration as text.
func (d Duration) String() string { return cluster.FormatDuration(time.Duration(d)) }

// Submission is what a user asks to be run. Either Command or Script is given.
type Submission struct {
	Name        string   `json:"name,omitempty" doc:"Name of the job; the command's or script's base name if empty" maxLength:"256"`
	Queue       string   `json:"queue,omitempty" doc:"Queue that the job counts for; the user's default queue if empty"`
	Partitions  []string `json:"partitions,omitempty" doc:"Acceptable partitions; the default ones if empty"`
	Reservation string   `json:"reservation,omitempty" doc:"Advance reservation to run in"`
	Tier        string   `json:"tier,omitempty" enum:"critical,standard,best-effort" doc:"Who may preempt the job, and how; standard if empty"`
	Kind        string   `json:"kind,omitempty" enum:"training,batch,service,interactive,trial" doc:"What the job is for; training if empty"`
	Priority    int64    `json:"priority,omitempty" doc:"Higher first, within what the policy allows"`

	Command    []string `json:"command,omitempty" doc:"Program and arguments"`
	Script     string   `json:"script,omitempty" doc:"Text of a script that begins with #!; it is kept as it was when it was submitted"`
	ScriptName string   `json:"script_name,omitempty" doc:"File name that the script had"`
	Args       []string `json:"args,omitempty" doc:"Arguments of the script"`
	Dir        string   `json:"dir,omitempty" doc:"Working directory; the user's home if empty"`
	Env        []string `json:"env,omitempty" doc:"Environment, as NAME=VALUE"`
	Umask      string   `json:"umask,omitempty" doc:"File mode mask in octal; 0022 if empty"`
	Input      string   `json:"input,omitempty" doc:"File for standard input; /dev/null if empty"`
	Output     string   `json:"output,omitempty" doc:"File for standard output, relative to dir; patterns %j %A %a %x %u %N %n %t %s %r %%; muster-%j.out if empty"`
	Error      string   `json:"error,omitempty" doc:"File for standard error; together with the output if empty"`
	Truncate   bool     `json:"truncate,omitempty" doc:"Begin the files anew at each start instead of appending"`
	Pty        bool     `json:"pty,omitempty" doc:"Run the first task on a terminal of its own, for muster attach"`
	Stdin      bool     `json:"stdin,omitempty" doc:"The first task's standard input comes from whoever is attached, as with muster run in a pipe"`
	Attached   bool     `json:"attached,omitempty" doc:"The output goes to whoever waits with muster run, not to a file in dir"`

	Tasks     int      `json:"tasks,omitempty" minimum:"0" doc:"Tasks of the gang; 1 if 0"`
	Once      bool     `json:"once,omitempty" doc:"Run the command once with everything that the tasks hold, as sbatch does, instead of once per task"`
	GPUs      int      `json:"gpus,omitempty" minimum:"0" doc:"GPUs of each task"`
	Share     int64    `json:"share,omitempty" minimum:"0" maximum:"1000" doc:"Milli-GPU of each device; 0 or 1000: whole devices"`
	Memory    int64    `json:"gpu_memory,omitempty" minimum:"0" doc:"GPU memory needed on each device, MiB"`
	Resident  int64    `json:"gpu_memory_resident,omitempty" minimum:"0" doc:"of gpu_memory, what is needed between iterations, too, MiB; the rest is for one iteration at a time (policy salus)"`
	Profile   string   `json:"profile,omitempty" doc:"MIG profile instead of whole devices, such as 1g.10gb"`
	Isolation string   `json:"isolation,omitempty" enum:"none,memory,full" doc:"What must be kept apart from others on its GPUs: nothing, its memory, or memory, compute and faults; with a share, the way of sharing follows from it"`
	Prompt    bool     `json:"latency_sensitive,omitempty" doc:"It cannot wait while others have their turns on a GPU that it shares"`
	MinSpeed  float64  `json:"min_speed,omitempty" minimum:"0" maximum:"1" doc:"Least part of its speed alone that it accepts in a share of a GPU; 0: the configured one"`
	CPU       int64    `json:"cpu,omitempty" minimum:"0" doc:"Milli-cores of each task"`
	RAM       int64    `json:"ram,omitempty" minimum:"0" doc:"Host memory of each task, MiB"`
	GPUTypes  []string `json:"gpu_types,omitempty" doc:"Acceptable GPU models in order of preference; any if empty"`
	Level     string   `json:"level,omitempty" enum:"any,nvlink,node,rack,fabric" doc:"How near the tasks must be"`
	Required  bool     `json:"required,omitempty" doc:"The level is required, not only preferred"`
	MinTasks  int      `json:"min_tasks,omitempty" minimum:"0" doc:"Elastic: the fewest tasks to run with"`
	MaxTasks  int      `json:"max_tasks,omitempty" minimum:"0" doc:"Elastic: the most tasks to run with"`

	Limit        Duration   `json:"limit,omitempty" doc:"Wall-clock limit, enforced"`
	Estimate     Duration   `json:"estimate,omitempty" doc:"Expected run time, if it is known"`
	Converge     string     `json:"converge,omitempty" doc:"When it will be done, by a metric that it reports: NAME:BELOW:TIMES, when that falls by less than BELOW of itself between two reports, TIMES times in a row"`
	Begin        *time.Time `json:"begin,omitempty" doc:"Not before"`
	Deadline     *time.Time `json:"deadline,omitempty" doc:"To be done by"`
	After        []After    `json:"after,omitempty" doc:"Other jobs to wait for; all of them"`
	AnyOf        bool       `json:"any_of,omitempty" doc:"One condition of after is enough"`
	Array        string     `json:"array,omitempty" doc:"Indices of a job array and its cap, such as 0-15:2%4"`
	Hold         bool       `json:"hold,omitempty" doc:"Wait until a person releases it"`
	NoRequeue    bool       `json:"no_requeue,omitempty" doc:"End instead of waiting again after a preemption or a lost node"`
	Signal       string     `json:"signal,omitempty" doc:"Signal that asks for a checkpoint; USR1 if empty"`
	SignalBefore Duration   `json:"signal_before,omitempty" doc:"Send the signal so long before the time limit; 0: not"`
	SignalShell  bool       `json:"signal_shell,omitempty" doc:"The signal goes to the first process only, not to the whole task"`

	CheckpointInterval Duration `json:"checkpoint_interval,omitempty" doc:"Time between periodic checkpoints; 0: only when asked"`
	CheckpointCost     Duration `json:"checkpoint_cost,omitempty" doc:"Time to write one"`
	RestartCost        Duration `json:"restart_cost,omitempty" doc:"Time from start to useful work after a restore"`
	NoCheckpoint       bool     `json:"no_checkpoint,omitempty" doc:"The job cannot checkpoint: stopping it loses everything"`

	CheckpointOf int    `json:"checkpoint_of,omitempty" minimum:"0" doc:"Another job of the user's, which is over: this one goes on in its checkpoint folder"`
	Trial        *Trial `json:"trial,omitempty" doc:"The job is a run of a hyper-parameter search"`

	Model   string `json:"model,omitempty" doc:"What it computes: a key of the throughput tables"`
	Comment string `json:"comment,omitempty" doc:"Free text"`
}

// After is a dependency on another job.
type After struct {
	Type  string   `json:"type" enum:"after,afterok,afterany,afternotok,aftercorr,singleton" doc:"Condition, as in Slurm"`
	Job   int      `json:"job,omitempty" doc:"The other job; not for singleton"`
	Delay Duration `json:"delay,omitempty" doc:"after: time after the other job's start"`
}

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
	StatePreempted = "preempted" // ended by preemption: it may not be requeued
	StateLost      = "lost"      // ended with its node
	StateRejected  = "rejected"
)

// Job is a job as it is now.
type Job struct {
	ID             int        `json:"id"`
	Array          int        `json:"array,omitempty" doc:"Number of the array that it belongs to; 0: none"`
	Index          int        `json:"index,omitempty" doc:"Its index in the array"`
	User           string     `json:"user"`
	State          string     `json:"state" doc:"pending, starting, running, suspended, stopping, completed, failed, cancelled, timeout, preempted, lost, rejected"`
	Reason         string     `json:"reason,omitempty" doc:"One line: why it waits, or how it ended"`
	Code           string     `json:"code,omitempty" doc:"The reason as one of Slurm's codes: Resources, Priority, Dependency, BeginTime, JobHeldUser, ..."`
	Submitted      time.Time  `json:"submitted"`
	Eligible       *time.Time `json:"eligible,omitempty"`
	Started        *time.Time `json:"started,omitempty" doc:"Start of the present or last run"`
	FirstStart     *time.Time `json:"first_start,omitempty"`
	Ended          *time.Time `json:"ended,omitempty"`
	Expected       *time.Time `json:"expected,omitempty" doc:"When a waiting job is expected to start"`
	Earliest       *time.Time `json:"earliest,omitempty" doc:"... and not before: four of five jobs like it start between earliest and latest"`
	Latest         *time.Time `json:"latest,omitempty" doc:"... and not after, likewise"`
	AtEarliest     bool       `json:"at_earliest,omitempty" doc:"No date can be given: it starts at expected at the earliest or, where that is known, between earliest and latest"`
	ByLimits       bool       `json:"by_limits,omitempty" doc:"The expectation is that jobs ahead run to their time limits: if they end sooner, it starts sooner"`
	Scored         bool       `json:"scored,omitempty" doc:"Expected, earliest and latest are corrected by what became of earlier answers under this policy"`
	ExpectedEnd    *time.Time `json:"expected_end,omitempty" doc:"When a running job is expected to end"`
	EndBy          string     `json:"end_by,omitempty" enum:"progress,estimate,history,limit" doc:"How that is known: from its progress, the stated estimate, earlier runs, its time limit"`
	Rough          bool       `json:"rough,omitempty" doc:"The expectation is an estimate from the amount of work ahead: going on in virtual time did not reach it"`
	Promise        string     `json:"deadline_answer,omitempty" enum:"accepted,declined" doc:"What a policy that answers deadlines said of its; declined: it runs when it can"`
	Position       int        `json:"position,omitempty" doc:"Place in the line, from 1; 0: it is not in line"`
	Waited         Duration   `json:"waited" doc:"Time that it waited so far, all waits together"`
	Ran            Duration   `json:"ran" doc:"Time on devices so far, all runs together"`
	GPUHours       float64    `json:"gpu_hours"`
	LostGPUHours   float64    `json:"lost_gpu_hours,omitempty" doc:"GPU-hours whose work stopped runs did not save"`
	SwitchCost     Duration   `json:"switch_cost,omitempty" doc:"What one stop and the start after it took on its devices, by its progress: to save, to start, and to be where it was; mean"`
	SwitchGPUHours float64    `json:"switch_gpu_hours,omitempty" doc:"GPU-hours that stops and starts took, as far as its progress told"`
	SavesNothing   string     `json:"saves_nothing,omitempty" doc:"Why it saves nothing when it is asked for a checkpoint, as was found; empty: it saves, or nobody knows yet"`
	StepRate       *float64   `json:"steps_per_gpu_hour,omitempty" doc:"Steps that it did per GPU-hour, of those that it reported; repeated ones are not counted"`
	SampleRate     *float64   `json:"samples_per_gpu_hour,omitempty" doc:"Training samples that it computed per GPU-hour, from the samples_per_s that it reported"`
	CPUTime        Duration   `json:"cpu_time,omitempty" doc:"CPU time of the runs that are over"`
	RAMPeak        int64      `json:"ram_peak,omitempty" doc:"MiB of host memory, the most of a run that is over"`
	Restarts       int        `json:"restarts" doc:"How often it was started again"`
	Preemptions    int        `json:"preemptions"`
	ExitCode       int        `json:"exit_code"`
	ExitSignal     int        `json:"exit_signal,omitempty"`
	Node           string     `json:"node,omitempty"`
	Devices        []Device   `json:"devices,omitempty" doc:"What it holds, or held last"`
	Sharing        string     `json:"sharing,omitempty" doc:"How it shares a GPU, and who enforces that"`
	StdOut         string     `json:"stdout,omitempty" doc:"Path of the output, of the first task"`
	StdErr         string     `json:"stderr,omitempty"`
	Progress       *Progress  `json:"progress,omitempty"`
	Metrics        []Metrics  `json:"metrics,omitempty" doc:"The metrics that it reported: the last ones, and those at the marks of a trial"`
	Idle           *Idle      `json:"idle,omitempty" doc:"It holds GPUs and does not use them; present from the warning on"`
	Tasks          []Task     `json:"tasks,omitempty" doc:"On a cluster, of one job: its pods, and where they are"`
	Submission     Submission `json:"submission"`
	Elements       []Element  `json:"elements,omitempty" doc:"In a list with arrays=true: more waiting elements of the array, of which all else is the same"`
}

// Element is one of many that are alike: the number of a job, and its index in
// the array.
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

// How far it has come with a job that does not use its GPUs.
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

// Idle says since when a running job does not use its GPUs, and what is done
// about it.
type Idle struct {
	Since time.Time `json:"since"`
	Stage string    `json:"stage" enum:"warned,demoted,stopped" doc:"warned; demoted: it counts as best-effort; stopped: it was told to leave"`
	Text  string    `json:"text" doc:"One line: what follows from it, and when"`
}

// Device is a GPU, or part of one, that a job holds.
type Device struct {
	Index   int    `json:"index"`
	UUID    string `json:"uuid"`
	Share   int64  `json:"share,omitempty" doc:"Milli-GPU, if it is not the whole device"`
	Profile string `json:"profile,omitempty" doc:"MIG profile, if it is a slice"`
	Parent  string `json:"parent,omitempty" doc:"UUID of the GPU of a slice"`
}

// GPU returns the UUID of the device, or of the one that the slice is of.
func (d *Device) GPU() string { return cmp.Or(d.Parent, d.UUID) }

// Progress is what a job last told of itself.
type Progress struct {
	At            time.Time `json:"at"`
	Step          float64   `json:"step"`
	Steps         float64   `json:"steps,omitempty"`
	Foretold      bool      `json:"foretold,omitempty" doc:"steps is what its metric foretells (converge)"`
	Epoch         float64   `json:"epoch,omitempty"`
	SamplesPerSec float64   `json:"samples_per_s,omitempty"`
	Checkpoint    string    `json:"checkpoint,omitempty" doc:"The last checkpoint that it reported"`
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
	Job     *int   `json:"job,omitempty" doc:"Who holds it"`
}

// GPU is a device of the machine.
type GPU struct {
	Index       int      `json:"index"`
	UUID        string   `json:"uuid"`
	Model       string   `json:"model"`
	Memory      int64    `json:"memory" doc:"MiB"`
	Simulated   bool     `json:"simulated,omitempty" doc:"There is no such device: Muster only plays it"`
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
	Reason string `json:"reason,omitempty" doc:"Why it is drained, by whom and when"`
	CPU    int64  `json:"cpu" doc:"Milli-cores"`
	RAM    int64  `json:"ram" doc:"MiB"`
	GPUs   []GPU  `json:"gpus"`
	Usable *int64 `json:"usable,omitempty" doc:"Milli-GPU that are free and that the tasks submitted last could use on average; absent: not known"`
}

// Queue is a queue of the tree with what it holds.
type Queue struct {
	Name      string `json:"name"`
	Parent    string `json:"parent,omitempty"`
	Guarantee int64  `json:"guarantee" doc:"Milli-GPU"`
	Limit     int64  `json:"limit" doc:"Milli-GPU; -1: none"`
	Used      int64  `json:"used" doc:"Milli-GPU"`
	Share     int64  `json:"share" doc:"Thousandths of the whole that its fair-tree shares come to: what the multifactor policy's order aims at over time"`
	Running   int    `json:"running"`
	Pending   int    `json:"pending"`
}

// Partition is a named group of nodes with rules of its own.
type Partition struct {
	Name         string   `json:"name"`
	Default      bool     `json:"default,omitempty"`
	Nodes        []string `json:"nodes"`
	MaxTime      Duration `json:"max_time,omitempty" doc:"A longer limit is rejected; absent: none"`
	DefaultTime  Duration `json:"default_time,omitempty" doc:"Limit of jobs that state none; absent: none"`
	PriorityTier int64    `json:"priority_tier,omitempty" doc:"Higher is considered first"`
}

// SignalRequest asks for a signal to a running job.
type SignalRequest struct {
	Signal string `json:"signal" doc:"Name or number, such as USR1"`
	Shell  bool   `json:"shell,omitempty" doc:"To the first process of each task only, not to its process group"`
}

// Task is a task of a job on a cluster: a pod.
type Task struct {
	Name  string `json:"name" doc:"Name of the pod, in the job's namespace"`
	State string `json:"state" doc:"waiting, gated, binding, bound, running, succeeded, failed, leaving"`
	Node  string `json:"node,omitempty"`
	GPUs  int    `json:"gpus,omitempty"`
}

// Filter chooses jobs of a list.
type Filter struct {
	User, Queue, Name string
	Search            string // part of the name, the user or the queue, or the number
	States            []string
	Since             int64 // ended at or after, Unix nanoseconds; jobs that are not done are in, too
	Before            int   // number below; 0: any
	Limit             int   // most; 0: all
	Arrays            bool  // waiting elements of an array may come as one; a wish
}

// Live are the states of jobs that are not over; active stands for them in a list.
var Live = []string{StatePending, StateStarting, StateRunning, StateSuspended, StateStopping}

// FairShares says of each queue what part of the whole its shares come to, in
// thousandths. Parents come before their children.
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

// Joined is what makes a process one of a task's, beside the control group that it was put into.
type Joined struct {
	Env    []string `json:"env" doc:"Environment of the task"`
	Dir    string   `json:"dir" doc:"Working directory of the task"`
	UID    int      `json:"uid" doc:"User of the job"`
	GID    int      `json:"gid"`
	Groups []int    `json:"groups,omitempty"`
}
