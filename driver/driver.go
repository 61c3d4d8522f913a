// Package driver connects the engine to a world: the simulator, this machine,
// a Kubernetes cluster. Run is the only loop; what it does live, it does in
// the simulator, because it is the same function.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/muster-gpu/muster/engine"
)

// Driver is a world. Next waits for the next instant at which something
// happened, or at which the last decision wanted to be woken; io.EOF ends the
// run. Apply carries out a decision: it starts things and returns; what came
// of them is reported by later calls of Next.
type Driver interface {
	Next(ctx context.Context) (engine.Batch, error)
	Apply(ctx context.Context, d engine.Decision) error
}

// Journal records what went in and the hash of what came out. A batch is
// recorded before its decision is applied, so that a crash between the two
// loses nothing: the decision can be made again.
type Journal interface {
	Record(b *engine.Batch, d *engine.Decision) error
}

// Run drives the engine until the driver has no more events. A nil journal
// records nothing.
func Run(ctx context.Context, e *engine.Engine, d Driver, j Journal) error {
	for {
		b, err := d.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("next events: %w", err)
		}
		dec := e.Step(b)
		if j != nil {
			if err := j.Record(&b, &dec); err != nil {
				return fmt.Errorf("journal: %w", err)
			}
		}
		if err := d.Apply(ctx, dec); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
}
