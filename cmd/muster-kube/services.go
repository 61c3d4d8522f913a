package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/kube/services"
	"github.com/muster-gpu/muster/kube/services/load"
)

// scheduling is what the leading scheduler runs: the driver, and beside it what scales services, where the
// configuration says so.
func scheduling(d *kube.Driver, conf *config.Kube, c clients, log *slog.Logger) (func(context.Context) error, error) {
	if conf.Services == nil {
		return d.Run, nil
	}
	opt := services.Options{Client: c.read, Dynamic: c.objects, Tell: c.tell, Labels: kube.Labels(conf.Labels),
		Period: conf.Services.Period, Now: wallClock, Log: log, Source: load.NewPods(wallClock, false)}
	if url := conf.Services.Prometheus; url != "" {
		p, err := load.NewPrometheus(url, wallClock)
		if err != nil {
			return nil, err
		}
		opt.Source, opt.Demand = p, p.Demand
	}
	return func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		var beside sync.WaitGroup
		defer beside.Wait()
		defer stop()
		beside.Go(func() { services.New(opt).Run(ctx) })
		return d.Run(ctx)
	}, nil
}
