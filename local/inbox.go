//go:build linux

package local

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// item turns into events when its batch begins; it runs with the state locked.
// ack, if there is one, is called when the batch is in the store.
type item func(now cluster.Time) (events []engine.Event, ack func(error))

// event puts one event.
func (m *Machine) event(ev engine.Event) {
	m.inbox.Put(func(cluster.Time) ([]engine.Event, func(error)) { return []engine.Event{ev}, nil })
}
