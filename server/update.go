//go:build linux

package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/server/view"
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

// changes registers the operations that change waiting jobs and nodes.
func (s *Server) changes(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "update", Method: http.MethodPatch, Path: "/v1/jobs/{id}",
		Summary: "Change a waiting job"},
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
			if err := s.m.Update(ctx, in.ID, &in.Body, &who.User); err != nil {
				return nil, problem(err)
			}
			j, err := s.m.Job(ctx, in.ID)
			return &jobOutput{view.Shown(who, j)}, problem(err)
		})
	for verb, summary := range map[string]string{"drain": "Let a node take no more jobs; jobs that run there continue",
		"resume": "Let a drained node take jobs again"} {
		huma.Register(a, huma.Operation{OperationID: verb + "-node", Method: http.MethodPost,
			Path: "/v1/nodes/{name}/" + verb, Summary: summary},
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
