package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/kube/front"
)

type proxyFlags struct {
	target
	socket, dashboard string
}

// newProxy is what muster --context starts: it stands for the cluster's API with
// the credentials of a kubeconfig, to one user of this machine.
func newProxy() *cobra.Command {
	f := &proxyFlags{}
	c := &cobra.Command{
		Use: "proxy", Short: "Forward a socket, or the dashboard, to the scheduler of a cluster (muster --context starts it)", Args: cobra.NoArgs,
		Long: "Forwards requests to the API that muster kube --api-listen serves, through the cluster's API server and with the\n" +
			"credentials of a kubeconfig. With --socket it prints \"ready\" and ends with its file descriptor 3; with --dashboard it\n" +
			"prints a link that lets one browser in, once, and ends with Ctrl-C.",
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.forward()
			if err != nil {
				return err
			}
			switch {
			case f.socket != "":
				return f.serveSocket(c.Context(), c.OutOrStdout(), h)
			case f.dashboard != "":
				return serveDashboard(c.Context(), c.OutOrStdout(), f.dashboard, h, wallClock)
			}
			return fmt.Errorf("%w: give --socket or --dashboard", errUsage)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.socket, "socket", "", "Unix socket to answer at, in a folder that only its user can enter")
	c.Flags().StringVar(&f.dashboard, "dashboard", "",
		"loopback address at which to serve the dashboard, such as 127.0.0.1:0")
	return c
}

// hostOf is the host and port of an API server.
func hostOf(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return server, nil // HOST:PORT
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443"), nil
	}
	return u.Host, nil
}

// forward is the way to the scheduler: /v1/jobs is asked of the API server as
// /apis/view.muster.sh/v1/jobs.
func (f *proxyFlags) forward() (http.Handler, error) {
	rc, err := f.reach()
	if err != nil {
		return nil, err
	}
	t, err := rest.TransportFor(rc)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return nil, err
	}
	p := &httputil.ReverseProxy{Transport: t, FlushInterval: -1, ModifyResponse: translate,
		ErrorHandler: unreachable(base.Host),
		Rewrite: func(r *httputil.ProxyRequest) {
			path := strings.TrimPrefix(r.In.URL.Path, "/v1/")
			r.Out.URL.Scheme, r.Out.URL.Host = base.Scheme, base.Host
			r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimSuffix(base.Path, "/")+front.Base+"/"+path, ""
			r.Out.Host = base.Host
			// none of the API server's business
			for _, h := range []string{"Cookie", "Authorization", "Origin", "Referer"} {
				r.Out.Header.Del(h)
			}
			if path == "events" { // a stream: the API server cuts others off after a minute
				q := r.Out.URL.Query()
				q.Set("watch", "true")
				r.Out.URL.RawQuery = q.Encode()
			}
		}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			deny(w, http.StatusNotFound, "there is no "+r.URL.Path+" here")
			return
		}
		p.ServeHTTP(w, r)
	}), nil
}

func deny(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	// the client has gone
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Status: code, Title: http.StatusText(code), Detail: text})
}

// unreachable answers for an API server that does not.
func unreachable(host string) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() == nil {
			deny(w, http.StatusBadGateway, fmt.Sprintf("the API server %s: %v", host, err))
		}
	}
}

// translate makes a problem, as every error of the interface is, of what the API
// server says itself, and says what can be done about it.
func translate(r *http.Response) error {
	r.Header.Del("Set-Cookie")
	if r.StatusCode < 400 || strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return err
	}
	detail := strings.TrimSpace(string(text))
	var s metav1.Status
	if json.Unmarshal(text, &s) == nil && s.Kind == "Status" {
		detail = s.Message
	}
	switch r.StatusCode {
	case http.StatusNotFound:
		detail = fmt.Sprintf("this cluster does not show what Muster does: it has no APIService %s (docs/guide/kubernetes.md, \"Looking at it\")", front.Service)
	case http.StatusServiceUnavailable:
		detail = fmt.Sprintf(
			"no scheduler answers behind the APIService %s: is muster kube running there, with --api-listen? (%s)",
			front.Service, detail)
	case http.StatusForbidden:
		detail += fmt.Sprintf(": ask for a role with the verbs get, list and watch on the resources of the API group %s, and create on moves to have pods moved (muster-viewer, muster-mover)", front.Group)
	}
	body, err := json.Marshal(
		&huma.ErrorModel{Status: r.StatusCode, Title: http.StatusText(r.StatusCode), Detail: detail})
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", "application/problem+json")
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	r.Header.Del("Content-Encoding")
	return nil
}

// lifeline is the file descriptor that the process that started the proxy holds the other
// end of: when that is gone, however it ended, so is the proxy.
const lifeline = 3

func (f *proxyFlags) serveSocket(ctx context.Context, out io.Writer, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", f.socket)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context {
		return ctx
	}}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	defer func() { _ = os.Remove(filepath.Dir(f.socket)) }() // with the socket in it gone, it is empty
	// A terminal that is closed ends the process that started this; then the lifeline does the
	// rest, and the folder goes, too.
	signal.Ignore(syscall.SIGHUP)
	if life := os.NewFile(lifeline, "lifeline"); life != nil {
		go func() {
			_, _ = io.Copy(io.Discard, life)
			_ = s.Close()
		}()
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
