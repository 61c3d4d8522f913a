// Package fleet plays the requests of services on their replicas in virtual time: a request waits, is computed with
// others, and is answered or dropped. What the replicas are, and when there are more or fewer, is decided elsewhere.
package fleet

import (
	"errors"
	"fmt"
	"io"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
)

// Fleet is all replicas of all services.
type Fleet struct {
	stream   requests.Stream
	next     requests.Request
	ended    bool
	now      cluster.Time
	services []served // then the parts of those with a canary, and the members of ensembles
	number   int32    // of services without these
	replicas []replica
	due      []event
	err      error
}

// replica is a copy of a service. Either kind of work is nil.
type replica struct {
	service  int32
	draining bool
	gone     bool
	gen      uint32 // events of another generation are void
	batches  *batches
	language *language
}

// event is due when a replica's batch or step ends, when its rule wants to look again, or when what was moved between
// replicas of a service is there.
type event struct {
	at      cluster.Time
	replica int32 // below 0: of service -1 - replica
	gen     uint32
}

// Before orders events by time, then by replica.
func (e *event) Before(o *event) bool { return e.at < o.at || e.at == o.at && e.replica < o.replica }

// New prepares to play a stream whose requests name services by their number.
func New(services []service.Service, stream requests.Stream) (*Fleet, error) {
	f := &Fleet{stream: stream, services: make([]served, len(services)), number: int32(len(services))}
	for i := range services {
		f.services[i].spec, f.services[i].of = &services[i], int32(i)
		f.limit(int32(i))
	}
	for i := range services {
		if services[i].Canary > 0 {
			f.split(int32(i))
		}
	}
	f.read()
	return f, f.err
}

// read reads the next request.
func (f *Fleet) read() {
	err := f.stream.Next(&f.next)
	switch {
	case errors.Is(err, io.EOF):
		f.ended = true
	case err != nil:
		f.ended, f.err = true, err
	case f.next.Service < 0 || f.next.Service >= f.number:
		f.ended, f.err = true, fmt.Errorf("a request is for service %d of %d", f.next.Service, f.number)
	}
}

// Place is what a replica runs on.
type Place struct {
	GPU    string        // model
	Slower float64       // factor by which everything takes longer than on such a GPU alone
	Share  cluster.Milli // of the GPU; 0: as the variant says
}

// Add adds a replica of a variant that takes requests from now on, and returns its number.
func (f *Fleet) Add(svc, variant int, p Place) (int, error) {
	of := f.answering(svc, variant)
	s := &f.services[of]
	r := replica{service: of}
	id := int32(len(f.replicas))
	var err error
	if s.spec.Language() {
		if r.language, err = newLanguage(s, variant, p); err == nil {
			r.language.handOver = func(q *llm.Sequence) bool { return f.handOver(of, q, id) }
		}
	} else {
		r.batches, err = newBatches(s, variant, p)
	}
	if err != nil {
		return 0, err
	}
	f.replicas = append(f.replicas, r)
	if r.language != nil && r.language.spec.Phase == llm.Decode {
		s.decoding = append(s.decoding, id)
	} else {
		s.taking = append(s.taking, id)
	}
	if r.batches != nil {
		s.idle = append(s.idle, id)
	}
	f.limit(of)
	switch {
	case s.member:
		f.poll(s.of)
	case f.services[svc].canary != nil:
		f.divide(int32(svc))
	}
	f.dispatch(of)
	return int(id), nil
}

// Slow has a replica's later batches, or steps, take longer by a factor than alone: its neighbours changed.
func (f *Fleet) Slow(id int, factor float64) {
	r := &f.replicas[id]
	switch {
	case r.gone:
	case r.language != nil:
		r.language.slower = factor
	default:
		r.batches.slow(factor)
	}
}

// Drain lets a replica finish what it has begun and take nothing more; Idle says when it is done.
func (f *Fleet) Drain(id int) {
	r := &f.replicas[id]
	if r.draining || r.gone {
		return
	}
	r.draining = true
	s := &f.services[r.service]
	s.taking, s.idle = without(s.taking, int32(id)), without(s.idle, int32(id))
	s.decoding = without(s.decoding, int32(id))
	f.limit(r.service)
	switch {
	case len(s.taking) > 0:
	case s.member:
		f.abstain(r.service)
	case s.partOf != nil:
		f.giveBack(r.service)
	}
}

