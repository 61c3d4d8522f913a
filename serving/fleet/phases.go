package fleet

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/serving/llm"
)

// moving is what is left of a request whose first token there is. Its keys and values are with the replica that
// computed its prompt, and take blocks of that one's memory, until they have come to the replica that makes the other
// tokens. That one fetches them when it has blocks for them.
type moving struct {
	at       cluster.Time // when they are there
	order    int64        // of those that are there at the same time
	sequence llm.Sequence
	takes    time.Duration // to move them
	from, to int32         // replicas
	blocks   int32         // of from
}

// Before orders what moves by its arrival.
func (m *moving) Before(o *moving) bool { return m.at < o.at || m.at == o.at && m.order < o.order }

// handOver keeps what is left of a request for a replica that makes the other tokens.
func (f *Fleet) handOver(svc int32, q *llm.Sequence, from int32) bool {
	rest, more := q.Tail()
	if !more {
		return false
	}
	s, l := &f.services[svc], f.replicas[from].language
	l.holds++
	s.done = append(s.done, moving{sequence: rest, from: from, blocks: l.instance.Hold(q),
		takes: time.Duration(float64(q.Prompt) * l.spec.Model.KV() / l.spec.Link * 1e9)})
	return true
}

// decode gives requests whose keys and values have come to the replicas that make the other tokens, and lets these
// fetch what the prompts' replicas hold.
func (f *Fleet) decode(svc int32) {
	s := &f.services[svc]
	for len(s.moving) > 0 && s.moving[0].at <= f.now {
		m := heap.Pop(&s.moving)
		if to := &f.replicas[m.to]; !to.gone {
			to.language.instance.Arrived(&m.sequence)
			if !to.draining && !f.replicas[m.from].gone {
				f.replicas[m.to].language.instance.Add(m.sequence)
				f.step(m.to)
				f.release(&m)
				continue
			}
		}
		s.done = append([]moving{m}, s.done...)
	}
	for len(s.done) > 0 && (len(s.decoding) > 0 || f.replicas[s.done[0].from].gone) {
		m := &s.done[0]
		q := &m.sequence
		best, least, fits := int32(-1), 0, false
		for _, id := range s.decoding {
			x := f.replicas[id].language.instance
			if !x.Fits(q.Prompt, q.Output) {
				continue
			}
			fits = true
			if n := x.Waiting() + x.Running(); x.Room(q) && (best < 0 || n < least) {
				best, least = id, n
			}
		}
		switch {
		case f.replicas[m.from].gone || !fits: // nothing has them, or none can hold them
			s.since.Failed++
			f.release(m)
		case best < 0: // the first of those that wait goes first
			return
		default:
			f.replicas[best].language.instance.Expect(q)
			s.moved++
			m.to, m.at, m.order = best, f.now.Add(m.takes), s.moved
			heap.Push(&s.moving, *m)
			heap.Push(&f.due, event{m.at, -1 - svc, 0})
		}
		s.done = s.done[1:]
	}
}

// release frees the blocks that a request's prompt took, which may let the next prompts begin.
func (f *Fleet) release(m *moving) {
	r := &f.replicas[m.from]
	if r.gone {
		return
	}
	r.language.holds--
	r.language.instance.Release(m.blocks)
	f.step(m.from)
}

// movedBy is when a replica's keys and values that are on their way have left it; 0: none are.
func (f *Fleet) movedBy(id int32) (last cluster.Time) {
	for i := range f.services[f.replicas[id].service].moving {
		if m := &f.services[f.replicas[id].service].moving[i]; m.from == id {
			last = max(last, m.at)
		}
	}
	return last
}

// fewest is the replica with the fewest requests of those that can hold a request; -1: none can.
func (f *Fleet) fewest(list []int32, prompt, output int32) int32 {
	best, least := int32(-1), 0
	for _, id := range list {
		x := f.replicas[id].language.instance
		if n := x.Waiting() + x.Running(); x.Fits(prompt, output) && (best < 0 || n < least) {
			best, least = id, n
		}
	}
	return best
}
