//go:build linux

package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
)

type usageInput struct {
	By    string `query:"by" enum:"user,queue,job,model" default:"user" doc:"What to add up by; job is the jobs' name, model what they compute"`
	Since string `query:"since" default:"30d" doc:"A time (RFC 3339), or how long ago, such as 30d or 12h"`
}

// usage registers what is asked about what was used.
func (s *Server) usage(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "usage", Method: http.MethodGet, Path: "/v1/usage", Summary: "What was used, wasted, and how good expected starts were"},
		func(ctx context.Context, in *usageInput) (*struct{ Body api.Usage }, error) {
			who, err := caller(ctx)
			if err != nil {
				return nil, err
			}
			since, err := sinceTime(in.Since, s.m.Now())
			if err != nil {
				return nil, err
			}
			u, err := s.m.Usage(ctx, in.By, since)
			for i := range u.Waste {
				if !who.Admin && u.Waste[i].User != who.User.Name {
					u.Waste[i].Name = ""
				}
			}
			return &struct{ Body api.Usage }{u}, problem(err)
		})
	huma.Register(a, huma.Operation{OperationID: "samples", Method: http.MethodGet, Path: "/v1/jobs/{id}/samples", Summary: "What was measured of a job"},
		func(ctx context.Context, in *idInput) (*struct{ Body api.Samples }, error) {
			v, err := s.m.Samples(ctx, in.ID)
			return &struct{ Body api.Samples }{v}, problem(err)
		})
}

// sinceTime reads a time, or how long ago it was.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	d, err := cluster.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, huma.Error422UnprocessableEntity("since: write a time such as 2026-01-31T12:00:00Z, or how long ago, such as 30d")
	}
	return now.Add(-d), nil
}
