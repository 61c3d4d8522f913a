package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/power"
	rule "github.com/muster-gpu/muster/power"
)

// Nodes that are not needed are switched off, by the rule of package power, and on again for the gangs that the engine
// places there: such a gang starts, and is held (displace.go) until its nodes are back. How far a node is, its label
// says, so that a scheduler after this one goes on; what has the switch goes by the label, or is a program that is
// called. powerswitch.go writes and calls.

// LabelPower says on a node how far it is, AnnotationPower since when; AnnotationPowerSize what it had before it went
// off, and AnnotationPowerBy which scheduler switched it off.
const (
	LabelPower          = Prefix + "power"
	AnnotationPower     = Prefix + "power-since"
	AnnotationPowerSize = Prefix + "power-size"
	AnnotationPowerBy   = Prefix + "power-by"
)

// Power is a rule for some nodes.
type Power struct {
	Rule     cluster.Power     // Buffer below 0: the default for as many nodes as there are
	Selector map[string]string // labels of the nodes that may be switched off
	Timeout  time.Duration     // a node that is not back after that is counted on no more
	// programs that switch a node, with its name as argument; "": what has the switch looks at labels
	Suspend string
	Resume  string
}

const (
	powerLook = time.Second      // between two looks at nodes on their way
	powerCall = power.Again      // until what was refused, or a node that is not back, is asked for again
	powerAway = 15 * time.Minute // a node of no rule that is not back after that is spoken of
	powerLag  = 30 * time.Second // so long at most a label that was written is not seen yet
	powerWait = 10 * time.Second // a node that is to go off is looked at once more after
)

// powerGroup is a rule with what it knows.
type powerGroup struct {
	Power
	meter rule.Meter
	next  cluster.Time
}

// powering is what is known of nodes that may be off.
type powering struct {
	groups  []powerGroup
	nodes   map[string]*node // those of the groups, by name
	at      cluster.Time     // of the next look
	storing bool
}

// nodePower is what a node is about; all but the group is empty where none of it is under way.
type nodePower struct {
	group  int       // 1 + of the rules; 0: it is always on
	asked  string    // the label that is being written
	since  time.Time // ... and since when
	busy   bool      // a request or a program is on its way
	cut    bool      // the program that switches it off was called
	ours   bool      // this scheduler began to suspend it
	late   bool      // it did not come back
	called time.Time // when the program that switches it on was called
	again  time.Time // before this, nothing is asked for: the API server refused it

	stray  bool            // it is of no rule, and not on: this scheduler switched it off by one
	before power.Size      // what it had before it went off, while it is not back
	have   v1.ResourceList // what it says now that it has
}

// powerState is how far a node is; "": it is not switched.
func (n *node) powerState() string {
	if n.power.group == 0 {
		return ""
	}
	return n.powerLabel()
}

// powerLabel is how far a node is, whether a rule is its own or not.
func (n *node) powerLabel() string {
	if n.obj == nil {
		return ""
	}
	return cmp.Or(n.power.asked, n.obj.Labels[LabelPower])
}

// sleeps reports whether a node is off, or on its way there or back.
func (n *node) sleeps() bool {
	return power.Switched(n.powerState()) && n.obj.DeletionTimestamp == nil && !n.power.late
}

// poweredSince is since when a node is as far as it is.
func (n *node) poweredSince() time.Time {
	if n.power.asked != "" {
		return n.power.since
	}
	at, err := time.Parse(time.RFC3339, n.obj.Annotations[AnnotationPower])
	if err != nil {
		return time.Time{}
	}
	return at
}

// wakes is how long a node takes to be there; 0: it is.
func (d *Driver) wakes(n *node) time.Duration {
	if n == nil || !n.sleeps() {
		return 0
	}
	return d.power.groups[n.power.group-1].Rule.Wake
}

// initPower takes the rules over.
func (d *Driver) initPower() {
	d.power.nodes = map[string]*node{}
	for _, p := range d.opt.Power {
		d.power.groups = append(d.power.groups, powerGroup{Power: p})
	}
}

// seePower finds the rule of a node that changed.
func (d *Driver) seePower(n *node) {
	if n.obj.Labels[LabelPower] == n.power.asked {
		n.power.asked = ""
	}
	n.power.group = 0
	for i := range d.power.groups {
		g := &d.power.groups[i]
		if matches(n.obj.Labels, g.Selector) && !slices.Contains(g.Rule.Except, n.obj.Name) && d.loanOf(n) < 0 {
			n.power.group = i + 1
			break
		}
	}
	n.power.stray = n.power.group == 0 && power.Switched(n.powerLabel()) &&
		cmp.Or(n.obj.Annotations[AnnotationPowerBy], d.opt.Scheduler) == d.opt.Scheduler
	if n.power.group == 0 && !n.power.stray {
		delete(d.power.nodes, n.obj.Name)
		return
	}
	if n.power.stray {
		d.power.at = 0
	}
	d.power.nodes[n.obj.Name] = n
}

