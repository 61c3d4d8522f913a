package cluster

import (
	"fmt"
	"strings"
)

var (
	kindNames  = []string{"training", "batch", "service", "interactive", "trial"}
	tierNames  = []string{"critical", "standard", "best-effort"}
	levelNames = []string{"any", "nvlink", "node", "rack", "fabric", "core", "core2", "core3", "core4"}
	depNames   = []string{"afterok", "afterany", "afternotok", "singleton", "after"}
	stateNames = []string{"up", "draining", "down"}
)

// Nearest returns the element of valid that is closest to name by edit distance, for "did you mean"
// in error messages; "" if none is close.
func Nearest(name string, valid []string) string {
	best, dist := "", len(name)/2+2
	for _, v := range valid {
		if d := editDistance(strings.ToLower(name), strings.ToLower(v)); d < dist {
			best, dist = v, d
		}
	}
	return best
}

// Unknown is the error for a name that is not in valid; it suggests the nearest.
func Unknown(what, name string, valid []string) error {
	if n := Nearest(name, valid); n != "" {
		return fmt.Errorf("unknown %s %q: did you mean %q? (valid: %s)", what, name, n, strings.Join(valid, ", "))
	}
	return fmt.Errorf("unknown %s %q (valid: %s)", what, name, strings.Join(valid, ", "))
}

func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := prev[0]
		prev[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = prev[j]
			prev[j] = min(cost, prev[j]+1, prev[j-1]+1)
		}
	}
	return prev[len(b)]
}

func parseName[T ~uint8](what, s string, names []string) (T, error) {
	for i, n := range names {
		if n == s {
			return T(i), nil
		}
	}
	return 0, Unknown(what, s, names)
}

func nameOf[T ~uint8](v T, names []string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("invalid(%d)", v)
}

// ParseKind reads a job kind by name.
func ParseKind(s string) (Kind, error) { return parseName[Kind]("kind", s, kindNames) }

// ParseTier reads a tier by name.
func ParseTier(s string) (Tier, error) { return parseName[Tier]("tier", s, tierNames) }

// ParseLevel reads a topology level by name.
func ParseLevel(s string) (Level, error) { return parseName[Level]("topology level", s, levelNames) }

// ParseDependencyType reads a dependency type by name.
func ParseDependencyType(s string) (DependencyType, error) {
	return parseName[DependencyType]("dependency", s, depNames)
}

func (k Kind) String() string           { return nameOf(k, kindNames) }
func (t Tier) String() string           { return nameOf(t, tierNames) }
func (l Level) String() string          { return nameOf(l, levelNames) }
func (d DependencyType) String() string { return nameOf(d, depNames) }
func (s NodeState) String() string      { return nameOf(s, stateNames) }

// MarshalText and UnmarshalText put names instead of numbers into journals and files.

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (d DependencyType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// MarshalText implements encoding.TextMarshaler.
func (s NodeState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) (err error) { *k, err = ParseKind(string(b)); return err }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Tier) UnmarshalText(b []byte) (err error) { *t, err = ParseTier(string(b)); return err }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(b []byte) (err error) { *l, err = ParseLevel(string(b)); return err }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *DependencyType) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDependencyType(string(b))
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *NodeState) UnmarshalText(b []byte) (err error) {
	*s, err = parseName[NodeState]("node state", string(b), stateNames)
	return err
}
