//go:build linux

package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/store"
)

type submitInput struct {
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"A second submission with the same key answers with the jobs of the first"`
	Test bool   `query:"test" doc:"Submit nothing: say whether it would be accepted, and when it would be expected to start"`
	Body api.Submission
}

type submitOutput struct {
	Body struct {
		Jobs []int   `json:"jobs" doc:"Numbers of the jobs: one, or the elements of the array"`
		Job  api.Job `json:"job" doc:"The first of them"`
		Why  api.Why `json:"why" doc:"Why it waits, if it does"`
	}
}

type idInput struct {
	ID int `path:"id" minimum:"1" doc:"Number of the job"`
}

type signalInput struct {
	ID   int `path:"id" minimum:"1"`
	Body api.SignalRequest
}

type jobOutput struct{ Body api.Job }

type listInput struct {
	User   string   `query:"user"`
	Queue  string   `query:"queue"`
	Name   string   `query:"name"`
	Search string   `query:"search" maxLength:"200" doc:"Part of the name, the user or the queue, or the number"`
	State  []string `query:"state,explode" doc:"States, each by itself or several with commas; active stands for all that are not over"`
	Since  string   `query:"since" doc:"Only jobs that ended after this time (RFC 3339), or have not ended"`
	Before int      `query:"before" minimum:"0" doc:"Only jobs with a smaller number: the next page"`
	Limit  int      `query:"limit" minimum:"0" maximum:"10000" default:"1000"`
	Brief  bool     `query:"brief" doc:"Without environment, command, script and arguments"`
}

type listOutput struct {
	Body struct {
		Jobs []api.Job `json:"jobs" doc:"The latest first"`
		Next int       `json:"next,omitempty" doc:"Give it as before to get the next page; absent: there is none"`
	}
}

var active = []string{api.StatePending, api.StateStarting, api.StateRunning, api.StateSuspended, api.StateStopping}

// commitWait bounds how long a change may wait for the store.
const commitWait = 30 * time.Second

// jobs registers the operations on jobs.
func (s *Server) jobs(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "submit", Method: http.MethodPost, Path: "/v1/jobs", Summary: "Submit a job or an array",
		DefaultStatus: http.StatusCreated, MaxBodyBytes: 16 << 20}, s.submit)
	huma.Register(a, huma.Operation{OperationID: "jobs", Method: http.MethodGet, Path: "/v1/jobs", Summary: "List jobs"}, s.list)
	huma.Register(a, huma.Operation{OperationID: "job", Method: http.MethodGet, Path: "/v1/jobs/{id}", Summary: "One job"},
		func(ctx context.Context, in *idInput) (*jobOutput, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			j, err := s.m.Job(ctx, in.ID)
			return &jobOutput{shown(who, j)}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "why", Method: http.MethodGet, Path: "/v1/jobs/{id}/why", Summary: "Why a job waits, and until when"},
		func(ctx context.Context, in *idInput) (*struct{ Body api.Why }, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			w, err := s.m.Why(ctx, in.ID, true)
			w.Job = shown(who, w.Job)
			return &struct{ Body api.Why }{w}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "wait", Method: http.MethodGet, Path: "/v1/jobs/{id}/wait", Summary: "A job, when it is over"},
		func(ctx context.Context, in *idInput) (*jobOutput, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			j, err := s.m.Wait(ctx, in.ID)
			return &jobOutput{shown(who, j)}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "signal", Method: http.MethodPost, Path: "/v1/jobs/{id}/signal", Summary: "Send a signal to a running job"},
		func(ctx context.Context, in *signalInput) (*struct{}, error) {
			if err := s.mayTouch(ctx, in.ID); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, commitWait)
			defer cancel()
			return nil, problem(s.m.Signal(ctx, in.ID, in.Body.Signal, in.Body.Shell))
		})
	for _, verb := range []string{"cancel", "hold", "release", "requeue", "suspend", "resume"} {
		huma.Register(a, huma.Operation{OperationID: verb, Method: http.MethodPost, Path: "/v1/jobs/{id}/" + verb,
			Summary: strings.ToUpper(verb[:1]) + verb[1:] + " a job"}, func(ctx context.Context, in *idInput) (*jobOutput, error) {
			if err := s.mayTouch(ctx, in.ID); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, commitWait)
			defer cancel()
			if err := s.m.Act(ctx, in.ID, verb); err != nil {
				return nil, problem(err)
			}
			j, err := s.m.Job(ctx, in.ID)
			return &jobOutput{j}, problem(err)
		})
	}
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commitWait)
	defer cancel()
	if in.Test {
		j, err := s.m.Test(who.User, &in.Body)
		out := &submitOutput{}
		out.Body.Jobs, out.Body.Job, out.Body.Why.Blockers = []int{}, j, []string{}
		return out, problem(err)
	}
	ids, err := s.m.Submit(ctx, who.User, &in.Body, in.Key)
	if err != nil {
		return nil, problem(err)
	}
	out := &submitOutput{}
	out.Body.Jobs = ids
	if out.Body.Job, err = s.m.Job(ctx, ids[0]); err != nil {
		return nil, problem(err)
	}
	out.Body.Why, err = s.m.Why(ctx, ids[0], false)
	if err == nil { // what it is told is compared with what happens; that must not fail a submission
		_ = s.m.Told(ctx, &out.Body.Why.Job)
	}
	out.Body.Job.Expected, out.Body.Job.Position = out.Body.Why.Job.Expected, out.Body.Why.Job.Position
	return out, problem(err)
}

func (s *Server) list(ctx context.Context, in *listInput) (*listOutput, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	f := store.Filter{User: in.User, Queue: in.Queue, Name: in.Name, Search: in.Search, Before: in.Before, Limit: in.Limit}
	for _, st := range strings.Split(strings.Join(in.State, ","), ",") {
		switch st {
		case "":
		case "active":
			f.States = append(f.States, active...)
		default:
			f.States = append(f.States, st)
		}
	}
	slices.Sort(f.States)
	if in.Since != "" {
		at, err := time.Parse(time.RFC3339, in.Since)
		if err != nil {
			return nil, huma.Error422UnprocessableEntity("since: write a time such as 2026-01-31T12:00:00Z")
		}
		f.Since = at.UnixNano()
	}
	list, err := s.m.Jobs(ctx, f)
	if err != nil {
		return nil, problem(err)
	}
	out := &listOutput{}
	out.Body.Jobs = list
	for i := range list {
		if list[i] = shown(who, list[i]); in.Brief {
			brief(&list[i])
		}
	}
	if in.Limit > 0 && len(list) == in.Limit {
		out.Body.Next = list[len(list)-1].ID
	}
	return out, nil
}
