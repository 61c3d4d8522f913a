package engine

import "github.com/muster-gpu/muster/engine/job"

var eventNames = []string{"tick", "stopped", "start-failed", "node-up", "node-down", "node-drained", "gpu-bad",
	"queue-changed",
	"submitted", "updated", "cancelled", "held", "started", "resized", "progress", "demoted", "defragment",
	"node-asleep",
	"node-resized", "nodes-named", "node-changed", "job-reshaped", "adopted", "lenders-changed"}
var actionNames = []string{"start", "preempt", "resize", "reject", "treat"}

func (t EventType) String() string  { return job.NameOf(uint8(t), eventNames) }
func (a ActionType) String() string { return job.NameOf(uint8(a), actionNames) }

// MarshalText implements encoding.TextMarshaler.
func (t EventType) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (a ActionType) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *EventType) UnmarshalText(b []byte) error {
	v, err := job.ParseName("event", string(b), eventNames)
	*t = EventType(v)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *ActionType) UnmarshalText(b []byte) error {
	v, err := job.ParseName("action", string(b), actionNames)
	*a = ActionType(v)
	return err
}
