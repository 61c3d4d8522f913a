//go:build linux

// Package remote implements the service of Slurm's commands by requests to the daemon.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/client/terminal"
	"github.com/muster-gpu/muster/slurm"
)

// New returns the daemon that a client reaches as a service for Slurm's commands. Inside a job, step followed by
// srun's arguments is a command that runs srun again.
func New(ctx context.Context, c *client.Client, step []string, now func() time.Time) slurm.Service {
	return &service{ctx, c, now, step}
}

// Main runs one of Slurm's commands on this process's streams and returns its
// exit status.
func Main(ctx context.Context, c *client.Client, name string, args, step []string, now func() time.Time) int {
	return slurm.Main(name, args, os.Environ(), os.Stdin, os.Stdout, os.Stderr, New(ctx, c, step, now))
}

// service is the daemon as a slurm.Service.
type service struct {
	ctx  context.Context
	c    *client.Client
	now  func() time.Time
	step []string
}

// noJob translates the answer for a job that does not exist.
func noJob(err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Gone() {
		return slurm.ErrNoJob
	}
	return err
}

func (s *service) Now() time.Time { return s.now() }

func (s *service) User() string {
	u, err := user.Current()
	if err != nil {
		return os.Getenv("USER")
	}
	return u.Username
}

func (s *service) Submit(sub api.Submission) (api.Job, error) {
	out, err := s.c.Submit(s.ctx, &sub, "")
	return out.Job, err
}

func (s *service) SubmitBatch(sub api.Submission) (int, error) { return s.c.SubmitOnly(s.ctx, &sub) }

func (s *service) Test(sub api.Submission) (api.Job, error) {
	out, err := s.c.Test(s.ctx, &sub)
	return out.Job, err
}

func (s *service) Jobs() ([]api.Job, error) {
	list, err := s.c.List(s.ctx, map[string][]string{"state": {"active"}})
	slices.Reverse(list)
	return list, err
}

func (s *service) Job(id int) (api.Job, error) {
	j, err := s.c.Job(s.ctx, id)
	return j, noJob(err)
}

func (s *service) History(since, until time.Time) ([]api.Job, error) {
	list, err := s.c.List(s.ctx, map[string][]string{"since": {since.UTC().Format(time.RFC3339)}})
	list = slices.DeleteFunc(list, func(j api.Job) bool { return j.Submitted.After(until) })
	slices.Reverse(list)
	return list, err
}

func (s *service) Wait(id int) (api.Job, error) {
	j, err := s.c.WaitOn(s.ctx, id)
	return j, noJob(err)
}

// Started asks again whenever something has changed.
func (s *service) Started(id int) (j api.Job, err error) {
	if j, err = s.c.Job(s.ctx, id); err != nil || begun(&j) {
		return j, noJob(err)
	}
	ctx, enough := context.WithCancel(s.ctx)
	defer enough()
	stream := s.c.Changes(ctx, func() {
		if ctx.Err() != nil {
			return
		}
		now, asked := s.c.Job(ctx, id)
		var no *client.Error
		switch {
		case asked == nil:
			if j = now; begun(&j) {
				enough()
			}
		case errors.As(asked, &no) && !no.Unavailable():
			err = asked
			enough()
		}
	})
	if err == nil && !begun(&j) {
		err = stream // the daemon stayed away, or the caller gave up
	}
	return j, noJob(err)
}

func begun(j *api.Job) bool { return j.State == api.StateRunning || j.Ended != nil }

func (s *service) Samples(id int) (api.Samples, error) {
	v, err := s.c.Samples(s.ctx, id)
	return v, noJob(err)
}

func (s *service) Queues() ([]api.Queue, error) { return s.c.Queues(s.ctx) }

func (s *service) Fair() (api.Fair, error) { return s.c.Fair(s.ctx) }

