package kube

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/fit/volumes"
)

// mountTries bounds how long a pod waits for its volume claims, at half a second each: five minutes.
const mountTries = 600

// mounted has the claims of a pod bound, then goes on; failed hears of what cannot be.
func (d *Driver) mounted(ctx context.Context, obj *v1.Pod, node string, mounts []volumes.Mount, try int,
	then func(context.Context), failed func(error)) {
	err := volumes.Writer{Client: d.opt.Client}.Provide(ctx, obj, node, mounts)
	switch {
	case err == nil:
		then(ctx)
	case try+1 < mountTries && volumes.Again(err):
		again := func(ctx context.Context) { d.mounted(ctx, obj, node, mounts, try+1, then, failed) }
		d.doLater(ctx, 500*time.Millisecond, again, func() { failed(ctx.Err()) })
	default:
		failed(err)
	}
}

// doLater gives work to a worker in a while; ended is called if the context ends first.
func (d *Driver) doLater(ctx context.Context, after time.Duration, f func(context.Context), ended func()) {
	time.AfterFunc(after, func() {
		select {
		case d.work <- f:
		case <-ctx.Done():
			ended()
		}
	})
}
