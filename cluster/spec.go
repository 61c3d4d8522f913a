package cluster

import (
	"slices"
	"strings"
	"time"
)

// NodeState is the state of a node as set by the operator or the driver.
type NodeState uint8

// The node states.
const (
	Up       NodeState = iota
	Draining           // running jobs may end, nothing starts
	Down
)

// Node is one machine. Its GPUs are all of one model.
type Node struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"` // GPU model name; empty: no GPUs
	GPUs  int    `json:"gpus,omitempty"`
	CPU   Milli  `json:"cpu,omitempty"` // milli-cores; 0: not modelled (never a bottleneck)
	RAM   MiB    `json:"ram,omitempty"` // MiB; 0: not modelled
	// NVLink islands inside the node, equal parts of its GPUs; 0 or 1: one. With NVLink they are only preferred
	Islands int       `json:"islands,omitempty"`
	NVLink  string    `json:"nvlink,omitempty"` // NVLink domain spanning nodes (e.g. an NVL72 rack); empty: the node
	Rack    string    `json:"rack,omitempty"`
	Fabric  string    `json:"fabric,omitempty"` // spine block
	Cores   []string  `json:"cores,omitempty"`  // what is above that, from near to far; at most MostCores
	State   NodeState `json:"state,omitempty"`
	Bad     uint64    `json:"bad,omitempty"` // bit i: GPU i is unhealthy
	MIG     string    `json:"mig,omitempty"` // fixed instances (Geometry); empty: made on demand
	// Asleep is the time to wake while it is powered down to save energy (Power): a job that starts
	// there runs that much later; 0: it is awake.
	Asleep time.Duration `json:"wake_time,omitempty"`
}

// Partition is a named set of nodes with its own rules (Slurm's partition,
// a node pool elsewhere).
type Partition struct {
	Name         string        `json:"name"`
	Nodes        []string      `json:"nodes"`                   // names; "n[1-4]" ranges are expanded by the reader
	Default      bool          `json:"default,omitempty"`       // for jobs that name no partition
	MaxTime      time.Duration `json:"max_time,omitempty"`      // a longer limit is rejected
	DefaultTime  time.Duration `json:"default_time,omitempty"`  // limit of jobs without one
	MaxGPUs      int           `json:"max_gpus,omitempty"`      // maximum GPUs of one job
	Queues       []string      `json:"queues,omitempty"`        // allowed queues (with their children); none: all
	Tiers        []Tier        `json:"tiers,omitempty"`         // allowed tiers; none: all
	PriorityTier int64         `json:"priority_tier,omitempty"` // higher is considered first
}

// Reservation keeps devices free for a purpose during a time.
type Reservation struct {
	Name   string        `json:"name"`
	Start  Time          `json:"start"`
	End    Time          `json:"end"`              // exclusive
	Every  time.Duration `json:"every,omitempty"`  // repeats with this period; 0: once
	Nodes  []string      `json:"nodes,omitempty"`  // whole nodes by name; or
	GPUs   int           `json:"gpus,omitempty"`   // number of GPUs, chosen by the engine shortly before
	Users  []string      `json:"users,omitempty"`  // who may run in it; none and no queues: maintenance, no job runs
	Queues []string      `json:"queues,omitempty"` // queues that may run in it
}

// Spec is a cluster and its rules, as read from a file, a trace or a short form.
type Spec struct {
	Name         string        `json:"name,omitempty"`
	Models       []GPUModel    `json:"models,omitempty"` // in addition to, or instead of, Models()
	Nodes        []Node        `json:"nodes"`
	Partitions   []Partition   `json:"partitions,omitempty"`
	Queues       []Queue       `json:"queues,omitempty"`
	Reservations []Reservation `json:"reservations,omitempty"`
	Loans        []Loan        `json:"loans,omitempty"`
	Power        []Power       `json:"power,omitempty"`
	Epoch        int64         `json:"epoch,omitempty"` // Unix seconds of Time 0, for windows and calendars
	Zone         int           `json:"zone,omitempty"`  // seconds east of UTC, for windows
	Sharing      Sharing       `json:"sharing,omitempty"`
	MIG          MIGWay        `json:"mig,omitempty"`
	MinSpeed     int64         `json:"min_speed,omitempty"` // for jobs without one (Job.MinSpeed); 0: any speed
	Network      *Network      `json:"network,omitempty"`   // nil: not described
}

