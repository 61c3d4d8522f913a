package power

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/terms"
)

// Label says on a node how far it is, AnnotationSince since when; AnnotationSize what it had before it went off, and
// AnnotationBy which scheduler switched it off.
const (
	Label           = terms.Prefix + "power"
	AnnotationSince = terms.Prefix + "power-since"
	AnnotationSize  = terms.Prefix + "power-size"
	AnnotationBy    = terms.Prefix + "power-by"
)

// Node is what is known of a node's power; all but the object and its rule is empty where none of it is under way.
type Node struct {
	obj    *v1.Node      // nil: it is gone, or was never seen
	group  int           // 1 + of the rules; 0: it is always on
	wake   time.Duration // how long it takes to be back, by its rule
	asked  string        // the label that is being written
	since  time.Time     // ... and since when
	busy   bool          // a request or a program is on its way
	cut    bool          // the program that switches it off was called
	ours   bool          // this scheduler began to suspend it
	late   bool          // it did not come back
	called time.Time     // when the program that switches it on was called
	again  time.Time     // before this, nothing is asked for: the API server refused it

	stray  bool            // it is of no rule, and not on: this scheduler switched it off by one
	before size            // what it had before it went off, while it is not back
	have   v1.ResourceList // what it says now that it has
}

// Whole is the node as it is or, while it is not back, with at least what it had before it went off.
func (n *Node) Whole(obj *v1.Node) *v1.Node {
	as, before := whole(obj, obj.Labels[Label], obj.Annotations[AnnotationSize])
	n.before, n.have = before, obj.Status.Allocatable
	return as
}

// Ruled reports whether a rule may switch the node.
func (n *Node) Ruled() bool { return n.group > 0 }

// Busy reports whether a request or a program is on its way.
func (n *Node) Busy() bool { return n.busy }

// State is how far the node is; "": it is not switched.
func (n *Node) State() string {
	if n.group == 0 {
		return ""
	}
	return n.Label()
}

// Label is how far the node is, whether a rule is its own or not.
func (n *Node) Label() string {
	if n.obj == nil {
		return ""
	}
	return cmp.Or(n.asked, n.obj.Labels[Label])
}

// Sleeps reports whether the node is off, or on its way there or back.
func (n *Node) Sleeps() bool { return Switched(n.State()) && n.obj.DeletionTimestamp == nil && !n.late }

// Since is since when the node is as far as it is.
func (n *Node) Since() time.Time {
	if n.asked != "" {
		return n.since
	}
	at, err := time.Parse(time.RFC3339, n.obj.Annotations[AnnotationSince])
	if err != nil {
		return time.Time{}
	}
	return at
}

// Wakes is how long the node takes to be there; 0: it is.
func (n *Node) Wakes() time.Duration {
	if !n.Sleeps() {
		return 0
	}
	return n.wake
}

// Left is how long the node still takes to be there.
func (n *Node) Left(at time.Time) time.Duration {
	wait := n.Wakes()
	if n.State() == Resuming {
		wait -= at.Sub(n.Since())
	}
	return wait
}

// resting reports whether the node is off, or goes off.
func (n *Node) resting() bool {
	state := n.State()
	return state == Off || state == Suspending
}

// Reason says why nothing starts on the node; "": it does not sleep.
func (n *Node) Reason() string {
	if !n.Sleeps() {
		return ""
	}
	return map[string]string{Suspending: "it goes off", Off: "it is off until it is needed",
		Resuming: "it is waking"}[n.State()]
}
