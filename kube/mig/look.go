package mig

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gpus"
)

// The gangs for which nodes are partitioned otherwise: one that has waited for long enough, would start at once if
// there were more nodes like those that may be changed, partitioned as they may be - so nothing but the present
// partitioning is in the way: no quota, no gang before it -, and is not expected to start soon anyway. The nodes are
// chosen by counting (choice.go), and a second engine has to agree (world.go).

const (
	mostNew   = 64  // more nodes of a kind and a way, that is, so many nodes at once are changed for a gang at most
	mostNodes = 512 // ... of all together
	mostWants = 64
	mostFor   = 8 // gangs that are written down on a node
	tries     = 3
)

// tryAgain is how long a gang is not looked at again for which nothing could be found.
const tryAgain = 15 * time.Second

// Gang is what is remembered of a gang that waits.
type Gang struct {
	tried       cluster.Time // when nothing could be found for it last
	mapsVersion int          // ... as of which maps
}

// Waiter is a gang that waits.
type Waiter struct {
	*Gang
	Name    string
	Job     *cluster.Job // as the engine has it, or would
	Outside bool         // the engine does not have it, because no node suits it as it is
	Since   cluster.Time // since when it could start; 0: it could not

	Kind    string              // the same nodes suit gangs of one kind
	Suits   func() []string     // nodes of the engine that suit all of its pods as they are, by name
	SuitsAs func(*v1.Node) bool // a node suits all of its pods with the devices that it has
	MayBeOn func(*v1.Node) bool // labels and taints of a node let all of its pods be there, whatever it has
}

// User is a pod that has GPUs of a node.
type User struct {
	Gang    string // "": it is of none
	GPUs    int    // that its gang has
	Leaves  bool   // it was told to leave, or ends
	Endless bool   // it never ends
	Ends    cluster.Time
	Goes    func(cluster.Tier) bool // its gang can be preempted for one of a tier
	Lost    func() time.Duration    // work that its gang would lose
}

// Cluster is what a look sees, of nodes by name. Nothing of it is changed.
type Cluster interface {
	Up(node string) bool       // it is in use, and not about to go off
	Published(node string) int // how many of its GPUs a driver of dynamic resource allocation published
	UserCount(node string) int
	Users(node string) []User // in order
	// AnyWaiting reports whether a gang waits that is so.
	AnyWaiting(is func(g *Gang, since cluster.Time) bool) bool
	Waiters() []*Waiter // the gangs that wait and are whole, by name
	// NodeAs is how a node would be told to an engine if it were so, with no pods that have its GPUs.
	NodeAs(name string, obj *v1.Node) cluster.Node
	Config(cluster.Spec) (engine.Config, error) // of an engine
}

// View is the cluster at a look.
type View struct {
	Cluster
	Now    cluster.Time
	Order  []string // the engine's nodes
	Engine *engine.Engine
	Seq    int64        // of its last batch
	Spec   cluster.Spec // for which it was made
	All    string       // the partition in which all nodes are; "": there is none
}

// Preemption is a gang that has to leave a node for another one.
type Preemption struct{ Gang, Node, For string }

// look is a look at which gangs wait.
type look struct {
	*View
	room    *Room
	held    map[string]bool // nodes of which the engine holds GPUs, by name
	waiters []*Waiter
	work    int64 // what may still be counted
	leave   []Preemption
}

// Look looks which gangs wait, and closes the nodes that are to be changed; those that no gang waits for any more are
// opened, and those that are needed and empty are changed. It returns which gangs have to leave those that are not.
func (r *Room) Look(v *View) []Preemption {
	l := &look{View: v, room: r, held: map[string]bool{}, work: work}
	for _, b := range v.Engine.Beliefs() {
		for i := range b.Allocs {
			if a := &b.Allocs[i]; a.GPUs != 0 {
				l.held[v.Order[a.Node]] = true
			}
		}
	}
	if err := l.run(); err != nil {
		r.opt.Log.Error("a second engine cannot be made", "error", err)
	}
	return l.leave
}

