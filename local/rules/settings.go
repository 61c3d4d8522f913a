//go:build linux

// Package rules has the rules of a machine: its settings, who may submit where and how much, the policy in force.
// They can change while it runs.
package rules

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/perf"
)

// Settings is what of a machine can change while it runs.
type Settings struct {
	Policy, Placer, Backfill string
	MinRuntime, Starvation   time.Duration
	HoldAfter                time.Duration
	Stop                     *[3]engine.StopRule
	Queues                   []cluster.Queue
	Partitions               []cluster.Partition
	Members                  map[string]Members
	DefaultQueues            DefaultQueues
	Limits                   Limits
	Urgency                  Urgency
	KillWait, Keep           time.Duration
	AuditKeep                time.Duration
	HourCost                 float64
	Zone                     int                // of windows, in seconds ahead of UTC
	Idle                     *observe.IdleRules // nil: idle jobs are left alone
	Perf                     *perf.Table
	Defrag                   *engine.Defrag // nil: no job is moved
	Saving                   *perf.Saving   // how often jobs are to write checkpoints; nil: nothing is said of it
	// as the machine has them, with what their hours count for; nil: as before
	Models []cluster.GPUModel
}
