package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/power"
)

// The gangs for which nodes are partitioned otherwise: one that has waited for long enough, would start at once if
// there were more nodes like those that may be changed, partitioned as they may be - so nothing but the present
// partitioning is in the way: no quota, no gang before it -, and is not expected to start soon anyway. Package mig
// chooses the nodes by counting, and a second engine has to agree.

const (
	migMostNew   = 64  // more nodes of a kind and a way, that is, so many nodes at once are changed for a gang at most
	migMostNodes = 512 // ... of all together
	migMostWants = 64
	migTries     = 3
)

// migRetry is how long a gang is not looked at again for which nothing could be found.
const migRetry = 15 * time.Second

// lookMIG looks which gangs wait, and closes the nodes that are to be changed; those that none waits for any more are
// opened.
func (d *Driver) lookMIG(now cluster.Time) {
	maps.DeleteFunc(d.migLooks.tried, func(g *gang, at cluster.Time) bool {
		return now.Sub(at) >= migRetry || d.gangs[g.key] != g
	})
	under := d.migUnder()
	can := d.candidates(now)
	if len(under) == 0 && (len(can) == 0 || !d.anyWaits(now)) {
		return
	}
	d.eng.Look(now)
	d.migLooks.work = mig.Work
	list := d.waiters(now)
	as := map[string]*config.MIGOffer{}
	for _, n := range under {
		as[n.obj.Name] = n.mig.Note().Offer
	}
	base, err := d.suppose(list, as, nil)
	if err != nil {
		d.opt.Log.Error("a second engine cannot be made", "error", err)
		return
	}
	emptied, kept := d.dropUnneeded(list, under, base)
	for _, k := range kept {
		d.bringOn(k)
	}
	if base, err = d.withoutSlow(list, under, emptied); err != nil {
		d.opt.Log.Error("a second engine cannot be made", "error", err)
		return
	}
	old := slices.ContainsFunc(list, func(w *migWaiter) bool { return w.old && d.migLooks.tried[w.g] == 0 })
	if can = slices.DeleteFunc(can, func(c *mig.Candidate) bool { return c.Busy() }); old && len(can) > 0 {
		d.changeFor(now, list, base, emptied, can)
	}
}

// anyWaits reports whether a gang has waited for long enough.
func (d *Driver) anyWaits(now cluster.Time) bool {
	after := d.mig.After()
	for _, g := range d.gangs {
		if g.waits() && g.book.Lined > 0 && now.Sub(g.book.Lined) >= after && d.migLooks.tried[g] == 0 {
			return true
		}
	}
	return false
}

// migUnder lists the nodes that are on their way by this scheduler.
func (d *Driver) migUnder() (list []*node) {
	for _, n := range d.mig.Under(d.order) {
		list = append(list, d.nodes[n.Name()])
	}
	return list
}

// migKept is a closed node that is needed still.
type migKept struct {
	n    *node
	tier cluster.Tier // the highest of those that would not start without it
	name string       // ... and which that is
}

// dropUnneeded opens closed nodes without which just as many would start, those in use before those that could be
// changed at once. It returns what would happen without them, and the closed nodes that are needed.
func (d *Driver) dropUnneeded(list []*migWaiter, under []*node, base *mig.World) (left *mig.World, kept []migKept) {
	var slow, quick []*node
	for _, n := range under {
		if d.migEmpty(n) {
			quick = append(quick, n)
		} else {
			slow = append(slow, n)
		}
	}
	for _, n := range slices.Concat(slow, quick) {
		if n.mig.Step() != mig.Closed || !n.mig.Written() {
			continue
		}
		rest := maps.Clone(base.As)
		delete(rest, n.obj.Name)
		w, err := d.suppose(list, rest, nil)
		if err != nil {
			continue
		}
		var needs *migWaiter
		for _, x := range list {
			if base.Starts[x.id] != nil && w.Starts[x.id] == nil && (needs == nil || x.above() < needs.above()) {
				needs = x
			}
		}
		switch {
		case needs != nil:
			kept = append(kept, migKept{n, needs.above(), needs.g.name})
		case !slices.ContainsFunc(base.Order, func(id cluster.JobID) bool { return w.Starts[id] == nil }):
			base = w
			d.mig.Reopen(&n.mig, "dropped", "no gang needs it any more")
		}
	}
	return base, kept
}

// withoutSlow leaves out those nodes that are still being emptied: gangs that would start on them may be served sooner.
func (d *Driver) withoutSlow(list []*migWaiter, under []*node, base *mig.World) (*mig.World, error) {
	rest := maps.Clone(base.As)
	for _, n := range under {
		if n.mig.Step() == mig.Closed && !d.migEmpty(n) {
			delete(rest, n.obj.Name)
		}
	}
	if len(rest) == len(base.As) {
		return base, nil
	}
	return d.suppose(list, rest, nil)
}

// candidates lists the nodes that may be changed, in the engine's order.
func (d *Driver) candidates(now cluster.Time) []*mig.Candidate {
	up := func(name string) bool {
		n := d.nodes[name]
		return n.state() == cluster.Up && !n.power.Sleeps() && n.power.State() != power.Suspending &&
			!d.eng.IsGivenBack(name)
	}
	return d.mig.Candidates(now, d.order, up, d.publishedGPUs)
}

