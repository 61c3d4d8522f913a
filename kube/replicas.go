package kube

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/amount"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/mig"
)

// Replicas of shared GPUs (time-slicing, MPS) are a resource beside the GPUs' own,
// nvidia.com/gpu.shared; a label of the node says how many a GPU has. To the engine
// a pod with one replica is a pod with that share of a GPU. How large the share is
// depends on the node, and all of a gang is to be counted alike: so a gang goes to
// nodes whose GPUs have equally many, and which these are is decided when the
// engine is told of it, and again if it waits while it fits elsewhere. Which replica
// a pod gets, the kubelet decides.

// sharedSuffix is what the device plugin adds to a resource that it shares.
const sharedSuffix = ".shared"

// mostReplicas is how many replicas of a GPU can be told apart: a share is a
// thousandth of a GPU at least.
const mostReplicas = int(cluster.Whole)

// replica is what of a pod is about replicas of shared GPUs.
type replica struct {
	name    v1.ResourceName // "": it asks for none
	n       int64
	one     bool // it asks for one and for no other GPU: the engine counts that
	kind         // on what GPUs it may be
	settled bool
}

// kind is what replicas GPUs have.
type kind struct {
	of  int  // how many of them a GPU has; 0: that is open
	mps bool // they have memory of their own; only of pods that want some
}

// isShared reports whether a resource is replicas of what counts as a GPU. One
// that the configuration lists itself is counted as GPUs.
func (d *Driver) isShared(name v1.ResourceName) bool {
	base, ok := strings.CutSuffix(string(name), sharedSuffix)
	return ok && slices.Contains(d.opt.GPUs, base) && !slices.Contains(d.opt.GPUs, string(name))
}

// replicaIn reads what a pod asks for.
func replicaIn(d *Driver, obj *v1.Pod, requests v1.ResourceList, r *cluster.Request) (rep replica) {
	kinds := 0
	for name, q := range requests {
		if d.isShared(name) && !q.IsZero() {
			kinds++
			rep = replica{name: name, n: amount.Count(&q)}
		}
	}
	rep.one = kinds == 1 && rep.n == 1 && r.GPUs == 0 && len(obj.Spec.ResourceClaims) == 0
	return rep
}

// counted reports whether the engine counts the replica of a pod that has its place.
func (p *pod) counted() bool { return p.replica.one && p.gang != nil && p.request.GPUs > 0 }

// asks reports whether a pod asks for the same as a task: how large the share of a
// replica is, the task's node says.
func (p *pod) asks(r *cluster.Request) bool {
	if !p.replica.one {
		return p.request == *r
	}
	return p.request.CPU == r.CPU && p.request.RAM == r.RAM && r.GPUs <= 1 && r.Profile == "" // 0: an earlier version's
}

// give makes a pod's request that of the place which it gets.
func (p *pod) give(r *cluster.Request) {
	if p.replica.one {
		p.request = *r
	}
}

// shared is the replicas of a node.
type shared struct {
	name  v1.ResourceName // "": it has none
	of    int             // how many a GPU has; 0: its label does not say
	most  int64           // those that there are, healthy or not
	free  int64           // those that nobody has
	aside int64           // those that the engine cannot give: not healthy, or of pods that it does not count
}

// sharedOn is what replicas a node has.
func (d *Driver) sharedOn(n *node) (s shared) {
	if n == nil || n.obj == nil {
		return s
	}
	for _, g := range d.opt.GPUs {
		name := v1.ResourceName(g + sharedSuffix)
		most, have := n.obj.Status.Capacity[name], n.obj.Status.Allocatable[name]
		if !d.isShared(name) || most.IsZero() && have.IsZero() {
			continue
		}
		s.name, s.most, s.free = name, max(amount.Count(&most), amount.Count(&have)), amount.Count(&have)
		s.aside = s.most - s.free
		break
	}
	if s.name == "" {
		return s
	}
	if of, err := strconv.Atoi(n.obj.Labels[d.opt.Labels.Replicas]); err == nil && of >= 1 && of <= mostReplicas {
		s.of = of
	}
	for p := range n.pods {
		if p.replica.name != s.name {
			continue
		}
		s.free -= p.replica.n
		if !p.counted() {
			s.aside += p.replica.n
		}
	}
	return s
}

// gpus is how many GPUs the replicas are of.
func (s *shared) gpus() int {
	if s.of == 0 {
		return 0
	}
	return int(min((s.most+int64(s.of)-1)/int64(s.of), int64(cluster.MaxGPUsPerNode)))
}

// lost is how many of so many GPUs, whole ones, have no replica for us.
func (s *shared) lost(gpus int) int {
	if s.of == 0 {
		return gpus
	}
	return int((int64(gpus*s.of) - s.most + s.aside) / int64(s.of))
}

// onlyShared is what replicas a node has, if none of its GPUs are given away whole.
func (d *Driver) onlyShared(n *node) (s shared, ok bool) {
	if s = d.sharedOn(n); s.name == "" || d.gpusOf(n.obj.Status.Capacity) > 0 || d.pools().GPUs(n.obj.Name) > 0 {
		return shared{}, false
	}
	return s, true
}

