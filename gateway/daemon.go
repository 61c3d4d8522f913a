package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	routesEvery = 100 * time.Millisecond
	longestWake = time.Minute
)

// Follow takes over DIR/routes.json now and whenever it changes, until the context ends; then the channel is closed. A
// file that is wrong is logged, and the former configuration stays.
func (s *Server) Follow(ctx context.Context, dir string) <-chan struct{} {
	path := filepath.Join(dir, RoutesFile)
	var seen fs.FileInfo
	missing := false
	look := func() {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			if !missing {
				s.log.Error("the configuration cannot be read; the former one stays", "error", err)
			}
			missing, seen = true, nil
		case seen == nil || changed(seen, info):
			missing, seen = false, info
			s.load(path)
		}
	}
	look()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(routesEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				look()
			}
		}
	}()
	return ended
}

func changed(a, b fs.FileInfo) bool {
	return !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime())
}

func (s *Server) load(path string) {
	c, err := Load(path)
	if err == nil {
		err = s.Update(c)
	}
	if err != nil {
		s.log.Error("the configuration is wrong; the former one stays", "error", err)
		return
	}
	replicas := 0
	for i := range c.Services {
		replicas += len(c.Services[i].Replicas)
	}
	s.log.Info("configuration taken over", "services", len(c.Services), "replicas", replicas)
}

// alarm tells a listener that a request waits for a service without replicas. An alarm that rang while there was no
// listener is kept for the next.
type alarm struct {
	mu   sync.Mutex
	rung bool
	bell chan struct{} // closed when it rings; nil: nothing listens
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rung = true
	if a.bell != nil {
		close(a.bell)
		a.bell = nil
	}
}

// listen returns a channel that is closed once the alarm has rung.
func (a *alarm) listen() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bell == nil {
		a.bell = make(chan struct{})
	}
	bell := a.bell
	if a.rung {
		close(a.bell)
		a.bell = nil
	}
	return bell
}

func (a *alarm) heard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rung = false
}

// ListenDaemon listens on DIR/counts.sock. A socket that is left of a gateway that is gone is replaced; one that
// answers is an error.
func ListenDaemon(dir string) (net.Listener, error) {
	path := filepath.Join(dir, CountsSocket)
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another gateway runs in this folder", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(0o177) // from the first moment only this user may connect
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

// Daemon answers the daemon: GET /counts, and GET /counts?wake=1s, which answers as soon as a request waits for a
// service without replicas, or after that time.
func (s *Server) Daemon() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /counts", s.answerCounts)
	mux.Handle("GET /metrics", s.MetricsHandler())
	return mux
}

// MetricsHandler answers Prometheus.
func (s *Server) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
}

func (s *Server) answerCounts(w http.ResponseWriter, r *http.Request) {
	if text := r.URL.Query().Get("wake"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 || wait > longestWake {
			http.Error(w, fmt.Sprintf("wake: %q is no time from 0 to %v", text, longestWake), http.StatusBadRequest)
			return
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-s.wake.listen():
			s.wake.heard()
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Report()) // the daemon may be gone
}

// HTTP is a server of requests, with the gateway's limits: HTTP/1.1 and HTTP/2, over TLS and without.
func (s *Server) HTTP() *http.Server {
	h := &http.Server{Handler: s, ReadHeaderTimeout: s.limits.Header, IdleTimeout: s.limits.Idle,
		MaxHeaderBytes: 64 << 10, Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: s.limits.Idle,
			PingTimeout: 15 * time.Second, WriteByteTimeout: s.limits.WriteStall}}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	return h
}
