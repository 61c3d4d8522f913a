package kube

import (
	"context"
	"maps"

	"github.com/muster-gpu/muster/cluster"
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
		for _, s := range g.Places.Needed() {
			needed[s.Node] = true
		}
	}
	return needed
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
