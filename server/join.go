//go:build linux

package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/run"
)

type joinInput struct {
	ID   int `path:"id" minimum:"1" doc:"Number of the job"`
	Task int `query:"task" minimum:"0" doc:"Task of the gang"`
}

// joining registers the operation by which a process becomes part of a job. The kernel says which process is at
// the other end of the socket: a process number in the request could be anybody's.
func (s *Server) joining(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "join", Method: http.MethodPost, Path: "/v1/jobs/{id}/join",
		Summary: "Put the calling process into a running job, and say what makes it one of its processes"},
		func(ctx context.Context, in *joinInput) (*struct{ Body api.Joined }, error) {
			if err := s.mayTouch(ctx, in.ID); err != nil {
				return nil, err
			}
			who, ok := ctx.Value(uidKey{}).(credential)
			if !ok {
				return nil, huma.Error409Conflict(
					"a command can be run in a job on its own machine only, through the service's socket")
			}
			out, err := s.m.Join(ctx, in.ID, in.Task, run.Process{PID: who.pid, UID: who.uid})
			var field *api.FieldError
			if err != nil && !errors.Is(err, local.ErrNoJob) && !errors.As(err, &field) {
				return nil, huma.Error409Conflict(err.Error())
			}
			return &struct{ Body api.Joined }{out}, problem(err)
		})
}
