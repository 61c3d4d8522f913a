package gang

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/places"
)

// Notice is the event that tells a pod why it leaves.
type Notice struct{ Kind, Reason, Text string }

// Dismissal is what a gang is told that has to leave: other is the gang that it leaves for, to is where it is moved;
// "": for none, nowhere.
func (g *Gang) Dismissal(e *engine.Engine, reason engine.StopReason, other, to string) Notice {
	n := Notice{v1.EventTypeWarning, "Preempted", "preempted: Muster needs its place"}
	switch {
	case to != "":
		fits := ""
		if other != "" {
			fits = ", so that " + other + " fits"
		}
		text := fmt.Sprintf("moved to %s%s: its place there is kept for the pod that its owner makes", to, fits)
		return Notice{v1.EventTypeNormal, "Moved", text}
	case reason == engine.NodeLost:
		n.Text = "its gang lost a node"
	case reason == engine.WasCancelled && g.Leaves != "":
		n.Text = g.Leaves
	case other != "":
		n.Text = "preempted for " + other
	case g.goesBack(e):
		n.Text = "its node is given back to its lender"
	}
	return n
}

// goesBack reports whether a gang has to leave because its node is given back.
func (g *Gang) goesBack(e *engine.Engine) bool {
	return slices.ContainsFunc(g.Places, func(s places.Place) bool { return e.IsGivenBack(s.Node) })
}
