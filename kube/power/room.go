package power

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/patch"
	rule "github.com/muster-gpu/muster/power"
)

// Rule is a rule for some nodes.
type Rule struct {
	Rule     cluster.Power     // Buffer below 0: the default for as many nodes as there are
	Selector map[string]string // labels of the nodes that may be switched off
	Timeout  time.Duration     // a node that is not back after that is counted on no more
	// programs that switch a node, with its name as argument; "": what has the switch looks at labels
	Suspend string
	Resume  string
}

const (
	lookEvery   = time.Second      // between two looks at nodes on their way
	strayLate   = 15 * time.Minute // a node of no rule that is not back after that is spoken of
	defaultWait = 10 * time.Second // a node that is to go off is looked at once more after
)

// LabelLag is how long at most a label that was written is not seen yet.
const LabelLag = 30 * time.Second

// Writer writes and calls what it is told, apart from the loop; what became of it, it says in the loop, by done.
type Writer interface {
	PatchNode(name string, change []byte, to string, done func(error)) // to: the label that it sets
	Switch(program, node string, off bool, done func(error))
	Keep(data map[string]string, done func(error)) // for the next scheduler
}

// Options are what the room is told once.
type Options struct {
	Rules     []Rule
	Scheduler string
	Keeps     bool          // what is learnt is kept (Writer.Keep)
	Wait      time.Duration // a node that is cordoned is looked at so long before it goes off; 0: ten seconds
	Now       func() time.Time
	LoopTime  func() cluster.Time // as of the loop's last turn
	IsGPU     func(v1.ResourceName) bool
	Changed   func() // a node's state may be another
	Log       *slog.Logger
	Writer    Writer
}

// group is a rule with what it knows.
type group struct {
	Rule
	meter rule.Meter
	next  cluster.Time
}

// Room is what is known of nodes that may be off.
type Room struct {
	opt    Options
	groups []group
	nodes  map[string]*Node // those of the groups, and strays, by name
	at     cluster.Time     // of the next look
	saving bool
}

// New takes the rules over.
func New(opt Options) *Room {
	r := &Room{opt: opt, nodes: map[string]*Node{}}
	for _, p := range opt.Rules {
		r.groups = append(r.groups, group{Rule: p})
	}
	return r
}

// Nodes is how the cluster is at a look, by the nodes' names.
type Nodes struct {
	Order        []string
	Used, Needed map[string]bool   // Used: in use or waited for; Needed: gangs wait for them
	Up           func(string) bool // something may start there, or will when it is awake
}

// See finds the rule of a node that changed; lent: it is of none.
func (r *Room) See(n *Node, obj *v1.Node, lent bool) {
	if n.obj = obj; obj.Labels[Label] == n.asked {
		n.asked = ""
	}
	n.group = 0
	for i := range r.groups {
		g := &r.groups[i]
		if gpus.Selects(g.Selector, obj.Labels) && !slices.Contains(g.Rule.Rule.Except, obj.Name) && !lent {
			n.group, n.wake = i+1, g.Rule.Rule.Wake
			break
		}
	}
	n.stray = n.group == 0 && Switched(n.Label()) &&
		cmp.Or(obj.Annotations[AnnotationBy], r.opt.Scheduler) == r.opt.Scheduler
	if n.group == 0 && !n.stray {
		delete(r.nodes, obj.Name)
		return
	}
	if n.stray {
		r.at = 0
	}
	r.nodes[obj.Name] = n
}

// Gone forgets a node that was deleted.
func (r *Room) Gone(name string, n *Node) {
	*n = Node{busy: n.busy}
	delete(r.nodes, name)
}

// Each names the nodes that are looked after.
func (r *Room) Each(f func(name string)) {
	for name := range r.nodes {
		f(name)
	}
}

// switchOf is what switches a node: its rule, or for one that has none any more, the first that selects it.
func (r *Room) switchOf(n *Node) Rule {
	if n.group > 0 {
		return r.groups[n.group-1].Rule
	}
	for i := range r.groups {
		if g := &r.groups[i]; gpus.Selects(g.Selector, n.obj.Labels) {
			return g.Rule
		}
	}
	return Rule{Timeout: strayLate}
}

// Next is when nodes are looked at next.
func (r *Room) Next() cluster.Time {
	if len(r.groups) == 0 && len(r.nodes) == 0 {
		return cluster.Never
	}
	return r.at
}

// Soon has nodes be looked at at once.
func (r *Room) Soon() { r.at = 0 }

