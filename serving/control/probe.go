package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/serving/memory"
	"github.com/muster-gpu/muster/serving/scale"
)

const (
	probeEvery    = time.Second
	probeTimeout  = 5 * time.Second
	probeFailures = 3
	hangsFor      = 30 * time.Second // after which a replica that has answered, and does not now, is replaced
	startLeast    = time.Minute      // in which each replica may start
	startFactor   = 3                // of the start-up time that its service states
)

// ErrTaken is that a process of another user listens at a replica's port.
var ErrTaken = errors.New("a process of another user listens at its port")

// prober asks replicas over connections of their own: what is kept open could belong to a former process.
var prober = &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// probe asks the replicas whose turn it is whether they answer, and gives up on those that do not.
func (c *Controller) probe(ctx context.Context, now time.Time) {
	for _, r := range c.replicas {
		s := c.services[r.Service]
		if s == nil || r.State != Starts || !r.leaves.IsZero() {
			continue
		}
		if c.hopeless(s, r, now) {
			continue
		}
		if !r.asking && (!r.answers || now.Sub(r.asked) >= cmp.Or(s.Probe.Every, probeEvery)) {
			r.asking, r.asked = true, now
			path := ""
			if scale.NeedsMemory(s.policy) {
				path = metricsPath
			}
			go c.ask(ctx, r.Job, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port)), s.ProbePath(), path,
				cmp.Or(s.Probe.Timeout, probeTimeout))
		}
	}
}

// hopeless lets go a replica that did not begin to answer in time, or has not answered for a while.
func (c *Controller) hopeless(s *running, r *replica, now time.Time) bool {
	patience := startLeast
	if k := s.variant(r); k >= 0 {
		patience = max(patience, startFactor*s.Variants[k].Startup)
	}
	why := ""
	switch {
	case !r.answers && now.Sub(r.found) > patience:
		why = fmt.Sprintf("job %d did not answer within %v of its start: %s", r.ID, patience, r.problem)
	case r.hangs && now.Sub(r.failing) > hangsFor:
		why = fmt.Sprintf("job %d has not answered for %v: %s", r.ID, hangsFor, r.problem)
	default:
		return false
	}
	s.fail(now, why)
	c.leave(r, now.Add(-grace)) // it has nothing to finish
	return true
}

// metricsPath is where the servers of language models have their metrics.
const metricsPath = "/metrics"

// ask probes a replica, and asks one that answers how full its memory is if metrics is a path.
func (c *Controller) ask(ctx context.Context, j Job, url, path, metrics string, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := c.opt.Scheduler.Check(&j)
	if err == nil {
		err = get(ctx, url+path, nil)
	}
	used, tells := 0.0, false
	if err == nil && metrics != "" {
		if get(ctx, url+metrics, func(r io.Reader) { used, tells = memory.Read(r) }) != nil {
			tells = false // a replica without metrics says nothing, and answers all the same
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.replicas[j.ID]
	if r == nil || r.Started != j.Started || r.State != Starts {
		return
	}
	r.asking = false
	r.memory, r.tells = used, tells
	s := c.services[r.Service]
	if err != nil {
		if r.problem = err.Error(); r.fails == 0 {
			r.failing = c.opt.Now()
		}
		r.fails++
		taken := errors.Is(err, ErrTaken) // it gets no more requests from now on
		r.hangs = r.answers && s != nil && (taken || r.fails >= cmp.Or(s.Probe.Failures, probeFailures))
		if taken && r.hangs {
			defer c.wake()
		}
		return
	}
	if !r.answers || r.hangs {
		defer c.wake()
	}
	if !r.answers {
		r.since = c.opt.Now()
	}
	r.answers, r.hangs, r.fails, r.problem = true, false, 0, ""
}

// get asks for a page, and has its text read if it is there.
func get(ctx context.Context, url string, read func(r io.Reader)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := prober.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if read != nil {
		read(resp.Body)
	}
	return nil
}
