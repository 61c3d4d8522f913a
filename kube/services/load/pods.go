package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Source tells what replicas' servers say. Which server it is follows from the metrics, unless it is named.
type Source interface {
	// Read returns the readings of the replicas that answered, by their ID, and an example of why others did not.
	Read(ctx context.Context, namespace, server string, replicas []Replica) (map[string]Reading, error)
}

const (
	mostBytes = 8 << 20         // of a replica's metrics
	patience  = 3 * time.Second // until it has sent them
	atOnce    = 16              // replicas that are asked at a time
)

// Pods asks replicas themselves.
type Pods struct {
	client *http.Client
	now    func() time.Time
}

// NewPods asks replicas that are not on this machine; local: wherever they are.
func NewPods(now func() time.Time, local bool) *Pods {
	d := &net.Dialer{Timeout: patience}
	if !local {
		d.Control = onlyPods
	}
	return &Pods{now: now, client: &http.Client{Timeout: patience,
		Transport:     &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// errAddress: what a pod's status says is not its own choice, but nothing of this machine, and no service of a cloud's
// about the machine, is asked for it.
var errAddress = errors.New("its address is none of a pod")

func onlyPods(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || a.Addr().IsLoopback() || a.Addr().IsLinkLocalUnicast() || a.Addr().IsUnspecified() {
		return errAddress
	}
	return nil
}

// Read asks the replicas.
func (p *Pods) Read(ctx context.Context, _, server string, replicas []Replica) (map[string]Reading, error) {
	list := map[string]Reading{}
	var mu sync.Mutex
	var problem error
	var example *Replica
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range replicas {
		x := &replicas[i]
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r, err := p.ask(ctx, server, x)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if example == nil || x.Name < example.Name { // always the same, while it fails
					example, problem = x, fmt.Errorf("pod %s: %w", x.Name, err)
				}
				return
			}
			list[x.ID] = r
		})
	}
	wait.Wait()
	return list, problem
}

// ask reads the metrics of a replica.
func (p *Pods) ask(ctx context.Context, server string, x *Replica) (r Reading, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.Address, http.NoBody)
	if err != nil {
		return r, errors.New("its metrics' port and path make no address")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := p.client.Do(req)
	if err != nil {
		return r, unanswered(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return r, fmt.Errorf("it answers %d", resp.StatusCode)
	}
	body := &io.LimitedReader{R: resp.Body, N: mostBytes}
	s, err := parse(body, x.Part)
	if body.N == 0 {
		err = fmt.Errorf("it sends more than %d MiB", mostBytes>>20)
	}
	if err != nil {
		return r, err
	}
	k, err := recognise(s, server)
	if err != nil {
		return r, err
	}
	return k.read(s, p.now()), nil
}

// unanswered says why there is no answer, without what differs each time.
func unanswered(err error) error {
	var timeout net.Error
	var number syscall.Errno
	switch {
	case errors.Is(err, errAddress):
		return errAddress
	case errors.As(err, &number):
		return fmt.Errorf("no answer: %w", number)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer within %s", patience)
	}
	return errors.New("no answer in HTTP")
}
