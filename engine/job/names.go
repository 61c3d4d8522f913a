package job

import "github.com/muster-gpu/muster/cluster"

var reasonNames = []string{"completed", "failed", "cancelled", "timed-out", "preempted", "node-lost", "launch-failed",
	"impossible", "never-ready"}

// howNames are the ways to stop a job; people choose among the first rulesOf.
var howNames = []string{"suspend", "checkpoint", "kill", "replace"}

const rulesOf = 3

// NameOf is the name of a value.
func NameOf(v uint8, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "invalid"
}

// ParseName finds the value of a name.
func ParseName(what, s string, names []string) (uint8, error) {
	for i, n := range names {
		if n == s {
			return uint8(i), nil
		}
	}
	return 0, cluster.Unknown(what, s, names)
}

// ParseHow reads a way to stop jobs of a tier by name.
func ParseHow(s string) (How, error) {
	v, err := ParseName("way to preempt", s, howNames[:rulesOf])
	return How(v), err
}

func (r StopReason) String() string { return NameOf(uint8(r), reasonNames) }

func (h How) String() string { return NameOf(uint8(h), howNames) }

// MarshalText implements encoding.TextMarshaler.
func (r StopReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (h How) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *StopReason) UnmarshalText(b []byte) error {
	v, err := ParseName("stop reason", string(b), reasonNames)
	*r = StopReason(v)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *How) UnmarshalText(b []byte) error {
	v, err := ParseName("way to stop", string(b), howNames)
	*h = How(v)
	return err
}

var stateNames = []string{"pending", "placed", "starting", "running", "stopping", "done"}
