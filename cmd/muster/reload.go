//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/devices"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/server"
	"github.com/muster-gpu/muster/serving/control"
)

// reloader reads the configuration again while the daemon runs.
type reloader struct {
	f        *serveFlags
	c        *cobra.Command
	spec     *cluster.Spec
	m        *local.Machine
	s        *server.Server
	services *control.Controller
	door     *door
	log      *slog.Logger
	level    *slog.LevelVar

	mu      sync.Mutex // one at a time
	running *config.Serve
}

// reload reads the file and lets all of it that can change count, or nothing.
func (r *reloader) reload(ctx context.Context, by string) (api.Reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.again(ctx, by)
	if err != nil {
		r.log.Error("the configuration stays as it was", "by", by, "error", err)
		return v, err
	}
	for i := range v.Applied {
		r.log.Info("configuration changed", "by", by, "change", changeText(&v.Applied[i]))
	}
	for i := range v.Restart {
		r.log.Warn("not applied: it needs a restart of the daemon", "by", by, "change", changeText(&v.Restart[i]))
	}
	for _, n := range v.Notes {
		r.log.Warn(n)
	}
	r.log.Info("the configuration was read again", "by", by, "file", v.File, "changed", len(v.Applied))
	return v, nil
}

func (r *reloader) again(ctx context.Context, by string) (api.Reloaded, error) {
	v := api.Reloaded{Applied: []api.ConfigChange{}, Restart: []api.ConfigChange{}, Notes: []string{}}
	conf, err := r.f.effective(r.c)
	if err != nil {
		return v, err
	}
	v.File = conf.path
	var texts []string
	for _, d := range config.Compare(r.running, conf.Serve) {
		c := api.ConfigChange{Key: d.Key, Old: d.Old, New: d.New}
		if !d.Live {
			v.Restart = append(v.Restart, c)
			continue
		}
		v.Applied = append(v.Applied, c)
		texts = append(texts, changeText(&c))
	}
	conf.KeepStart(r.running)
	if _, err := r.f.fits(conf, r.spec); err != nil {
		return v, err
	}
	var cert *tls.Config // as it is
	if !slices.ContainsFunc(v.Restart, func(c api.ConfigChange) bool { return c.Key == "tls" }) {
		if cert, err = r.door.load(conf.Serve, wallTime()); err != nil {
			return v, conf.locate(err)
		}
	}
	notes, err := r.m.Reconfigure(ctx, r.f.settings(conf.Serve, r.spec), by, strings.Join(texts, "; "))
	if err != nil {
		return v, conf.locate(err)
	}
	v.Notes = slices.Concat(v.Notes, notes, devices.NeverSuspended(&conf.Stop, r.spec),
		r.services.SetKeys(conf.Services.Keys))
	r.door.use(cert)
	r.install(conf.Serve)
	return v, nil
}

// install lets what the machine does not know of count.
func (r *reloader) install(conf *config.Serve) {
	r.running = conf
	r.level.Set(conf.LogLevel)
	l := conf.LimitsFor(os.Getuid() == 0)
	r.s.SetLimits(server.Limits{Connections: l.Connections, Streams: l.Streams})
	r.s.SetHosts(hostNames(conf))
	r.s.SetRoles(server.Roles{Operators: rules.Members(conf.Operators), Admins: rules.Members(conf.Admins)})
}

// onHangup reads the configuration again with each SIGHUP until the context ends.
func (r *reloader) onHangup(ctx context.Context, hup <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			_, _ = r.reload(ctx, "SIGHUP") // the log says what came of it
		}
	}
}

// hangups are the SIGHUPs from now on.
func hangups() (hup chan os.Signal, stop func()) {
	hup = make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	return hup, func() { signal.Stop(hup) }
}
