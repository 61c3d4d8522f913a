package engine

import "github.com/muster-gpu/muster/cluster"

var (
	eventNames = []string{"tick", "stopped", "start-failed", "node-up", "node-down", "node-drained", "gpu-bad", "queue-changed",
		"submitted", "updated", "cancelled", "held", "started", "resized", "progress", "demoted", "defragment", "node-asleep",
		"node-resized", "nodes-named"}
	reasonNames   = []string{"completed", "failed", "cancelled", "timed-out", "preempted", "node-lost", "launch-failed", "impossible", "never-ready"}
	howNames      = []string{"suspend", "checkpoint", "kill"}
	actionNames   = []string{"start", "preempt", "resize", "reject"}
	defragNames   = []string{"off", "plan", "auto", "compact", "compact-nodes"} // from auto on in the order of Compact
	compactNames  = []string{"nothing", "usable", "nodes"}
	backfillNames = []string{"none", "skip", "easy", "conservative"}
)

func nameOf(v uint8, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "invalid"
}

func parseName(what, s string, names []string) (uint8, error) {
	for i, n := range names {
		if n == s {
			return uint8(i), nil
		}
	}
	return 0, cluster.Unknown(what, s, names)
}

// ParseHow reads a way to stop a job by name.
func ParseHow(s string) (How, error) {
	v, err := parseName("way to preempt", s, howNames)
	return How(v), err
}

// ParseBackfill reads a backfill mode by name.
func ParseBackfill(s string) (Backfill, error) {
	v, err := parseName("backfill", s, backfillNames)
	return Backfill(v), err
}

func (t EventType) String() string  { return nameOf(uint8(t), eventNames) }
func (r StopReason) String() string { return nameOf(uint8(r), reasonNames) }
func (h How) String() string        { return nameOf(uint8(h), howNames) }
func (a ActionType) String() string { return nameOf(uint8(a), actionNames) }
func (b Backfill) String() string   { return nameOf(uint8(b), backfillNames) }
func (c Compact) String() string    { return nameOf(uint8(c), compactNames) }

// MarshalText implements encoding.TextMarshaler.
func (c Compact) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Compact) UnmarshalText(b []byte) error {
	v, err := ParseCompact(string(b))
	*c = v
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (r StopReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (h How) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (a ActionType) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *EventType) UnmarshalText(b []byte) error {
	v, err := parseName("event", string(b), eventNames)
	*t = EventType(v)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *StopReason) UnmarshalText(b []byte) error {
	v, err := parseName("stop reason", string(b), reasonNames)
	*r = StopReason(v)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *How) UnmarshalText(b []byte) error {
	v, err := ParseHow(string(b))
	*h = v
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *ActionType) UnmarshalText(b []byte) error {
	v, err := parseName("action", string(b), actionNames)
	*a = ActionType(v)
	return err
}
