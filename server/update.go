//go:build linux

package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
)

type updateInput struct {
	ID   int `path:"id" minimum:"1" doc:"Number of the job"`
	Body api.Update
}

type drainInput struct {
	Name string    `path:"name" doc:"Name of the node"`
	Body api.Drain `required:"false"`
}

type nodesOutput struct{ Body []api.Node }

// changes registers what changes waiting jobs and nodes, and a job's history.
func (s *Server) changes(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "update", Method: http.MethodPatch, Path: "/v1/jobs/{id}", Summary: "Change a waiting job"},
		func(ctx context.Context, in *updateInput) (*jobOutput, error) {
			if err := s.mayTouch(ctx, in.ID); err != nil {
				return nil, err
			}
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, commitWait)
			defer cancel()
			if err := s.m.Update(ctx, in.ID, &in.Body); err != nil {
				return nil, problem(err)
			}
			j, err := s.m.Job(ctx, in.ID)
			return &jobOutput{shown(who, j)}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "history", Method: http.MethodGet, Path: "/v1/jobs/{id}/history", Summary: "What happened to a job"},
		func(ctx context.Context, in *idInput) (*struct{ Body []api.Moment }, error) {
			list, err := s.m.History(ctx, in.ID)
			return &struct{ Body []api.Moment }{list}, problem(err)
		})
	for verb, summary := range map[string]string{"drain": "Let a node take no more jobs; what runs there goes on", "resume": "Let a drained node take jobs again"} {
		huma.Register(a, huma.Operation{OperationID: verb + "-node", Method: http.MethodPost, Path: "/v1/nodes/{name}/" + verb, Summary: summary},
			func(ctx context.Context, in *drainInput) (*nodesOutput, error) {
				who, err := caller(ctx)
				if err != nil {
					return nil, err
				}
				ctx, cancel := context.WithTimeout(ctx, commitWait)
				defer cancel()
				if err := s.m.Drain(ctx, in.Name, in.Body.Reason, who.User.Name, verb == "resume"); err != nil {
					return nil, problem(err)
				}
				return &nodesOutput{s.m.Nodes()}, nil
			})
	}
}
