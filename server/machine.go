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
			return &struct{ Body Info }{s.info}, nil
		})
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.m.Ready() {
			http.Error(w, "the state cannot be written", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
}

// events tells a browser, or a script, whenever something changed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if _, err := caller(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for {
		changed := s.m.Changed()
		if _, err := w.Write([]byte("event: changed\ndata: {}\n\n")); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
