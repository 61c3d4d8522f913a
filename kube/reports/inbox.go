package reports

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// bookEvery is how often reports are booked: of many pods all at once, since each step of the engine may look at all
// that wait. The last words of a gang that leaves are booked at once.
const bookEvery = time.Second

// Inbox is the gangs whose pods told something that is not booked yet.
type Inbox[G comparable] struct {
	list   []G // in the order in which they told
	in     map[G]bool
	urgent bool
	booked cluster.Time // when it was last emptied
}

// Put adds a gang that told something; urgent: it may be its last.
func (b *Inbox[G]) Put(g G, urgent bool) {
	if !b.in[g] {
		if b.in == nil {
			b.in = map[G]bool{}
		}
		b.in[g], b.list = true, append(b.list, g)
	}
	b.urgent = b.urgent || urgent
}

// Has reports whether a gang told something that is not booked yet.
func (b *Inbox[G]) Has(g G) bool { return b.in[g] }

// Len counts these gangs.
func (b *Inbox[G]) Len() int { return len(b.list) }

// Hurry has all be booked at once.
func (b *Inbox[G]) Hurry() { b.urgent = len(b.list) > 0 }

// Urgent reports whether all are to be booked at once.
func (b *Inbox[G]) Urgent() bool { return b.urgent }

// Next is when they are to be booked; Never: there are none.
func (b *Inbox[G]) Next() cluster.Time {
	switch {
	case len(b.list) == 0:
		return cluster.Never
	case b.urgent:
		return 0
	}
	return b.booked.Add(bookEvery)
}

// Take empties the inbox when that is due.
func (b *Inbox[G]) Take(now cluster.Time) (list []G) {
	if now < b.Next() {
		return nil
	}
	list, b.list, b.in, b.urgent, b.booked = b.list, nil, nil, false, now
	return list
}
