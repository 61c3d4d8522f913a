package client

import (
	"context"

	"github.com/muster-gpu/muster/api"
)

// ApplyService runs a service, or changes it.
func (c *Client) ApplyService(ctx context.Context, f *api.ServiceFile) (s api.Service, err error) {
	return s, c.do(ctx, post, "/v1/services", f, &s)
}

// Services lists the services.
func (c *Client) Services(ctx context.Context) (list []api.Service, err error) {
	return list, c.do(ctx, get, "/v1/services", nil, &list)
}

// Service returns a service.
func (c *Client) Service(ctx context.Context, name string) (s api.Service, err error) {
	return s, c.do(ctx, get, "/v1/services/"+Escape(name), nil, &s)
}

// ScaleService sets how many replicas a service has.
func (c *Client) ScaleService(ctx context.Context, name string, to api.ServiceScale) (s api.Service, err error) {
	return s, c.do(ctx, post, "/v1/services/"+Escape(name)+"/scale", &to, &s)
}

// DeleteService ends a service.
func (c *Client) DeleteService(ctx context.Context, name string) error {
	return c.do(ctx, "DELETE", "/v1/services/"+Escape(name), nil, nil)
}
