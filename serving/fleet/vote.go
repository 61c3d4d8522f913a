package fleet

import "github.com/muster-gpu/muster/cluster"

// ensemble is a service whose requests are answered by several variants together, each of which votes. A variant is a
// member while it has replicas that take requests, and has a queue of its own.
type ensemble struct {
	members  []int32 // by variant: its number among the fleet's services
	accuracy func(voted uint64) float64
	ballots  []ballot
	free     []int32 // ballots of no request
}

// ballot is a request that members vote on. Its answer comes with the last vote; a member that drops or loses it does
// not vote, and the others decide.
type ballot struct {
	arrived cluster.Time
	open    int32  // members that have not voted yet
	voted   uint64 // variants, as bits
}

// Ensemble lets all variants of a service that have replicas answer each of its requests together; accuracy is that of
// such an answer, given the variants that voted as bits. It is called before replicas are added.
func (f *Fleet) Ensemble(svc int, accuracy func(voted uint64) float64) {
	s := f.services[svc]
	e := &ensemble{accuracy: accuracy}
	for range s.spec.Variants {
		e.members = append(e.members, int32(len(f.services)))
		f.services = append(f.services, served{spec: s.spec, rule: s.rule, of: int32(svc), member: true})
	}
	f.services[svc].ensemble = e
}

// answering is what a variant's replicas belong to: the service, a part of it, or a member of its ensemble.
func (f *Fleet) answering(svc, variant int) int32 {
	s := &f.services[svc]
	switch {
	case s.ensemble != nil:
		return s.ensemble.members[variant]
	case s.canary != nil:
		return s.canary.parts[s.canary.of(variant)]
	}
	return int32(svc)
}

// ask gives a request to all members; without any it waits.
func (f *Fleet) ask(svc int32, it item) {
	s := &f.services[svc]
	e := s.ensemble
	b := ballot{arrived: it.At}
	for _, k := range e.members {
		if len(f.services[k].taking) > 0 {
			b.open++
		}
	}
	if b.open == 0 {
		s.queue.Push(it)
		return
	}
	if len(e.free) == 0 {
		e.free = append(e.free, int32(len(e.ballots)))
		e.ballots = append(e.ballots, b)
	}
	last := len(e.free) - 1
	it.Ballot, e.free = e.free[last], e.free[:last]
	e.ballots[it.Ballot] = b
	for _, k := range e.members {
		if m := &f.services[k]; len(m.taking) > 0 {
			m.queue.Push(it)
			f.dispatch(k)
		}
	}
}

// poll gives what waits for a first member to those that there are.
func (f *Fleet) poll(svc int32) {
	s := &f.services[svc]
	for range s.queue.Len() {
		it := *s.queue.At(0)
		s.queue.Pop(1)
		f.ask(svc, it)
	}
}

// abstain ends the membership of a variant that takes nothing more.
func (f *Fleet) abstain(member int32) {
	m := &f.services[member]
	for k := range m.queue.Len() {
		f.vote(member, m.queue.At(k), false)
	}
	m.queue.Pop(m.queue.Len())
}

// vote books that a member has answered a request, or never will.
func (f *Fleet) vote(member int32, it *item, answers bool) {
	s := &f.services[f.services[member].of]
	e := s.ensemble
	b := &e.ballots[it.Ballot]
	b.open--
	if answers {
		b.voted |= 1 << (member - e.members[0])
	}
	if b.open > 0 {
		return
	}
	e.free = append(e.free, it.Ballot)
	if b.voted == 0 {
		s.since.Dropped++
		return
	}
	took := f.now.Sub(b.arrived)
	s.since.Answer(took, took <= s.spec.Goal.Latency)
	s.right += e.accuracy(b.voted)
}