// replicaSuits says why the replica of a pod cannot be one of a node's; "": it can.
func (d *Driver) replicaSuits(p *pod, name string) string {
	if !p.replica.one {
		return ""
	}
	s := d.sharedOn(d.nodes[name])
	_, only := d.onlyShared(d.nodes[name])
	switch {
	case s.name != p.replica.name:
		return "no " + string(p.replica.name)
	case !only:
		return "GPUs that are not shared beside those that are"
	case s.of == 0:
		return fmt.Sprintf("label %s does not say how many replicas a GPU has (1 to %d)", d.opt.Labels.Replicas,
			mostReplicas)
	case p.replica.of != 0 && s.of != p.replica.of:
		return fmt.Sprintf("%d replicas of a GPU, not %d", s.of, p.replica.of)
	case p.replica.of != 0 && d.kindFor(p, name, s.of) != p.replica.kind:
		return "its replicas have no memory of their own, and others' have"
	}
	return ""
}

// kindFor is what replicas a node's GPUs have, so many each, to a pod. To one that wants
// memory it is not all the same who enforces that.
func (d *Driver) kindFor(p *pod, name string, of int) kind {
	k := kind{of: of}
	if p.want.memory > 0 {
		w := d.waysOf(d.nodes[name])
		k.mps = w.Sharing == cluster.MPS && w.Model.MPSLimits()
	}
	return k
}

// room is what nodes with replicas of one kind have.
type room struct {
	kind
	most, free int64
}

// better reports whether pods that want n replicas should rather be here: where
// they fit now, where what they want is enforced, else where there are more.
func (a room) better(b room, n int64) bool {
	switch {
	case (a.free >= n) != (b.free >= n):
		return a.free >= n
	case a.mps != b.mps:
		return a.mps
	case a.free >= n:
		return a.free > b.free
	}
	return a.most > b.most
}

// rooms finds what the pods of a gang could have, by the kinds of replicas.
func (d *Driver) rooms(pods []*pod) map[kind]room {
	open := make([]pod, len(pods))
	list := make([]*pod, len(pods))
	for i, p := range pods {
		open[i] = pod{obj: p.obj, replica: p.replica, want: p.want, base: p.base, signature: p.signature}
		open[i].settleOn(kind{})
		list[i] = &open[i]
	}
	found := map[kind]room{}
	for _, name := range d.nodesFor(list).names {
		s := d.sharedOn(d.nodes[name])
		k := d.kindFor(pods[0], name, s.of)
		r := found[k]
		r.kind = k
		if r.most += s.most; d.nodes[name].state() == cluster.Up {
			r.free += max(0, s.free)
		}
		found[k] = r
	}
	return found
}

// settleOn says of a pod what replicas GPUs have where it goes.
func (p *pod) settleOn(k kind) {
	if !p.replica.one {
		return
	}
	p.replica.kind, p.replica.settled, p.request.GPUs, p.request.Share = k, true, min(k.of, 1), 0
	if k.of > 1 {
		p.request.Share = cluster.Whole / cluster.Milli(k.of)
	}
	p.sign()
}

// replicasOf counts the pods with a replica, and says on what GPUs they are to be.
func replicasOf(pods []*pod) (n int64, k kind) {
	for _, p := range pods {
		if p.replica.one {
			n, k = n+1, p.replica.kind
		}
	}
	return n, k
}

// share decides for the pods of a gang that want replicas how large these are.
func (d *Driver) share(pods []*pod) {
	n, _ := replicasOf(pods)
	if n == 0 {
		return
	}
	best, found := kind{}, d.rooms(pods)
	for k := range found {
		if a, b := found[k], found[best]; best.of == 0 || a.better(b, n) || !b.better(a, n) && k.of < best.of {
			best = k
		}
	}
	for _, p := range pods {
		p.settleOn(best)
	}
}

// elsewhere reports whether a gang that waits for replicas fits on GPUs that have
// more of them, or fewer, and not on those for which it waits.
func (d *Driver) elsewhere(pods []*pod) bool {
	n, k := replicasOf(pods)
	if n == 0 {
		return false
	}
	found := d.rooms(pods)
	if found[k].free >= n {
		return false
	}
	for _, r := range found {
		if r.free >= n {
			return true
		}
	}
	return false
}

// limitReplicas bounds nodes where the engine counts more replicas than there are: of a
// GPU some of whose replicas others have, or are not healthy.
func (d *Driver) limitReplicas(l *fit.Look, p *pod) {
	for _, believed := range d.eng.Nodes() {
		s := d.sharedOn(d.nodes[believed.Name])
		if s.of == 0 || s.name != p.replica.name {
			continue
		}
		whole := mig.WholeGPUs(&believed)
		good := whole - bits.OnesCount64(believed.Bad&(uint64(1)<<whole-1))
		if int64(good*s.of) > s.most-s.aside {
			l.Most(believed.Name, max(0, s.free), "too little "+string(s.name))
		}
	}
}