// switchOf is what switches a node: its rule, or for one that has none any more, the first that selects it.
func (d *Driver) switchOf(n *node) Power {
	if n.power.group > 0 {
		return d.power.groups[n.power.group-1].Power
	}
	for i := range d.power.groups {
		if g := &d.power.groups[i]; matches(n.obj.Labels, g.Selector) {
			return g.Power
		}
	}
	return Power{Timeout: powerAway}
}

// stays reports whether a pod goes where its node goes: it is no reason to keep a node on.
func (p *pod) stays() bool {
	owner := metav1.GetControllerOf(p.obj)
	_, static := p.obj.Annotations[v1.MirrorPodAnnotationKey]
	return p.over() || static || owner != nil && owner.Kind == "DaemonSet"
}

func (n *node) occupied() bool {
	for p := range n.pods {
		if !p.stays() {
			return true
		}
	}
	return false
}

// powerUsed is the nodes that are in use or waited for, by name.
func (d *Driver) powerUsed() map[string]bool {
	used := d.powerNeeded()
	for name := range d.mig.under {
		used[name] = true
	}
	for name, n := range d.power.nodes {
		used[name] = used[name] || n.occupied()
	}
	for _, b := range d.eng.Beliefs() {
		for i := range b.Allocs {
			used[d.order[b.Allocs[i].Node]] = true
		}
	}
	return used
}

// powerNeeded is the nodes that gangs wait for, by name.
func (d *Driver) powerNeeded() map[string]bool {
	needed := map[string]bool{}
	for g := range d.holding {
		for i := range g.slots {
			if !g.slots[i].beyond {
				needed[g.slots[i].node] = true
			}
		}
	}
	return needed
}

// nextPower is when nodes are looked at next.
func (d *Driver) nextPower() cluster.Time {
	if len(d.power.groups) == 0 && len(d.power.nodes) == 0 {
		return cluster.Never
	}
	return d.power.at
}

// powerRound looks after nodes that are on their way, and asks the rules.
func (d *Driver) powerRound(now cluster.Time) {
	if now < d.nextPower() {
		return
	}
	d.power.at = now.Add(powerLook)
	at, used, needed := time.Unix(0, int64(now)), d.powerUsed(), d.powerNeeded()
	woke := make([]bool, len(d.power.groups))
	for _, name := range d.order {
		n := d.power.nodes[name]
		if n == nil || n.obj == nil || n.power.busy || at.Before(n.power.again) {
			continue
		}
		if d.powerNode(n, at, used[name], needed[name]) && n.power.group > 0 {
			woke[n.power.group-1] = true
		}
	}
	for i := range d.power.groups {
		g := &d.power.groups[i]
		if woke[i] { // before the step, which counts them as awake
			g.meter.Woke(at.Unix())
			s := d.powerSeen(i, used)
			d.wakeNodes(i, at, min(s.Total, s.Used+d.bufferOf(i))-s.Active)
		}
		switch {
		case g.next == 0: // the first look is one step after the start
			g.next = now.Add(g.Rule.Every)
		case now >= g.next:
			g.next = now.Add(g.Rule.Every)
			d.powerStep(i, at, used)
		}
	}
}

// powerNode brings a node on; it reports whether it is woken for a gang.
func (d *Driver) powerNode(n *node, at time.Time, used, needed bool) bool {
	g := d.switchOf(n)
	since := n.poweredSince()
	if n.power.asked != "" && at.Sub(n.power.since) > powerLag {
		n.power.asked, d.nodesDirty = "", true // what was seen since counts
	}
	lacks := d.lacks(n)
	x := power.Node{State: n.powerLabel(), Since: since, Wait: cmp.Or(d.opt.PowerWait, powerWait), Timeout: g.Timeout,
		Used: used, Stray: n.power.stray, Cordoned: n.obj.Spec.Unschedulable, Cut: n.power.cut, Late: n.power.late,
		Called: n.power.called, Ready: power.ReadySince(n.obj, since), Whole: lacks == ""}
	switch x.Next(at) {
	case power.Resume:
		d.resume(n, at)
		return needed
	case power.IsOff:
		d.setPower(n, power.Off, at)
	case power.SwitchOff:
		d.switchOff(n, g.Suspend, at)
	case power.IsOn:
		if lacks != "" {
			d.opt.Log.Warn("a node is back with less than it had", "node", n.obj.Name, "lacks", lacks)
		}
		d.setPower(n, power.On, at)
	case power.TurnLate:
		n.power.late, d.nodesDirty = !n.power.late, true
		d.opt.Log.Error("a node that was switched on is not there", "node", n.obj.Name, "after", g.Timeout, "lacks",
			lacks)
	case power.SwitchOn:
		d.switchOn(n, g.Resume, at)
	}
	return false
}

