package slurm

import (
	"errors"
	"io"
	"time"

	"github.com/muster-gpu/muster/api"
)

// ErrNoJob is what a Service returns, possibly wrapped, for an unknown job.
var ErrNoJob = errors.New("invalid job id specified")

// Service is the scheduler that runs the jobs: muster serve, through its HTTP interface. All methods act as the
// calling user, within the user's rights.
type Service interface {
	// Now is the service's time: this package reads no clock.
	Now() time.Time
	// User is the caller as the service knows it.
	User() string

	// Submit submits a job. For an array it returns the first element, whose Array is the array's number: that
	// of its first element.
	Submit(s api.Submission) (api.Job, error)
	// SubmitBatch submits a job and returns only the number of the job or array.
	SubmitBatch(s api.Submission) (int, error)
	// Test is what Submit would return: the error, or a job with Expected.
	Test(s api.Submission) (api.Job, error)
	// Jobs are all jobs that are not over.
	Jobs() ([]api.Job, error)
	// Job is one job, active or ended.
	Job(id int) (api.Job, error)
	// History lists the jobs that existed between two instants, active or ended.
	History(since, until time.Time) ([]api.Job, error)
	// Wait returns a job when it is over.
	Wait(id int) (api.Job, error)
	// Attach connects a job that was submitted with Attached to these streams and returns it when it is over.
	Attach(id int, stdin io.Reader, stdout, stderr io.Writer) (api.Job, error)
	// Started returns a job when it runs, or when it is over without having run.
	Started(id int) (api.Job, error)
	// Samples are the measurements of a job.
	Samples(id int) (api.Samples, error)
	// Step is the command that runs Main as srun inside a job; arguments are
	// appended to it.
	Step() []string

	Cancel(id int) error
	// CancelAll cancels jobs in one step, and returns, by number, why the remaining ones were not cancelled.
	CancelAll(jobs []api.Job) (map[int]error, error)
	// Signal sends a signal by its name without SIG, or its number.
	Signal(id int, signal string, to Receivers) error
	Hold(id int) error
	Release(id int) error
	Requeue(id int) error
	Suspend(id int) error
	Resume(id int) error
	Update(id int, u *api.Update) error

	Nodes() ([]api.Node, error)
	// SetNode sets a node up, draining or down, with a reason.
	SetNode(name, state, reason string) error
	Partitions() ([]api.Partition, error)
	Queues() ([]api.Queue, error)
	// Fair has the components of fair shares and priorities.
	Fair() (api.Fair, error)
}

// Receivers are the processes of a job that get a signal.
type Receivers uint8

// The receivers, by scancel's options.
const (
	Steps Receivers = iota // all but the script's own shell
	Shell                  // the script's shell only
	Full                   // all
)
