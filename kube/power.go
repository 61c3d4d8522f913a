package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/kube/retry"
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
	for g := range d.holding {
		for i := range g.slots {
			if !g.slots[i].beyond {
				needed[g.slots[i].node] = true
			}
		}
	}
	return needed
}

// asleep lists the nodes that a gang waits for; it says, too, which of them is not coming.
func (g *gang) asleep(all *nodes.Room) (names []string, lost string) {
	for i := range g.slots {
		name := g.slots[i].node
		n := all.Node(name)
		switch {
		case g.slots[i].beyond || slices.Contains(names, name):
		case n != nil && n.Power.Sleeps():
			names = append(names, name)
		case !n.Up():
			lost = name
		}
	}
	return names, lost
}

// wakingText says which nodes a gang waits for, and about how long; stem is the same at any time.
func (d *Driver) wakingText(g *gang, now cluster.Time) (stem, text string) {
	names, _ := g.asleep(d.nodes)
	left := time.Duration(0)
	for _, name := range names {
		left = max(left, d.nodes.Node(name).Power.Left(time.Unix(0, int64(now))))
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
	w.d.do(func(ctx context.Context) {
		w.d.crash("kube-power-" + to)
		_, err := w.d.opt.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{})
		w.d.inbox.Put(func() { done(err) })
	})
}

// Switch runs a program that switches a node (power.Writer).
func (w powerWriter) Switch(program, node string, off bool, done func(error)) {
	w.d.do(func(ctx context.Context) {
		err := error(nil)
		if w.d.opt.Program != nil {
			limited, cancel := context.WithTimeout(ctx, power.AskAgain)
			err = w.d.opt.Program(limited, program, node)
			cancel()
		}
		if off {
			w.d.crash("kube-power-cut")
		}
		w.d.inbox.Put(func() { done(err) })
	})
}

func (d *Driver) powerMap() string { return d.opt.Scheduler + "-power" }

// loadPower reads what was learnt before.
func (d *Driver) loadPower(ctx context.Context) {
	if len(d.opt.Power) == 0 || d.opt.Namespace == "" {
		return
	}
	var m *v1.ConfigMap
	get := func(ctx context.Context) (err error) {
		m, err = d.opt.Client.CoreV1().ConfigMaps(d.opt.Namespace).Get(ctx, d.powerMap(), metav1.GetOptions{})
		return err
	}
	err := retry.UntilAnswered(ctx, d.opt.Log, "what is known of the nodes' weeks?", get)
	switch {
	case err == nil:
		d.nodes.Power.Learn(d.powerMap(), m.Data)
	case !apierrors.IsNotFound(err):
		d.opt.Log.Warn("what is known of the nodes' weeks cannot be read", "error", err)
	}
}

// Keep writes what is learnt (power.Writer).
func (w powerWriter) Keep(data map[string]string, done func(error)) {
	d := w.d
	d.do(func(ctx context.Context) {
		list := d.opt.Client.CoreV1().ConfigMaps(d.opt.Namespace)
		m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: d.powerMap(), Namespace: d.opt.Namespace}, Data: data}
		_, err := list.Update(ctx, m, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = list.Create(ctx, m, metav1.CreateOptions{})
		}
		if ctx.Err() != nil {
			err = nil
		}
		d.inbox.Put(func() { done(err) })
	})
}
