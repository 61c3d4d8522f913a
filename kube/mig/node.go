package mig

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/kube/terms"
)

// Label says on a node how far it is, Annotation what it is to be and for which gangs (a Note as JSON).
const (
	Label      = terms.Prefix + "mig"
	Annotation = terms.Prefix + "mig-plan"
)

// What the label says. A node without it is as it is.
const (
	Closed   = "closed"   // cordoned: nothing starts there any more, and what is there leaves
	Changing = "changing" // mig.config was written, and its success is waited for
)

// What mig-manager says of a node (label nvidia.com/mig.config.state).
const (
	stateSuccess   = "success"
	stateFailed    = "failed"
	statePending   = "pending"
	stateRebooting = "rebooting"
)

// Node is what is known of a node's partitioning.
type Node struct {
	Stays bool // shut until the engine was renewed: it believes what the node was to have

	obj   *v1.Node        // nil: it is gone, or was never seen
	lent  bool            // it is of a loan, and no rule's
	rule  int             // 1 + of the rules; 0: it may not be changed
	step  string          // its label, or what is being written
	note  Note            // ... and its annotation
	asked bool            // these are being written, or were and have yet to be seen
	since time.Time       // ... and since when
	busy  bool            // a request is on its way
	again time.Time       // before this, nothing is asked for: the API server refused it
	raw   v1.ResourceList // what the node says that it has
}

// Step is how far the node is; "": nothing is under way.
func (n *Node) Step() string { return n.step }

// Note is what is written down of the node.
func (n *Node) Note() Note { return n.note }

// Busy reports whether a request is on its way.
func (n *Node) Busy() bool { return n.busy }

// Shut reports whether nothing starts on the node because it is to be partitioned.
func (n *Node) Shut() bool { return n.step == Closed || n.step == Changing || n.Stays }

// AsPartitioned is the node as it is or, while it is being partitioned, with what it will have: the device plugin is
// restarted meanwhile, and offers nothing.
func (n *Node) AsPartitioned(obj *v1.Node) *v1.Node {
	n.raw = obj.Status.Allocatable
	if obj.Labels[Label] != Changing {
		return obj
	}
	if note := read(obj.Annotations[Annotation]); note.Offer != nil {
		return offering(obj, note.Offer)
	}
	return obj
}

// Reason says why nothing starts on the node; "": it is not being partitioned.
func (n *Node) Reason() string {
	switch n.step {
	case Closed:
		return "it is emptied, to be partitioned as " + n.note.Config
	case Changing:
		return "it is being partitioned as " + n.note.Config
	}
	return ""
}
