//go:build linux

package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
)

type none struct{}

// machine registers what is asked of the machine.
func (s *Server) machine(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "nodes", Method: http.MethodGet, Path: "/v1/nodes", Summary: "The machine and its GPUs"},
		func(ctx context.Context, _ *none) (*struct{ Body []api.Node }, error) {
			return &struct{ Body []api.Node }{s.m.Nodes()}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "queues", Method: http.MethodGet, Path: "/v1/queues", Summary: "The queues and what they hold"},
		func(ctx context.Context, _ *none) (*struct{ Body []api.Queue }, error) {
			return &struct{ Body []api.Queue }{s.m.Queues()}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "partitions", Method: http.MethodGet, Path: "/v1/partitions", Summary: "The partitions"},
		func(context.Context, *none) (*struct{ Body []api.Partition }, error) {
			return &struct{ Body []api.Partition }{s.m.Partitions()}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "info", Method: http.MethodGet, Path: "/v1/info", Summary: "The server itself"},
		func(context.Context, *none) (*struct{ Body Info }, error) {
			info := s.opt.Info
			if url := s.url.Load(); url != nil {
				info.URL = *url
			}
			return &struct{ Body Info }{info}, nil
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
