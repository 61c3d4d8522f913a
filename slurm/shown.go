package slurm

import (
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/plain"
)

// shown is a service for output on a terminal: other users' texts are escaped so that the terminal does not act
// on them.
type shown struct{ Service }

func cleaned[T any](v T, err error) (T, error) {
	plain.Clean(&v)
	return v, err
}

func (s shown) Submit(sub api.Submission) (api.Job, error) { return cleaned(s.Service.Submit(sub)) }

func (s shown) Test(sub api.Submission) (api.Job, error) { return cleaned(s.Service.Test(sub)) }

func (s shown) Jobs() ([]api.Job, error) { return cleaned(s.Service.Jobs()) }

func (s shown) Job(id int) (api.Job, error) { return cleaned(s.Service.Job(id)) }

func (s shown) History(since, until time.Time) ([]api.Job, error) {
	return cleaned(s.Service.History(since, until))
}

func (s shown) Started(id int) (api.Job, error) { return cleaned(s.Service.Started(id)) }

func (s shown) Queues() ([]api.Queue, error) { return cleaned(s.Service.Queues()) }

func (s shown) Fair() (api.Fair, error) { return cleaned(s.Service.Fair()) }

func (s shown) Wait(id int) (api.Job, error) { return cleaned(s.Service.Wait(id)) }

func (s shown) Nodes() ([]api.Node, error) { return cleaned(s.Service.Nodes()) }

func (s shown) Partitions() ([]api.Partition, error) { return cleaned(s.Service.Partitions()) }
