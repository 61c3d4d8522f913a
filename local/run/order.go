//go:build linux

package run

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/engine"
)

// Order is what a run is to do with its job.
type Order struct {
	How      engine.How
	Grace    time.Duration
	Resume   bool           // a suspended job gets its devices back
	Freeze   bool           // a person stops it on its devices
	Unfreeze bool           // ... and lets it go on
	Signal   unix.Signal    // sent as it is; 0: none
	Shell    bool           // ... to the first process only
	Resize   []engine.Alloc // run on these from now on
}

// ends reports whether an order ends the run, or suspends it.
func (o *Order) ends() bool {
	return o.Signal == 0 && !o.Resume && !o.Freeze && !o.Unfreeze && o.Resize == nil
}
