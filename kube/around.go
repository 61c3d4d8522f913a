package kube

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// What else is on a node can forbid a pod: ports, neighbours, how many there are
// in a zone, anything that is counted besides CPU, memory and GPUs. The engine
// knows none of that. It is told for each gang what single nodes, or the nodes of
// a domain together, take of it at the moment (cluster.NodeLimit). That is
// brought up to date as pods come and go; and because others may have started
// since, it is asked once more before a gang is bound.

// neighbours is who is where.
type neighbours struct {
	spaces  map[string]map[string]string // labels of namespaces
	moves   int                          // counts what changed
	seen    int                          // ... that waiting gangs know of
	lookAt  cluster.Time                 // not to be asked again before
	shy     []v1.Taint                   // of nodes, with PreferNoSchedule
	repel   map[*pod]bool                // pods with a place that keep others away
	crowded map[string]bool              // nodes that take only a few pods more
	memory  map[string]limits            // what was found since the last move
	asOf    int
	turns   map[string]*turn // of pods that are in each other's way
	minding map[*gang]bool   // gangs that wait in the engine, and minded
	waits   map[*gang]bool   // gangs that wait for something to change around them
	holding map[*gang]bool   // gangs that have their places, and wait for those to go who have a claim of theirs
}

func newNeighbours() neighbours {
	return neighbours{spaces: map[string]map[string]string{}, repel: map[*pod]bool{}, crowded: map[string]bool{}, memory: map[string]limits{},
		turns: map[string]*turn{}, minding: map[*gang]bool{}, waits: map[*gang]bool{}, holding: map[*gang]bool{}}
}

// turn lets pods go one after the other that are in each other's way.
type turn struct {
	now    *gang
	behind []*gang // by age
}

// limits is what nodes take of a gang.
type limits struct {
	each  int // at most so many on a node; 0: any number
	nodes []cluster.NodeLimit
	text  string // what keeps it off some nodes, for people
	why   string // what keeps it off every node for now; "": nothing
	// Who has what it needs alone.
	rivals []rival
}

// fewPods is when a node counts as crowded: it takes no more pods than these.
const fewPods = 8

// at is where a pod is, or is going; "": nowhere.
func (p *pod) at() string {
	switch {
	case p.over():
		return ""
	case p.node != "":
		return p.node
	case p.gang == nil:
		return p.obj.Status.NominatedNodeName // another scheduler is making room for it
	}
	return p.assumed
}

// move books where a pod is now.
func (d *Driver) move(p *pod, gone bool) {
	at := p.at()
	if gone {
		at = ""
	}
	if at == p.where {
		return
	}
	if p.where != "" {
		n := d.nodeNamed(p.where)
		delete(n.pods, p)
		d.count1(p.where, n)
		d.dropNode(p.where)
	}
	delete(d.repel, p)
	if len(p.claimed.keys) > 0 { // whether a pod of ours pays for them is another matter now
		d.dra.used, d.nodesDirty = nil, true
	}
	if p.where = at; at != "" {
		n := d.nodeNamed(at)
		n.pods[p] = true
		d.count1(at, n)
		if p.needs != nil && p.needs.anti != nil {
			d.repel[p] = true
		}
	}
	if d.slicesAside(p) {
		d.sizesDirty = true // the engine has fewer to give, or more
	}
	if p.replica.name != "" && !p.counted() {
		d.nodesDirty = true
	}
	d.moves++
}

// count1 notes whether a node takes only a few pods more.
func (d *Driver) count1(name string, n *node) {
	if n.obj == nil || n.podsLeft() >= fewPods {
		delete(d.crowded, name)
		return
	}
	d.crowded[name] = true
}

// podsLeft is how many more pods a node takes.
func (n *node) podsLeft() int {
	most, ok := n.obj.Status.Allocatable[v1.ResourcePods]
	if !ok {
		return math.MaxInt32
	}
	return int(min(countOf(&most), math.MaxInt32)) - len(n.pods)
}

// requiresCheck reports whether it matters to a gang what is around it.
func (d *Driver) requiresCheck(pods []*pod) bool {
	return len(d.repel) > 0 || len(d.crowded) > 0 || slices.ContainsFunc(pods, func(p *pod) bool { return p.needs != nil })
}

