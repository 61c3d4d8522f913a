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
	// SubmitBatch submits a job of which only the number is wanted: its own or, of an array, that of the array.
	SubmitBatch(s api.Submission) (int, error)
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
	// Started returns a job when it runs, or when it is over without having run.
	Started(id int) (api.Job, error)
	// Samples is what was measured of a job.
	Samples(id int) (api.Samples, error)
	// Step is the command that runs Main as srun inside a job; arguments are
	// appended to it.
	Step() []string

	Cancel(id int) error
	// CancelAll cancels jobs in one step; it returns why those that are left were not cancelled, by
	// number.
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
	// SetNode puts a node up, draining or down, with a reason.
	SetNode(name, state, reason string) error
	Partitions() ([]api.Partition, error)
	Queues() ([]api.Queue, error)
	// Fair is what fair shares and priorities are made of.
	Fair() (api.Fair, error)
}

// Receivers are the processes of a job that a signal goes to.
type Receivers uint8

// The receivers, as scancel names them.
const (
	Steps Receivers = iota // all but the script's own shell
	Shell                  // the script's shell only
	Full                   // all
)
