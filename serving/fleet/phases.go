package fleet

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/serving/llm"
)

// moving is a request whose keys and values are on their way from the replica that computed its prompt to another.
type moving struct {
	at       cluster.Time // when they are there
	order    int64        // of those that are there at the same time
	sequence llm.Sequence
}

// Before orders what moves by its arrival.
func (m *moving) Before(o *moving) bool { return m.at < o.at || m.at == o.at && m.order < o.order }

// handOver begins to move what is left of a request whose first token there is.
func (f *Fleet) handOver(svc int32, q *llm.Sequence, l *language) bool {
	rest, more := q.Tail()
	if !more {
		return false
	}
	s := &f.services[svc]
	took := float64(q.Prompt) * l.spec.Model.KV() / l.spec.Link * 1e9
	s.moved++
	m := moving{q.Last.Add(time.Duration(took)), s.moved, rest}
	heap.Push(&s.moving, m)
	heap.Push(&f.due, event{m.at, -1 - svc, 0})
	return true
}

// decode gives requests whose keys and values have come to the replicas that make the other tokens: to the one with the
// fewest requests of those that can hold it. Without any replica they wait for one; those that none can hold are lost.
func (f *Fleet) decode(svc int32) {
	s := &f.services[svc]
	for len(s.moving) > 0 && s.moving[0].at <= f.now && len(s.decoding) > 0 {
		q := heap.Pop(&s.moving).sequence
		best := f.fewest(s.decoding, q.Prompt, q.Output)
		if best < 0 {
			s.since.Failed++
			continue
		}
		f.replicas[best].language.instance.Add(q)
		f.step(best)
	}
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
