package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/kube"
	"github.com/muster-gpu/muster/kube/front"
	"github.com/muster-gpu/muster/kube/lead"
	"github.com/muster-gpu/muster/kube/look"
)

// apiFlags say where the cluster can be looked at.
type apiFlags struct{ listen, address, cert, key, secret string }

func (a *apiFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&a.listen, "api-listen", "none",
		"where the API that muster --context and the dashboard read answers, over TLS, such as :8443; none: nowhere")
	c.Flags().StringVar(&a.address, "api-address", "",
		"HOST:PORT at which the API server reaches that; $POD_IP, else the address towards the API server, if not given")
	c.Flags().StringVar(&a.cert, "api-cert", "",
		"file with that API's certificate; one of its own, written into the APIService, if not given")
	c.Flags().StringVar(&a.key, "api-key", "", "file with the certificate's key")
	c.Flags().StringVar(&a.secret, "api-secret", "",
		"Secret in --namespace that keeps the authority of a certificate of its own, so that pods that report know each scheduler; made if it is not there. Kept nowhere if not given")
}

// apiQPS bounds how often the API server is asked who somebody is and what they may.
const apiQPS = 100

// serve answers those who look at the cluster. What it sends ends the scheduler.
func (a *apiFlags) serve(ctx context.Context, f *kubeFlags, d *kube.Driver, m *look.Metrics, own *front.Authority,
	fence *lead.Fence, log *slog.Logger, served chan<- error) error {
	if a.off() {
		return nil
	}
	rc, err := f.reach()
	if err != nil {
		return err
	}
	rc.QPS, rc.Burst = apiQPS, 2*apiQPS
	asks, err := kubeapi.New(rest.CopyConfig(rc)) // with limits of its own
	if err != nil {
		return err
	}
	if fence != nil { // where to ask, only the leader says
		rc.Wrap(fence.Wrap)
	}
	client, err := kubeapi.New(rc)
	if err != nil {
		return err
	}
	cert, bundle, err := a.certificate(own)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.listen)
	if err != nil {
		return fmt.Errorf("--api-listen: %w", err)
	}
	address, err := a.reachable(ctx, l, rc.Host)
	if err != nil {
		return err
	}
	report := func(ctx context.Context, namespace, pod, uid string, r *api.Report) error {
		return d.Report(ctx, namespace, pod, types.UID(uid), r)
	}
	fr := front.New(front.Options{Source: d.View(), Move: d.View().MakeMoves, Speeds: d.View().Speeds, Report: report,
		Reported: m.Reported, Pods: asks, Client: client, Build: version.Release, Now: wallClock, Log: log,
		Missing: func(err error) bool {
			return errors.Is(err, kube.ErrNoJob) || errors.Is(err, kube.ErrNoPod)
		}, Refused: func(err error) bool {
			return errors.Is(err, kube.ErrNoMoves) || errors.Is(err, kube.ErrProtected) ||
				errors.Is(err, kube.ErrMoving)
		},
		Away: func(err error) bool { return errors.Is(err, kube.ErrNotLeading) }})
	go func() {
		if err := fr.Serve(ctx, l, cert); err != nil {
			served <- fmt.Errorf("--api-listen: %w", err)
		}
	}()
	p := &front.Publisher{Front: fr, Bundle: bundle, Address: address, Leads: d.Ready}
	go p.Run(ctx)
	log.Info("showing the cluster", "address", l.Addr().String())
	return nil
}

func (a *apiFlags) off() bool { return a.listen == "none" || a.listen == "" }

// The Secret is asked for so often, after so long each time: without it nothing is lost but
// what pods report.
const (
	secretTries = 5
	secretPause = 2 * time.Second
)

// authority is the one that vouches for a certificate of its own, and its sum for pods, if they
// can rely on it; nil: the certificate is not of its own.
func (a *apiFlags) authority(ctx context.Context, client kubeapi.Interface, namespace string,
	log *slog.Logger) (own *front.Authority, sum string, err error) {
	if a.off() || a.cert != "" || a.key != "" {
		return nil, "", nil
	}
	if a.secret == "" {
		own, err = front.NewAuthority(wallClock())
		return own, "", err
	}
	t := time.NewTicker(secretPause)
	defer t.Stop()
	for try := 1; ; try++ {
		if own, err = front.KeptAuthority(ctx, client, namespace, a.secret, wallClock()); err == nil {
			return own, own.Sum(), nil
		}
		if try == secretTries {
			log.Error("pods cannot report their progress to this scheduler", "error", err)
			own, err = front.NewAuthority(wallClock())
			return own, "", err
		}
		select {
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-t.C:
		}
	}
}

// certificate is what the API shows; bundle vouches for it, if it is of its own.
func (a *apiFlags) certificate(own *front.Authority) (cert front.Certificate, bundle []byte, err error) {
	switch {
	case own != nil:
		return own.Certificate, own.Bundle(), nil
	case a.cert == "" || a.key == "":
		return nil, nil, errors.New("--api-cert and --api-key belong together")
	}
	if _, err := tls.LoadX509KeyPair(a.cert, a.key); err != nil {
		return nil, nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { // it may be another tomorrow
		c, err := tls.LoadX509KeyPair(a.cert, a.key)
		return &c, err
	}, nil, nil
}

// reachable is where the API server finds the listener.
func (a *apiFlags) reachable(ctx context.Context, l net.Listener, apiserver string) (string, error) {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	if a.address != "" {
		if _, _, err := net.SplitHostPort(a.address); err != nil {
			return "", fmt.Errorf("%w: --api-address: %w", errUsage, err)
		}
		return a.address, nil
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return l.Addr().String(), nil
	}
	if ip := os.Getenv("POD_IP"); ip != "" {
		return net.JoinHostPort(ip, port), nil
	}
	u, err := hostOf(apiserver)
	if err != nil {
		return "", err
	}
	// nothing is sent: the kernel says from which address it would be
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", u)
	if err != nil {
		return "", fmt.Errorf("the address towards the API server: %w (give --api-address)", err)
	}
	defer c.Close()
	if host, _, err = net.SplitHostPort(c.LocalAddr().String()); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}
