package slurm

import (
	"errors"
	"io"
	"time"

	"github.com/muster-gpu/muster/api"
)

// ErrNoJob is what a Service answers, perhaps wrapped, for a job that it does
// not know.
var ErrNoJob = errors.New("invalid job id specified")

// Service is who runs the jobs: muster serve, through its HTTP interface. All
// methods act as the calling user, who may do only what the server allows.
type Service interface {
	// Now is the service's time: this package reads no clock.
	Now() time.Time
	// User is who the service takes the caller for.
	User() string

	// Submit submits a job. Of an array it returns the first element, whose
	// Array is the array's number: that of its first element.
	Submit(s api.Submission) (api.Job, error)
	// Test says what Submit would: the error, or a job with Expected.
	Test(s api.Submission) (api.Job, error)
	// Jobs are all jobs that are not over.
	Jobs() ([]api.Job, error)
	// Job is one job, over or not.
	Job(id int) (api.Job, error)
	// History are the jobs that were there between two instants, over or not.
	History(since, until time.Time) ([]api.Job, error)
	// Wait returns a job when it is over.
	Wait(id int) (api.Job, error)
	// Attach ties a job that was submitted with Attached to these streams and
	// returns it when it is over.
	Attach(id int, stdin io.Reader, stdout, stderr io.Writer) (api.Job, error)
	// Step is the command that runs Main as srun inside a job; arguments are
	// appended to it.
	Step() []string

	Cancel(id int) error
	// Signal sends a signal by its name without SIG, or its number.
	Signal(id int, signal string, to Receivers) error
	Hold(id int) error
	Release(id int) error
	Requeue(id int) error
	Suspend(id int) error
	Resume(id int) error
	Update(id int, u Update) error

	Nodes() ([]api.Node, error)
	// SetNode puts a node up, draining or down, with a reason.
	SetNode(name, state, reason string) error
	Partitions() ([]Partition, error)
}

// Receivers are the processes of a job that a signal goes to.
type Receivers uint8

// The receivers, as scancel names them.
const (
	Steps Receivers = iota // all but the script's own shell
	Shell                  // the script's shell only
	Full                   // all
)

// Partition is a group of nodes as Slurm's users see it.
type Partition struct {
	Name         string        `json:"name"`
	Default      bool          `json:"default,omitempty"`
	Down         bool          `json:"down,omitempty"`
	MaxTime      time.Duration `json:"max_time,omitempty"`     // 0: none
	DefaultTime  time.Duration `json:"default_time,omitempty"` // 0: none
	PriorityTier int           `json:"priority_tier,omitempty"`
	Nodes        []string      `json:"nodes"`
}

// Update is what scontrol update changes; nil fields stay as they are.
type Update struct {
	Name        *string        `json:"name,omitempty"`
	Queue       *string        `json:"queue,omitempty"`
	Partitions  *[]string      `json:"partitions,omitempty"`
	Reservation *string        `json:"reservation,omitempty"`
	Tier        *string        `json:"tier,omitempty"`
	Priority    *int64         `json:"priority,omitempty"`
	Limit       *time.Duration `json:"limit,omitempty"` // 0: none
	Begin       *time.Time     `json:"begin,omitempty"`
	Deadline    *time.Time     `json:"deadline,omitempty"`
	After       *[]api.After   `json:"after,omitempty"`
	Cap         *int           `json:"cap,omitempty"` // elements of an array at once; 0: no cap
	NoRequeue   *bool          `json:"no_requeue,omitempty"`
	Comment     *string        `json:"comment,omitempty"`
}