// limitsOf finds what nodes take of a gang with these pods at the moment.
func (d *Driver) limitsOf(pods []*pod, careful, devices bool) limits {
	if !d.requiresCheck(pods) {
		return limits{}
	}
	if d.asOf != d.moves {
		d.asOf, d.memory = d.moves, map[string]limits{}
	}
	key := ""
	if len(pods) == 1 && len(d.lifts.hidden) == 0 {
		key = fmt.Sprint(devices, careful, pods[0].around)
		if (pods[0].replica.one || len(pods[0].claimed.keys) > 0) && d.pairs() != nil {
			key += fmt.Sprint(d.besideOf(pods[0]))
		}
		key += fmt.Sprint(pods[0].want, d.settledClaims(pods[0]))
		if n := pods[0].needs; n != nil {
			key += fmt.Sprint(n.ports, n.other, pods[0].replica, n.claims) // those of ephemeral volumes bear the pod's name
		}
	}
	if l, ok := d.memory[key]; ok && key != "" {
		return l
	}
	l := &looker{d: d, pods: pods, careful: careful, binding: !devices, shut: map[string]string{}}
	for _, p := range pods {
		if l.why == "" {
			l.look(p)
		}
	}
	l.home()
	l.within()
	l.attach()
	l.pooled()
	if devices && l.why == "" {
		l.devices()
	}
	got := l.found()
	if key != "" {
		d.memory[key] = got
	}
	return got
}

// looker gathers the limits of a gang.
type looker struct {
	d       *Driver
	pods    []*pod
	binding bool              // they are about to be bound: nobody leaves for them any more
	careful bool              // an even spread was tried and came out wrong: say exactly where
	shut    map[string]string // nodes that take none of it: why
	groups  []cluster.NodeLimit
	homes   [][]string // of each pod that has volumes: the nodes that reach them
	each    int
	why     string
	rivals  []rival
}

// look adds what one pod of the gang needs.
func (l *looker) look(p *pod) {
	d := l.d
	near := domains{}
	for q := range d.repel {
		for i := range q.needs.anti {
			if t := &q.needs.anti[i]; d.means(t, p.obj) {
				near.add(d, t.key, q.where)
			}
		}
	}
	l.shutDomains("a pod that wants nobody like it near", near)
	n := p.needs
	if n == nil {
		return
	}
	if n.err != nil {
		l.why = n.err.Error()
		return
	}
	near = domains{}
	for i := range n.anti {
		t := &n.anti[i]
		d.each(func(q *pod) {
			if d.means(t, q.obj) {
				near.add(d, t.key, q.where)
			}
		})
	}
	l.shutDomains("its pod anti-affinity", near)
	l.near(p)
	l.spread(p)
	l.ports(p)
	l.other(n)
	l.replicas(p)
	l.company(p)
	l.together(p)
	l.volumes(p)
	l.disks(p)
	l.alone(p)
}

// each calls f for all pods that have a place.
func (d *Driver) each(f func(q *pod)) {
	for _, n := range d.nodes {
		for q := range n.pods {
			f(q)
		}
	}
}

// domain is a node's value of a label; "", false: it has none.
func (d *Driver) domain(name, key string) (string, bool) {
	n := d.nodes[name]
	if n == nil || n.obj == nil {
		return "", false
	}
	v, ok := n.obj.Labels[key]
	return v, ok
}

// domains are values of labels of nodes, by label.
type domains map[string]map[string]bool

// add adds that of a node, if it has the label.
func (list domains) add(d *Driver, key, name string) {
	v, ok := d.domain(name, key)
	if !ok {
		return
	}
	if list[key] == nil {
		list[key] = map[string]bool{}
	}
	list[key][v] = true
}

// shutDomains closes all nodes of some domains.
func (l *looker) shutDomains(why string, list domains) {
	if len(list) == 0 {
		return
	}
	l.shutIf(why, func(n *v1.Node) bool {
		for key, values := range list {
			if v, ok := n.Labels[key]; ok && values[v] {
				return true
			}
		}
		return false
	})
}

func (l *looker) shutIf(why string, f func(n *v1.Node) bool) {
	for _, name := range l.d.order {
		if n := l.d.nodes[name]; n != nil && n.obj != nil && l.shut[name] == "" && f(n.obj) {
			l.shut[name] = why
		}
	}
}

// farAway is what keeps a pod off nodes where the pods are not that it wants near.
const farAway = "its pod affinity"

