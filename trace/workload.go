// Package trace reads recorded and generates synthetic workloads: one file per format. A reader
// turns rows into jobs; a row that it cannot parse is an error with file, line and reason, or is
// counted if the caller asks to skip it. Nothing is dropped silently.
package trace

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Outcome is how a recorded job ended.
type Outcome uint8

// The outcomes.
const (
	Succeeded Outcome = iota
	Failed
	Cancelled
)

// Entry is a job with what the scheduler may not know: its real run time.
type Entry struct {
	Job cluster.Job `json:"job"`
	// Run is the useful run time on the reference GPU at the requested size,
	// without checkpoints and restarts. A service has Run 0 and ends at End.
	Run time.Duration `json:"run"`
	// End is when a service (or any job) is cancelled; 0: never.
	End     cluster.Time `json:"end,omitempty"`
	Outcome Outcome      `json:"outcome,omitempty"`
	// Memory is the actual use of each of its GPUs, in MiB, as soon as it computes; 0: as
	// requested.
	Memory cluster.MiB `json:"memory,omitempty"`
	// Flexible says that Job.Tasks is one set of one-GPU tasks that stand for a GPU count: the
	// simulator may group them by node (cluster.GroupTasks).
	Flexible bool `json:"flexible,omitempty"`
	// Work describes the computation, if the trace does; nil: unknown.
	Work *Work `json:"work,omitempty"`
}

// Work describes a job's computation, for policies that schedule iterations.
type Work struct {
	Steps float64 `json:"steps,omitempty"` // training iterations in all
	Batch int64   `json:"batch,omitempty"` // global batch size
	// Step is the time of one iteration at the requested size when alone.
	Step time.Duration `json:"step,omitempty"`
	// Stages is the time per iteration spent on each resource (Muri: three of
	// them, in the order of the trace).
	Stages []time.Duration `json:"stages,omitempty"`
}

// Workload is the contents of a trace. Jobs are in order of submission (ties in file order) and
// numbered densely from 0; Time 0 is the trace's origin.
type Workload struct {
	Name   string          `json:"name"`
	Format string          `json:"format"`
	Epoch  int64           `json:"epoch,omitempty"` // Unix seconds of Time 0; 0: the trace has no calendar
	Jobs   []Entry         `json:"jobs"`
	Nodes  []cluster.Node  `json:"nodes,omitempty"`   // the trace's own machines, if it has any
	Queues []cluster.Queue `json:"queues,omitempty"`  // ... and queues
	Notes  []string        `json:"notes,omitempty"`   // caveats for the reader
	Bad    []RowError      `json:"bad,omitempty"`     // rows skipped because the caller asked for it (the first 1000)
	BadAll int             `json:"bad_all,omitempty"` // number of skipped rows
	Models []string        `json:"models,omitempty"`  // GPU models that the trace names
}

// RowError is a malformed row with the reason.
type RowError struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // from 1; 0: the whole file
	Reason string `json:"reason"`
}

// Error names the row and what is wrong with it.
func (e RowError) Error() string {
	switch {
	case e.File == "" && e.Line == 0:
		return e.Reason
	case e.Line == 0:
		return e.File + ": " + e.Reason
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

var outcomeNames = []string{"succeeded", "failed", "cancelled"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("invalid(%d)", o)
}

// MarshalText implements encoding.TextMarshaler.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Outcome) UnmarshalText(b []byte) error {
	for i, n := range outcomeNames {
		if n == string(b) {
			*o = Outcome(i)
			return nil
		}
	}
	return cluster.Unknown("outcome", string(b), outcomeNames)
}

// GPUTime returns GPU-seconds of useful work: devices times run time, a shared
// device counting by its share. A service counts until its end.
func (e *Entry) GPUTime() float64 {
	return float64(e.Job.GPUMilli()) / float64(cluster.Whole) * e.Lifetime().Seconds()
}

// Lifetime returns the run time, or, for a service, the time until its end.
func (e *Entry) Lifetime() time.Duration {
	if e.Run == 0 && e.End > e.Job.Submit {
		return e.End.Sub(e.Job.Submit)
	}
	return e.Run
}
