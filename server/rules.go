//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local"
)

type policyInput struct{ Body api.PolicyRequest }

// rules registers the operations that change how the machine schedules.
func (s *Server) rules(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "policy", Method: http.MethodGet, Path: "/v1/policy",
		Summary: "The policy that counts, since when, and who set it"},
		func(ctx context.Context, _ *none) (*struct{ Body api.Policy }, error) {
			p, err := s.m.Policy(ctx)
			return &struct{ Body api.Policy }{p}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "speeds", Method: http.MethodGet, Path: "/v1/speeds",
		Summary: "How fast jobs of each model were measured to go"},
		func(context.Context, *none) (*struct{ Body api.Speeds }, error) {
			return &struct{ Body api.Speeds }{s.m.Speeds()}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "set-policy", Method: http.MethodPost, Path: "/v1/policy",
		Summary: "Change the policy, or say what a change would do"}, s.setPolicy)
	huma.Register(a, huma.Operation{OperationID: "make-moves", Method: http.MethodPost, Path: "/v1/moves",
		Summary: "Make the moves that are worth it"}, s.makeMoves)
	huma.Register(a, huma.Operation{OperationID: "reload", Method: http.MethodPost, Path: "/v1/config/reload",
		Summary: "Read the configuration again"}, s.reload)
}

func (s *Server) makeMoves(ctx context.Context, in *struct{ Body api.MovesRequest }) (*struct{ Body []api.Moves },
	error) {
	ctx, cancel := context.WithTimeout(ctx, commitWait)
	defer cancel()
	list, err := s.m.MakeMoves(ctx, &in.Body)
	if err == nil && len(list) > 0 {
		err = s.m.Audit().Add(ctx, "make-moves", "", fmt.Sprintf("%d moves", len(list)))
	}
	return &struct{ Body []api.Moves }{list}, problem(err)
}

func (s *Server) setPolicy(ctx context.Context, in *policyInput) (*struct{ Body api.PolicyChange }, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		v, err := s.m.TryPolicy(&in.Body)
		return &struct{ Body api.PolicyChange }{v}, problem(err)
	}
	ctx, cancel := context.WithTimeout(ctx, commitWait)
	defer cancel()
	v, err := s.m.SetPolicy(ctx, &in.Body, who.User.Name)
	return &struct{ Body api.PolicyChange }{v}, problem(err)
}

func (s *Server) reload(ctx context.Context, _ *none) (*struct{ Body api.Reloaded }, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	if s.opt.Reload == nil {
		return nil, huma.Error409Conflict("this server has no configuration that could be read again")
	}
	ctx, cancel := context.WithTimeout(ctx, commitWait)
	defer cancel()
	v, err := s.opt.Reload(ctx, who.User.Name)
	switch {
	case err == nil:
		return &struct{ Body api.Reloaded }{v}, nil
	case errors.Is(err, local.ErrStuck), ctx.Err() != nil:
		return nil, problem(err)
	}
	return nil, huma.Error422UnprocessableEntity("the configuration stays as it was: " + err.Error())
}
