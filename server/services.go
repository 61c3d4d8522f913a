//go:build linux

package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/control"
)

type serviceInput struct {
	Name string `path:"name" maxLength:"63" doc:"Name of the service"`
}

type serviceOutput struct{ Body api.Service }

type applyInput struct{ Body api.ServiceFile }

type scaleInput struct {
	Name string `path:"name" maxLength:"63" doc:"Name of the service"`
	Body api.ServiceScale
}

// errNoServices is the answer where no services are run.
var errNoServices = huma.Error404NotFound("this daemon runs no services")

// services registers the operations on services.
func (s *Server) services(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "apply-service", Method: http.MethodPost, Path: "/v1/services",
		Summary: "Run a service, or change it", MaxBodyBytes: 1 << 20},
		func(ctx context.Context, in *applyInput) (*serviceOutput, error) {
			who, err := s.mayServe(ctx)
			if err != nil {
				return nil, err
			}
			v, err := s.opt.Services.Apply(ctx, &in.Body, callerOf(who))
			return &serviceOutput{v}, serviceProblem(err, http.StatusUnprocessableEntity)
		})
	huma.Register(a, huma.Operation{OperationID: "services", Method: http.MethodGet, Path: "/v1/services",
		Summary: "The services"},
		func(ctx context.Context, _ *none) (*struct{ Body []api.Service }, error) {
			if _, err := s.mayServe(ctx); err != nil {
				return nil, err
			}
			return &struct{ Body []api.Service }{s.opt.Services.Services()}, nil
		})
	huma.Register(a, huma.Operation{OperationID: "service", Method: http.MethodGet, Path: "/v1/services/{name}",
		Summary: "A service: its replicas, what became of its requests, and why"},
		func(ctx context.Context, in *serviceInput) (*serviceOutput, error) {
			who, err := s.mayServe(ctx)
			if err != nil {
				return nil, err
			}
			v, err := s.opt.Services.Service(in.Name)
			if !who.Owns(v.Owner) {
				v.Text = "" // what others run is masked
			}
			return &serviceOutput{v}, serviceProblem(err, http.StatusConflict)
		})
	huma.Register(a, huma.Operation{OperationID: "scale-service", Method: http.MethodPost,
		Path: "/v1/services/{name}/scale", Summary: "Set how many replicas a service has, at least and at most"},
		func(ctx context.Context, in *scaleInput) (*serviceOutput, error) {
			who, err := s.mayServe(ctx)
			if err != nil {
				return nil, err
			}
			to := service.Replicas{Min: in.Body.Min, Max: in.Body.Max}
			if err := s.opt.Services.Scale(ctx, in.Name, to, callerOf(who)); err != nil {
				return nil, serviceProblem(err, http.StatusUnprocessableEntity)
			}
			v, err := s.opt.Services.Service(in.Name)
			return &serviceOutput{v}, serviceProblem(err, http.StatusConflict)
		})
	huma.Register(a, huma.Operation{OperationID: "delete-service", Method: http.MethodDelete,
		Path: "/v1/services/{name}", Summary: "End a service; its replicas finish what they have"},
		func(ctx context.Context, in *serviceInput) (*struct{}, error) {
			who, err := s.mayServe(ctx)
			if err != nil {
				return nil, err
			}
			return nil, serviceProblem(s.opt.Services.Delete(ctx, in.Name, callerOf(who)),
				http.StatusConflict)
		})
}

// mayServe returns the caller of an operation on services.
func (s *Server) mayServe(ctx context.Context) (*Caller, error) {
	if s.opt.Services == nil {
		return nil, errNoServices
	}
	return caller(ctx)
}

func callerOf(who *Caller) control.Caller {
	return control.Caller{User: who.User.Name, Operator: who.User.Trusted, Admin: who.Admin}
}

// serviceProblem is the answer to an error of a change of services; otherwise is its status if nothing else is known.
func serviceProblem(err error, otherwise int) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, control.ErrUnknown):
		return huma.Error404NotFound(err.Error() + ": muster service list shows those that there are")
	case errors.Is(err, control.ErrForeign):
		return huma.Error403Forbidden(err.Error())
	}
	return huma.NewError(otherwise, err.Error())
}