// near adds required affinity: all terms must hold, each with a pod that all
// terms mean. If there is none at all and the pod means itself, it begins
// somewhere, and the others of its gang with it.
func (l *looker) near(p *pod) {
	terms := p.needs.affinity
	if len(terms) == 0 {
		return
	}
	d := l.d
	all := func(q *v1.Pod) bool {
		for i := range terms {
			if !d.means(&terms[i], q) {
				return false
			}
		}
		return true
	}
	open, found := make([]map[string]bool, len(terms)), false
	for i := range terms {
		open[i] = map[string]bool{}
	}
	d.each(func(q *pod) {
		if !all(q.obj) {
			return
		}
		for i := range terms {
			if v, ok := d.domain(q.where, terms[i].key); ok {
				open[i][v], found = true, true
			}
		}
	})
	if !found && all(p.obj) {
		l.begin(terms)
		return
	}
	l.shutIf(farAway, func(n *v1.Node) bool {
		for i := range terms {
			if v, ok := n.Labels[terms[i].key]; !ok || !open[i][v] {
				return true
			}
		}
		return false
	})
}

// begin is near for the first of pods that want to be together: in one domain of
// each key, for a gang the one with the most GPUs free.
func (l *looker) begin(terms []term) {
	for i := range terms {
		key := terms[i].key
		l.shutIf(farAway, func(n *v1.Node) bool { _, ok := n.Labels[key]; return !ok })
		if len(l.pods) == 1 {
			continue
		}
		free := map[string]int{}
		for _, name := range l.d.order {
			if v, ok := l.d.domain(name, key); ok && l.shut[name] == "" {
				free[v] += l.d.nodes[name].freeGPUs(l.d)
			}
		}
		best := ""
		for _, v := range slices.Sorted(maps.Keys(free)) {
			if best == "" || free[v] > free[best] {
				best = v
			}
		}
		l.shutIf(farAway, func(n *v1.Node) bool { return n.Labels[key] != best })
	}
}

func (n *node) freeGPUs(d *Driver) int {
	free := d.gpusOf(n.obj.Status.Allocatable)
	for p := range n.pods {
		free -= wholeOf(&p.request)
	}
	return max(0, free)
}

// ports closes nodes on which a port is in use.
func (l *looker) ports(p *pod) {
	for _, h := range p.needs.ports {
		l.d.each(func(q *pod) {
			if q.needs != nil && slices.ContainsFunc(q.needs.ports, h.conflicts) {
				l.shut[q.where] = fmt.Sprintf("host port %d is in use", h.port)
			}
		})
	}
}

// other bounds nodes by what is left of resources that the engine does not count.
func (l *looker) other(need *needs) {
	for name, want := range need.other {
		for _, node := range l.d.order {
			n := l.d.nodes[node]
			if n == nil || n.obj == nil {
				continue
			}
			have := n.obj.Status.Allocatable[name]
			left := countOf(&have)
			for q := range n.pods {
				if q.needs != nil {
					left -= q.needs.other[name]
				}
				if l.d.isSlice(&q.request, name) || q.replica.one && q.replica.name == name {
					left--
				}
			}
			l.most(node, max(0, left)/want, "too little "+string(name))
		}
	}
}

// most bounds the gang's pods on one node.
func (l *looker) most(node string, n int64, why string) {
	switch {
	case n >= int64(len(l.pods)):
	case n == 0:
		l.shut[node] = why
	default:
		l.groups = append(l.groups, cluster.NodeLimit{Nodes: []string{node}, Tasks: int(n)})
	}
}