func (l *look) run() error {
	under, can := l.room.underway(l.Order), l.room.candidates(l.Now, l.Order, l.Up, l.Published)
	if len(under) == 0 && (len(can) == 0 || !l.AnyWaiting(l.isDue)) {
		return nil
	}
	l.Engine.Look(l.Now)
	l.waiters = l.Waiters()
	as := map[string]*config.MIGOffer{}
	for _, n := range under {
		as[n.obj.Name] = n.note.Offer
	}
	base, err := l.suppose(as, nil)
	if err != nil {
		return err
	}
	emptied, kept := l.dropUnneeded(under, base)
	for _, k := range kept {
		l.bringOn(k)
	}
	if base, err = l.withoutSlow(under, emptied); err != nil {
		return err
	}
	due := slices.ContainsFunc(l.waiters, func(w *Waiter) bool { return l.isDue(w.Gang, w.Since) })
	if can = slices.DeleteFunc(can, func(c *candidate) bool { return c.busy }); due && len(can) > 0 {
		return l.changeFor(base, emptied, can)
	}
	return nil
}

// isOld reports whether a gang has waited for long enough.
func (l *look) isOld(since cluster.Time) bool { return since > 0 && l.Now.Sub(since) >= l.room.after() }

// isDue reports whether a gang has waited for long enough, and was not looked at a moment ago.
func (l *look) isDue(g *Gang, since cluster.Time) bool { return l.isOld(since) && !l.wasTried(g) }

func (l *look) wasTried(g *Gang) bool {
	return g.tried > 0 && g.mapsVersion == l.room.mapsVersion && l.Now.Sub(g.tried) < tryAgain
}

// giveUp notes that nothing can be found for a gang at the moment.
func (l *look) giveUp(g *Gang) { g.tried, g.mapsVersion = l.Now, l.room.mapsVersion }

// isEmpty reports whether no pod has a GPU of a node, or is on the way there: neither by the pods, nor in the engine's
// books.
func (l *look) isEmpty(n *Node) bool { return l.UserCount(n.obj.Name) == 0 && !l.held[n.obj.Name] }

// needed is a closed node that is needed still.
type needed struct {
	*Node
	tier cluster.Tier // the highest of those that would not start without it
	name string       // ... and which that is
}

// dropUnneeded opens closed nodes without which just as many would start, those in use before those that could be
// changed at once. It returns what would happen without them, and the closed nodes that are needed.
func (l *look) dropUnneeded(under []*Node, base *world) (left *world, kept []needed) {
	var slow, quick []*Node
	for _, n := range under {
		if l.isEmpty(n) {
			quick = append(quick, n)
		} else {
			slow = append(slow, n)
		}
	}
	for _, n := range slices.Concat(slow, quick) {
		if n.step != Closed || n.busy || n.asked {
			continue
		}
		rest := maps.Clone(base.as)
		delete(rest, n.obj.Name)
		w, err := l.suppose(rest, nil)
		if err != nil {
			continue
		}
		var needs *Waiter
		for _, x := range l.waiters {
			id := x.Job.ID
			if base.starts[id] != nil && w.starts[id] == nil && (needs == nil || x.above() < needs.above()) {
				needs = x
			}
		}
		switch {
		case needs != nil:
			kept = append(kept, needed{n, needs.above(), needs.Name})
		case !slices.ContainsFunc(base.order, func(id cluster.JobID) bool { return w.starts[id] == nil }):
			base = w
			l.room.reopen(n, "dropped", "no gang needs it any more")
		}
	}
	return base, kept
}

// withoutSlow leaves out those nodes that are still being emptied: gangs that would start on them may be served sooner.
func (l *look) withoutSlow(under []*Node, base *world) (*world, error) {
	rest := maps.Clone(base.as)
	for _, n := range under {
		if n.step == Closed && !l.isEmpty(n) {
			delete(rest, n.obj.Name)
		}
	}
	if len(rest) == len(base.as) {
		return base, nil
	}
	return l.suppose(rest, nil)
}

