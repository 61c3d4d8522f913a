package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/power"
)

// Nodes that are not needed are switched off (package kube/power), and on again for the gangs that the engine places
// there: such a gang starts, and is held (displace.go) until its nodes are back.

// Power is a rule for some nodes.
type Power = power.Rule

func (d *Driver) newPower() *power.Room {
	return power.New(power.Options{Rules: d.opt.Power, Scheduler: d.opt.Scheduler, Keeps: d.opt.Namespace != "",
		Wait: d.opt.PowerWait, Now: d.opt.Now, LoopTime: func() cluster.Time { return d.now }, IsGPU: d.gpus.Has,
		Changed: func() { d.nodes.Dirty = true }, Log: d.opt.Log, Writer: powerWriter{d}})
}

// powerRound looks after nodes that may be off.
func (d *Driver) powerRound(now cluster.Time) {
	if now < d.nodes.Power.Next() {
		return
	}
	needed := d.powerNeeded()
	d.nodes.Power.Look(now, &power.Nodes{Order: d.nodes.Order(), Needed: needed, Used: d.powerUsed(needed),
		Up: func(name string) bool { return d.nodes.Node(name).Up() }})
}

// powerUsed is the nodes that are in use or needed, by name.
func (d *Driver) powerUsed(needed map[string]bool) map[string]bool {
	used := maps.Clone(needed)
	d.nodes.MIG.EachUnder(func(name string) { used[name] = true })
	d.nodes.Power.Each(func(name string) { used[name] = used[name] || d.nodes.Occupied(name) })
	for _, b := range d.eng.Beliefs() {
		for i := range b.Allocs {
			used[d.nodes.Order()[b.Allocs[i].Node]] = true
		}
	}
	return used
}

// powerNeeded is the nodes that gangs wait for, by name.
func (d *Driver) powerNeeded() map[string]bool {
	needed := map[string]bool{}
	for g := range d.heldBack {
		for _, s := range g.places.Needed() {
			needed[s.Node] = true
		}
	}
	return needed
}

// asleep lists the nodes that a gang waits for; it says, too, which of them is not coming.
func (g *gang) asleep(all *nodes.Room) (names []string, lost string) {
	for _, s := range g.places.Needed() {
		name := s.Node
		n := all.Node(name)
		switch {
		case slices.Contains(names, name):
		case n != nil && n.Power.Sleeps():
			names = append(names, name)
		case !n.Up():
			lost = name
		}
	}
	return names, lost
}

// wakingText says which nodes a gang waits for, and about how long; stem is the same at any time.
func (g *gang) wakingText(all *nodes.Room, now cluster.Time) (stem, text string) {
	names, _ := g.asleep(all)
	left := time.Duration(0)
	for _, name := range names {
		left = max(left, all.Node(name).Power.Left(time.Unix(0, int64(now))))
	}
	what := "nodes are waking"
	if len(names) == 1 {
		what = "node is waking"
	}
	stem = fmt.Sprintf("%d %s: %s", len(names), what, strings.Join(names, ","))
	return stem, fmt.Sprintf("%d %s, ready in about %s: %s", len(names), what,
		cluster.FormatDuration(left.Round(time.Second)), strings.Join(names, ","))
}

// powerWriter writes labels of nodes, calls programs, and keeps what is learnt in a ConfigMap.
type powerWriter struct{ d *Driver }

// PatchNode writes how far a node is (power.Writer).
func (w powerWriter) PatchNode(name string, change []byte, to string, done func(error)) {
	w.d.writer.PatchNode(name, change, "kube-power-"+to, nil, done)
}

// Switch runs a program that switches a node (power.Writer).
func (w powerWriter) Switch(program, node string, off bool, done func(error)) {
	w.d.writer.Do(func(ctx context.Context) {
		err := error(nil)
		if w.d.opt.Program != nil {
			limited, cancel := context.WithTimeout(ctx, power.AskAgain)
			err = w.d.opt.Program(limited, program, node)
			cancel()
		}
		if off {
			w.d.writer.Crash("kube-power-cut")
		}
		w.d.inbox.Put(func() { done(err) })
	})
}

// powerMap names the ConfigMap for what is learnt of the nodes' weeks.
func (o *Options) powerMap() string { return o.Scheduler + "-power" }

// loadPower reads what was learnt before.
func (d *Driver) loadPower(ctx context.Context) {
	if len(d.opt.Power) == 0 || d.opt.Namespace == "" {
		return
	}
	data, err := d.writer.Load(ctx, d.opt.Namespace, d.opt.powerMap(), "what is known of the nodes' weeks?")
	switch {
	case err != nil:
		d.opt.Log.Warn("what is known of the nodes' weeks cannot be read", "error", err)
	case data != nil:
		d.nodes.Power.Learn(d.opt.powerMap(), data)
	}
}

// Keep writes what is learnt (power.Writer).
func (w powerWriter) Keep(data map[string]string, done func(error)) {
	w.d.writer.Keep(w.d.opt.Namespace, w.d.opt.powerMap(), data, done)
}
