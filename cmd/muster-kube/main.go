// Command muster-kube schedules pods on a Kubernetes cluster. It is what muster
// kube starts: a program of its own, because the tables of Kubernetes' libraries
// would double what every start of muster costs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/kube/lead"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/segments"
)

// wallClock is what time it is.
var wallClock = time.Now

func main() {
	os.Exit(run(os.Args[1:]))
}

// run returns the exit code: 2 for mistakes of the caller, 1 for what went wrong.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := newKube()
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "muster kube:", strings.TrimPrefix(err.Error(), "usage: "))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// errUsage marks mistakes of the caller.
var errUsage = errors.New("usage")

// target is which cluster is meant, and who asks.
type target struct{ kubeconfig, context string }

func (t *target) add(c *cobra.Command) {
	c.Flags().StringVar(&t.kubeconfig, "kubeconfig", "",
		"file that says which cluster and who asks; inside a cluster not needed (default $KUBECONFIG or ~/.kube/config)")
	c.Flags().StringVar(&t.context, "context", "", "context of the kubeconfig; the current one if not given")
}

type kubeFlags struct {
	target
	config, listen, journal, namespace string
	history                            string
	logLevel                           string
	elect, check                       bool
	api                                apiFlags
	qps                                float32
	workers                            int
	lease                              time.Duration
}

func newKube() *cobra.Command {
	f := &kubeFlags{}
	c := &cobra.Command{
		Use:   "muster-kube",
		Short: "Schedule pods on a Kubernetes cluster",
		Long: "Runs an independent scheduler for pods with schedulerName: muster, with the engine of muster sim and muster serve.\n" +
			"Gangs start together or not at all. It keeps nothing of its own: killed at any moment, it goes on from what it\n" +
			"finds bound. docs/guide/kubernetes.md says what it looks at and what it does not yet.",
		Example: "  muster kube --kubeconfig ~/.kube/config --config kube.yaml\n  muster kube --leader-elect=false --journal kube.journal",
		Args:    cobra.NoArgs, SilenceErrors: true, SilenceUsage: true, Version: version.Read().String(),
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c) },
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) {
			var names []string
			c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			if near := cluster.Nearest(unknown.GetSpecifiedName(), names); near != "" {
				return fmt.Errorf("%w: unknown flag --%s: did you mean --%s?", errUsage, unknown.GetSpecifiedName(),
					near)
			}
		}
		return fmt.Errorf("%w: %w (see muster kube --help)", errUsage, err)
	})
	f.add(c)
	c.Flags().StringVar(&f.config, "config", "",
		"file with queues, rules, resource names and labels (docs/reference/kubernetes.md)")
	c.Flags().BoolVar(&f.check, "check", false,
		"read the configuration, say what is wrong with it or what is understood, and end")
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:9095",
		"where /healthz, /readyz and /metrics answer; none: nowhere")
	f.api.add(c)
	c.Flags().StringVar(&f.journal, "journal", "",
		"write what it is told and decides to this file, for muster replay and explain")
	c.Flags().StringVar(&f.history, "history", "",
		"add a line to this file for each gang that ends, for muster tune --trace and muster sim --trace")
	c.Flags().BoolVar(&f.elect, "leader-elect", true, "of several schedulers one leads; the others wait")
	c.Flags().StringVar(&f.namespace, "namespace", "kube-system", "namespace of the lease of the leader")
	c.Flags().DurationVar(&f.lease, "lease", lead.Length,
		"how long the lead lasts without a sign of life: a leader that is killed costs so long, and up to a second more")
	c.Flags().Float32Var(&f.qps, "qps", 2000,
		"most requests per second that bind and evict; conditions and events have 500 more")
	c.Flags().IntVar(&f.workers, "workers", 32, "how many requests bind or evict at a time")
	c.Flags().StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error; the configuration's if not given")
	c.AddCommand(newProxy(), newReport(), newAgent())
	return c
}