// changeFor closes the nodes that are to be changed for gangs that wait; emptied is as though those that are being
// emptied were.
func (l *look) changeFor(base, emptied *world, can []*candidate) error {
	wants, err := l.wants(base, can)
	if err != nil {
		return err
	}
	for _, w := range l.waiters { // the others wait for something else, and are asked about again in a while
		if l.isDue(w.Gang, w.Since) && !slices.Contains(wants, w) {
			l.giveUp(w.Gang)
		}
	}
	empty := slices.DeleteFunc(slices.Clone(can), func(c *candidate) bool { return !l.isEmpty(c.Node) })
	for range tries {
		if len(wants) == 0 {
			return nil
		}
		q, names := l.ask(wants, base, empty)
		plan := q.choose()
		if plan == nil {
			break
		}
		first, ok := l.try(plan, q, names, wants, base, can)
		if ok {
			return nil
		}
		l.giveUp(wants[first].Gang)
		wants = slices.Delete(wants, first, first+1)
	}
	l.emptyFor(wants, emptied, can)
	return nil
}

// wants lists the gangs that would start with more nodes and do not without, the first in line first.
func (l *look) wants(base *world, can []*candidate) (wants []*Waiter, err error) {
	var more []newNode
	count := map[string]int{}
	for _, c := range can {
		model, rule := l.room.opt.GPUs.Model(c.obj), &l.room.opt.Rules[c.rule-1]
		for i := range c.Offers {
			key := fmt.Sprint(model, c.GPUs, c.Configs[i], gpus.SelectorText(rule.Selector))
			if count[key]++; count[key] <= mostNew && len(more) < mostNodes {
				more = append(more, newNode{c.Node, c.Offers[i]})
			}
		}
	}
	generous, err := l.suppose(base.as, more)
	if err != nil {
		return nil, err
	}
	byID := map[cluster.JobID]*Waiter{}
	for _, w := range l.waiters {
		byID[w.Job.ID] = w
	}
	soon := map[cluster.JobID]bool{}
	for _, x := range base.line {
		soon[x.Job] = x.Expected <= l.Now.Add(l.room.after())
	}
	for _, id := range generous.order {
		if w := byID[id]; w != nil && base.starts[id] == nil && !soon[id] && l.isDue(w.Gang, w.Since) &&
			len(wants) < mostWants {
			wants = append(wants, w)
		}
	}
	return wants, nil
}

// try asks a second engine whether those that changes are for start then, and closes the nodes; false: the first among
// them would not, or a gang before them would start later.
func (l *look) try(plan []change, q *question, names []string, wants []*Waiter, base *world,
	can []*candidate) (first int, ok bool) {
	before, after := q.serve(nil), q.serve(plan)
	for before[first] || !after[first] {
		first++
	}
	with := maps.Clone(base.as)
	chosen := map[string]*candidate{}
	ways := map[string]int{}
	for _, c := range plan {
		name := names[c.Node]
		k := slices.IndexFunc(can, func(x *candidate) bool { return x.obj.Name == name })
		chosen[name], ways[name], with[name] = can[k], c.Way, can[k].Offers[c.Way]
	}
	w, err := l.suppose(with, nil)
	if id := wants[first].Job.ID; err != nil || w.starts[id] == nil || later(base, w, id) {
		return first, false
	}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		c := chosen[name]
		note := l.room.noteFor(c, ways[name])
		for _, x := range wants {
			if id := x.Job.ID; base.starts[id] == nil && w.isOn(id, name, l.Order) {
				note.For = append(note.For, x.Name)
			}
		}
		if len(note.For) == 0 { // the second engine put them elsewhere
			continue
		}
		if c.Cost > 0 {
			note.Tier = wants[first].above().String()
		}
		note.For = note.For[:min(len(note.For), mostFor)]
		l.room.set(c.Node, Closed, note)
	}
	return first, true
}
