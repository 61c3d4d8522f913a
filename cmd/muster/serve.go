//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/client"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/local"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/devices"
	"github.com/muster-gpu/muster/local/shim"
	"github.com/muster-gpu/muster/server"
	"github.com/muster-gpu/muster/serving/control"
	"github.com/muster-gpu/muster/serving/machine"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/slurm"
	"github.com/muster-gpu/muster/tune/guard"
)

type serveFlags struct {
	state, socket, gpus, keep string
	policy, placer, backfill  string
	traffic                   string
	logLevel                  string
	cpus                      int
	sample                    time.Duration
	hourCost                  float64
	tcp                       listenFlags
	config                    string
	demo, acceptLoss          bool
}

// daemonPolicy is what a daemon runs by default, and so what others are compared to.
const daemonPolicy = "multifactor"

func newServe() *cobra.Command {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Schedule real jobs on this machine",
		Long: "Runs the scheduler of this machine: everybody on it submits jobs with muster run and muster submit.\n" +
			"Jobs are real processes of the users who submitted them; they outlive the daemon, which may be killed\n" +
			"and started again at any time. The state is one SQLite file.\n\n" +
			"Without GPUs, --gpus sim:8xH100-80GB plays some: the jobs are real all the same.",
		Example: "  muster serve\n  muster serve --gpus sim:8xH100-80GB\n  muster run --gpus 2 -- python train.py",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runServe(c.Context(), c, f)
		},
	}
	f.add(c)
	return c
}

func (f *serveFlags) add(c *cobra.Command) {
	dir, socket := defaultPlaces()
	c.Flags().StringVar(&f.state, "state", dir, "folder of the state")
	c.Flags().StringVar(&f.socket, "socket", socket, "Unix socket for the users of this machine; else that of MUSTER_SOCKET")
	c.Flags().StringVar(&f.keep, "keep", "30d",
		"how long the journal and the folders of jobs that are over are kept; 0s: for ever")
	c.Flags().StringVar(&f.gpus, "gpus", "",
		"GPUs by index or UUID, such as 0,2; all if empty; or simulated ones: sim:8xH100-80GB")
	c.Flags().IntVar(&f.cpus, "cpus", runtime.NumCPU(),
		"CPU cores to give to jobs; more than there are overcommits them")
	c.Flags().DurationVar(&f.sample, "sample-every", 10*time.Second, "how often GPUs and jobs are measured; 0: never")
	c.Flags().Float64Var(&f.hourCost, "gpu-hour-cost", 0, "what an hour of a GPU costs, for muster usage")
	c.Flags().StringVar(&f.policy, "policy", daemonPolicy, "which job is next (see muster policy list)")
	c.Flags().StringVar(&f.placer, "place", "best-fit", "where")
	c.Flags().StringVar(&f.backfill, "backfill", "", "none, skip, easy or conservative; the policy's own if empty")
	c.Flags().StringVar(&f.traffic, "traffic", "",
		"how the network treats what jobs transmit (see muster policy list); needs links in the configuration")
	c.Flags().StringVar(&f.config, "config", "",
		"file with queues, rules, roles, and what flags do not say (docs/reference/config.md; default /etc/muster/muster.yaml, or muster/muster.yaml in the user's configuration folder)")
	c.Flags().BoolVar(&f.demo, "demo", false,
		"submit made-up jobs all the time, in a state of its own with simulated GPUs, to look at")
	c.Flags().BoolVar(&f.acceptLoss, "accept-loss", false,
		"go on with a database that has lost something: what it does not know is set aside, and its tasks are ended")
	c.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	f.tcp.add(c)
}

// defaultPlaces are the state's folder and the socket of this user.
func defaultPlaces() (dir, socket string) {
	if os.Getuid() == 0 {
		return "/var/lib/muster", client.RootSocket
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "muster-state", "muster.sock"
	}
	return filepath.Join(home, ".local", "state", "muster"), client.UserSocket()
}

