package sim

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/power"
	"github.com/muster-gpu/muster/report"
)

// Powered-down nodes (cluster.Power). The world does what the operator of the power switch does: it
// evaluates the rule periodically, tells the engine which nodes are asleep, and wakes the nodes on
// which a job starts, which takes time.

// firstMonday is the start, in Unix seconds, of a replay without a calendar: rules by hour of the
// week need one.
const firstMonday = 4 * 24 * 60 * 60

type powerState uint8

const (
	awake powerState = iota
	waking
	asleep
)

// powerNode is the power state of a node.
type powerNode struct {
	group   int32 // index of its rule; -1: it never sleeps
	state   powerState
	out     bool // down or drained: not counted
	jobs    int32
	milli   cluster.Milli // of its GPUs that are held
	gen     uint32
	readyAt cluster.Time
}

// powerGroup is a rule with its state.
type powerGroup struct {
	rule  *cluster.Power
	nodes []int
	meter power.Meter
	book  report.Power
	since cluster.Time // when the book was last brought up to date
}

type powers struct {
	groups []powerGroup
	nodes  []powerNode
	froze  bool // a job was suspended in place: its memory stays on its nodes
}

// initPower prepares the cluster's power rules.
func (w *World) initPower() {
	if len(w.spec.Power) == 0 {
		return
	}
	lists, err := w.spec.PowerNodes()
	if err != nil {
		panic("sim: " + err.Error()) // Run has checked the spec
	}
	p := &w.power
	p.nodes = make([]powerNode, len(w.spec.Nodes))
	for i := range p.nodes {
		p.nodes[i] = powerNode{group: -1, out: w.spec.Nodes[i].State != cluster.Up}
	}
	for i, list := range lists {
		g := powerGroup{rule: &w.spec.Power[i], nodes: list}
		for _, id := range list {
			p.nodes[id].group = int32(i)
		}
		g.book = report.Power{Partition: g.rule.Partition, Watts: g.rule.Watts != cluster.Watts{}}
		p.groups = append(p.groups, g)
		w.push(worldEvent{at: 0, kind: evPower, id: int32(i)})
	}
}

// unix is the current time on the calendar, in Unix seconds.
func (w *World) unix() int64 {
	if w.spec.Epoch == 0 {
		return firstMonday + int64(w.now)/int64(time.Second)
	}
	return w.spec.Epoch + int64(w.now)/int64(time.Second)
}

// seen counts a group's nodes.
func (w *World) seen(g *powerGroup) (s power.Seen) {
	for _, id := range g.nodes {
		n := &w.power.nodes[id]
		if n.out {
			continue
		}
		s.Total++
		if n.jobs > 0 {
			s.Used++
		}
		if n.state != asleep {
			s.Active++
		}
	}
	return s
}

// powerDue evaluates a group's rule and returns the events for the engine.
func (w *World) powerDue(id int32) (evs []engine.Event) {
	g := &w.power.groups[id]
	w.push(worldEvent{at: w.now.Add(g.rule.Every), kind: evPower, id: id})
	s := w.seen(g)
	switch want := g.meter.Step(g.rule, w.unix(), s); {
	case want > s.Active:
		w.wakeMore(g, want-s.Active)
	case want < s.Active:
		return w.sleep(g, s.Active-want)
	}
	return nil
}

// sleep puts n nodes without jobs to sleep, the last ones first.
func (w *World) sleep(g *powerGroup, n int) (evs []engine.Event) {
	frozen := w.frozenOn()
	for _, id := range slices.Backward(g.nodes) {
		x := &w.power.nodes[id]
		if n == 0 {
			break
		}
		if x.out || x.state != awake || x.jobs > 0 || slices.Contains(frozen, int32(id)) {
			continue
		}
		w.powerBook(g)
		x.state = asleep
		g.book.Slept++
		n--
		evs = append(evs, engine.Event{Type: engine.NodeAsleep, Node: w.spec.Nodes[id].Name, Wake: g.rule.Wake})
	}
	return evs
}

// frozenOn lists the nodes that hold the memory of suspended jobs.
func (w *World) frozenOn() (list []int32) {
	if !w.power.froze {
		return nil
	}
	for i := range w.jobs {
		for k := range w.jobs[i].frozen {
			list = append(list, w.jobs[i].frozen[k].Node)
		}
	}
	return list
}

// wakeMore wakes n nodes, in order.
func (w *World) wakeMore(g *powerGroup, n int) {
	if n > 0 {
		g.book.Wakes++
	}
	for _, id := range g.nodes {
		if x := &w.power.nodes[id]; n > 0 && !x.out && x.state == asleep {
			w.wakeNode(g, id)
			n--
		}
	}
}

func (w *World) wakeNode(g *powerGroup, id int) {
	w.powerBook(g)
	x := &w.power.nodes[id]
	x.state, x.readyAt = waking, w.now.Add(g.rule.Wake)
	x.gen++
	g.book.Woken++
	w.push(worldEvent{at: x.readyAt, kind: evAwake, id: int32(id), gen: x.gen})
}

