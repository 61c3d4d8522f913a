//go:build linux

package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/server/view"
)

type submitInput struct {
	Key    string `header:"Idempotency-Key" maxLength:"200" doc:"A second submission with the same key answers with the jobs of the first"`
	Prefer string `header:"Prefer" maxLength:"200" doc:"return=minimal (RFC 7240): the answer holds the number of the job and nothing else, and comes sooner"`
	Test   bool   `query:"test" doc:"Submit nothing: say whether it would be accepted, and when it would be expected to start"`
	Body   api.Submission
}

type submitOutput struct {
	Applied string `header:"Preference-Applied" doc:"The preference that was followed, if any"`
	Body    struct {
		ID   int      `json:"id,omitempty" doc:"Number of the job or, of an array, of the array, which is that of its first element; absent of a test"`
		Jobs *[]int   `json:"jobs,omitempty" doc:"Numbers of the jobs: one, or the elements of the array; absent of a minimal answer, as what follows"`
		Job  *api.Job `json:"job,omitempty" doc:"The first of them"`
		Why  *api.Why `json:"why,omitempty" doc:"Why it waits, if it does"`
	}
}

// minimal is the preference of a client that only wants the number of its job.
const minimal = "return=minimal"

// prefersMinimal reads the header Prefer: preferences separated by commas, each with optional parameters.
func prefersMinimal(header string) bool {
	for p := range strings.SplitSeq(header, ",") {
		p, _, _ = strings.Cut(p, ";")
		if strings.EqualFold(strings.ReplaceAll(strings.TrimSpace(p), `"`, ""), minimal) {
			return true
		}
	}
	return false
}

type idInput struct {
	ID int `path:"id" minimum:"1" doc:"Number of the job"`
}

type signalInput struct {
	ID   int `path:"id" minimum:"1"`
	Body api.SignalRequest
}

type jobOutput struct{ Body api.Job }

// commitWait bounds how long a change may wait for the store.
const commitWait = 30 * time.Second

// jobs registers the operations that change jobs, and those that wait for them.
func (s *Server) jobs(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "submit", Method: http.MethodPost, Path: "/v1/jobs",
		Summary:       "Submit a job or an array",
		DefaultStatus: http.StatusCreated, MaxBodyBytes: 16 << 20}, s.submit)
	huma.Register(a, huma.Operation{OperationID: "wait", Method: http.MethodGet, Path: "/v1/jobs/{id}/wait",
		Summary: "A job, when it is over"},
		func(ctx context.Context, in *idInput) (*jobOutput, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			j, err := s.m.Wait(ctx, in.ID)
			return &jobOutput{view.Shown(who, j)}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "signal", Method: http.MethodPost, Path: "/v1/jobs/{id}/signal",
		Summary: "Send a signal to a running job"},
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
			Summary: strings.ToUpper(verb[:1]) + verb[1:] + " a job"},
			func(ctx context.Context, in *idInput) (*jobOutput, error) {
				if err := s.mayTouch(ctx, in.ID); err != nil {
					return nil, err
				}
				ctx, cancel := context.WithTimeout(ctx, commitWait)
				defer cancel()
				who, err := caller(ctx)
				if err != nil {
					return nil, err
				}
				if err := s.m.Act(ctx, in.ID, verb, who.User.Name); err != nil {
					return nil, problem(err)
				}
				j, err := s.m.Job(ctx, in.ID)
				return &jobOutput{j}, problem(err)
			})
	}
}

type selectionInput struct{ Body api.Selection }

type actedOutput struct{ Body api.Acted }

// jobsAtOnce registers the operations that change many jobs in one step.
func (s *Server) jobsAtOnce(a huma.API) {
	for _, verb := range local.Many {
		huma.Register(a, huma.Operation{OperationID: verb + "-jobs", Method: http.MethodPost, Path: "/v1/jobs/" + verb,
			Summary: strings.ToUpper(verb[:1]) + verb[1:] + " jobs, all in one step"},
			func(ctx context.Context, in *selectionInput) (*actedOutput, error) {
				who, err := caller(ctx)
				if err != nil {
					return nil, err
				}
				if !in.Body.Filters() && len(in.Body.Jobs)+len(in.Body.Elements) == 0 {
					return nil, huma.Error422UnprocessableEntity(
						"no job is named, and no filter given; all: true means all of yours")
				}
				ctx, cancel := context.WithTimeout(ctx, commitWait)
				defer cancel()
				done, err := s.m.ActOnAll(ctx, &in.Body, verb, local.Requester{Name: who.User.Name, Owns: who.Owns})
				return &actedOutput{done}, problem(err)
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
		out.Body.Jobs, out.Body.Job, out.Body.Why = &[]int{}, &j, &api.Why{Blockers: []string{}}
		return out, problem(err)
	}
	if in.Body.Replica != nil {
		return nil, huma.Error422UnprocessableEntity("replica: only services have replicas: muster service apply")
	}
	ids, err := s.m.Submit(ctx, who.User, &in.Body, in.Key)
	if err != nil {
		return nil, problem(err)
	}
	out := &submitOutput{}
	out.Body.ID = ids[0]
	if prefersMinimal(in.Prefer) {
		out.Applied = minimal
		return out, nil
	}
	return out, problem(s.describe(ctx, out, ids))
}

// describe adds to the answer what became of a submission.
func (s *Server) describe(ctx context.Context, out *submitOutput, ids []int) error {
	to, err := s.m.Job(ctx, ids[0])
	if err != nil {
		return err
	}
	why, err := s.m.Why(ctx, ids[0], nil)
	if err == nil { // the prediction is recorded, to be compared with the outcome; that must not fail a submission
		_ = s.m.RecordPrediction(ctx, &why.Job)
	}
	j := &why.Job
	to.Expected, to.Rough, to.Position, to.AtEarliest, to.ByLimits = j.Expected, j.Rough, j.Position, j.AtEarliest,
		j.ByLimits
	to.Earliest, to.Latest, to.Scored = j.Earliest, j.Latest, j.Scored
	out.Body.Jobs, out.Body.Job, out.Body.Why = &ids, &to, &why
	return err
}
