// Command muster-gateway answers the requests of services: it queues, batches and passes them to the replicas that the
// daemon names in a file. It is a program of its own so that it keeps serving while the daemon is down or upgraded.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/internal/version"
)

func main() {
	setTimerSlack()
	// Nothing is ever written to this memory, so it costs none; but it keeps the garbage collector from running many
	// times a second while the heap is small, which saves a seventh of the CPU time of a request.
	ballast := make([]byte, 64<<20)
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// errUsage marks mistakes of the caller.
var errUsage = errors.New("usage")

// run returns the exit code: 2 for mistakes of the caller, 1 for what went wrong.
func run(args []string, out, messages io.Writer) int {
	c := newCommand(messages)
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(messages)
	err := c.Execute()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(messages, "muster-gateway:", err)
		return 2
	}
	fmt.Fprintln(messages, "muster-gateway:", err)
	return 1
}

type flags struct {
	dir, listen, metrics string
	cert, key            string
	accessLog            string
	grace                time.Duration
	connections          int
}

func newCommand(messages io.Writer) *cobra.Command {
	f := &flags{}
	c := &cobra.Command{
		Use:   "muster-gateway --dir DIR",
		Short: "Answer the requests of services with their replicas",
		Long: "Answers the Open Inference Protocol below /v2, OpenAI's interface below /v1, and other HTTP below the paths of\n" +
			"services. DIR/routes.json says which services and replicas there are; muster serve writes it, and the gateway\n" +
			"follows each change. SIGTERM ends it once what it has accepted is answered; SIGHUP opens the access log and the\n" +
			"certificate again.",
		Example: "  muster-gateway --dir ~/.local/state/muster/gateway --listen :8000 --access-log -",
		Args:    cobra.NoArgs, SilenceErrors: true, SilenceUsage: true, Version: version.Read().String(),
		RunE: func(*cobra.Command, []string) error {
			return f.run(slog.New(slog.NewTextHandler(messages, nil)))
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w (see muster-gateway --help)", errUsage, err)
	})
	c.Flags().StringVar(&f.dir, "dir", "", "the folder that it shares with the daemon")
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8000", "address for requests: HTTP/1.1 and HTTP/2")
	c.Flags().StringVar(&f.cert, "tls-cert", "",
		"file with the certificate, in PEM; with --tls-key: only TLS is spoken")
	c.Flags().StringVar(&f.key, "tls-key", "", "file with the certificate's key, in PEM")
	c.Flags().StringVar(&f.accessLog, "access-log", "", "file for a line of JSON per request; -: standard output")
	c.Flags().StringVar(&f.metrics, "metrics", "", "address for Prometheus's GET /metrics; none if not given")
	c.Flags().DurationVar(&f.grace, "grace", 30*time.Second,
		"at its end, how long it goes on with what it has accepted")
	c.Flags().IntVar(&f.connections, "max-connections", 16384, "connections at a time; more wait to be accepted")
	return c
}

// run serves until a signal.
func (f *flags) run(log *slog.Logger) error {
	switch {
	case f.dir == "":
		return fmt.Errorf("%w: --dir is needed: the folder with %s", errUsage, gateway.RoutesFile)
	case (f.cert == "") != (f.key == ""):
		return fmt.Errorf("%w: --tls-cert and --tls-key belong together", errUsage)
	case f.connections < 1 || f.grace < 0:
		return fmt.Errorf("%w: --max-connections is 1 or more, --grace 0 or more", errUsage)
	}
	signals := make(chan os.Signal, 4) // from before a client is accepted, who would be cut off
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	access, err := gateway.OpenAccessLog(f.accessLog)
	if err != nil {
		return fmt.Errorf("--access-log: %w", err)
	}
	daemon, err := gateway.ListenDaemon(f.dir)
	if err != nil {
		return err
	}
	defer daemon.Close()
	plain, err := f.listener()
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer plain.Close()
	s := gateway.New(gateway.Options{Clock: time.Now, Log: log, Access: access})
	h := s.HTTP()
	h.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug) // what clients do wrong is no news
	var certificate atomic.Pointer[tls.Certificate]
	reload := func() error {
		if f.cert == "" {
			return nil
		}
		c, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("--tls-cert: %w", err)
		}
		certificate.Store(&c)
		return nil
	}
	if err := reload(); err != nil {
		return err
	}
	h.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate.Load(), nil }}

	following, stopFollowing := context.WithCancel(context.Background())
	followed := s.Follow(following, f.dir)
	defer func() {
		stopFollowing()
		<-followed
		s.Close()
	}()
	errs := make(chan error, 3)
	forDaemon := &http.Server{Handler: s.Daemon(), ReadHeaderTimeout: 10 * time.Second}
	go func() { errs <- forDaemon.Serve(daemon) }()
	if f.metrics != "" {
		l, err := net.Listen("tcp", f.metrics)
		if err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
		log.Info("metrics", "address", l.Addr().String())
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.MetricsHandler())
		m := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		defer m.Close()
		go func() { errs <- m.Serve(l) }()
	}
	go func() {
		limited := netutil.LimitListener(plain, f.connections)
		if f.cert != "" {
			errs <- h.ServeTLS(limited, "", "")
		} else {
			errs <- h.Serve(limited)
		}
	}()
	log.Info("serving", "address", plain.Addr().String(), "folder", f.dir)
	err = f.wait(log, access, reload, signals, errs)
	signal.Stop(signals)  // another one ends the program at once
	_ = forDaemon.Close() // its socket is free for a successor, which may serve what comes from now on
	ctx, cancel := context.WithTimeout(context.Background(), f.grace)
	defer cancel()
	if h.Shutdown(ctx) != nil {
		log.Warn("not everything could be answered within --grace")
		_ = h.Close() // breaks the connections that are left
	}
	return errors.Join(err, access.Flush())
}

// listener is the socket that systemd has (sd_listen_fds(3)), where it has one, else one of its own.
func (f *flags) listener() (net.Listener, error) {
	const first = 3
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
		return net.Listen("tcp", f.listen)
	}
	file := os.NewFile(first, "socket of systemd")
	defer file.Close() // the listener has a copy
	return net.FileListener(file)
}

// wait returns when it is time to end: after a signal, or if a server cannot go on.
func (f *flags) wait(log *slog.Logger, access *gateway.AccessLog, reload func() error, signals <-chan os.Signal,
	errs <-chan error) error {
	flush := time.NewTicker(time.Second)
	defer flush.Stop()
	for {
		select {
		case err := <-errs:
			return err
		case <-flush.C:
			if err := access.Flush(); err != nil {
				log.Error("the access log cannot be written", "error", err)
			}
		case got := <-signals:
			if got != syscall.SIGHUP {
				log.Info("ending: answering what has been accepted", "grace", f.grace)
				return nil
			}
			if err := errors.Join(access.Reopen(), reload()); err != nil {
				log.Error("what was open stays open", "error", err)
			}
		}
	}
}
