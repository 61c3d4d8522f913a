package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/victims"
)

// What keeps a gang off a node can be pods that are there: by anti-affinity, its own or theirs, a host port, an even
// spread, what the node attaches, how many pods it takes. The engine knows none of that; it is told that the node takes
// nothing, and looks for no gang there that might leave. So a gang that finds no place is looked for one as if pods of
// a lower tier were gone, first a few, then more. Like those that have a claim which it needs alone (displace.go) they
// leave only if a second engine says that it starts then; both are told to the engine in one batch. Until they have
// left, they do not count for the gang, and the gang counts where it will be for all others.

// victimSearch is when gangs that wait were last looked at.
type victimSearch struct {
	done  gang.Stamp // all gangs were looked at
	at    cluster.Time
	turns int
}

func (d *Driver) stamp() gang.Stamp {
	return gang.Stamp{Moves: d.nodes.World.Version(), Checked: d.checked}
}

// expect has a pod count where it will be, once others have left.
func (d *Driver) expect(p *gang.Pod, node string) {
	p.Assumed = node
	d.move(p, false)
}

// forgetVictims forgets which pods leave for a gang: it has not the place that it was to have.
func (d *Driver) forgetVictims(g *gang.Gang) {
	if len(g.Victims) == 0 {
		return
	}
	g.Victims = nil
	for _, p := range g.Sorted() {
		if !p.Binding && p.Assumed != "" {
			d.expect(p, "")
		}
	}
	d.nodes.World.Changed()
}

// goes reports whether a running gang would leave for one of a tier: it is of a lower one, and has run for as long as
// the configuration lets any gang.
func (d *Driver) goes(q *gang.Gang, tier cluster.Tier) bool {
	return q != nil && q.Phase == gang.Running && q.Leaves == "" && q.Spec.Tier > tier &&
		(tier == cluster.Critical || d.now.Sub(q.Book.Started) >= d.opt.Rules.MinRuntime)
}

// seekVictims lets pods leave for a gang that finds no place on account of them; before is
// what the engine is told besides.
func (d *Driver) seekVictims(before []engine.Event, now cluster.Time) (events []engine.Event) {
	if d.stale != "" || d.victimSearch.done == d.stamp() || now < d.victimSearch.at {
		return nil
	}
	g, later := d.stuck()
	switch {
	case g != nil:
		d.victimSearch.turns++
		g.Tried, g.Turns = d.stamp(), d.victimSearch.turns
		events = d.victimsFor(g, before)
	case later:
		return nil
	default:
		d.victimSearch.done = d.stamp()
	}
	// What it costs grows with the cluster: it may take a twentieth of the time.
	d.victimSearch.at = now.Add(max(50*time.Millisecond, 20*d.clock().Sub(now)))
	return events
}

// stuck is the gang that is looked at next: of those that wait in the engine and are
// kept off some nodes, the one that was looked at the longest ago. later: there is one of
// which the engine has yet to hear.
func (d *Driver) stuck() (next *gang.Gang, later bool) {
	if len(d.constrained) == 0 && !d.nodes.World.Active() {
		return nil, false
	}
	lowest := cluster.Critical
	for _, q := range d.gangs {
		if q.Phase == gang.Running {
			lowest = max(lowest, q.Spec.Tier)
		}
	}
	for id, g := range d.byID {
		switch {
		case g.Phase != gang.Waiting || len(g.Spec.NodeLimits) == 0 || g.Spec.Tier >= lowest || g.Spec.NoPreempt ||
			len(g.Victims) > 0 || g.Tried == d.stamp():
			continue
		case g.Search.Asked == d.seq+1:
			later = true
			continue
		}
		if r := d.eng.Record(id); r != nil && r.State == engine.Pending &&
			(next == nil || cmp.Or(g.Turns-next.Turns, int(g.Job)-int(next.Job)) < 0) {
			next = g
		}
	}
	return next, later
}

// victimsFor looks for gangs that leave so that another starts.
func (d *Driver) victimsFor(g *gang.Gang, before []engine.Event) []engine.Event {
	q := &victims.Question{World: d.nodes.World, Job: g.Spec, Ask: d.reader.Ask(g.Submitted(), g.Fails > 0, true),
		Search: &g.Search,
		Starts: func(job *cluster.Job, gone []cluster.JobID) map[string]int {
			return d.startsOn(g.Job, slices.Concat(before, leaveFor(gone, job)))
		}}
	for _, o := range d.gangs {
		if d.goes(o, g.Spec.Tier) {
			q.Gangs = append(q.Gangs, &victims.Gang{Job: o.Job, Tier: o.Spec.Tier, Started: o.Book.Started,
				GPUs: o.Spec.GPUs(), Pods: gang.Neighbours(o.Here())})
		}
	}
	a := q.Find()
	if a == nil {
		return nil
	}
	var gone []cluster.JobID
	for _, v := range a.Gone {
		o := d.byID[v.Job]
		gone = append(gone, o.Job)
		g.Victims = append(g.Victims, o.Here()...)
		o.Leaves, o.Grace = fmt.Sprintf("preempted for %s, which cannot be where it is", g.Name), 30
	}
	g.Spec = a.Job
	return leaveFor(gone, a.Job)
}

// leaveFor is what the engine is told if jobs leave for another, which is this from then on.
func leaveFor(gone []cluster.JobID, job *cluster.Job) (events []engine.Event) {
	for _, id := range gone {
		events = append(events, engine.Event{Type: engine.Cancelled, Job: id})
	}
	return append(events, engine.Event{Type: engine.Updated, Job: job.ID, Spec: job})
}

// startsOn is how many places a job has on which nodes after the next step with these events; nil: it has none.
func (d *Driver) startsOn(id cluster.JobID, events []engine.Event) map[string]int {
	r := d.foreseen(id, events)
	if r == nil {
		return nil
	}
	return holds.TasksOn(r.Allocs, d.nodes.Order())
}

// overtaken says why a gang that waited until others had left cannot be where it was to
// be all the same; "": it can.
func (d *Driver) overtaken(g *gang.Gang) string {
	if len(g.Victims) == 0 {
		return ""
	}
	return d.reader.Suit(g, g.Places.Needed().PerNode())
}
