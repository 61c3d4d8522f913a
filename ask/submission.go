// Package ask has the types of requests to a scheduler: submissions, changes of jobs, selections, changes of the
// policy, moves; and their errors. All drivers use these types, however requests arrive. Amounts are milli-GPU
// (1000: one whole device), milli-cores and MiB.
package ask

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Duration is a time span that reads and writes as text ("1h30m", "2d4h").
type Duration time.Duration

// MarshalText formats the duration for people.
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

// Submission is a job that a user submits. Either Command or Script is given.
type Submission struct {
	Name        string   `json:"name,omitempty" doc:"Name of the job; the command's or script's base name if empty" maxLength:"256"`
	Queue       string   `json:"queue,omitempty" doc:"Queue that the job counts for; the user's default queue if empty"`
	Partitions  []string `json:"partitions,omitempty" doc:"Acceptable partitions; the default ones if empty"`
	Reservation string   `json:"reservation,omitempty" doc:"Advance reservation to run in"`
	Tier        string   `json:"tier,omitempty" enum:"critical,standard,best-effort" doc:"Which jobs may preempt it, and how; standard if empty"`
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
	Truncate   bool     `json:"truncate,omitempty" doc:"Truncate the files at each start instead of appending"`
	Pty        bool     `json:"pty,omitempty" doc:"Run the first task on a terminal of its own, for muster attach"`
	Stdin      bool     `json:"stdin,omitempty" doc:"The first task's standard input comes from the attached client, as with muster run in a pipe"`
	Attached   bool     `json:"attached,omitempty" doc:"The output goes to the attached client, as with muster run, not to a file in dir"`

	Tasks     int      `json:"tasks,omitempty" minimum:"0" doc:"Tasks of the gang; 1 if 0"`
	Once      bool     `json:"once,omitempty" doc:"Run the command once with everything that the tasks hold, as sbatch does, instead of once per task"`
	GPUs      int      `json:"gpus,omitempty" minimum:"0" doc:"GPUs of each task"`
	Share     int64    `json:"share,omitempty" minimum:"0" maximum:"1000" doc:"Milli-GPU of each device; 0 or 1000: whole devices"`
	Memory    int64    `json:"gpu_memory,omitempty" minimum:"0" doc:"GPU memory needed on each device, MiB"`
	Resident  int64    `json:"gpu_memory_resident,omitempty" minimum:"0" doc:"The part of gpu_memory that is also needed between iterations, MiB; the rest is for one iteration at a time (policy salus)"`
	Profile   string   `json:"profile,omitempty" doc:"MIG profile instead of whole devices, such as 1g.10gb"`
	Isolation string   `json:"isolation,omitempty" enum:"none,memory,full" doc:"What must be kept apart from others on its GPUs: nothing, its memory, or memory, compute and faults; with a share, the way of sharing follows from it"`
	Prompt    bool     `json:"latency_sensitive,omitempty" doc:"It cannot wait while others have their turns on a shared GPU"`
	MinSpeed  float64  `json:"min_speed,omitempty" minimum:"0" maximum:"1" doc:"Least part of its speed alone that it accepts in a share of a GPU; 0: the configured one"`
	CPU       int64    `json:"cpu,omitempty" minimum:"0" doc:"Milli-cores of each task"`
	RAM       int64    `json:"ram,omitempty" minimum:"0" doc:"Host memory of each task, MiB"`
	GPUTypes  []string `json:"gpu_types,omitempty" doc:"Acceptable GPU models in order of preference; any if empty"`
	Level     string   `json:"level,omitempty" enum:"any,nvlink,node,rack,fabric,core,core2,core3,core4" doc:"How near the tasks must be"`
	Required  bool     `json:"required,omitempty" doc:"The level is required, not only preferred"`
	MinTasks  int      `json:"min_tasks,omitempty" minimum:"0" doc:"Elastic: the fewest tasks to run with"`
	MaxTasks  int      `json:"max_tasks,omitempty" minimum:"0" doc:"Elastic: the most tasks to run with"`

	Limit        Duration   `json:"limit,omitempty" doc:"Wall-clock limit, enforced"`
	Estimate     Duration   `json:"estimate,omitempty" doc:"Expected run time, if it is known"`
	Converge     string     `json:"converge,omitempty" doc:"When it will be done, by a metric that it reports, NAME:BELOW:TIMES: when that falls by less than BELOW of itself between two reports, TIMES times in a row"`
	Begin        *time.Time `json:"begin,omitempty" doc:"Not before"`
	Deadline     *time.Time `json:"deadline,omitempty" doc:"Deadline"`
	After        []After    `json:"after,omitempty" doc:"Other jobs to wait for; all of them"`
	AnyOf        bool       `json:"any_of,omitempty" doc:"One condition of after is enough"`
	Array        string     `json:"array,omitempty" doc:"Indices of a job array and its cap, such as 0-15:2%4"`
	Hold         bool       `json:"hold,omitempty" doc:"Wait until a person releases it"`
	NoRequeue    bool       `json:"no_requeue,omitempty" doc:"End instead of waiting again after a preemption or a lost node"`
	Signal       string     `json:"signal,omitempty" doc:"Signal that asks for a checkpoint; USR1 if empty"`
	SignalBefore Duration   `json:"signal_before,omitempty" doc:"Send the signal this long before the time limit; 0: never"`
	SignalShell  bool       `json:"signal_shell,omitempty" doc:"The signal goes to the first process only, not to the whole task"`

	CheckpointInterval Duration `json:"checkpoint_interval,omitempty" doc:"Time between periodic checkpoints; 0: only when asked"`
	CheckpointCost     Duration `json:"checkpoint_cost,omitempty" doc:"Time to write one"`
	RestartCost        Duration `json:"restart_cost,omitempty" doc:"Time from start to useful work after a restore"`
	NoCheckpoint       bool     `json:"no_checkpoint,omitempty" doc:"The job cannot checkpoint: stopping it loses everything"`

	CheckpointOf int    `json:"checkpoint_of,omitempty" minimum:"0" doc:"Another job of the same user, which is over: this one continues in its checkpoint folder"`
	Trial        *Trial `json:"trial,omitempty" doc:"The job is a run of a hyper-parameter search"`

	Replica *Replica `json:"replica,omitempty" doc:"The job is a replica of a service; only the daemon says so"`

	Model   string `json:"model,omitempty" doc:"What it computes: a key of the throughput tables"`
	Comment string `json:"comment,omitempty" doc:"Free text"`

	Traffic *Traffic `json:"traffic,omitempty" doc:"What it transmits in an iteration, where the network is scheduled"`
}

// After is a dependency on another job.
type After struct {
	Type  string   `json:"type" enum:"after,afterok,afterany,afternotok,aftercorr,singleton" doc:"Condition, as in Slurm"`
	Job   int      `json:"job,omitempty" doc:"The other job; not for singleton"`
	Delay Duration `json:"delay,omitempty" doc:"after: time after the other job's start"`
}