// nodeAwake books that a node is awake; false: the node's state has changed in the meantime.
func (w *World) nodeAwake(ev worldEvent) (engine.Event, bool) {
	x := &w.power.nodes[ev.id]
	if x.state != waking || x.gen != ev.gen {
		return engine.Event{}, false
	}
	w.powerBook(&w.power.groups[x.group])
	x.state = awake
	return engine.Event{Type: engine.NodeAsleep, Node: w.spec.Nodes[ev.id].Name, Undo: true}, true
}

// wakeFor wakes the nodes on which a job starts, and as many more as the rule wants; it returns how
// long the job waits for its own nodes.
func (w *World) wakeFor(allocs []engine.Alloc) (wait time.Duration) {
	if len(w.power.groups) == 0 {
		return 0
	}
	var short []int32
	for i := range allocs {
		x := &w.power.nodes[allocs[i].Node]
		if x.state == asleep {
			if !slices.Contains(short, x.group) {
				short = append(short, x.group)
				w.power.groups[x.group].book.Wakes++
			}
			w.wakeNode(&w.power.groups[x.group], int(allocs[i].Node))
		}
		if x.state == waking {
			wait = max(wait, x.readyAt.Sub(w.now))
		}
	}
	for _, id := range short {
		g := &w.power.groups[id]
		s := w.seen(g)
		g.meter.Woke(w.unix())
		if more := min(s.Total, s.Used+g.rule.Buffer) - s.Active; more > 0 {
			g.book.Wakes-- // counted already by the wake-up above
			w.wakeMore(g, more)
		}
	}
	return wait
}

// powerHold adds (by 1) or removes (by -1) a job's holdings on nodes.
func (w *World) powerHold(allocs []engine.Alloc, by int32) {
	if len(w.power.groups) == 0 {
		return
	}
	for i := range allocs {
		x := &w.power.nodes[allocs[i].Node]
		if x.group >= 0 {
			w.powerBook(&w.power.groups[x.group])
			x.milli += cluster.Milli(by) * allocs[i].Milli()
		}
		if !slices.ContainsFunc(allocs[:i], func(a engine.Alloc) bool { return a.Node == allocs[i].Node }) {
			x.jobs += by
		}
	}
}

// powerOut books that a node is lost, drained or back. A lost node is awake when it comes back.
func (w *World) powerOut(ev *engine.Event) {
	if len(w.power.groups) == 0 {
		return
	}
	id := slices.IndexFunc(w.spec.Nodes, func(n cluster.Node) bool { return n.Name == ev.Node })
	if id < 0 || w.power.nodes[id].group < 0 {
		return
	}
	x := &w.power.nodes[id]
	w.powerBook(&w.power.groups[x.group])
	switch ev.Type {
	case engine.NodeDown:
		x.out, x.state = true, awake
	case engine.NodeUp:
		x.out = false
	case engine.NodeDrained:
		x.out = !ev.Undo
	}
}

// powerBook brings a group's book up to now.
func (w *World) powerBook(g *powerGroup) {
	d := w.now.Sub(g.since)
	if g.since = w.now; d <= 0 {
		return
	}
	s := w.seen(g)
	g.book.Used += d.Seconds() * float64(s.Used)
	g.book.Active += d.Seconds() * float64(s.Active)
	g.book.Total += d.Seconds() * float64(s.Total)
	k := &g.rule.Watts
	dark := float64(s.Total - s.Active)
	g.book.Joules += d.Seconds() * (w.busy(g)*float64(k.Busy-k.Idle) + float64(s.Active)*float64(k.Idle) +
		dark*float64(k.Asleep))
	g.book.Saved += d.Seconds() * dark * float64(k.Idle-k.Asleep)
}

// busy is the number of a group's nodes that draw full power: of each node that is awake, the held
// part of its GPUs. Jobs on a waking node do not compute yet, and a node that is down or drained
// draws nothing that is booked here.
func (w *World) busy(g *powerGroup) (nodes float64) {
	for _, id := range g.nodes {
		x, gpus := &w.power.nodes[id], w.spec.Nodes[id].GPUs
		if x.milli > 0 && x.state == awake && !x.out && gpus > 0 {
			nodes += float64(x.milli) / float64(cluster.Milli(gpus)*cluster.Whole)
		}
	}
	return nodes
}

// closePower completes the books at the end of the replay.
func (w *World) closePower() (list []report.Power) {
	for i := range w.power.groups {
		g := &w.power.groups[i]
		w.powerBook(g)
		if e := &g.meter.Error; e.Steps > 0 {
			g.book.Forecasts, g.book.Off, g.book.OffNaive = e.Steps, float64(e.Model)/1000, float64(e.Naive)/1000
		}
		list = append(list, g.book)
	}
	return list
}
