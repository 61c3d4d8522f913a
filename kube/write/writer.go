// Package write asks the API server to change what the scheduler decides on: pods are bound, evicted and annotated,
// nodes labelled. Workers do it beside the loop, and try again what may be a passing trouble; what became of it is
// booked on the loop.
package write

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-gpu/muster/internal/kubeapi"
	"github.com/muster-gpu/muster/kube/fit/claims"
)

// Options say by what is written.
type Options struct {
	Client kubeapi.Interface
	Log    *slog.Logger
	Now    func() time.Time
	Loop   func(func())       // has something done on the loop
	Crash  func(point string) // where a test lets the scheduler die; nil: nowhere
}

// mostQueued bounds the requests that wait for a worker. When there are so many, scheduling waits for them.
const mostQueued = 1 << 16

// Writer writes.
type Writer struct {
	opt   Options
	queue chan func(context.Context)
}

// New makes a writer without workers.
func New(opt Options) *Writer { return &Writer{opt, make(chan func(context.Context), mostQueued)} }

// Work is a worker: it does what waits until the context ends.
func (w *Writer) Work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-w.queue:
			f(ctx)
		}
	}
}

// Do has a worker do something. The queue is long; when it is full all the same, it blocks.
func (w *Writer) Do(f func(context.Context)) { w.queue <- f }

// Waiting is what waits for a worker.
func (w *Writer) Waiting() <-chan func(context.Context) { return w.queue }

// later has a worker do something in a while; ended is called if the context ends first.
func (w *Writer) later(ctx context.Context, after time.Duration, f func(context.Context), ended func()) {
	time.AfterFunc(after, func() {
		select {
		case w.queue <- f:
		case <-ctx.Done():
			ended()
		}
	})
}

// Crash is called where a test lets the scheduler die.
func (w *Writer) Crash(point string) {
	if w.opt.Crash != nil {
		w.opt.Crash(point)
	}
}

func (w *Writer) claims() claims.Writer {
	return claims.Writer{Client: w.opt.Client, Now: w.opt.Now, Crash: w.opt.Crash}
}
