package engine

import (
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
)

// Names of the rooms below that callers know as the engine's.

// Key orders jobs: lower first, compared from the left.
type Key = order.Key

// Alloc is what some tasks of one set hold on one node.
type Alloc = inventory.Alloc

// Domain restricts a search to one domain of a topology level.
type Domain = inventory.Domain

// Kind is a GPU model, and how much of it there is.
type Kind = inventory.Kind

// Fragmentation is how much of the free GPUs is of use.
type Fragmentation = inventory.Fragmentation

// MaxKinds bounds the kinds of node.
const MaxKinds = inventory.MaxKinds

// The measures of what of a node's free GPUs counts.
const (
	Fragments = inventory.Fragments
	Rooms     = inventory.Rooms
)