func runServe(ctx context.Context, c *cobra.Command, f *serveFlags) error {
	shim.Seal()
	hup, stop := hangups()
	defer stop()
	conf, err := f.effective(c)
	if err != nil {
		return err
	}
	plainUmask()
	state := conf.State
	dev, err := openDevices(conf, state)
	if err != nil {
		return err
	}
	defer dev.Source.Close()
	if err := dev.Share(&conf.Sharing, state); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(conf.Socket), 0o755), os.MkdirAll(state, 0o711)); err != nil {
		return err
	}
	unlock, err := lockState(state)
	if err != nil {
		return err
	}
	defer unlock()
	r := &reloader{f: f, c: c, spec: &dev.Spec, level: &slog.LevelVar{}, running: conf.Serve}
	r.level.Set(conf.LogLevel)
	r.log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: r.level}))
	r.log.Info("writes", "state", state, "socket", conf.Socket, "why", f.whyThere(c, conf))
	groups := cgroup.Open()
	opt, err := f.options(ctx, conf, dev, r.log)
	if err != nil {
		return usage(err)
	}
	metrics := server.NewMetrics()
	opt.Groups, opt.Log, opt.Observe = groups, r.log, metrics
	if r.m, err = local.Open(ctx, opt); err != nil {
		return err
	}
	services, stop, err := runServices(ctx, r.m, &conf.Services, filepath.Join(state, "gateway"), r.log)
	if err != nil {
		return errors.Join(err, r.m.Close())
	}
	defer stop()
	r.services = services
	r.s = server.New(r.m,
		server.Options{Metrics: metrics, Log: r.log, Services: services, Reload: r.reload,
			Info: server.Info{Version: version.Release,
				NotEnforced: groups.Notes(), Simulated: len(dev.GPUs) > 0 && dev.GPUs[0].Simulated}})
	if r.door, err = openDoor(ctx, conf.Serve, time.Now()); err != nil {
		return errors.Join(err, r.m.Close())
	}
	r.install(conf.Serve)
	for _, n := range slices.Concat(dev.Notes, devices.NeverSuspended(&conf.Stop, &dev.Spec), groups.Notes()) {
		r.log.Warn(n)
	}
	policy, _ := r.m.Scheduling()
	r.log.Info("scheduling", "gpus", describeGPUs(dev.GPUs), "policy", policy, "socket", conf.Socket, "state", state)
	r.door.log(r.log)
	f.startDemo(ctx, r.m, len(dev.GPUs), filepath.Join(state, "demo"), r.log)
	go r.onHangup(ctx, hup)
	watch, err := newGuard(r.m, r.log, opt.Now)
	if err != nil {
		return errors.Join(err, r.m.Close())
	}
	go watch.Run(ctx)
	err = together(ctx, r.m, r.s, r.door, conf.Socket)
	if ctx.Err() != nil {
		r.log.Info("ended", "left", leftBehind(r.m.Overview().Counts))
	}
	return err
}

// runServices runs services on a machine; dir is shared with the gateway.
func runServices(ctx context.Context, m *local.Machine, conf *config.Services, dir string,
	log *slog.Logger) (*control.Controller, func(), error) {
	g, err := machine.NewGateway(dir)
	if err != nil {
		return nil, nil, err
	}
	scale.Weights = conf.Learnt
	x := machine.New(m)
	c, err := control.New(ctx, control.Options{Scheduler: x, Store: x, Gateway: g, First: conf.First, Last: conf.Last,
		Period: conf.Period, Whole: !m.Offers().Parts, Log: log, Now: m.Now})
	if err != nil {
		x.Close()
		return nil, nil, err
	}
	for _, n := range c.SetKeys(conf.Keys) {
		log.Warn(n)
	}
	go c.Run(ctx)
	return c, x.Close, nil
}

// whyThere says why state and socket are where they are: a newcomer is surprised by what a program writes
// outside of its folder.
func (f *serveFlags) whyThere(c *cobra.Command, conf *configFile) string {
	dir, socket := defaultPlaces()
	given := c.Flags().Changed("state") || c.Flags().Changed("socket") || conf.State != dir || conf.Socket != socket
	switch {
	case given:
		return "as flags, environment and configuration say"
	case os.Getuid() == 0:
		return "it runs as root, so as the scheduler of the whole machine; --state DIR and --socket FILE name other places"
	}
	return "it runs for one user; --state DIR and --socket FILE name other places"
}

