package kube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
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

// migCandidate is a node that may be changed now.
type migCandidate struct {
	n       *node
	gpus    int
	configs []string
	offers  []*config.MIGOffer
	cost    int64 // of emptying it, in GPU-seconds; 0: it is empty
}

// lookMIG looks which gangs wait, and closes the nodes that are to be changed; those that none waits for any more are
// opened.
func (d *Driver) lookMIG(now cluster.Time) {
	maps.DeleteFunc(d.mig.tried, func(g *gang, at cluster.Time) bool {
		return now.Sub(at) >= migRetry || d.gangs[g.key] != g
	})
	under := d.migUnder()
	can := d.candidates(now)
	if len(under) == 0 && (len(can) == 0 || !d.anyWaits(now)) {
		return
	}
	d.eng.Look(now)
	d.mig.work = mig.Work
	list := d.waiters(now)
	as := map[string]*config.MIGOffer{}
	for _, n := range under {
		as[n.obj.Name] = n.mig.note.Offer
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
	old := slices.ContainsFunc(list, func(w *migWaiter) bool { return w.old && d.mig.tried[w.g] == 0 })
	if can = slices.DeleteFunc(can, func(c *migCandidate) bool { return c.n.mig.busy }); old && len(can) > 0 {
		d.changeFor(now, list, base, emptied, can)
	}
}

// anyWaits reports whether a gang has waited for long enough.
func (d *Driver) anyWaits(now cluster.Time) bool {
	after := d.migAfter()
	for _, g := range d.gangs {
		if g.waits() && g.book.Lined > 0 && now.Sub(g.book.Lined) >= after && d.mig.tried[g] == 0 {
			return true
		}
	}
	return false
}

// migUnder lists the nodes that are on their way by this scheduler.
func (d *Driver) migUnder() (list []*node) {
	for _, name := range d.order {
		if n := d.mig.under[name]; n != nil && n.obj != nil && n.mig.step != "" && d.ours(n) &&
			n.mig.note.Offer != nil {
			list = append(list, n)
		}
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
func (d *Driver) dropUnneeded(list []*migWaiter, under []*node, base *migWorld) (left *migWorld, kept []migKept) {
	var slow, quick []*node
	for _, n := range under {
		if d.migEmpty(n) {
			quick = append(quick, n)
		} else {
			slow = append(slow, n)
		}
	}
	for _, n := range slices.Concat(slow, quick) {
		if n.mig.step != migClosed || n.mig.busy || n.mig.asked {
			continue
		}
		rest := maps.Clone(base.as)
		delete(rest, n.obj.Name)
		w, err := d.suppose(list, rest, nil)
		if err != nil {
			continue
		}
		var needs *migWaiter
		for _, x := range list {
			if base.starts[x.id] != nil && w.starts[x.id] == nil && (needs == nil || x.above() < needs.above()) {
				needs = x
			}
		}
		switch {
		case needs != nil:
			kept = append(kept, migKept{n, needs.above(), needs.g.name})
		case !slices.ContainsFunc(base.order, func(id cluster.JobID) bool { return w.starts[id] == nil }):
			base = w
			d.reopen(n, "dropped", "no gang needs it any more")
		}
	}
	return base, kept
}

// withoutSlow leaves out those nodes that are still being emptied: gangs that would start on them may be served sooner.
func (d *Driver) withoutSlow(list []*migWaiter, under []*node, base *migWorld) (*migWorld, error) {
	rest := maps.Clone(base.as)
	for _, n := range under {
		if n.mig.step == migClosed && !d.migEmpty(n) {
			delete(rest, n.obj.Name)
		}
	}
	if len(rest) == len(base.as) {
		return base, nil
	}
	return d.suppose(list, rest, nil)
}

// candidates lists the nodes that may be changed, in the engine's order.
func (d *Driver) candidates(now cluster.Time) (list []*migCandidate) {
	for _, name := range d.order {
		n := d.nodes[name]
		if n == nil || n.obj == nil || n.mig.rule == 0 {
			continue
		}
		c, why := d.candidate(n, now)
		if why != "" {
			d.sayMIG(name, why)
			continue
		}
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}

// sayMIG logs once why a node is left alone.
func (d *Driver) sayMIG(name, why string) {
	if key := name + " " + why; !d.mig.said[key] {
		d.mig.said[key] = true
		d.opt.Log.Warn("a node is not partitioned otherwise", "node", name, "why", why)
	}
}

// candidate says how a node may be partitioned; nil: not now. why is what people have to see to.
func (d *Driver) candidate(n *node, now cluster.Time) (c *migCandidate, why string) {
	m, l := &n.mig, n.obj.Labels
	rule := &d.opt.MIG[m.rule-1]
	file := d.mig.maps[rule.key()]
	state := l[d.opt.Labels.State]
	switch {
	case file == nil || file.configs == nil, m.step != "" || m.busy || m.asked,
		n.state() != cluster.Up || n.power.Sleeps() || n.power.State() == power.Suspending,
		d.eng.IsGivenBack(n.obj.Name), state == migPending || state == migRebooting:
		return nil, ""
	case m.note.Config != "" && time.Unix(0, int64(now)).Sub(m.note.Since) < rule.Keep:
		return nil, ""
	case time.Unix(0, int64(now)).Before(m.again):
		return nil, ""
	}
	if s := l[d.opt.Labels.Strategy]; s != "" && s != "mixed" {
		return nil, fmt.Sprintf("label %s is %s: only with mixed its slices have names of their own",
			d.opt.Labels.Strategy, s)
	}
	if d.gpus.ReplicasOn(n.obj).Name != "" || d.publishedGPUs(n.obj.Name) > 0 {
		return nil, "its GPUs are shared by replicas, or published by a driver"
	}
	model, ok := cluster.FindModel(d.gpus.Model(n.obj))
	if !ok || len(model.Profiles) == 0 {
		return nil, fmt.Sprintf("its GPUs (%s) cannot be partitioned, or Muster does not know how", d.gpus.Model(n.obj))
	}
	have := d.migOffer(m.raw)
	if !have.Equal(d.migOffer(n.obj.Status.Capacity)) {
		return nil, "not all of its devices are healthy"
	}
	c = &migCandidate{n: n, gpus: d.migGPUs(n, &model)}
	if c.gpus == 0 {
		return nil, fmt.Sprintf("how many GPUs it has is not known: %s with %s is not what its slices come from, and label %s does not say", d.opt.Labels.Config, l[d.opt.Labels.Config], d.opt.Labels.Count)
	}
	if why = d.waysOfRule(c, rule, file, &model, have); len(c.configs) == 0 {
		return nil, why
	}
	return c, ""
}

// waysOfRule finds what a rule's configurations make of a node, besides what it has.
func (d *Driver) waysOfRule(c *migCandidate, rule *MIG, file *migMap, model *cluster.GPUModel,
	have config.MIGOffer) (why string) {
	names := rule.Configs
	if len(names) == 0 {
		names = file.configs.Names()
	}
	f := d.failures(c.n)
	for _, name := range names {
		// mig-manager goes by changes of the label: it would do nothing
		if name == c.n.obj.Labels[d.opt.Labels.Config] {
			continue
		}
		o, err := file.configs.Offer(name, model, c.gpus)
		if err != nil {
			if len(rule.Configs) > 0 {
				d.sayMap(rule, file, model.Name, err)
			}
			continue
		}
		if o.Equal(have) || f != nil && f.Why[name] != "" ||
			slices.ContainsFunc(c.offers, func(x *config.MIGOffer) bool { return x.Equal(o) }) {
			continue
		}
		c.configs, c.offers = append(c.configs, name), append(c.offers, &o)
	}
	return ""
}

// sayMap says once of a configuration that the file names why it cannot be: in the log, and as an event of the
// ConfigMap.
func (d *Driver) sayMap(rule *MIG, file *migMap, model string, err error) {
	if key := fmt.Sprint(rule.key(), model, err); !d.mig.said[key] {
		d.mig.said[key] = true
		d.opt.Log.Error("a configuration cannot be", "configmap", rule.key(), "model", model, "error", err)
		d.notices.Event(file.object, v1.EventTypeWarning, "NotPossible",
			fmt.Sprintf("on nodes with %s: %v", model, err))
	}
}

// changeFor closes the nodes that are to be changed for gangs that wait; emptied is as though those that are being
// emptied were.
func (d *Driver) changeFor(now cluster.Time, list []*migWaiter, base, emptied *migWorld, can []*migCandidate) {
	wants, err := d.migWants(now, list, base, can)
	if err != nil {
		d.opt.Log.Error("a second engine cannot be made", "error", err)
		return
	}
	for _, w := range list { // the others wait for something else, and are asked about again in a while
		if w.old && d.mig.tried[w.g] == 0 && !slices.Contains(wants, w) {
			d.mig.tried[w.g] = now
		}
	}
	for range migTries {
		if len(wants) == 0 {
			return
		}
		q, names := d.migAsk(wants, base,
			slices.DeleteFunc(slices.Clone(can), func(c *migCandidate) bool { return !d.migEmpty(c.n) }))
		plan := q.Choose()
		if plan == nil {
			break
		}
		first, ok := d.tryPlan(plan, q, names, list, wants, base, can)
		if ok {
			return
		}
		d.mig.tried[wants[first].g] = now
		wants = slices.Delete(wants, first, first+1)
	}
	d.emptyFor(list, wants, emptied, can)
}

// migWants lists the gangs that would start with more nodes and do not without, the first in line first.
func (d *Driver) migWants(now cluster.Time, list []*migWaiter, base *migWorld, can []*migCandidate) (wants []*migWaiter,
	err error) {
	var more []migNewNode
	count := map[string]int{}
	for _, c := range can {
		model := d.gpus.Model(c.n.obj)
		for i := range c.offers {
			key := fmt.Sprint(model, c.gpus, c.configs[i], d.opt.MIG[c.n.mig.rule-1].name())
			if count[key]++; count[key] <= migMostNew && len(more) < migMostNodes {
				more = append(more, migNewNode{c.n.obj.Name, c.offers[i]})
			}
		}
	}
	generous, err := d.suppose(list, base.as, more)
	if err != nil {
		return nil, err
	}
	byID := map[cluster.JobID]*migWaiter{}
	for _, w := range list {
		byID[w.id] = w
	}
	soon := map[cluster.JobID]bool{}
	for _, l := range base.line {
		soon[l.Job] = l.Expected <= now.Add(d.migAfter())
	}
	for _, id := range generous.order {
		if w := byID[id]; w != nil && w.old && base.starts[id] == nil && !soon[id] && d.mig.tried[w.g] == 0 &&
			len(wants) < migMostWants {
			wants = append(wants, w)
		}
	}
	return wants, nil
}

// migAsk is the question which of these nodes to change.
func (d *Driver) migAsk(wants []*migWaiter, base *migWorld, can []*migCandidate) (*mig.Question, []string) {
	q, what := &mig.Question{Left: &d.mig.work}, map[string]int{"": 0}
	for _, w := range wants {
		want := mig.Want{}
		for _, s := range w.job().Tasks {
			if s.Request.GPUs == 0 {
				continue
			}
			set := mig.Set{Each: s.Request.GPUs, Count: s.Count}
			if s.Request.Profile != "" {
				set.Each = 1
			}
			if _, ok := what[s.Request.Profile]; !ok {
				what[s.Request.Profile] = len(what)
			}
			set.What = what[s.Request.Profile]
			want.Sets = append(want.Sets, set)
			want.Milli += int64(s.Count) * d.milliOf(&s.Request, can)
		}
		if e := w.job().Elastic; e.Min > 0 && len(want.Sets) > 0 {
			want.Sets[0].Count -= max(0, e.Max-e.Min)
		}
		q.Wants = append(q.Wants, want)
	}
	vector := func(o map[string]int) []int {
		list := make([]int, len(what))
		for p, n := range o {
			if k, ok := what[p]; ok {
				list[k] = n
			}
		}
		return list
	}
	ways := map[string]*migCandidate{}
	for _, c := range can {
		ways[c.n.obj.Name] = c
	}
	free := base.free(d.order)
	var names []string
	for _, name := range d.order {
		n := d.nodes[name]
		if n == nil || n.obj == nil ||
			d.gpus.Model(n.obj) == gpus.UnknownModel && ways[name] == nil && len(free[name]) == 0 {
			continue
		}
		x := mig.Node{Model: d.gpus.Model(n.obj), Free: vector(free[name])}
		if c := ways[name]; c != nil {
			x.Cost, x.Whole = c.cost, d.migOffer(n.mig.raw).Whole
			for _, o := range c.offers {
				all := maps.Clone(o.Slices)
				all[""] = o.Whole
				x.To = append(x.To, vector(all))
			}
		}
		if ways[name] == nil && !slices.ContainsFunc(x.Free, func(n int) bool { return n > 0 }) { // for no gang
			continue
		}
		suits := ""
		for i, w := range wants {
			ok := d.mayBeOn(w.pods, n.obj)
			q.Wants[i].Suits = append(q.Wants[i].Suits, ok)
			suits += fmt.Sprint(ok, " ")
		}
		x.Kind = fmt.Sprint(n.mig.rule, x.Model, x.Free, x.To, x.Whole, x.Cost, suits)
		if c := ways[name]; c != nil {
			x.Kind += fmt.Sprint(c.configs)
		}
		q.Nodes, names = append(q.Nodes, x), append(names, name)
	}
	return q, names
}

// job is a gang that waits as the engine has it, or would.
func (w *migWaiter) job() *cluster.Job {
	if w.spec != nil {
		return w.spec
	}
	return w.g.spec
}

// milliOf is how much of a GPU a task asks for.
func (d *Driver) milliOf(r *cluster.Request, can []*migCandidate) int64 {
	if r.Profile == "" {
		return int64(r.GPUs) * cluster.Whole
	}
	for _, c := range can {
		model, _ := cluster.FindModel(d.gpus.Model(c.n.obj))
		if p, ok := model.Profile(r.Profile); ok {
			return int64(p.Compute) * cluster.Whole / int64(model.Compute)
		}
	}
	return 0
}

// tryPlan asks a second engine whether those that changes are for start then, and closes the nodes; false: the first
// among them would not, or a gang before them would start later.
func (d *Driver) tryPlan(plan []mig.Change, q *mig.Question, names []string, list, wants []*migWaiter, base *migWorld,
	can []*migCandidate) (first int, ok bool) {
	before, after := q.Serve(nil), q.Serve(plan)
	first = -1
	for i := range wants {
		if after[i] && !before[i] && first < 0 {
			first = i
		}
	}
	with := maps.Clone(base.as)
	chosen := map[string]*migCandidate{}
	ways := map[string]int{}
	for _, c := range plan {
		name := names[c.Node]
		k := slices.IndexFunc(can, func(x *migCandidate) bool { return x.n.obj.Name == name })
		chosen[name], ways[name], with[name] = can[k], c.Way, can[k].offers[c.Way]
	}
	w, err := d.suppose(list, with, nil)
	if err != nil || w.starts[wants[first].id] == nil || d.laterBefore(base, w, wants[first].id) {
		return first, false
	}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		c := chosen[name]
		note := mig.Note{Config: c.configs[ways[name]], From: c.n.obj.Labels[d.opt.Labels.Config], GPUs: c.gpus,
			Offer: c.offers[ways[name]], Failed: d.failures(c.n)}
		for _, x := range wants {
			if base.starts[x.id] == nil && w.on(x.id, name, d.order) {
				note.For = append(note.For, x.g.name)
			}
		}
		if len(note.For) == 0 { // the second engine put them elsewhere
			continue
		}
		if c.cost > 0 {
			note.Tier = wants[first].above().String()
		}
		const most = 8
		note.For = note.For[:min(len(note.For), most)]
		d.setMIG(c.n, migClosed, note)
	}
	return first, true
}

// on reports whether a gang starts on a node.
func (w *migWorld) on(id cluster.JobID, name string, order []string) bool {
	return slices.ContainsFunc(w.starts[id], func(a engine.Alloc) bool {
		return int(a.Node) < len(order) && order[a.Node] == name
	})
}

// laterBefore reports whether a gang that comes before another in line would start later than without the changes.
func (d *Driver) laterBefore(base, w *migWorld, id cluster.JobID) bool {
	then := map[cluster.JobID]cluster.Time{}
	for _, l := range w.line {
		then[l.Job] = l.Expected
	}
	for _, l := range base.line {
		if l.Job == id {
			return false
		}
		at, waits := then[l.Job]
		if l.Expected != cluster.Never && waits && cmp.Compare(at, l.Expected.Add(time.Second)) > 0 {
			return true
		}
	}
	return false
}
