// Package driver connects the engine to a world: the simulator, this machine, a Kubernetes cluster. Run is the
// only loop, the same function in the simulator and live.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/muster-gpu/muster/engine"
)

// Driver is a world. Next waits for the next instant at which something happened, or for the wake-up time of the
// last decision; io.EOF ends the run. Apply carries out a decision: it starts actions and returns; later calls
// of Next report their outcome.
type Driver interface {
	Next(ctx context.Context) (engine.Batch, error)
	Apply(ctx context.Context, d engine.Decision) error
}

// Journal records each batch and the hash of its decision. A batch is recorded before its decision is applied,
// so that a crash between the two loses nothing: the decision can be taken again.
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