// Look looks after nodes that are on their way, and asks the rules.
func (r *Room) Look(now cluster.Time, c *Nodes) {
	r.at = now.Add(lookEvery)
	at := time.Unix(0, int64(now))
	woke := make([]bool, len(r.groups))
	for _, name := range c.Order {
		n := r.nodes[name]
		if n == nil || n.obj == nil || n.busy || at.Before(n.again) {
			continue
		}
		if r.bring(n, at, c.Used[name], c.Needed[name]) && n.group > 0 {
			woke[n.group-1] = true
		}
	}
	for i := range r.groups {
		g := &r.groups[i]
		if woke[i] { // before the step, which counts them as awake
			g.meter.Woke(at.Unix())
			s := r.seen(i, c)
			r.wakeNodes(i, at, c, min(s.Total, s.Used+r.buffer(i))-s.Active)
		}
		switch {
		case g.next == 0: // the first look is one step after the start
			g.next = now.Add(g.Rule.Rule.Every)
		case now >= g.next:
			g.next = now.Add(g.Rule.Rule.Every)
			r.step(i, at, c)
		}
	}
}

// bring brings a node on; it reports whether it is woken for a gang.
func (r *Room) bring(n *Node, at time.Time, used, needed bool) bool {
	g := r.switchOf(n)
	since := n.Since()
	if n.asked != "" && at.Sub(n.since) > LabelLag {
		n.asked = "" // what was seen since counts
		r.opt.Changed()
	}
	lacks := n.before.lacks(n.have, r.opt.IsGPU)
	x := situation{State: n.Label(), Since: since, Wait: cmp.Or(r.opt.Wait, defaultWait), Timeout: g.Timeout,
		Used: used, Stray: n.stray, Cordoned: n.obj.Spec.Unschedulable || n.asked == Off, Cut: n.cut, Late: n.late,
		Called: n.called, Ready: readySince(n.obj, since), Whole: lacks == ""}
	switch x.next(at) {
	case resume:
		r.resume(n, at)
		return needed
	case isOff:
		r.set(n, Off, at)
	case switchOff:
		r.switchOff(n, g.Suspend, at)
	case isOn:
		if lacks != "" {
			r.opt.Log.Warn("a node is back with less than it had", "node", n.obj.Name, "lacks", lacks)
		}
		r.set(n, On, at)
	case turnLate:
		n.late = !n.late
		r.opt.Changed()
		r.opt.Log.Error("a node that was switched on is not there", "node", n.obj.Name, "after", g.Timeout, "lacks",
			lacks)
	case switchOn:
		r.switchOn(n, g.Resume, at)
	}
	return false
}

// resume wants a node back. One that was not switched off yet is there.
func (r *Room) resume(n *Node, at time.Time) {
	if n.stray {
		by := cmp.Or(r.switchOf(n).Resume, "the label alone")
		r.opt.Log.Warn("a node was switched off by a rule that is its own no more; it is wanted back", "node",
			n.obj.Name, "by", by)
	}
	if n.Label() == Suspending && n.ours && !n.cut {
		r.set(n, On, at)
		return
	}
	n.called = time.Time{}
	r.set(n, Resuming, at)
}

// seen counts a group's nodes.
func (r *Room) seen(i int, c *Nodes) (s rule.Seen) {
	for _, name := range c.Order {
		n := r.nodes[name]
		if n == nil || n.group != i+1 || !c.Up(name) {
			continue
		}
		s.Total++
		if c.Used[name] {
			s.Used++
		}
		if !n.resting() {
			s.Active++
		}
	}
	return s
}

func (r *Room) buffer(i int) int {
	if b := r.groups[i].Rule.Rule.Buffer; b >= 0 {
		return b
	}
	nodes := 0
	for _, n := range r.nodes {
		if n.group == i+1 {
			nodes++
		}
	}
	return cluster.DefaultPower(nodes).Buffer
}

// step asks a rule.
func (r *Room) step(i int, at time.Time, c *Nodes) {
	g, s := &r.groups[i], r.seen(i, c)
	p := g.Rule.Rule
	p.Buffer = r.buffer(i)
	want := g.meter.Step(&p, at.Unix(), s)
	r.wakeNodes(i, at, c, want-s.Active)
	less := s.Active - want
	for _, name := range slices.Backward(c.Order) {
		n := r.nodes[name]
		if less > 0 && n != nil && n.group == i+1 && c.Up(name) && !n.Sleeps() && !n.busy && !c.Used[name] {
			n.ours, n.cut = true, false
			r.set(n, Suspending, at)
			less--
		}
	}
	r.opt.Log.Debug("power", "nodes", gpus.SelectorText(g.Selector), "used", s.Used, "awake", s.Active, "of", s.Total,
		"want", want)
	r.keep()
}

