package kube

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/mig"
)

// Where no empty node serves the first in line, one is emptied: nothing starts there any more, gangs of a lower tier
// are preempted when no others are left, and all others end by themselves. Of each rule one node at a time, the one
// that costs least: work that is lost, and GPUs that are idle until the last has ended.

const (
	migMostBusy = 16                  // nodes of which it is tried whether it would serve, the cheapest first
	migUnknown  = 30 * 24 * time.Hour // as long as a pod counts as running of which it is not known how long
)

// emptyFor closes a node in use for the first in line that empty nodes do not serve, nor those that are being emptied,
// of whichever rule: of two for one gang either would be needed no more, and be opened, for ever. emptied is as though
// these were empty.
func (d *Driver) emptyFor(list, wants []*migWaiter, emptied *mig.World, can []*mig.Candidate) {
	for len(wants) > 0 && (d.migClosedFor(wants[0].g) || emptied.Starts[wants[0].id] != nil) {
		d.migLooks.tried[wants[0].g] = d.now
		wants = wants[1:]
	}
	if len(wants) == 0 {
		return
	}
	want := wants[:1]
	d.migLooks.work = max(d.migLooks.work, mig.Work/4) // whatever it took to find that no empty node serves
	var idle, busy []*mig.Candidate
	for _, c := range can {
		n := d.nodes[c.Name()]
		if d.migEmpty(n) {
			idle = append(idle, c)
		} else if !d.migEmptying(c.Rule()) {
			if cost, ok := d.emptyingCost(n, want[0].above()); ok {
				c.Cost = max(1, cost)
				busy = append(busy, c)
			}
		}
	}
	slices.SortStableFunc(busy, func(a, b *mig.Candidate) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), d.migUsersOn(a.Name())-d.migUsersOn(b.Name()))
	})
	for _, c := range busy[:min(len(busy), migMostBusy)] {
		if d.migLooks.work <= 0 {
			break
		}
		with := append(slices.Clip(idle), c)
		q, names := d.migAsk(want, emptied, with)
		if plan := q.Choose(); plan != nil {
			if _, ok := d.tryPlan(plan, q, names, list, want, emptied, with); ok {
				return
			}
		}
	}
	d.migLooks.tried[want[0].g] = d.now
}

// above is the tier of a gang that waits: gangs of a lower one may be preempted for it. For one that preempts none it
// is the lowest.
func (w *migWaiter) above() cluster.Tier {
	if w.job().NoPreempt {
		return cluster.BestEffort
	}
	return w.job().Tier
}

// migClosedFor reports whether a node is being emptied for a gang.
func (d *Driver) migClosedFor(g *gang) bool {
	return slices.ContainsFunc(d.migUnder(), func(n *node) bool {
		return n.mig.Step() == mig.Closed && slices.Contains(n.mig.Note().For, g.name)
	})
}

// migEmptying reports whether a node of a rule is closed and still in use.
func (d *Driver) migEmptying(rule int) bool {
	for _, n := range d.migUnder() {
		if n.mig.Rule() == rule && n.mig.Step() == mig.Closed && !d.migEmpty(n) {
			return true
		}
	}
	return false
}

// emptyingCost is what it costs to empty a node for a gang of a tier, in GPU-seconds; false: a pod there never leaves.
func (d *Driver) emptyingCost(n *node, tier cluster.Tier) (cost int64, ok bool) {
	var last time.Duration
	seen := map[*gang]bool{}
	for _, p := range d.migUsers(n) {
		switch g := p.gang; {
		case g != nil && seen[g]:
		case g != nil && d.goes(g, tier):
			seen[g] = true
			cost += int64(d.lostBy(g)/time.Second) * int64(g.spec.GPUs())
		case g == nil && p.obj.Spec.RestartPolicy == v1.RestartPolicyAlways, g != nil && g.kind == cluster.Service:
			return 0, false
		case g == nil || g.spec == nil || g.spec.Estimate == 0 || g.book.Started == 0:
			last = max(last, migUnknown)
		default:
			seen[g] = true
			last = max(last, g.book.Started.Add(g.spec.Estimate).Sub(d.now), 0)
		}
	}
	return cost + int64(last/time.Second)*int64(max(1, n.mig.Note().GPUs, d.mig.Whole(&n.mig))), true
}

// lostBy is how much of its work a running gang would lose now: what came after it was saved last.
func (d *Driver) lostBy(g *gang) time.Duration {
	ran := max(0, d.now.Sub(g.book.Started))
	if pods := g.sorted(); len(pods) > 0 {
		if t, err := d.terms(g, pods[0].obj); err == nil && t.Saves > 0 {
			return ran % t.Saves
		}
	}
	return ran
}

// dismissMIG preempts the gangs on a closed node, if all are of a lower tier than those that it was closed for, and
// that need it.
func (d *Driver) dismissMIG(k migKept) {
	n := k.n
	tier, err := cluster.ParseTier(n.mig.Note().Tier)
	if n.mig.Note().Tier == "" || err != nil || len(n.mig.Note().For) == 0 {
		return
	}
	tier = max(tier, k.tier) // the lower one
	var list []*gang
	for _, p := range d.migUsers(n) {
		switch {
		case p.gang == nil:
			return
		case p.leaves() || slices.Contains(list, p.gang):
		case !d.goes(p.gang, tier):
			return
		default:
			list = append(list, p.gang)
		}
	}
	for _, g := range list {
		g.leaves = fmt.Sprintf("preempted for %s: node %s is partitioned otherwise", k.name, n.obj.Name)
		d.queued = append(d.queued, engine.Event{Type: engine.Cancelled, Job: g.id})
	}
}