// resume wants a node back. One that was not switched off yet is there.
func (d *Driver) resume(n *node, at time.Time) {
	if n.power.stray {
		by := cmp.Or(d.switchOf(n).Resume, "the label alone")
		d.opt.Log.Warn("a node was switched off by a rule that is its own no more; it is wanted back", "node",
			n.obj.Name, "by", by)
	}
	if n.powerLabel() == power.Suspending && n.power.ours && !n.power.cut {
		d.setPower(n, power.On, at)
		return
	}
	n.power.called = time.Time{}
	d.setPower(n, power.Resuming, at)
}

// powerSeen counts a group's nodes.
func (d *Driver) powerSeen(i int, used map[string]bool) (s rule.Seen) {
	for _, name := range d.order {
		n := d.power.nodes[name]
		if n == nil || n.power.group != i+1 || n.state() != cluster.Up {
			continue
		}
		s.Total++
		if used[name] {
			s.Used++
		}
		if !n.resting() {
			s.Active++
		}
	}
	return s
}

// resting reports whether a node is off, or goes off.
func (n *node) resting() bool {
	state := n.powerState()
	return state == power.Off || state == power.Suspending
}

func (d *Driver) bufferOf(i int) int {
	if b := d.power.groups[i].Rule.Buffer; b >= 0 {
		return b
	}
	nodes := 0
	for _, n := range d.power.nodes {
		if n.power.group == i+1 {
			nodes++
		}
	}
	return cluster.DefaultPower(nodes).Buffer
}

// powerStep asks a rule.
func (d *Driver) powerStep(i int, at time.Time, used map[string]bool) {
	g, s := &d.power.groups[i], d.powerSeen(i, used)
	rule := g.Rule
	rule.Buffer = d.bufferOf(i)
	want := g.meter.Step(&rule, at.Unix(), s)
	d.wakeNodes(i, at, want-s.Active)
	less := s.Active - want
	for _, name := range slices.Backward(d.order) {
		n := d.power.nodes[name]
		if less > 0 && n != nil && n.power.group == i+1 && n.state() == cluster.Up && !n.sleeps() && !n.power.busy &&
			!used[name] {
			n.power.ours, n.power.cut = true, false
			d.setPower(n, power.Suspending, at)
			less--
		}
	}
	d.opt.Log.Debug("power", "nodes", g.name(), "used", s.Used, "awake", s.Active, "of", s.Total, "want", want)
	d.storePower()
}

// wakeNodes wakes the first n nodes of a group.
func (d *Driver) wakeNodes(i int, at time.Time, n int) {
	for _, name := range d.order {
		if x := d.power.nodes[name]; n > 0 && x != nil && x.power.group == i+1 && !x.power.busy && x.resting() {
			d.resume(x, at)
			n--
		}
	}
}

// name is what a group is called: its nodes' labels.
func (g *powerGroup) name() string {
	var list []string
	for k, v := range g.Selector {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// asleep lists the nodes that a gang waits for; it says, too, which of them is not coming.
func (d *Driver) asleep(g *gang) (names []string, lost string) {
	for i := range g.slots {
		name := g.slots[i].node
		n := d.nodes[name]
		switch {
		case g.slots[i].beyond || slices.Contains(names, name):
		case n != nil && n.sleeps():
			names = append(names, name)
		case n == nil || n.state() != cluster.Up:
			lost = name
		}
	}
	return names, lost
}

// wakingText says which nodes a gang waits for, and about how long; stem is the same at any time.
func (d *Driver) wakingText(g *gang, now cluster.Time) (stem, text string) {
	names, _ := d.asleep(g)
	left := time.Duration(0)
	for _, name := range names {
		n := d.nodes[name]
		wait := d.wakes(n)
		if n.powerState() == power.Resuming {
			wait -= time.Unix(0, int64(now)).Sub(n.poweredSince())
		}
		left = max(left, wait)
	}
	what := "nodes are waking"
	if len(names) == 1 {
		what = "node is waking"
	}
	stem = fmt.Sprintf("%d %s: %s", len(names), what, strings.Join(names, ","))
	return stem, fmt.Sprintf("%d %s, ready in about %s: %s", len(names), what,
		cluster.FormatDuration(left.Round(time.Second)), strings.Join(names, ","))
}

// program runs a program that switches a node.
func (d *Driver) program(ctx context.Context, name, node string) error {
	if name == "" || d.opt.Program == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, powerCall)
	defer cancel()
	return d.opt.Program(ctx, name, node)
}