func without(list []int32, id int32) []int32 {
	for i, k := range list {
		if k == id {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// Idle reports whether a replica computes nothing, and holds nothing that another fetches.
func (f *Fleet) Idle(id int) bool {
	r := &f.replicas[id]
	return r.end() == cluster.Never && (r.language == nil || r.language.holds == 0)
}

// IdleAt is the earliest instant at which a replica can be idle.
func (f *Fleet) IdleAt(id int) cluster.Time {
	if at := f.replicas[id].end(); at != cluster.Never {
		return at
	}
	if l := f.replicas[id].language; l != nil && l.holds > 0 {
		if at := f.movedBy(int32(id)); at > 0 {
			return at
		}
		return cluster.Never // once another has fetched what it holds
	}
	return f.now
}

// DoneBy is when a replica that takes nothing more is expected to be done with what it has begun.
func (f *Fleet) DoneBy(id int) cluster.Time {
	if l := f.replicas[id].language; l != nil {
		return max(f.now.Add(l.instance.Left()), f.movedBy(int32(id)))
	}
	return f.IdleAt(id)
}

// end is when a replica's batch or step ends; cluster.Never: it computes nothing.
func (r *replica) end() cluster.Time {
	if r.language != nil {
		return r.language.instance.End()
	}
	return r.batches.end
}

// Remove takes a replica away at once. What it had begun is lost, and counted as failed.
func (f *Fleet) Remove(id int) {
	f.Drain(id)
	r := &f.replicas[id]
	if r.gone {
		return
	}
	s := &f.services[r.service]
	if r.language != nil {
		s.since.Failed += int64(r.language.instance.Clear())
	} else {
		f.lose(r)
	}
	r.gone = true
	r.gen++
	f.decode(r.service) // what it held for others is lost
}

// Next is the earliest instant at which anything happens; cluster.Never: nothing will.
func (f *Fleet) Next() cluster.Time {
	at := f.Arrival()
	if len(f.due) > 0 {
		at = min(at, f.due[0].at)
	}
	return at
}

// Arrival is when the next request comes; cluster.Never: none does.
func (f *Fleet) Arrival() cluster.Time {
	if f.ended {
		return cluster.Never
	}
	return f.next.At
}

// Ended reports whether all requests have come.
func (f *Fleet) Ended() bool { return f.ended }

// Advance plays everything up to an instant, inclusive. What ends at an instant comes before what arrives then.
func (f *Fleet) Advance(to cluster.Time) error {
	for {
		due := cluster.Never
		if len(f.due) > 0 {
			due = f.due[0].at
		}
		switch {
		case due <= to && due <= f.Arrival():
			ev := heap.Pop(&f.due)
			f.now = ev.at
			if ev.replica < 0 {
				f.decode(-1 - ev.replica)
			} else if r := &f.replicas[ev.replica]; r.gen == ev.gen && !r.gone {
				f.wake(ev.replica)
			}
		case f.Arrival() <= to:
			f.now = f.next.At
			f.arrive()
			f.read()
		default:
			f.now = max(f.now, to)
			return f.err
		}
	}
}

// at schedules a replica's next event; earlier ones are void.
func (f *Fleet) at(id int32, at cluster.Time) {
	r := &f.replicas[id]
	r.gen++
	heap.Push(&f.due, event{at, id, r.gen})
}

// arrive takes the next request in.
func (f *Fleet) arrive() {
	to := f.part(int32(f.next.Service))
	s := &f.services[to]
	s.since.Arrived++
	if f.Waiting(int(to)) >= s.room {
		s.since.Refused++
		return
	}
	it := item{At: f.now, Prompt: f.next.Prompt, Output: f.next.Output}
	if s.ensemble != nil {
		f.ask(to, it)
		return
	}
	s.queue.Push(it)
	if len(s.taking) > 0 {
		f.dispatch(to)
	}
}

// wake handles an event of a replica: its batch or step is done, or it has waited for others.
func (f *Fleet) wake(id int32) {
	r := &f.replicas[id]
	s := &f.services[r.service]
	if r.language != nil {
		r.language.finish(s)
		f.dispatch(r.service)
		f.step(id)
		return
	}
	if r.batches.end != cluster.Never {
		f.finish(r)
		if r.draining {
			return
		}
		s.idle = append(s.idle, id)
	}
	f.dispatch(r.service)
}

// dispatch gives what waits to the replicas of a service.
func (f *Fleet) dispatch(svc int32) {
	s := &f.services[svc]
	if s.spec.Language() {
		f.route(s)
		f.decode(svc)
		return
	}
	for i := len(s.idle) - 1; i >= 0 && s.queue.Len() > 0; i-- { // the one that became idle last first
		id := s.idle[i]
		b := f.replicas[id].batches
		switch sent, again := f.send(b, svc); {
		case sent:
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			f.at(id, b.end)
		case again != cluster.Never:
			f.at(id, again)
		}
	}
}
