// Package inbox collects what happens while a driver is busy with a step: all of it goes into the next one
// together.
package inbox

import (
	"context"
	"sync"
	"time"
)

// Inbox has many producers and one consumer.
type Inbox[T any] struct {
	mu    sync.Mutex
	items []T
	ready chan struct{}
}

// Init makes the inbox ready for use.
func (b *Inbox[T]) Init() { b.ready = make(chan struct{}, 1) }

// Put adds an item. It never blocks.
func (b *Inbox[T]) Put(it T) {
	b.mu.Lock()
	b.items = append(b.items, it)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// Take empties the inbox; items come in the order in which they were put.
func (b *Inbox[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

// Wait returns when there is an item, or when the time is over.
func (b *Inbox[T]) Wait(ctx context.Context, d time.Duration) error {
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
