// Package power switches off nodes that are not needed, by the rules of the module's package power, and on again those
// that are. How far a node is, its label says, so that a scheduler after this one goes on; what has the switch goes by
// the label, or is a program that is called. What is to be written and called, a Writer is told.
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

// AskAgain is how long after a node was asked to come back, or what was asked of it was refused, it is asked again.
const AskAgain = time.Minute

// situation is what decides what is next for a node that may be switched off.
type situation struct {
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

// step is what is next.
type step uint8

const (
	stay      step = iota
	resume         // it is wanted back
	switchOff      // call the program that switches it off
	isOff          // say that it is off
	isOn           // say that it is on
	switchOn       // ask it again to come back
	turnLate       // it is late, or is late no more
)

// next says what is next. One whose GPUs are not there yet is not back, but for one that is late: it has lost them, and
// is used as it is.
func (n *situation) next(at time.Time) step {
	switch n.State {
	case Suspending:
		switch {
		case n.Used || n.Stray:
			return resume
		case n.Cut:
			return isOff
		case at.Sub(n.Since) >= n.Wait:
			return switchOff
		}
	case Off:
		if n.Used || n.Stray || !n.Cordoned { // or a person wants it back
			return resume
		}
	case Resuming:
		switch late := at.Sub(n.Since) > n.Timeout; {
		case n.Ready && (n.Whole || n.Late):
			return isOn
		case late != n.Late:
			return turnLate
		case at.Sub(n.Called) >= AskAgain:
			return switchOn
		}
	}
	return stay
}

// readySince reports whether a node has said that it is ready since an instant: what it said before it went off counts
// for nothing.
func readySince(obj *v1.Node, at time.Time) bool {
	for _, c := range obj.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return !c.LastHeartbeatTime.Time.Before(at.Truncate(time.Second))
		}
	}
	return false
}
