package nodes

import (
	"slices"

	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
)

// asked is a pod as node predicates see it.
func (p *Pod) asked() fit.Pod {
	return fit.Pod{Obj: p.Obj, Requests: gpus.Requests(p.Obj), Replica: p.Replica, Want: p.Want}
}

// Read writes down what of a pod decides on which nodes it may run, as the pod is now.
func (p *Pod) Read(suits fit.Nodes) {
	asked := p.asked()
	p.Base = suits.Key(&asked)
	p.Sign(suits)
}

// Sign writes down what of that was settled with its gang.
func (p *Pod) Sign(suits fit.Nodes) {
	p.Signature = p.Base + suits.Settled(&fit.Pod{Obj: p.Obj, Replica: p.Replica, Want: p.Want})
}

// Distinct lists one pod of each kind, as far as nodes go: pods of a gang are mostly alike.
func Distinct(pods []*Pod) (list []*Pod) {
	for _, p := range pods {
		if !slices.ContainsFunc(list, func(q *Pod) bool { return q.Signature == p.Signature }) {
			list = append(list, p)
		}
	}
	return list
}

// Asked is pods as node predicates see them.
func Asked(pods []*Pod) []fit.Pod {
	list := make([]fit.Pod, len(pods))
	for i, p := range pods {
		list[i] = p.asked()
	}
	return list
}

// Of finds the nodes that suit all of some pods.
func (a *Sets) Of(pods []*Pod) *Set {
	distinct, key := Distinct(pods), ""
	for _, p := range distinct {
		key += p.Signature + "\n"
	}
	return a.For(key, func() []fit.Pod { return Asked(distinct) })
}