// within adds what the gang's pods are to each other, and how many pods a node
// takes at all.
func (l *looker) within() {
	for name := range l.d.crowded {
		if n := l.d.nodes[name]; n != nil && n.obj != nil {
			l.most(name, int64(max(0, n.podsLeft())), "too many pods")
		}
	}
	apart := map[string]bool{}
	for i, p := range l.pods {
		for k, q := range l.pods {
			if i == k || p.needs == nil {
				continue
			}
			for t := range p.needs.anti {
				if l.d.means(&p.needs.anti[t], q.obj) {
					apart[p.needs.anti[t].key] = true
				}
			}
			if q.needs != nil && sameDisk(p.needs.inline, q.needs.inline) {
				l.each = 1
			}
			if q.needs != nil && slices.ContainsFunc(p.needs.ports, func(h hostPort) bool { return slices.ContainsFunc(q.needs.ports, h.conflicts) }) {
				l.each = 1
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(apart)) {
		if key == v1.LabelHostname {
			l.each = 1
			continue
		}
		for _, nodes := range l.domains(key, nil) {
			l.groups = append(l.groups, cluster.NodeLimit{Nodes: nodes, Tasks: 1})
		}
	}
}

// domains lists the nodes of each value of a label; only those that count.
func (l *looker) domains(key string, counts func(n *v1.Node) bool) map[string][]string {
	list := map[string][]string{}
	for _, name := range l.d.order {
		n := l.d.nodes[name]
		if n == nil || n.obj == nil || counts != nil && !counts(n.obj) {
			continue
		}
		if v, ok := n.obj.Labels[key]; ok {
			list[v] = append(list[v], name)
		}
	}
	return list
}

// found is the limits in an order that is always the same.
func (l *looker) found() limits {
	if l.why != "" {
		return limits{why: l.why}
	}
	got := limits{each: l.each, rivals: l.rivals}
	known := map[string]bool{}
	for _, name := range l.d.order {
		known[name] = true
	}
	if shut := slices.DeleteFunc(slices.Sorted(maps.Keys(l.shut)), func(name string) bool { return !known[name] }); len(shut) > 0 {
		got.nodes = append(got.nodes, cluster.NodeLimit{Nodes: shut})
	}
	got.text = l.text(known)
	slices.SortFunc(l.groups, func(a, b cluster.NodeLimit) int {
		return cmp.Or(strings.Compare(a.Nodes[0], b.Nodes[0]), cmp.Compare(len(a.Nodes), len(b.Nodes)), cmp.Compare(a.Tasks, b.Tasks))
	})
	got.nodes = append(got.nodes, l.groups...)
	return got
}

// text counts the nodes by what closes them.
func (l *looker) text(known map[string]bool) string {
	count := map[string]int{}
	for name, why := range l.shut {
		if known[name] {
			count[why]++
		}
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d: %s", count[why], why))
	}
	return strings.Join(parts, "; ")
}

// lookAround tells the engine's job of a gang what nodes take of it now; false:
// it has to wait before the engine hears of it.
func (d *Driver) lookAround(g *gang, pods []*pod, spec *cluster.Job) bool {
	if len(pods) == 1 {
		if before := d.takeTurn(g, pods[0]); before != nil {
			g.refused = "its turn comes after " + before.name + ", which asks for the same: where one of them goes decides where the next may"
			return false
		}
	}
	l := d.confine(g, d.limitsOf(pods, g.fails > 0, true))
	if l.why != "" {
		g.refused, d.waits[g] = l.why, true
		return false
	}
	if !d.contend(g, pods, spec, &l) {
		return false
	}
	spec.PerNode, spec.NodeLimits, g.around = l.each, l.nodes, l.text
	if slices.ContainsFunc(pods, func(p *pod) bool { return p.needs != nil }) || l.each > 0 || l.nodes != nil {
		d.minding[g] = true
	}
	return true
}

// sameLimits reports whether a job is told these limits already.
func sameLimits(j *cluster.Job, l *limits) bool {
	return j.PerNode == l.each && slices.EqualFunc(j.NodeLimits, l.nodes, func(a, b cluster.NodeLimit) bool {
		return a.Tasks == b.Tasks && slices.Equal(a.Nodes, b.Nodes)
	})
}

// refresh tells the engine of waiting gangs what changed around them.
func (d *Driver) refresh(now cluster.Time) (events []engine.Event) {
	if d.seen == d.moves || now < d.lookAt {
		return nil
	}
	d.seen = d.moves
	for g := range d.waits {
		delete(d.waits, g)
		d.touch(g)
	}
	ids := slices.Collect(maps.Keys(d.byID))
	if len(d.repel) == 0 && len(d.crowded) == 0 { // only those who asked for something
		ids = ids[:0]
		for g := range d.minding {
			if ids = append(ids, g.id); g.phase != waiting {
				delete(d.minding, g) // it did not come so far
			}
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if g := d.byID[id]; g != nil && g.phase == waiting {
			if d.elsewhere(d.membersOf(g)) {
				events = append(events, engine.Event{Type: engine.Cancelled, Job: g.id})
				d.withdraw(g)
				continue
			}
			if ev, ok := d.limit(g); ok {
				events = append(events, ev)
			}
		}
	}
	// What it costs grows with the cluster: it may take a twentieth of the time.
	d.lookAt = d.clock().Add(max(50*time.Millisecond, 20*d.clock().Sub(now)))
	return events
}

// limit says what the engine has to know of a waiting gang's limits, if they
// are others now.
func (d *Driver) limit(g *gang) (engine.Event, bool) {
	pods := d.membersOf(g)
	if len(g.spec.NodeLimits) == 0 && g.spec.PerNode == 0 && !d.requiresCheck(pods) {
		return engine.Event{}, false
	}
	l := d.confine(g, d.limitsFor(g, pods, g.fails > 0, true))
	if why := l.why; why != "" || stays(l.rivals) != "" { // it was possible before: nobody takes it for now
		if l = (limits{nodes: []cluster.NodeLimit{{Nodes: slices.Sorted(slices.Values(d.order))}}}); why != "" {
			l.text = "all: " + why
		}
	}
	if g.around = l.text; sameLimits(g.spec, &l) {
		return engine.Event{}, false
	}
	spec := *g.spec
	spec.PerNode, spec.NodeLimits = l.each, l.nodes
	g.spec = &spec
	return engine.Event{Type: engine.Updated, Job: g.id, Spec: &spec}, true
}

// membersOf lists the pods that the engine's job stands for, as far as they are
// there.
func (d *Driver) membersOf(g *gang) (pods []*pod) {
	for _, uid := range g.members {
		if p := g.pods[uid]; p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, podOrder)
	return pods
}

// fits says why a gang may not be bound as the engine placed it, because of what
// was bound since it was told; "": it may.
func (d *Driver) fits(g *gang, a *engine.Action) string {
	on := map[string]int{}
	for i := range a.Allocs {
		on[d.order[a.Allocs[i].Node]] += int(a.Allocs[i].Tasks)
	}
	return d.suit(g, on)
}

// suit is fits for so many pods of a gang on each node.
func (d *Driver) suit(g *gang, on map[string]int) (why string) {
	pods := d.membersOf(g)
	if !d.requiresCheck(pods) {
		return ""
	}
	d.without(g.aside(), func() {
		l := d.limitsOf(pods, false, false) // its devices are chosen in a moment
		if why = cmp.Or(l.why, stays(l.rivals)); why == "" {
			why = d.whyForbidden(&l, pods, on)
		}
	})
	return why
}

// whyForbidden says why so many pods of a gang cannot be on each of these nodes; "": they can.
func (d *Driver) whyForbidden(l *limits, pods []*pod, on map[string]int) string {
	for name, n := range on {
		if l.each > 0 && n > l.each {
			return fmt.Sprintf("%d of its pods on node %s; %d may be", n, name, l.each)
		}
	}
	for i := range l.nodes {
		sum := 0
		for _, name := range l.nodes[i].Nodes {
			sum += on[name]
		}
		if sum > l.nodes[i].Tasks {
			return "somebody else was bound there meanwhile"
		}
	}
	return d.uneven(pods, on)
}

// turnKey is the same for pods that are in each other's way and else alike.
func (d *Driver) turnKey(g *gang, p *pod) string {
	t, _ := d.terms(g, p.obj)
	return fmt.Sprintf("%s %+v %+v %s", p.around, t, p.request, p.signature)
}

// takeTurn reports whether it is the turn of a gang of one pod; else who is
// before it.
func (d *Driver) takeTurn(g *gang, p *pod) (before *gang) {
	if p.needs == nil || !p.needs.serial {
		return nil
	}
	g.turn = d.turnKey(g, p)
	t := d.turns[g.turn]
	if t == nil {
		t = &turn{}
		d.turns[g.turn] = t
	}
	if t.now == nil || t.now == g {
		t.now = g
		return nil
	}
	if !slices.Contains(t.behind, g) {
		t.behind = append(t.behind, g)
	}
	return t.now
}

// endTurn lets the next go: the gang has its place, or asks no more.
func (d *Driver) endTurn(g *gang) {
	t := d.turns[g.turn]
	if t == nil || t.now != g {
		return
	}
	key := g.turn
	t.now, g.turn = nil, ""
	for len(t.behind) > 0 {
		next := t.behind[0]
		t.behind = t.behind[1:]
		if d.gangs[next.key] == next && next.phase == gathering && next.turn != "" {
			d.touch(next)
			return
		}
	}
	delete(d.turns, key)
}
