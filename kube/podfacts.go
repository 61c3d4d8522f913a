package kube

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/terms"
)

// What decides about a pod can change after it was created: labels, annotations and owners at any time, tolerations
// while it waits, its node selector and affinity while it has scheduling gates, CPU and memory in place while it runs.
// Each change of a pod is compared with what was read of it, and what differs is read again.

// sameFacts reports whether two states of a pod are the same in all that is read of it.
func sameFacts(a, b *v1.Pod) bool {
	x, y := &a.Spec, &b.Spec
	return maps.Equal(a.Labels, b.Labels) && sameNotes(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(x.Tolerations, y.Tolerations) && maps.Equal(x.NodeSelector, y.NodeSelector) &&
		equality.Semantic.DeepEqual(x.Affinity, y.Affinity) &&
		equality.Semantic.DeepEqual(x.ActiveDeadlineSeconds, y.ActiveDeadlineSeconds) &&
		equality.Semantic.DeepEqual(gpus.Requests(a), gpus.Requests(b))
}

// sameNotes compares annotations but for those that Muster writes itself.
func sameNotes(a, b map[string]string) bool {
	if maps.Equal(a, b) {
		return true
	}
	people := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(key, _ string) bool { return terms.Written(key) })
		return m
	}
	return maps.Equal(people(a), people(b))
}

// reread reads again what changed of a pod.
func (d *Driver) reread(p *pod) {
	d.moves++
	g := p.gang
	switch {
	case g == nil:
		d.rereadForeign(p)
	case p.node != "" || p.binding || g.phase != gathering && g.phase != waiting:
		d.rereadBound(p)
	case d.claimOf(p.obj).Key != g.key && g.of == "":
		d.read(p)
		d.rejoin(p)
	default:
		d.endTurn(g)
		d.read(p)
		p.base, p.around = p.key(d.fit), fit.Around(p.obj)+p.claimed.Wants
		p.sign(d.fit)
		d.touch(g)
		g.since(d.now, d.opt.TellAfter)
	}
}

// read reads what a pod asks for.
func (d *Driver) read(p *pod) {
	requests := gpus.Requests(p.obj)
	p.request = d.gpus.RequestIn(requests)
	p.Replica = d.gpus.ReplicaIn(p.obj, requests, &p.request)
	d.readNeeds(p, requests)
	if p.claimed.Known {
		p.request = p.claimed.Counts.Add(p.request)
	}
}

// rereadForeign counts what a foreign pod holds now.
func (d *Driver) rereadForeign(p *pod) {
	counts := d.nodes[p.node] != nil && d.nodes[p.node].foreign[p]
	d.dropForeign(p.node, p)
	d.read(p)
	if counts {
		d.addForeign(p.node, p)
	}
	d.nodesDirty, d.sizesDirty = true, true
}

// rereadBound notes what CPU and memory a pod of ours holds now; its GPUs cannot change.
func (d *Driver) rereadBound(p *pod) {
	now := d.gpus.RequestOf(p.obj)
	if p.request.CPU == now.CPU && p.request.RAM == now.RAM {
		return
	}
	p.request.CPU, p.request.RAM = now.CPU, now.RAM
	p.gang.resized, d.sizesDirty = true, true
}

// factsOf is the terms of a gang and what these pods ask for, as a number: the same as long as the engine's job of it
// would be the same.
func (d *Driver) factsOf(g *gang, pods []*pod) uint64 {
	if len(pods) == 0 {
		return 0
	}
	h := fnv.New64a()
	t, err := d.terms(g, pods[0].obj)
	_, _ = fmt.Fprintf(h, "%+v %v", t, err) // a hash's Write never fails
	for _, p := range pods {
		_, _ = fmt.Fprintf(h, "%s %s %s %+v %v", p.obj.UID, p.base, p.around, p.request,
			p.obj.Spec.PreemptionPolicy != nil && *p.obj.Spec.PreemptionPolicy == v1.PreemptNever)
	}
	return h.Sum64()
}

// reshapeAll books what the pods of gangs that were resized hold now.
func (d *Driver) reshapeAll(snap *engine.Snapshot) {
	for i := range snap.Jobs {
		rec := &snap.Jobs[i]
		g := d.byID[rec.Spec.ID]
		if g == nil || !g.resized {
			continue
		}
		if (g.phase == running || g.phase == starting) &&
			(rec.State == engine.Running || rec.State == engine.Starting) && rec.Spec.Elastic == (cluster.Elastic{}) {
			d.reshape(g, rec)
		}
		g.resized = false
	}
}

