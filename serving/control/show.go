package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/serving/tally"
	"github.com/muster-gpu/muster/show"
)

// Services shows all services by name.
func (c *Controller) Services() []show.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []show.Service{}
	for _, name := range c.names() {
		s := c.show(c.services[name])
		s.Text = ""
		list = append(list, s)
	}
	return list
}

// Service shows a service.
func (c *Controller) Service(name string) (show.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services[name]
	if s == nil {
		return show.Service{}, ErrUnknown
	}
	return c.show(s), nil
}

func (c *Controller) show(s *running) show.Service {
	b := s.bounds()
	v := show.Service{Name: s.Name, Owner: s.Owner, Queue: s.Queue, Tier: s.Tier.String(), Goal: goal(s),
		Scaling: cmp.Or(s.Scaling, scale.Default), Applied: s.Applied, Min: b.Min, Max: b.Max, Scaled: s.Scaled != nil,
		Deleting: s.deleted, Percentile: s.Goal.Percentile, Attainment: 1, Text: s.File.Text,
		Variants: []show.ServiceVariant{}, Replicas: []show.ServiceReplica{}}
	for i := range s.Variants {
		x := show.ServiceVariant{Name: s.Variants[i].Name, Measured: s.times[i].measured(), Beside: s.showBeside(i)}
		if s.Variants[i].Language != nil {
			on := s.Variants[i].Parallel()
			x.Pipeline, x.Tensor = on.PP, on.TP
		}
		v.Variants = append(v.Variants, x)
	}
	for _, w := range s.want {
		v.Variants[w.Variant].Wanted += w.Replicas
		v.Wanted += w.Replicas
	}
	for _, r := range c.of(s) {
		x := show.ServiceReplica{Job: r.ID, Variant: r.Variant, State: string(r.state()), Since: r.Submitted,
			Port:    r.Port,
			Devices: r.Devices, Former: r.Generation != s.Generation, Problem: r.problem}
		if !r.Started.IsZero() {
			x.Since = r.Started
		}
		if k := s.variant(r); k >= 0 && r.state() == Answers {
			v.Answers++
			v.Variants[k].Answers++
			v.PerHour += s.Variants[k].PerHourOf(r.Share)
		}
		v.Replicas = append(v.Replicas, x)
	}
	v.Loans = c.showLoans(s)
	c.showRequests(&v, s)
	v.Why = c.why(s, &v)
	return v
}

// showRequests fills in what became of the last minute's requests.
func (c *Controller) showRequests(v *show.Service, s *running) {
	served := c.served(s.Name)
	if v.Measured = served != nil; !v.Measured {
		return
	}
	v.Waiting = served.Waiting
	if b := served.Bulk; b != nil {
		v.Bulk = &show.ServiceBulk{Waiting: b.Waiting, Answered: b.Answered, Failed: b.Failed, Needed: b.Needed}
	}
	var t tally.Tally
	span := time.Duration(0)
	for i := range s.seen {
		if c.opt.Now().Sub(s.seen[i].at) < seenFor {
			t.Merge(&s.seen[i].Tally)
			span += s.seen[i].span
		}
	}
	if span > 0 {
		v.Rate = float64(t.Arrived) / span.Seconds()
	}
	v.Median, v.Quantile = t.Latency.Quantile(0.5).Seconds(), t.Latency.Quantile(s.Goal.Percentile/100).Seconds()
	v.Attainment, v.Dropped, v.Failed = t.Attainment(), t.Dropped+t.Refused, t.Failed
	if t.Batches > 0 {
		v.Batch = float64(t.Answered) / float64(t.Batches)
	}
}

// goal is what a service promises, as text.
func goal(s *running) string {
	var list []string
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"latency", s.Goal.Latency}, {"ttft", s.Goal.TTFT}, {"tpot", s.Goal.TPOT}} {
		if x.d > 0 {
			list = append(list, fmt.Sprintf("%s %v", x.name, x.d))
		}
	}
	return fmt.Sprintf("%s for %g %%", strings.Join(list, ", "), s.Goal.Percentile)
}

// why says why a service has the replicas that it has, and what is in the way of others.
func (c *Controller) why(s *running, v *show.Service) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	now := c.opt.Now()
	switch {
	case s.deleted:
		add("it is being deleted: its replicas finish what they have")
	case !v.Measured:
		add("nothing is known of its requests, so its replicas stay as they are: %v", cmp.Or(c.silent, errUncounted))
	case v.Wanted == 0:
		add("no replica is needed: there are no requests; the first one starts a replica, and waits for it")
	default:
		add("%s wants %d for %.4g requests a second; answering: %d", v.Scaling, v.Wanted, v.Rate, v.Answers)
		if text := scale.Says(s.policy); text != "" {
			add("%s", text)
		}
	}
	if s.refused != nil && !s.deleted {
		add("it gets no requests, because the gateway does not take it: %v", s.refused)
	}
	if v.Wanted == v.Max && v.Measured && v.Attainment < v.Percentile/100 {
		add("max is %d: more replicas would be needed to keep the goal", v.Max)
	}
	waits := slices.DeleteFunc(slices.Clone(v.Replicas), func(r show.ServiceReplica) bool {
		return r.State != string(Waits)
	})
	for _, r := range waits {
		add("job %d waits for GPUs since %s: muster why %d says what it waits for", r.Job,
			cluster.FormatDuration(now.Sub(r.Since).Truncate(time.Second)), r.Job)
	}
	for _, r := range v.Replicas {
		if r.Problem != "" {
			add("job %d does not answer: %s", r.Job, r.Problem)
		}
	}
	if v.Loans != nil {
		list = append(list, loansText(v.Loans)...)
	}
	if s.trouble != "" {
		text := s.trouble
		if s.failed > 1 {
			text += fmt.Sprintf(" (%d in a row)", s.failed)
		}
		if wait := s.again.Sub(now); wait > 0 {
			text += fmt.Sprintf("; the next is submitted in %v", wait.Truncate(time.Second)+time.Second)
		}
		list = append(list, text)
	}
	return list
}