func (f *kubeFlags) run(ctx context.Context, c *cobra.Command) error {
	conf, err := f.read()
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if err := f.checkLease(); err != nil {
		return err
	}
	if f.check {
		return tellChecked(c.OutOrStdout(), cmp.Or(f.config, "no file"), conf)
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: conf.LogLevel}))
	var fence *lead.Fence
	if f.elect {
		fence = lead.NewFence()
	}
	cs, err := f.clients(fence)
	if err != nil {
		return err
	}
	metrics := look.NewMetrics()
	opt := f.options(conf)
	opt.Client, opt.Tell, opt.Dynamic, opt.Log, opt.Observe = cs.schedule, cs.tell, cs.objects, log, metrics
	opt.Program = fenced(fence, switchNode)
	if f.history != "" {
		h, err := openHistory(f.history)
		switch {
		case passing(err): // scheduling does not stop for that
			log.Error("no history is written", "error", err)
		case err != nil:
			return fmt.Errorf("%w: --history: %w", errUsage, err)
		default:
			defer func() { _ = h.log.Close() }()
			opt.History = h
		}
	}
	own, sum, err := f.api.authority(ctx, cs.own, f.namespace, log)
	if err != nil {
		return err
	}
	if opt.Authority = sum; sum != "" { // the authority is kept, so the next scheduler has the same
		opt.Seal, opt.Sign = own.Seal(), own.Sign
	}
	if opt.Failures, err = earlierFailures(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	room, err := servicesRoom(conf, cs, log)
	if err != nil {
		return err
	}
	if room != nil {
		opt.Lenders = room
		metrics.Also(room)
	}
	d := kube.New(opt)
	served, err := f.serve(ctx, d, metrics, log)
	if err != nil {
		return err
	}
	if err := f.api.serve(ctx, f, d, metrics, own, fence, log, served); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	go func() { stop(<-served) }()
	run := scheduling(d, room)
	if !f.elect {
		err = run(ctx)
	} else {
		err = f.lead(ctx, run, cs, conf.Scheduler, fence, log)
	}
	err = afterFailure(ctx, err, opt.Failures, log)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

func (f *kubeFlags) read() (*config.Kube, error) {
	text := ""
	if f.config != "" {
		data, err := os.ReadFile(f.config)
		if err != nil {
			return nil, err
		}
		text = string(data)
	}
	conf, err := config.ReadKube(f.config, strings.NewReader(text))
	if err == nil && f.logLevel != "" {
		conf.LogLevel, err = config.ParseLevel(f.logLevel)
	}
	return conf, err
}

// tellChecked lists a configuration that makes sense.
func tellChecked(w io.Writer, name string, conf *config.Kube) error {
	fmt.Fprintf(w, "%s: fine; %d queues (Queue objects of a cluster come on top)\n", name, len(conf.Queues))
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, s := range conf.Settings() {
		fmt.Fprintf(t, "  %s\t%s\n", s.Key, s.Value)
	}
	return t.Flush()
}

// options are what the configuration says; the rules are tried on an empty
// cluster first.
func (f *kubeFlags) options(conf *config.Kube) kube.Options {
	rules := config.Rules{Spec: cluster.Spec{Queues: conf.Queues, Models: conf.Models, MinSpeed: conf.MinSpeed},
		Policy: conf.Policy, Placer: conf.Placer, Backfill: conf.Backfill,
		MinRuntime: conf.MinRuntime, Starvation: conf.Starvation, HoldAfter: conf.HoldAfter, Stop: &conf.Stop,
		Perf: conf.Perf, Defrag: conf.Defrag, Traffic: conf.Traffic}
	rules.Spec.Network = conf.Network
	if _, rules.Spec.Zone = time.Now().Zone(); conf.Zone != nil {
		rules.Spec.Zone = *conf.Zone
	}
	opt := kube.Options{Rules: rules, QoS: conf.QoS, Scheduler: conf.Scheduler, GPUs: conf.GPUs, Drivers: conf.Drivers,
		Labels: kube.LabelsOf(&conf.Labels), DefaultQueue: conf.DefaultQueue, Repair: conf.Repair, Await: conf.Await,
		Classes: conf.Classes, Saving: conf.Saving,
		Workers: f.workers, Now: time.Now, Namespace: f.namespace}
	for _, p := range conf.Power {
		opt.Power = append(opt.Power, kube.Power(p))
	}
	for _, l := range conf.Loans {
		opt.Loans = append(opt.Loans, kube.Loan(l))
	}
	for _, m := range conf.MIG {
		opt.MIG = append(opt.MIG, kube.MIG(m))
	}
	if f.journal != "" {
		opt.Journal = func(h journal.Header) (kube.Recorder, error) {
			s, err := segments.Begin(f.journal, h)
			if err != nil {
				return nil, err
			}
			return s, nil
		}
	}
	return opt
}

// reach says how a cluster is reached.
func (t *target) reach() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.kubeconfig
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: t.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("how to reach the cluster: %w (give --kubeconfig)", err)
	}
	rc.UserAgent = "muster/" + version.Release
	return rc, nil
}

// serve answers those who look after the scheduler. What it sends ends it.
func (f *kubeFlags) serve(ctx context.Context, d *kube.Driver, m *look.Metrics, log *slog.Logger) (chan error, error) {
	served := make(chan error, 2)
	if f.listen == "none" || f.listen == "" {
		return served, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if f.elect || d.Ready() { // one that waits for the lead is ready to take it
			fmt.Fprintln(w, "ok")
			return
		}
		http.Error(w, "the cluster is being listed", http.StatusServiceUnavailable)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			served <- err
		}
	}()
	log.Info("answering", "address", l.Addr().String())
	return served, nil
}
