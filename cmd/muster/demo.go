//go:build linux

package main

import (
	"context"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/account"
	"github.com/muster-gpu/muster/local/demojobs"
)

// demo submits what a small team's worth of work is made up of.
type demo struct {
	m    *local.Machine
	who  account.User
	team *demojobs.Team
}

const (
	demoGPUs = "sim:8xH100-80GB"
	// demoEvery is how often a job arrives, on average.
	demoEvery = 4 * time.Second
	// demoWaiting is how many jobs may wait before no more are submitted.
	demoWaiting = 9
)

// run submits jobs until the context ends; those that run then end by themselves.
func (d *demo) run(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(demoEvery)
	defer t.Stop()
	for n := 0; ; n++ {
		if n < 6 || d.m.Overview().Counts[api.StatePending] < demoWaiting {
			s := d.team.Next()
			if _, err := d.m.Submit(ctx, d.who, s, ""); err != nil && ctx.Err() == nil {
				log.Warn("the demo could not submit a job", "error", err)
			}
		}
		if n < 12 { // begin with a full machine
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// demoDefaults gives a demo simulated GPUs and a state of its own, unless it is
// it is said otherwise: made-up jobs are not to be among those of the team.
func (f *serveFlags) demoDefaults(c *cobra.Command, conf *config.Serve) {
	if f.gpus == "" {
		conf.GPUs = demoGPUs
	}
	if !c.Flags().Changed("state") {
		conf.State += "-demo"
	}
}

// startDemo begins to submit jobs, if they are wanted, as the user who runs the
// daemon.
func (f *serveFlags) startDemo(ctx context.Context, m *local.Machine, gpus int, dir string, log *slog.Logger) {
	if !f.demo {
		return
	}
	u, err := user.Current()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		log.Warn("there is no demo", "error", err)
		return
	}
	log.Info("submitting made-up jobs (--demo); muster dashboard shows them")
	d := &demo{m: m, who: account.UserNamed(u.Username), team: demojobs.NewTeam(gpus, dir)}
	d.who.Trusted = true // it is the daemon's own user
	go d.run(ctx, log)
}