// reshape makes the task sets of a gang what its pods hold.
func (d *Driver) reshape(g *gang, rec *engine.JobRecord) {
	type place struct {
		node string
		set  int
	}
	var sets []cluster.TaskSet
	slots, now := slices.Clone(g.slots), map[place][]int{}
	for i := range slots {
		s := &slots[i]
		r := rec.Spec.Tasks[s.set].Request
		if p := g.pods[s.pod]; p != nil && !p.over() {
			r.CPU, r.RAM = p.request.CPU, p.request.RAM
		}
		sets = holds.AddTasks(sets, cluster.TaskSet{Count: 1, Request: r})
		at := place{s.node, s.set}
		s.set = holds.SetOf(sets, &r)
		now[at] = append(now[at], s.set)
	}
	if engine.CheckTasks(&cluster.Job{Tasks: sets}) != "" {
		return // what was resized is larger than anything that can run
	}
	var allocs []engine.Alloc
	for _, a := range rec.Allocs {
		at := place{d.order[a.Node], int(a.Set)}
		if len(now[at]) < int(a.Tasks) {
			return // its places are others than the engine's, as while it is repaired
		}
		allocs = append(allocs, holds.Reset(a, now[at][:a.Tasks], sets)...)
		now[at] = now[at][a.Tasks:]
	}
	d.reform(g, rec, sets, allocs, slots)
}

// takesPlace reports whether a pod that is new can have a place of its gang: it asks for what the place is for, or for
// the same GPUs and as much CPU and memory as the node has left - the pod before it may have been resized.
func (d *Driver) takesPlace(p *pod, r *cluster.Request, node string) bool {
	if p.asks(r) {
		return true
	}
	n := d.nodes[node]
	if n == nil || n.obj == nil || p.Replica.One || len(p.obj.Spec.ResourceClaims) > 0 || !p.sameDevices(r) {
		return false
	}
	cpu, ram := n.room(nil)
	return p.request.CPU <= cpu && p.request.RAM <= ram
}

// outgrown says on which node a start would find less CPU or memory than the engine believes, because pods there were
// resized and it has yet to hear of that; "": on none.
func (d *Driver) outgrown(g *gang, a *engine.Action) string {
	if !d.sizesDirty {
		return ""
	}
	more := map[string]cluster.Request{}
	for i := range a.Allocs {
		name := d.order[a.Allocs[i].Node]
		r := more[name]
		r.CPU, r.RAM = r.CPU+a.Allocs[i].CPU, r.RAM+a.Allocs[i].RAM
		more[name] = r
	}
	for name, r := range more {
		n := d.nodes[name]
		if n == nil || n.obj == nil {
			continue
		}
		if cpu, ram := n.room(g); r.CPU > cpu || r.RAM > ram {
			return fmt.Sprintf("node %s has %d milli-cores and %d MiB left, and it needs %d and %d", name, cpu, ram,
				r.CPU, r.RAM)
		}
	}
	return ""
}

// sendBack takes a gang back until the engine knows what pods hold now.
func (d *Driver) sendBack(g *gang, why string) {
	d.opt.Log.Debug("a gang cannot be where it was placed", "gang", g.name, "reason", why)
	d.queued = append(d.queued, engine.Event{Type: engine.StartFailed, Job: g.id},
		engine.Event{Type: engine.Cancelled, Job: g.id})
	d.later(g, d.now.Add(resizeEvery))
	d.withdraw(g)
	g.refused = why
}

// room is how much CPU and memory the pods on a node, or on their way there, leave, but for those of a gang.
func (n *node) room(but *gang) (cpu cluster.Milli, ram cluster.MiB) {
	cpu, ram = amount.Milli(n.obj.Status.Allocatable.Cpu()), amount.MiB(n.obj.Status.Allocatable.Memory(), false)
	for p := range n.pods {
		if p.gang == but && but != nil || p.node == "" && p.assumed == "" { // that one is only nominated
			continue
		}
		cpu, ram = cpu-p.request.CPU, ram-p.request.RAM
	}
	return cpu, ram
}
