package driver

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// Observed is what a world really has at one instant.
type Observed struct {
	Nodes   []cluster.Node // State, Bad and Asleep say how they are; a node that is missing is lost
	Running []Found        // jobs with processes, starting, computing or leaving
	Ended   []Outcome      // jobs that are over as far as the world remembers
}

// Found is a job that is on devices.
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

// View is what the engine believes.
type View struct {
	Jobs  []engine.Belief
	Nodes []cluster.Node
}

// ViewOf returns what an engine believes.
func ViewOf(e *engine.Engine) View { return View{e.Beliefs(), e.Nodes()} }

// Diff compares what is there with what the engine believes and returns the
// events that the engine missed, in the order in which it would have had them,
// and the orphans: jobs that are on devices though the engine does not want
// them there. A driver stops orphans and reports nothing of them. Diff is what
// a restart and a relist use; between equal states it finds nothing.
//
// A start that was decided and of which nothing is to be seen failed. A
// running job that is gone without an outcome was lost with its node: it waits
// again. A job that was told to leave and is gone has left. A resize that did
// not take place is still owed: the driver repeats it (Belief.Resizing).
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

// gone is what the engine is told of a job that is not there.
func gone(b *engine.Belief, end *Outcome) engine.Event {
	ev := engine.Event{Type: engine.Stopped, Job: b.Job}
	switch {
	case end != nil:
		ev.Reason, ev.Done = end.Reason, end.Done
	case b.State == engine.Starting:
		ev.Type = engine.StartFailed
	case b.State == engine.Stopping:
		ev.Reason = engine.Preempted // or whatever it was to leave for: the engine knows
	default:
		ev.Reason = engine.NodeLost
	}
	return ev
}

// diffNodes compares the nodes, in the order in which the engine knows them,
// then new ones in the order in which they were seen.
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
			events = append(events, engine.Event{Type: engine.NodeAsleep, Node: b.Name, Wake: n.Asleep, Undo: n.Asleep == 0})
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
	case b.State == cluster.Down: // the engine may remember a drain from before that is over
		return []engine.Event{undo, up}
	case n.State == cluster.Draining:
		return []engine.Event{drain}
	}
	return []engine.Event{undo}
}
