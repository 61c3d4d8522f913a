package driver

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Observed is the actual state of a world at one instant.
type Observed struct {
	Nodes   []cluster.Node // with State, Bad and Asleep; a missing node is lost
	Running []Found        // jobs with processes, starting, computing or leaving
	Ended   []Outcome      // jobs that are over, as far as the world remembers
}

// Found is a job that has devices.
type Found struct {
	Job  cluster.JobID
	Rate int64 // as in Started; 0: unknown
	On   []Held
}

// Held is what a job holds of a node.
type Held struct {
	Node string
	GPUs uint64
}

// Outcome is how a job ended.
type Outcome struct {
	Job    cluster.JobID
	Reason engine.StopReason
	Done   time.Duration // as in Stopped, where it is known
}

// View is the state in the engine.
type View struct {
	Jobs  []engine.Belief
	Nodes []cluster.Node
}

// ViewOf returns the state in an engine.
func ViewOf(e *engine.Engine) View { return View{e.Beliefs(), e.Nodes()} }

// Diff compares the actual state with the engine's and returns the events that the engine missed, in their
// natural order, and the orphans: jobs on devices that the engine does not want there. A driver stops orphans
// and reports no events of them. Restarts and relists use Diff; between equal states it finds nothing.
//
// A start that was decided but is not found has failed. A running job that is gone without an outcome was lost
// with its node: it waits again. A stopping job that is gone has stopped. A resize that did not take place is
// still pending: the driver repeats it (Belief.Resizing).
func Diff(o Observed, v View) (events []engine.Event, orphans []cluster.JobID) {
	found := map[cluster.JobID]*Found{} // looked up only
	for i := range o.Running {
		found[o.Running[i].Job] = &o.Running[i]
	}
	ended := map[cluster.JobID]*Outcome{} // looked up only
	for i := range o.Ended {
		ended[o.Ended[i].Job] = &o.Ended[i]
	}
	wanted := map[cluster.JobID]bool{} // looked up only
	var runs []engine.Event
	for i := range v.Jobs {
		b := &v.Jobs[i]
		f := found[b.Job]
		if f != nil && (b.Resizing || on(b, v.Nodes, f.On)) {
			wanted[b.Job] = true
			switch {
			case b.State == engine.Starting:
				runs = append(runs, engine.Event{Type: engine.Started, Job: b.Job, Rate: f.Rate})
			case b.State == engine.Running && b.Resizing && on(b, v.Nodes, f.On):
				runs = append(runs, engine.Event{Type: engine.Resized, Job: b.Job, Rate: f.Rate})
			}
			continue
		}
		events = append(events, gone(b, ended[b.Job]))
	}
	events = append(events, diffNodes(o.Nodes, v.Nodes)...)
	for i := range o.Running {
		if id := o.Running[i].Job; !wanted[id] {
			orphans = append(orphans, id)
		}
	}
	slices.Sort(orphans)
	return append(events, runs...), orphans
}

// on reports whether a job is on the devices that the engine gave it.
func on(b *engine.Belief, nodes []cluster.Node, held []Held) bool {
	want := map[string]uint64{} // looked up only
	for i := range b.Allocs {
		want[nodes[b.Allocs[i].Node].Name] |= b.Allocs[i].GPUs
	}
	have := map[string]uint64{} // looked up only
	for _, h := range held {
		have[h.Node] |= h.GPUs
	}
	if len(have) != len(want) {
		return false
	}
	for _, h := range held {
		if m, ok := want[h.Node]; !ok || m != have[h.Node] {
			return false
		}
	}
	return true
}

// gone is the event of a job that is not there.
func gone(b *engine.Belief, end *Outcome) engine.Event {
	ev := engine.Event{Type: engine.Stopped, Job: b.Job}
	switch {
	case end != nil:
		ev.Reason, ev.Done = end.Reason, end.Done
	case b.State == engine.Starting:
		ev.Type = engine.StartFailed
	case b.State == engine.Stopping:
		ev.Reason = engine.Preempted // the engine replaces it by the reason that it chose
	default:
		ev.Reason = engine.NodeLost
	}
	return ev
}

// diffNodes compares the nodes, in the engine's order, then new ones in the order in which they were seen.
func diffNodes(have, believed []cluster.Node) (events []engine.Event) {
	at := map[string]*cluster.Node{} // looked up only
	for i := range have {
		at[have[i].Name] = &have[i]
	}
	known := map[string]bool{} // looked up only
	for i := range believed {
		b := &believed[i]
		known[b.Name] = true
		n := at[b.Name]
		if n == nil {
			if b.State != cluster.Down {
				events = append(events, engine.Event{Type: engine.NodeDown, Node: b.Name})
			}
			continue
		}
		events = append(events, diffState(n, b)...)
		if n.Asleep != b.Asleep && n.State != cluster.Down {
			events = append(events,
				engine.Event{Type: engine.NodeAsleep, Node: b.Name, Wake: n.Asleep, Undo: n.Asleep == 0})
		}
		all := uint64(1)<<b.GPUs - 1
		if m := n.Bad &^ b.Bad & all; m != 0 {
			events = append(events, engine.Event{Type: engine.GPUBad, Node: b.Name, GPUs: m})
		}
		if m := b.Bad &^ n.Bad & all; m != 0 {
			events = append(events, engine.Event{Type: engine.GPUBad, Node: b.Name, GPUs: m, Undo: true})
		}
	}
	for i := range have {
		if n := have[i]; !known[n.Name] {
			events = append(events, engine.Event{Type: engine.NodeUp, Node: n.Name, Spare: &n})
		}
	}
	return events
}

func diffState(n, b *cluster.Node) []engine.Event {
	drain := engine.Event{Type: engine.NodeDrained, Node: b.Name}
	undo := drain
	undo.Undo = true
	up := engine.Event{Type: engine.NodeUp, Node: b.Name}
	switch {
	case n.State == b.State:
		return nil
	case n.State == cluster.Down:
		return []engine.Event{{Type: engine.NodeDown, Node: b.Name}}
	case b.State == cluster.Down && n.State == cluster.Draining:
		return []engine.Event{up, drain}
	case b.State == cluster.Down: // the engine may remember a drain from before the outage
		return []engine.Event{undo, up}
	case n.State == cluster.Draining:
		return []engine.Event{drain}
	}
	return []engine.Event{undo}
}