// changeFor closes the nodes that are to be changed for gangs that wait; emptied is as though those that are being
// emptied were.
func (d *Driver) changeFor(now cluster.Time, list []*migWaiter, base, emptied *mig.World, can []*mig.Candidate) {
	wants, err := d.migWants(now, list, base, can)
	if err != nil {
		d.opt.Log.Error("a second engine cannot be made", "error", err)
		return
	}
	for _, w := range list { // the others wait for something else, and are asked about again in a while
		if w.old && d.migLooks.tried[w.g] == 0 && !slices.Contains(wants, w) {
			d.migLooks.tried[w.g] = now
		}
	}
	for range migTries {
		if len(wants) == 0 {
			return
		}
		q, names := d.migAsk(wants, base,
			slices.DeleteFunc(slices.Clone(can), func(c *mig.Candidate) bool { return !d.migEmpty(d.nodes[c.Name()]) }))
		plan := q.Choose()
		if plan == nil {
			break
		}
		first, ok := d.tryPlan(plan, q, names, list, wants, base, can)
		if ok {
			return
		}
		d.migLooks.tried[wants[first].g] = now
		wants = slices.Delete(wants, first, first+1)
	}
	d.emptyFor(list, wants, emptied, can)
}

// migWants lists the gangs that would start with more nodes and do not without, the first in line first.
func (d *Driver) migWants(now cluster.Time, list []*migWaiter, base *mig.World,
	can []*mig.Candidate) (wants []*migWaiter, err error) {
	var more []migNewNode
	count := map[string]int{}
	for _, c := range can {
		model := d.gpus.Model(d.nodes[c.Name()].obj)
		for i := range c.Offers {
			key := fmt.Sprint(model, c.GPUs, c.Configs[i], gpus.SelectorText(d.opt.MIG[c.Rule()-1].Selector))
			if count[key]++; count[key] <= migMostNew && len(more) < migMostNodes {
				more = append(more, migNewNode{c.Name(), c.Offers[i]})
			}
		}
	}
	generous, err := d.suppose(list, base.As, more)
	if err != nil {
		return nil, err
	}
	byID := map[cluster.JobID]*migWaiter{}
	for _, w := range list {
		byID[w.id] = w
	}
	soon := map[cluster.JobID]bool{}
	for _, l := range base.Line {
		soon[l.Job] = l.Expected <= now.Add(d.mig.After())
	}
	for _, id := range generous.Order {
		if w := byID[id]; w != nil && w.old && base.Starts[id] == nil && !soon[id] && d.migLooks.tried[w.g] == 0 &&
			len(wants) < migMostWants {
			wants = append(wants, w)
		}
	}
	return wants, nil
}

// migAsk is the question which of these nodes to change.
func (d *Driver) migAsk(wants []*migWaiter, base *mig.World, can []*mig.Candidate) (*mig.Question, []string) {
	var list []mig.Waiter
	for _, w := range wants {
		list = append(list, mig.Waiter{Job: w.job(), Suits: func(obj *v1.Node) bool { return d.mayBeOn(w.pods, obj) }})
	}
	return d.mig.Ask(list, base, d.order, can, &d.migLooks.work)
}

// job is a gang that waits as the engine has it, or would.
func (w *migWaiter) job() *cluster.Job {
	if w.spec != nil {
		return w.spec
	}
	return w.g.spec
}

// tryPlan asks a second engine whether those that changes are for start then, and closes the nodes; false: the first
// among them would not, or a gang before them would start later.
func (d *Driver) tryPlan(plan []mig.Change, q *mig.Question, names []string, list, wants []*migWaiter, base *mig.World,
	can []*mig.Candidate) (first int, ok bool) {
	before, after := q.Serve(nil), q.Serve(plan)
	first = -1
	for i := range wants {
		if after[i] && !before[i] && first < 0 {
			first = i
		}
	}
	with := maps.Clone(base.As)
	chosen := map[string]*mig.Candidate{}
	ways := map[string]int{}
	for _, c := range plan {
		name := names[c.Node]
		k := slices.IndexFunc(can, func(x *mig.Candidate) bool { return x.Name() == name })
		chosen[name], ways[name], with[name] = can[k], c.Way, can[k].Offers[c.Way]
	}
	w, err := d.suppose(list, with, nil)
	if err != nil || w.Starts[wants[first].id] == nil || mig.Later(base, w, wants[first].id) {
		return first, false
	}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		c := chosen[name]
		note := d.mig.NoteFor(c, ways[name])
		for _, x := range wants {
			if base.Starts[x.id] == nil && w.On(x.id, name, d.order) {
				note.For = append(note.For, x.g.name)
			}
		}
		if len(note.For) == 0 { // the second engine put them elsewhere
			continue
		}
		if c.Cost > 0 {
			note.Tier = wants[first].above().String()
		}
		const most = 8
		note.For = note.For[:min(len(note.For), most)]
		d.mig.Close(c.Node, note)
	}
	return first, true
}