// Unix is an instant on the calendar, in whole seconds.
func (s *Spec) Unix(t Time) int64 { return s.Epoch + int64(t/Time(time.Second)) }

// Instant is the instant of a time on the calendar, in Unix seconds.
func (s *Spec) Instant(unix int64) Time { return Time((unix - s.Epoch) * int64(time.Second)) }

// GPUs returns the number of GPUs in the cluster.
func (s *Spec) GPUs() int {
	n := 0
	for i := range s.Nodes {
		n += s.Nodes[i].GPUs
	}
	return n
}

// Model returns the spec's own definition of a GPU model, otherwise the built-in one.
func (s *Spec) Model(name string) (GPUModel, bool) {
	for i := range s.Models {
		if s.Models[i].Name == name {
			return s.Models[i], true
		}
	}
	return FindModel(name)
}

// Weigh sets the weights of GPU models; others are unchanged.
func (s *Spec) Weigh(weights []GPUModel) {
	s.Models = append([]GPUModel{}, s.Models...) // not nil: an empty list is written, too
	for _, w := range weights {
		if i := slices.IndexFunc(s.Models, func(m GPUModel) bool { return m.Name == w.Name }); i >= 0 {
			s.Models[i].Weight = w.Weight
			continue
		}
		if known, ok := FindModel(w.Name); ok {
			known.Weight = w.Weight
			w = known
		}
		s.Models = append(s.Models, w)
	}
}

// MatchModel reports whether a GPU model satisfies a job's request: the same name, or its family
// ("A100" accepts A100-40GB and A100-80GB), ignoring case.
func MatchModel(model, want string) bool {
	return strings.EqualFold(model, want) ||
		len(model) > len(want) && model[len(want)] == '-' && strings.EqualFold(model[:len(want)], want)
}

// Unlimited marks a quota without an upper bound.
const Unlimited Milli = -1

// Queue is a node of the queue tree. Amounts are milli-GPU.
type Queue struct {
	Name      string `json:"name"`
	Parent    string `json:"parent,omitempty"`    // empty: a child of the root
	Guarantee Milli  `json:"guarantee,omitempty"` // owed whenever it is requested
	Limit     Milli  `json:"limit"`               // burst limit; Unlimited: none
	Lend      Milli  `json:"lend"`                // most of the guarantee that may be lent; Unlimited: all
	// over-quota weight in thousandths; 0: in proportion to the guarantee, else 1000
	Weight    int64         `json:"weight,omitempty"`
	Reserve   Milli         `json:"reserve,omitempty"`    // kept idle for the critical tier (not even lent)
	NoReclaim bool          `json:"no_reclaim,omitempty"` // others never reclaim from it (Volcano's reclaimable: false)
	UserGPUs  Milli         `json:"user_gpus,omitempty"`  // maximum that one user may hold; 0: no cap
	MaxJobs   int           `json:"max_jobs,omitempty"`   // maximum running jobs; 0: no cap
	UserJobs  int           `json:"user_jobs,omitempty"`  // maximum running jobs of one user; 0: no cap
	Budget    int64         `json:"budget,omitempty"`     // GPU-hours per period; 0: none
	Period    time.Duration `json:"period,omitempty"`     // of the budget; 0: 30 days
	Shares    int64         `json:"shares,omitempty"`     // fair-tree shares; 0: 1
	Priority  int64         `json:"priority,omitempty"`   // queues of higher priority get over-quota first
	Windows   []Window      `json:"windows,omitempty"`
}

// Window changes a queue's guarantee and limit at certain hours, for example to let training use
// the serving reserve at night. One grace period before it ends, borrowers are preempted
// (checkpoint first) until every guarantee of the time after it can be met: what is lent until
// 07:00 is back by 07:00.
type Window struct {
	Days      uint8         `json:"days,omitempty"` // bit 0: Sunday ... bit 6: Saturday; 0: every day
	From      time.Duration `json:"from"`           // since midnight
	To        time.Duration `json:"to"`             // since midnight; at or before From: the next day
	Guarantee Milli         `json:"guarantee"`      // Unlimited: unchanged
	Limit     Milli         `json:"limit"`          // Unlimited: unchanged
}
