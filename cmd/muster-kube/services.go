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

// servicesRoom scales services, where the configuration says so; else nil.
func servicesRoom(conf *config.Kube, c clients, log *slog.Logger) (*services.Room, error) {
	if conf.Services == nil {
		return nil, nil
	}
	opt := services.Options{Client: c.read, Dynamic: c.objects, Tell: c.tell, GPUs: conf.GPUs,
		Labels: kube.LabelsOf(&conf.Labels),
		Period: conf.Services.Period, Now: wallClock, Log: log, Source: load.NewPods(wallClock, false)}
	if url := conf.Services.Prometheus; url != "" {
		p, err := load.NewPrometheus(url, load.Access(conf.Services.Access), wallClock)
		if err != nil {
			return nil, err
		}
		opt.Source, opt.Demand = p, p.Demand
	}
	return services.New(opt), nil
}

// scheduling is what the leading scheduler runs: the driver, and beside it what scales services; nil: nothing does.
func scheduling(d *kube.Driver, room *services.Room) func(context.Context) error {
	if room == nil {
		return d.Run
	}
	return func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		var beside sync.WaitGroup
		defer beside.Wait()
		defer stop()
		beside.Go(func() { room.Run(ctx) })
		return d.Run(ctx)
	}
}