// newGuard replays jobs as muster tune does by default.
func newGuard(m *local.Machine, log *slog.Logger, now func() time.Time) (*guard.Guard, error) {
	f := &tuneFlags{}
	f.flags(&cobra.Command{})
	base, err := f.baseSetup()
	replay := guard.Replay{Base: base, Prepare: f.prepare, Clock: wallClock()}
	return &guard.Guard{Machine: m, Journal: m.Journal(), Replay: replay, Log: log, Now: now}, err
}

// leftBehind says what goes on without the scheduler, and how to end it.
func leftBehind(counts map[string]int) string {
	running, waiting := 0, counts[api.StatePending]
	for _, s := range []string{api.StateStarting, api.StateRunning, api.StateSuspended, api.StateStopping} {
		running += counts[s]
	}
	if running+waiting == 0 {
		return "nothing runs or waits"
	}
	kept := countOf(waiting, "waiting job is", "waiting jobs are") + " kept"
	if running == 0 {
		return kept + ", for the next start of muster serve"
	}
	text := countOf(running, "job goes", "jobs go") + " on running on the same GPUs"
	if waiting > 0 {
		text += "; " + kept
	}
	return text + ". To end them: start muster serve again, which takes them over, and muster cancel --all (or a JOB of muster queue)"
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// together schedules and answers until the context ends, or one of them fails.
func together(ctx context.Context, m *local.Machine, s *server.Server, d *door, socket string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan error, 2)
	serve := func(f func() error) {
		err := f()
		if err != nil {
			cancel(err)
		}
		served <- err
	}
	go serve(func() error { return s.ServeUnix(ctx, socket) })
	go serve(func() error { return d.serve(ctx, s) })
	err := m.Run(ctx)
	cancel(nil)
	return errors.Join(err, <-served, <-served)
}

// options are what the configuration and the environment say of the machine.
func (f *serveFlags) options(ctx context.Context, conf *configFile, dev *devices.Found,
	log *slog.Logger) (local.Options, error) {
	opt, err := f.fits(conf, &dev.Spec)
	if err != nil {
		return opt, err
	}
	exe, err := os.Executable()
	if err != nil {
		return opt, err
	}
	var note string
	if opt.Shim, note = shimCommand(ctx, exe, conf.State); note != "" {
		log.Info(note)
	}
	opt.Dir, opt.GPUs, opt.Devices, opt.SampleEvery, opt.Now = conf.State, dev.GPUs, dev.Source, *conf.SampleEvery,
		time.Now
	opt.Sharing = local.Sharing{Program: conf.Sharing.Program,
		OverMemory: local.OverMemory(slices.Index(config.OverMemories, conf.Sharing.OverMemory))}
	opt.Network = conf.Network
	opt.AcceptLoss, opt.Variables = f.acceptLoss, slurm.Variables
	if conf.Checkpoints != "" {
		opt.Checkpoints = filepath.Clean(conf.Checkpoints)
	}
	opt.Crash, err = crashPoint()
	return opt, err
}

// lockState keeps a second daemon off the state.
func lockState(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "daemon.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	// a process that a daemon forked as it was killed may hold it for a moment
	for try := 0; err != nil && try < 100; try++ {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 10_000_000}, nil)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another daemon runs on this state", dir), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// runShim is a shim, if this process is to be one.
func runShim(args []string) (code int, ok bool) {
	if len(args) != 2 || args[0] != shim.Verb {
		return 0, false
	}
	return shim.Main(args[1], time.Now), true
}

// openDevices finds the GPUs of the configuration.
func openDevices(conf *configFile, state string) (*devices.Found, error) {
	dev, err := devices.Open(conf.GPUs, state, conf.CPUs)
	if errors.As(err, new(devices.Misused)) {
		err = usage(err)
	}
	return dev, err
}

func describeGPUs(gpus []api.GPU) string {
	if len(gpus) == 0 {
		return "none"
	}
	text := fmt.Sprintf("%d x %s", len(gpus), gpus[0].Model)
	if gpus[0].Simulated {
		text += " (simulated)"
	}
	return text
}
