// Package reader reads what the pods of a gang ask for, with what made them, the queues and the nodes that there are:
// on which terms it runs, which nodes suit it and take how much of it at the moment, and the engine's job that it is.
package reader

import (
	"fmt"
	"hash/fnv"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/queues"
	"github.com/muster-gpu/muster/kube/terms"
)

// Reader reads gangs. It asks these rooms, and changes nothing but what is kept of the pods themselves.
type Reader struct {
	GPUs    *gpus.Names
	Objects *gangs.Objects
	Queues  *queues.Set
	Nodes   *nodes.Room
	Fit     fit.Nodes
	Claims  *claims.Claims
	Volumes *volumes.Volumes

	Rules        *terms.Rules             // what holds where a gang does not say on which terms it runs
	DefaultQueue string                   // of pods that name none
	Lender       func(pod *v1.Pod) string // the service that lends whose replica a pod is; "": none
}

// Spec makes the engine's job of a gang whose pods these are.
func (r *Reader) Spec(g *gang.Gang, pods []*gang.Pod, m gangs.Membership) (*cluster.Job, error) {
	first := pods[0].Obj
	submit := m.Submit
	for _, p := range pods {
		if at := p.Obj.CreationTimestamp.Time; m.Submit.IsZero() && (submit.IsZero() || at.Before(submit)) {
			submit = at
		}
	}
	t, err := r.Terms(g, first)
	if err != nil {
		return nil, err
	}
	g.Repair.Wanted, g.Converge = t.Repair, t.Converge
	for _, p := range pods {
		p.Want = t.Want
		p.Sign(r.Fit)
	}
	if r.Claims.Shared(gang.Neighbours(pods)) {
		t.Topology = cluster.Topology{Level: cluster.LevelNode, Required: true}
	}
	j := &cluster.Job{Name: g.Name, User: first.Namespace, Queue: t.Queue, Kind: g.Kind, Tier: t.Tier,
		Priority: t.Priority, Topology: t.Topology,
		Estimate: t.RunTime, Deadline: t.Deadline, Submit: cluster.Time(submit.UnixNano()), NoRequeue: true,
		Tasks:     gang.TaskSets(pods),
		NoPreempt: g.NeverPreempts(first), Checkpoint: cluster.Checkpoint{Interval: t.Saves}}
	j.Model, j.MinSpeed, j.Traffic = t.Sharer.Model, t.Sharer.Least, t.Traffic
	j.Service = r.Lender(first)
	return j, nil
}

// StartingPods lists the pods that a gang needs, fewer while they are not all there (lacks
// says of which role), and those that may start with them: they ask for the same
// as the largest of these, so that the engine may choose how many there are. What
// has places of its own - a volume claim, an even spread, a replica of a shared GPU
// - follows one by one.
func (r *Reader) StartingPods(g *gang.Gang, m *gangs.Membership) (need, more []*gang.Pod, lacks string) {
	ready := g.Ready()
	need, lacks = gang.Pick(m, ready)
	if !m.Open || g.Of != "" || g.Narrow || len(need) < max(1, m.Size) || len(need) == len(ready) {
		return need, nil, lacks
	}
	largest, needed := gang.TaskSets(need)[0].Request, map[*gang.Pod]bool{}
	var like []*gang.Pod
	for _, p := range need {
		if needed[p] = true; p.Request == largest &&
			!slices.ContainsFunc(like, func(q *gang.Pod) bool { return r.alike(p, q) }) {
			like = append(like, p)
		}
	}
	for _, p := range ready {
		if !needed[p] && len(need)+len(more) < cluster.MaxTasks && p.Request == largest &&
			slices.ContainsFunc(like, func(q *gang.Pod) bool { return r.alike(p, q) }) {
			more = append(more, p)
		}
	}
	if len(more) > 0 && r.Claims.Shared(gang.Neighbours(slices.Concat(need, more))) {
		more = nil
	}
	return need, more, lacks
}

// alike reports whether two pods of a gang that ask for the same can go wherever
// the other can.
func (r *Reader) alike(p, q *gang.Pod) bool {
	return p.Base == q.Base && !p.Replica.One && r.Nodes.World.Alike(&p.Neighbour, &q.Neighbour)
}

// Read reads what a pod asks for.
func (r *Reader) Read(p *gang.Pod) {
	requests := gpus.Requests(p.Obj)
	p.Request = r.GPUs.RequestIn(requests)
	p.Replica = r.GPUs.ReplicaIn(p.Obj, requests, &p.Request)
	p.Counted = r.GPUs.CountedAs(&p.Replica, &p.Request, requests)
	r.Nodes.World.Read(&p.Neighbour, requests)
	if p.Claimed.Known {
		p.Request = p.Claimed.Counts.Add(p.Request)
	}
}

// Facts is the terms of a gang and what these pods ask for, as a number: the same as long as the engine's job of it
// would be the same.
func (r *Reader) Facts(g *gang.Gang, pods []*gang.Pod) uint64 {
	if len(pods) == 0 {
		return 0
	}
	h := fnv.New64a()
	t, err := r.Terms(g, pods[0].Obj)
	_, _ = fmt.Fprintf(h, "%+v %v", t, err) // a hash's Write never fails
	for _, p := range pods {
		_, _ = fmt.Fprintf(h, "%s %s %s %+v %v", p.Obj.UID, p.Base, p.Around, p.Request,
			p.Obj.Spec.PreemptionPolicy != nil && *p.Obj.Spec.PreemptionPolicy == v1.PreemptNever)
	}
	return h.Sum64()
}
