//go:build linux

package local

import (
	"context"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// item turns into events when its batch begins; it runs with the state locked.
// ack, if there is one, is called when the batch is in the store.
type item func(now cluster.Time) (events []engine.Event, ack func(error))

// inbox collects what happened until the next step: everything that arrives
// while one is being stored goes into the next together.
type inbox struct {
	mu    sync.Mutex
	items []item
	ready chan struct{}
}

func (b *inbox) init() { b.ready = make(chan struct{}, 1) }

func (b *inbox) put(it item) {
	b.mu.Lock()
	b.items = append(b.items, it)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

// wait returns when there is something, or when the time is over.
func (b *inbox) wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ready:
	case <-t.C:
	}
	return nil
}

// event puts one event.
func (m *Machine) event(ev engine.Event) {
	m.inbox.put(func(cluster.Time) ([]engine.Event, func(error)) { return []engine.Event{ev}, nil })
}

// watchers are told when something changed.
type watchers struct {
	mu sync.Mutex
	ch chan struct{}
}

// changed returns a channel that is closed at the next change.
func (w *watchers) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = make(chan struct{})
	}
	return w.ch
}

func (w *watchers) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch != nil {
		close(w.ch)
		w.ch = nil
	}
}
