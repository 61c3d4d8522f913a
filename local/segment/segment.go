//go:build linux

// Package segment is the journal in the store: each segment begins with a snapshot of the engine, and the batches of
// its steps follow. The elements of an array that differ in their numbers only are stored as one; a reader gets each
// again.
package segment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/store"
)

// ErrNone is returned for a stretch of the journal that there is not.
var ErrNone = errors.New("no such segment of the journal")

// Book is the stored journal.
type Book struct{ Store *store.Store }

// Write writes a segment, from its snapshot on, as muster replay reads it; 0 is the last one, 1 the first.
func (b *Book) Write(ctx context.Context, segment int, w io.Writer) error {
	header, names, first, last, err := b.find(ctx, segment)
	if err != nil {
		return err
	}
	j, err := journal.NewWriter(w, header)
	if err != nil {
		return err
	}
	next := first
	err = b.Store.Steps(ctx, first, last, func(batch []byte, hash string) error {
		step, err := decodeBatch(batch, names)
		if err != nil {
			return fmt.Errorf("step %d: %w", next, err)
		}
		if step.Seq != next {
			return fmt.Errorf("step %d is not stored any more", next)
		}
		next++
		h, err := strconv.ParseUint(hash, 16, 64)
		if err != nil {
			return fmt.Errorf("step %d: hash %q: %w", step.Seq, hash, err)
		}
		return j.Record(&step, &engine.Decision{Hash: h})
	})
	return errors.Join(err, j.Flush())
}

// Segments lists since when each segment of the journal goes on.
func (b *Book) Segments(ctx context.Context) (began []cluster.Time, err error) {
	list, err := b.Store.Segments(ctx)
	for i := range list {
		var snap struct {
			Now cluster.Time `json:"now"`
		}
		if err := json.Unmarshal(list[i].Snapshot, &snap); err != nil {
			return nil, fmt.Errorf("segment %d of the journal: %w", i+1, err)
		}
		began = append(began, snap.Now)
	}
	return began, err
}

// find returns how a segment begins, which names are in it (oldkeys), and which steps it has.
func (b *Book) find(ctx context.Context, n int) (h journal.Header, names int, first, last int64, err error) {
	list, err := b.Store.Segments(ctx)
	if err != nil {
		return h, 0, 0, 0, err
	}
	if n == 0 {
		n = len(list)
	}
	if n < 1 || n > len(list) {
		return h, 0, 0, 0, fmt.Errorf("%w: %d; there are 1 to %d", ErrNone, n, len(list))
	}
	g := list[n-1]
	if last = 1 << 62; n < len(list) {
		last = list[n].First - 1
	}
	if h, names, err = journal.ReadHeader(g.Header); err == nil {
		h.Snapshot, err = DecodeSnapshot(g.Snapshot, names)
	}
	if err != nil {
		return h, 0, 0, 0, fmt.Errorf("segment %d of the journal: %w", n, err)
	}
	return h, names, g.First, last, nil
}

// Fits says why a segment cannot be exported, before anything is sent.
func (b *Book) Fits(ctx context.Context, segment int) error {
	_, _, first, last, err := b.find(ctx, segment)
	if err != nil {
		return err
	}
	at := int64(0)
	err = b.Store.Steps(ctx, first, min(first, last), func([]byte, string) error { at = first; return nil })
	if err == nil && at != first && first <= last {
		if seq, _, err := b.Store.Last(ctx); err == nil && seq >= first {
			return fmt.Errorf("%w: its first step is not stored any more", store.ErrNotFound)
		}
	}
	return err
}