func (s *service) Attach(id int, stdin io.Reader, stdout, stderr io.Writer) (api.Job, error) {
	alive := context.WithoutCancel(s.ctx) // a signal cancels the job, whose end is then awaited
	j, err := s.c.Job(alive, id)
	if err != nil {
		return j, noJob(err)
	}
	stop := context.AfterFunc(s.ctx, func() { _, _ = s.c.Act(alive, id, "cancel") })
	defer stop()
	if in, ok := stdin.(*os.File); ok && j.Submission.Pty {
		if err := terminal.Use(alive, s.c, id, in, stdout, stderr, false); errors.Is(err, terminal.ErrDetached) {
			return s.c.Job(alive, id)
		} else if err != nil {
			return j, err
		}
		return s.c.WaitOn(alive, id)
	}
	if j.Submission.Stdin {
		fed, enough := context.WithCancel(alive)
		defer enough()
		go func() {
			if err := s.c.Feed(fed, id, stdin); err != nil && fed.Err() == nil {
				fmt.Fprintf(stderr, "srun: error: standard input of job %d: %v; it is cancelled\n", id, err)
				_, _ = s.c.Act(alive, id, "cancel")
			}
		}()
	}
	errs := make(chan error, 2)
	go func() { errs <- s.c.FollowLog(alive, id, 0, "out", stdout) }()
	go func() { errs <- s.c.FollowLog(alive, id, 0, "err", stderr) }()
	err = errors.Join(<-errs, <-errs)
	j, waitErr := s.c.WaitOn(alive, id)
	return j, errors.Join(err, waitErr)
}

func (s *service) Step() []string { return s.step }

func (s *service) act(id int, verb string) error {
	_, err := s.c.Act(s.ctx, id, verb)
	return noJob(err)
}

// Cancel also works after this command was told to end: it releases what it requested.
func (s *service) Cancel(id int) error {
	lasting, done := client.Lasting(s.ctx)
	defer done()
	_, err := s.c.Act(lasting, id, "cancel")
	return noJob(err)
}

func (s *service) Hold(id int) error    { return s.act(id, "hold") }
func (s *service) Release(id int) error { return s.act(id, "release") }
func (s *service) Requeue(id int) error { return s.act(id, "requeue") }
func (s *service) Suspend(id int) error { return s.act(id, "suspend") }
func (s *service) Resume(id int) error  { return s.act(id, "resume") }

// CancelAll names elements of arrays by array and index, in ranges, because an array may have many.
func (s *service) CancelAll(jobs []api.Job) (map[int]error, error) {
	sel, failed := &api.Selection{}, map[int]error{}
	for i := 0; i < len(jobs); {
		j := &jobs[i]
		if i++; j.Array == 0 {
			sel.Jobs = append(sel.Jobs, j.ID)
			continue
		}
		last := j.Index
		for ; i < len(jobs) && jobs[i].Array == j.Array && jobs[i].Index == last+1; i++ {
			last++
		}
		sel.Elements = append(sel.Elements, api.Elements{Array: j.Array, Indices: fmt.Sprintf("%d-%d", j.Index, last)})
	}
	done, err := s.c.ActOnAll(s.ctx, sel, "cancel")
	if err != nil {
		return nil, err
	}
	for _, r := range done.Refused {
		if failed[r.Job] = errors.New(r.Text); r.Gone {
			failed[r.Job] = slurm.ErrNoJob
		}
	}
	return failed, nil
}

func (s *service) Signal(id int, signal string, to slurm.Receivers) error {
	return noJob(s.c.Signal(s.ctx, id, api.SignalRequest{Signal: signal, Shell: to == slurm.Shell}))
}

func (s *service) Update(id int, u *api.Update) error {
	return noJob(s.c.Do(s.ctx, "PATCH", "/v1/jobs/"+strconv.Itoa(id), u, nil))
}

func (s *service) Nodes() ([]api.Node, error) { return s.c.Nodes(s.ctx) }

func (s *service) SetNode(name, state, reason string) error {
	verb, ok := map[string]string{"up": "resume", "draining": "drain", "drain": "drain"}[state]
	if !ok {
		return fmt.Errorf("this machine cannot be set %s; it can be drained and resumed", state)
	}
	return s.c.Do(s.ctx, "POST", "/v1/nodes/"+client.Escape(name)+"/"+verb, &api.Drain{Reason: reason}, nil)
}

func (s *service) Partitions() ([]api.Partition, error) { return s.c.Partitions(s.ctx) }
