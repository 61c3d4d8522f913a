package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/serving/scale"
)

// reconcile submits the replicas that are missing, and lets go those that are too many.
func (c *Controller) reconcile(ctx context.Context, s *running, now time.Time) error {
	have := c.of(s)
	want := s.want
	if s.deleted {
		want = nil
		for _, r := range have {
			c.leave(r, now)
		}
	}
	states := s.states(have, now)
	add, leave := scale.Change(want, states)
	for _, i := range leave {
		c.leave(have[i], now)
	}
	var errs []error
	for _, more := range add {
		for range more.Replicas {
			if err := c.add(ctx, s, more.Kind, c.moving(s, have, more.Kind), now); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	c.replace(s, have, states, now)
	for _, r := range have {
		errs = append(errs, c.part(ctx, s, r, now))
	}
	return errors.Join(errs...)
}

// moving finds a replica of a kind that is moved and in whose place none has come yet; 0: there is none.
func (c *Controller) moving(s *running, have []*replica, k scale.Kind) int {
	for _, r := range have {
		if r.Moves && r.leaves.IsZero() && r.Generation == s.Generation && s.variant(r) == k.Variant &&
			r.Share == k.Share && !slices.ContainsFunc(c.of(s), func(o *replica) bool { return o.InPlaceOf == r.ID }) {
			return r.ID
		}
	}
	return 0
}

// add submits a replica, in the place of one that is moved or of none (0), unless those before it failed a moment ago.
func (c *Controller) add(ctx context.Context, s *running, k scale.Kind, inPlaceOf int, now time.Time) error {
	if now.Before(s.again) {
		return nil
	}
	port, err := c.port()
	if err == nil {
		var id int
		if id, err = c.opt.Scheduler.Submit(ctx, &s.Service, k, port, inPlaceOf); err == nil {
			c.replicas[id] = &replica{Job: Job{ID: id, Service: s.Name, Variant: s.Variants[k.Variant].Name,
				Share: k.Share, Generation: s.Generation, Port: port, State: Waits, Submitted: now,
				InPlaceOf: inPlaceOf}}
			return nil
		}
	}
	s.fail(now, "no replica can be submitted: "+err.Error())
	return nil // the owner is told by why; it is no fault of the daemon's
}

// port finds a port that no replica has and where nothing listens.
func (c *Controller) port() (int, error) {
	taken := map[int]bool{}
	for _, r := range c.replicas {
		taken[r.Port] = true // also of one that ended a moment ago: the gateway may not know it yet
	}
	for p := c.opt.First; p <= c.opt.Last; p++ {
		if taken[p] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err == nil {
			return p, l.Close()
		}
	}
	return 0, fmt.Errorf("no port from %d to %d is free", c.opt.First, c.opt.Last)
}

// leave lets a replica go: it gets no more requests, and its job ends once it has finished what it has.
func (c *Controller) leave(r *replica, now time.Time) {
	if r.leaves.IsZero() {
		r.leaves = now
	}
}

// replace lets go a replica of a service's former form for each that answers in the new form. Where the new
// ones wait for GPUs that the former ones hold, one of those makes room, unless it is the last that answers.
func (c *Controller) replace(s *running, have []*replica, states []scale.Replica, now time.Time) {
	var former []*replica
	fresh, answering, stuck := 0, 0, false
	for i, r := range have {
		switch {
		case r.Generation != s.Generation && r.leaves.IsZero():
			former = append(former, r)
			if r.state() == Answers {
				answering++
			}
		case states[i].Leaves, states[i].Moves:
		case states[i].Answers:
			fresh++
			answering++
		case states[i].Stuck:
			stuck = true
		}
	}
	keep := max(0, s.wanted()-fresh)
	if stuck && answering > 1 && len(former) > 0 && keep >= len(former) {
		keep = len(former) - 1
	}
	for i := 0; len(former)-i > keep; i++ {
		c.leave(former[i], now)
	}
}

// part cancels the job of a replica that leaves, once it has finished what it has, or has never answered.
func (c *Controller) part(ctx context.Context, s *running, r *replica, now time.Time) error {
	if r.leaves.IsZero() || r.State == Over {
		return nil
	}
	waited := now.Sub(r.leaves)
	busy := r.answers && c.busy(s.Name, r)
	if r.answers && (waited < 2*stepEvery || busy) && waited < grace {
		return nil
	}
	if err := c.opt.Scheduler.Cancel(ctx, r.ID); err != nil {
		return fmt.Errorf("service %s: job %d: %w", s.Name, r.ID, err)
	}
	return nil
}

// busy reports whether the gateway waits for answers of a replica.
func (c *Controller) busy(name string, r *replica) bool {
	s := c.served(name)
	if s == nil {
		return false
	}
	for i := range s.Each {
		if s.Each[i].ID == strconv.Itoa(r.ID) {
			return s.Each[i].Busy > 0
		}
	}
	return false
}

// cancelUnknown ends replicas of services that there are no more.
func (c *Controller) cancelUnknown(ctx context.Context) (err error) {
	for _, r := range c.replicas {
		if c.services[r.Service] == nil && r.State != Over {
			err = errors.Join(err, c.opt.Scheduler.Cancel(ctx, r.ID))
		}
	}
	return err
}
