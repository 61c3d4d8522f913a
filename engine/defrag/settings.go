package defrag

import (
	"cmp"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
)

// Settings say whether jobs are moved, and how many.
type Settings struct {
	// Auto: moves that are worth it are made by themselves; else only those that
	// are asked for (event Defragment).
	Auto bool `json:"auto,omitempty"`
	// Compact: with Auto, nodes are emptied, too, while no job waits for room.
	Compact Compact `json:"compact,omitempty"`
	// Moves bounds how many jobs are on their way at once; 0: 4. Jobs with shares or slices count
	// for their part of a GPU.
	Moves int `json:"moves,omitempty"`
	// PerHour bounds how often one job is moved within an hour; 0: 2.
	PerHour int `json:"per_hour,omitempty"`
	// Chain bounds the links of a chain of moves, in which each goes where the next one
	// was; 0: 3, which is enough to put together any part of a node of 8 GPUs where sizes
	// are powers of two; 1: no job moves for one that moves.
	Chain int `json:"chain,omitempty"`
	// Every is how often moves are looked for where Auto is set; 0: 5 minutes.
	Every time.Duration `json:"every,omitempty"`
	// Horizon bounds the wait that moves are believed to save, and is what they
	// save where no start is in sight without them; 0: 24 hours.
	Horizon time.Duration `json:"horizon,omitempty"`
	// Protected are times in which no job is moved; nil: there are none.
	Protected *cluster.Weekly `json:"protected,omitempty"`
}

// Parse reads how far defragmentation goes: off, plan (moves are made for jobs for which they are asked for), auto, or
// auto and nodes are emptied, for one gain or the other: compact, compact-nodes.
func Parse(s string) (*Settings, error) {
	v, err := job.ParseName("way to defragment", s, defragNames)
	if err != nil || v == 0 {
		return nil, err
	}
	return &Settings{Auto: v >= 2, Compact: Compact(max(2, v) - 2)}, nil
}

// String is what Parse reads.
func (d *Settings) String() string {
	switch {
	case d == nil:
		return defragNames[0]
	case d.Auto:
		return job.NameOf(2+uint8(d.Compact), defragNames)
	}
	return defragNames[1]
}

// WithDefaults fills in what is not stated.
func (d Settings) WithDefaults() Settings {
	d.Moves, d.PerHour, d.Chain = cmp.Or(d.Moves, 4), cmp.Or(d.PerHour, 2), cmp.Or(d.Chain, 3)
	d.Every, d.Horizon = cmp.Or(d.Every, 5*time.Minute), cmp.Or(d.Horizon, 24*time.Hour)
	return d
}

// Compact is what nodes are emptied for.
type Compact uint8

// The gains, in GPU time up to the horizon, if running jobs end when that is expected and none comes.
const (
	NoCompact  Compact = iota // nodes are not emptied
	UsableGPUs                // of free GPUs, as far as they are of use to the tasks submitted last (FGD, ATC'23)
	EmptyNodes                // of the GPUs of nodes without jobs
)

// ParseCompact reads what nodes are emptied for.
func ParseCompact(s string) (Compact, error) {
	v, err := job.ParseName("gain to empty nodes for", s, compactNames)
	return Compact(v), err
}

var defragNames = []string{"off", "plan", "auto", "compact", "compact-nodes"} // from auto on in the order of Compact
var compactNames = []string{"nothing", "usable", "nodes"}

func (c Compact) String() string { return job.NameOf(uint8(c), compactNames) }

// MarshalText implements encoding.TextMarshaler.
func (c Compact) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Compact) UnmarshalText(b []byte) error {
	v, err := ParseCompact(string(b))
	*c = v
	return err
}
