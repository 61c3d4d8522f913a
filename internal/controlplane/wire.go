package controlplane

import (
	"fmt"
	"io"
	"net"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/internal/kubeapi"
)

// Wire is a connection to the API server that can be broken.
type Wire struct {
	p      *Plane
	listen net.Listener
	mu     sync.Mutex
	down   bool
	open   map[net.Conn]bool
}

// Wire opens a connection to the API server that lasts as long as the test.
func (p *Plane) Wire() *Wire {
	p.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	w := &Wire{p: p, listen: l, open: map[net.Conn]bool{}}
	go w.serve()
	p.t.Cleanup(func() {
		_ = l.Close()
		w.Cut()
	})
	return w
}

// Client is an admin's client at the other end.
func (w *Wire) Client() *kubeapi.Clientset {
	w.p.t.Helper()
	c := rest.CopyConfig(w.p.Admin)
	c.Host, c.QPS = "https://"+w.listen.Addr().String(), -1
	cs, err := kubeapi.New(c)
	if err != nil {
		w.p.t.Fatal(err)
	}
	return cs
}

// Break cuts all connections, and refuses others until Mend.
func (w *Wire) Break() {
	w.mu.Lock()
	w.down = true
	w.mu.Unlock()
	w.Cut()
}

// Mend lets connections through again.
func (w *Wire) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// Cut breaks all open connections, in the middle of whatever they carry.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open { // order does not matter
		_ = c.Close()
	}
	clear(w.open)
}

func (w *Wire) serve() {
	for {
		c, err := w.listen.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.p.port))
		if err != nil || !w.keep(c, up) {
			_ = c.Close()
			continue
		}
		go w.carry(c, up)
		go w.carry(up, c)
	}
}

// keep records a pair of connections; false: the wire is down.
func (w *Wire) keep(c, up net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		_ = up.Close()
		return false
	}
	w.open[c], w.open[up] = true, true
	return true
}

func (w *Wire) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, to)
	delete(w.open, from)
}
