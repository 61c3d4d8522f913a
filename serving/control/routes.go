package control

import (
	"slices"
	"strings"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// promptsOf ends the name that the gateway has for a service's replicas for prompts. No service has it in its own.
const promptsOf = ":prompts"

// votesOf begins the end of the name that the gateway has for a variant that votes.
const votesOf = ":votes:"

// split is what the gateway has of a service: it with its replicas; or, where its variants have phases, it with those
// that make answers, and an inner service with those that compute prompts; or, where they vote, it without
// replicas, and an inner service for each variant.
func (c *Controller) split(s *running) []gateway.Service {
	if _, ok := s.policy.(scale.Ensembler); ok {
		return c.voters(s)
	}
	then := *s.routes
	then.Replicas = []gateway.Replica{}
	first := then
	first.Name, first.Path, first.Inner, first.Replicas = then.Name+promptsOf, "", true, []gateway.Replica{}
	canary := map[string]bool{}
	for _, r := range c.of(s) {
		k := s.variant(r)
		x, there := route(r)
		if there && s.Canary > 0 && k == len(s.Variants)-1 {
			canary[x.ID] = true
		}
		switch {
		case !there:
		case s.Phased() && k >= 0 && s.Variants[k].Language.Phase == llm.Prefill:
			first.Replicas = append(first.Replicas, x)
		default:
			then.Replicas = append(then.Replicas, x)
		}
	}
	if !s.Phased() {
		weigh(then.Replicas, canary, s.Canary)
		return []gateway.Service{then}
	}
	then.Prompts = first.Name
	return []gateway.Service{then, first}
}

// weigh gives the replicas of a service's canary their part of the requests, if they and others answer.
func weigh(list []gateway.Replica, canary map[string]bool, part float64) {
	n := [2]float64{}
	kind := func(x *gateway.Replica) int {
		if canary[x.ID] {
			return 1
		}
		return 0
	}
	for i := range list {
		if !list[i].Draining {
			n[kind(&list[i])]++
		}
	}
	for i := range list {
		if n[0] > 0 && n[1] > 0 {
			k := kind(&list[i])
			list[i].Weight = [2]float64{1 - part, part}[k] / n[k]
		}
	}
}

// voters are a service whose variants vote, and its variants.
func (c *Controller) voters(s *running) []gateway.Service {
	outer := *s.routes
	outer.Replicas = []gateway.Replica{}
	list := []gateway.Service{outer}
	for i := range s.Variants {
		v := &s.Variants[i]
		inner := *s.routes
		inner.Name, inner.Path, inner.Model, inner.Inner = s.Name+votesOf+v.Name, "", s.Name, true
		inner.Replicas = []gateway.Replica{}
		for _, r := range c.of(s) {
			if x, ok := route(r); ok && s.variant(r) == i {
				inner.Replicas = append(inner.Replicas, x)
			}
		}
		list[0].Voters = append(list[0].Voters, gateway.Voter{Name: inner.Name, Weight: scale.Vote(v.Accuracy)})
		list = append(list, inner)
	}
	return list
}

// fold adds what the gateway counted of inner services to their services: a request arrives, waits and fails in either
// phase, and is answered once; where variants vote it is counted once, whatever becomes of its votes.
func fold(r *gateway.Report) {
	r.Services = slices.DeleteFunc(r.Services, func(inner gateway.Served) bool {
		name, votes, is := strings.Cut(inner.Name, ":")
		i := slices.IndexFunc(r.Services, func(s gateway.Served) bool { return s.Name == name })
		if !is || i < 0 {
			return false
		}
		s := &r.Services[i]
		s.Busy += inner.Busy
		s.Retried += inner.Retried
		s.Each = append(s.Each, inner.Each...)
		if s.Bulk == nil {
			s.Bulk = inner.Bulk
		} else if b := inner.Bulk; b != nil {
			s.Bulk.Waiting += b.Waiting
			s.Bulk.Needed = max(s.Bulk.Needed, b.Needed)
		}
		if strings.HasPrefix(votes, strings.Trim(votesOf, ":")) {
			s.Batches += inner.Batches
			s.Waiting = max(s.Waiting, inner.Waiting)
			s.Replicas += inner.Replicas
			return true
		}
		s.Arrived = inner.Arrived
		s.Dropped += inner.Dropped
		s.Refused += inner.Refused
		s.Failed += inner.Failed
		s.Left += inner.Left
		s.Waiting += inner.Waiting
		s.Replicas = min(s.Replicas, inner.Replicas)
		return true
	})
}