// wakeNodes wakes the first k nodes of a group.
func (r *Room) wakeNodes(i int, at time.Time, c *Nodes, k int) {
	for _, name := range c.Order {
		if n := r.nodes[name]; k > 0 && n != nil && n.group == i+1 && !n.busy && n.resting() {
			r.resume(n, at)
			k--
		}
	}
}

// set writes how far a node is: on its way off it is cordoned, and when it is back it is not. A node that was changed
// by another writer meanwhile is not cordoned: it is looked at again.
func (r *Room) set(n *Node, to string, at time.Time) {
	n.asked, n.since, n.busy, n.late = to, at, true, false
	r.opt.Changed()
	notes := map[string]any{AnnotationSince: at.UTC().Format(time.RFC3339)}
	meta := map[string]any{"uid": n.obj.UID, "labels": map[string]string{Label: to}, "annotations": notes}
	change := map[string]any{"metadata": meta}
	switch to {
	case Suspending:
		meta["resourceVersion"] = n.obj.ResourceVersion
		notes[AnnotationSize], notes[AnnotationBy] = sizeText(n.obj), r.opt.Scheduler
		change["spec"] = map[string]any{"unschedulable": true}
	case On:
		n.ours, n.cut = false, false
		notes[AnnotationSize], notes[AnnotationBy] = nil, nil
		change["spec"] = map[string]any{"unschedulable": nil}
	}
	r.opt.Log.Info("power", "node", n.obj.Name, "to", to)
	r.opt.Writer.PatchNode(n.obj.Name, patch.JSON(change), to, func(err error) { r.written(n, to, err) })
}

// written books what became of a label.
func (r *Room) written(n *Node, to string, err error) {
	n.busy, r.at = false, 0
	if err == nil {
		return
	}
	if n.asked == to {
		n.asked = ""
		r.opt.Changed()
	}
	if apierrors.IsForbidden(err) {
		n.again = r.opt.Now().Add(AskAgain)
	}
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.opt.Log.Warn("a node cannot be labelled", "label", Label, "to", to, "error", err)
		r.at = r.opt.LoopTime().Add(lookEvery) // it is tried again
	}
}

// switchOff calls the program, then says that the node is off: were it the other way round, a scheduler after this one
// would not know that the program is still to be called.
func (r *Room) switchOff(n *Node, program string, at time.Time) {
	if program == "" {
		r.set(n, Off, at)
		return
	}
	n.busy, n.cut = true, true
	name, uid := n.obj.Name, n.obj.UID
	r.opt.Writer.Switch(program, name, true, func(err error) {
		if n.busy = false; err != nil {
			r.opt.Log.Error("suspend_program failed; the node counts as off", "node", name, "error", err)
		}
		if n.obj != nil && n.obj.UID == uid {
			r.set(n, Off, r.opt.Now())
		}
	})
}

// switchOn calls the program that switches a node on.
func (r *Room) switchOn(n *Node, program string, at time.Time) {
	if n.called = at; program == "" {
		return
	}
	n.busy = true
	name := n.obj.Name
	r.opt.Writer.Switch(program, name, false, func(err error) {
		if n.busy = false; err != nil {
			r.opt.Log.Error("resume_program failed; it is called again", "node", name, "error", err)
		}
	})
}

// The meters are kept, so that a scheduler after this one knows the cluster's weeks.

// Learn reads the meters that were kept in a ConfigMap; what cannot be read is learnt again.
func (r *Room) Learn(configMap string, data map[string]string) {
	for i := range r.groups {
		g := &r.groups[i]
		text := data[g.key()]
		if text == "" {
			continue
		}
		err := json.Unmarshal([]byte(text), &g.meter)
		if err == nil {
			err = g.meter.Check()
		}
		if err != nil {
			r.opt.Log.Warn("what is known of the nodes' weeks is not understood; it is learnt again", "configmap",
				configMap, "key", g.key(), "error", err)
			g.meter = rule.Meter{}
		}
	}
}

// key is under which the meter of a group is kept.
func (g *group) key() string {
	key := []byte(gpus.SelectorText(g.Selector))
	for i, c := range key {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			key[i] = '_'
		}
	}
	return string(key)
}

// keep has the meters kept, once at a time.
func (r *Room) keep() {
	if !r.opt.Keeps || r.saving {
		return
	}
	data := map[string]string{}
	for i := range r.groups {
		g := &r.groups[i]
		if key := g.key(); key != "" {
			data[key] = string(patch.JSON(&g.meter))
		}
	}
	r.saving = true
	r.opt.Writer.Keep(data, func(err error) {
		if r.saving = false; err != nil {
			r.opt.Log.Warn("what is known of the nodes' weeks cannot be kept", "error", err)
		}
	})
}
