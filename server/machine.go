//go:build linux

package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/server/view"
)

type none struct{}

// source is the machine as the read-only routes see it (view.Source).
type source struct{ *local.Machine }

func (m source) Scheduling(context.Context) (policy, placer string, err error) {
	policy, placer = m.Machine.Scheduling()
	return policy, placer, nil
}

func (m source) Jobs(ctx context.Context, f api.Filter) ([]api.Job, error) {
	return m.Machine.Jobs(ctx, f)
}

// Why explains a job. The prediction is recorded and compared with the outcome, as at a submission.
func (m source) Why(ctx context.Context, id int) (api.Why, error) {
	who, err := caller(ctx)
	if err != nil {
		return api.Why{}, err
	}
	w, err := m.Machine.Why(ctx, id, &who.User)
	if err == nil {
		_ = m.RecordPrediction(ctx, &w.Job)
	}
	return w, err
}

func (m source) Nodes(context.Context) ([]api.Node, error)      { return m.Machine.Nodes(), nil }
func (m source) Queues(context.Context) ([]api.Queue, error)    { return m.Machine.Queues(), nil }
func (m source) Overview(context.Context) (api.Overview, error) { return m.Machine.Overview(), nil }

func (m source) PlanMoves(_ context.Context, r *api.MovesRequest) ([]api.Moves, error) {
	return m.Machine.PlanMoves(r)
}

func (m source) Watch() (changed <-chan struct{}, take func() ([]int, bool), stop func()) {
	w, stop := m.Watches().Watch()
	return w.C, w.Take, stop
}

var _ view.Source = source{}

// look registers the read-only routes of the machine.
func (s *Server) look(a huma.API) {
	src := source{s.m}
	view.Register(a, view.Options{Source: src, Problem: problem, Info: func() view.Info {
		info := s.opt.Info
		if url := s.url.Load(); url != nil {
			info.URL = *url
		}
		return info
	}, Caller: func(ctx context.Context) (view.Who, error) {
		who, err := caller(ctx)
		if err != nil {
			return nil, err // and not a Who that holds a nil pointer
		}
		return who, nil
	}})
	s.handle("GET /v1/events", view.Events(src))
	huma.Register(a, huma.Operation{OperationID: "partitions", Method: http.MethodGet, Path: "/v1/partitions",
		Summary: "The partitions"},
		func(context.Context, *none) (*struct{ Body []api.Partition }, error) {
			return &struct{ Body []api.Partition }{s.m.Partitions()}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "fair", Method: http.MethodGet, Path: "/v1/fair",
		Summary: "What fair shares and priorities are made of"},
		func(context.Context, *none) (*struct{ Body api.Fair }, error) {
			return &struct{ Body api.Fair }{s.m.Fair()}, nil
		})
	s.handle("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s.handle("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.m.Ready() {
			refuse(w, http.StatusServiceUnavailable, "the state cannot be written")
			return
		}
		w.WriteHeader(http.StatusOK)
	})
}
