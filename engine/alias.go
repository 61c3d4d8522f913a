package engine

import "github.com/muster-gpu/muster/engine/order"

// Names of the engine's rooms that its callers know as the engine's.

// Key orders jobs.
type Key = order.Key
