// Package power is what becomes of a node that may be switched off: how far it is, what is next, and what it had before
// it went off. When nodes are to be off at all, the rules of the module's package power say; nothing is written here.
package power

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// How far a node is, as its label says. A node without it is on.
const (
	On         = "on"
	Suspending = "suspending" // cordoned, and looked at once more before it goes off
	Off        = "off"
	Resuming   = "resuming" // it is to be back, and is waited for
)

// Switched reports whether a label says off, or on the way there or back.
func Switched(state string) bool { return state == Suspending || state == Off || state == Resuming }

// Again is how long after a node was asked to come back it is asked again.
const Again = time.Minute

// Node is what is known of a node that may be switched off.
type Node struct {
	State    string        // its label
	Since    time.Time     // since when
	Wait     time.Duration // so long it is looked at before it goes off
	Timeout  time.Duration // ... and it may take to be back
	Used     bool          // or waited for
	Stray    bool          // its rule is its own no more
	Cordoned bool
	Cut      bool      // the program that switches it off was called
	Late     bool      // it counts as not coming back
	Called   time.Time // when it was asked to come back
	Ready    bool      // it said so since it is to be back
	Whole    bool      // it has the GPUs that it had
}

// Step is what is next.
type Step uint8

// The steps.
const (
	Stay      Step = iota
	Resume         // it is wanted back
	SwitchOff      // call the program that switches it off
	IsOff          // say that it is off
	IsOn           // say that it is on
	SwitchOn       // ask it again to come back
	TurnLate       // it is late, or is late no more
)

// Next says what is next. One whose GPUs are not there yet is not back, but for one that is late: it has lost them, and
// is used as it is.
func (n *Node) Next(at time.Time) Step {
	switch n.State {
	case Suspending:
		switch {
		case n.Used || n.Stray:
			return Resume
		case n.Cut:
			return IsOff
		case at.Sub(n.Since) >= n.Wait:
			return SwitchOff
		}
	case Off:
		if n.Used || n.Stray || !n.Cordoned { // or a person wants it back
			return Resume
		}
	case Resuming:
		switch late := at.Sub(n.Since) > n.Timeout; {
		case n.Ready && (n.Whole || n.Late):
			return IsOn
		case late != n.Late:
			return TurnLate
		case at.Sub(n.Called) >= Again:
			return SwitchOn
		}
	}
	return Stay
}

// ReadySince reports whether a node has said that it is ready since an instant: what it said before it went off counts
// for nothing.
func ReadySince(obj *v1.Node, at time.Time) bool {
	for _, c := range obj.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return !c.LastHeartbeatTime.Time.Before(at.Truncate(time.Second))
		}
	}
	return false
}
