package kube

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/power"
)

// migView is the cluster as package kube/mig sees it (mig.Cluster).
type migView struct{ d *Driver }

func (v migView) Up(name string) bool {
	n := v.d.nodes.Node(name)
	return n.Up() && !n.Power.Sleeps() && n.Power.State() != power.Suspending &&
		!v.d.eng.IsGivenBack(name)
}

func (v migView) Published(name string) int { return v.d.claims.GPUsOn(name) }

func (v migView) UserCount(name string) int { return v.d.nodes.CountUsers(name) }

func (v migView) Users(name string) (list []mig.User) {
	d := v.d
	for _, q := range d.nodes.Users(name) {
		p := q.Record.(*gang.Pod)
		u := mig.User{Ends: cluster.Never, Endless: p.Obj.Spec.RestartPolicy == v1.RestartPolicyAlways}
		if g := p.Gang; g != nil {
			u.Gang, u.Leaves, u.Endless = g.Key, p.Leaves(), g.Kind == cluster.Service
			u.Goes = func(tier cluster.Tier) bool { return d.goes(g, tier) }
			u.Lost = func() time.Duration { return d.lostBy(g) }
			if g.Spec != nil {
				u.GPUs = g.Spec.GPUs()
			}
			if g.Spec != nil && g.Spec.Estimate > 0 && g.Book.Started > 0 {
				u.Ends = g.Book.Started.Add(g.Spec.Estimate)
			}
		}
		list = append(list, u)
	}
	return list
}

// lostBy is how much of its work a running gang would lose now: what came after it was saved last.
func (d *Driver) lostBy(g *gang.Gang) time.Duration {
	ran := max(0, d.now.Sub(g.Book.Started))
	if pods := g.Sorted(); len(pods) > 0 {
		if t, err := d.reader.Terms(g, pods[0].Obj); err == nil && t.Saves > 0 {
			return ran % t.Saves
		}
	}
	return ran
}

func (v migView) AnyWaiting(is func(g *mig.Gang, since cluster.Time) bool) bool {
	for _, g := range v.d.gangs {
		if g.Waits() && is(&g.MIG, g.Book.WaitingSince) {
			return true
		}
	}
	return false
}

func (v migView) Waiters() (list []*mig.Waiter) {
	d, id := v.d, v.d.next
	for _, key := range slices.Sorted(maps.Keys(d.gangs)) {
		g := d.gangs[key]
		w := &mig.Waiter{Gang: &g.MIG, Name: g.Name, Job: g.Spec, Since: g.Book.WaitingSince}
		var pods []*gang.Pod
		switch {
		case g.Phase == gang.Waiting:
			pods = g.Submitted()
		case g.Phase == gang.Gathering && g.Refused != "" && g.Asks() && g.Of == "" && g.Retry <= d.now &&
			len(g.Rivals) == 0:
			if w.Job, pods = d.reader.WouldBe(g, d.refusalEpoch); w.Job != nil {
				w.Outside, w.Job.ID = true, id
				id++
			}
		}
		if len(pods) == 0 {
			continue
		}
		distinct := nodes.Distinct(gang.OnNodes(pods))
		asked := nodes.Asked(distinct)
		for _, p := range distinct {
			w.Kind += p.Signature + "\n"
		}
		w.Suits = func() []string { return d.reader.NodesFor(pods).Names }
		w.SuitsAs = func(obj *v1.Node) bool { return d.fit.Unsuitable(asked, obj) == "" }
		w.MayBeOn = func(obj *v1.Node) bool {
			return !slices.ContainsFunc(pods, func(p *gang.Pod) bool {
				return d.fit.Suits(&fit.Pod{Obj: p.Obj}, obj) != ""
			})
		}
		list = append(list, w)
	}
	return list
}

func (v migView) NodeAs(name string, obj *v1.Node) cluster.Node {
	return v.d.nodes.SpecAs(name, obj)
}

func (v migView) Config(spec cluster.Spec) (engine.Config, error) {
	_, cfg, err := v.d.rules(spec)
	cfg.Spec.Queues = v.d.queues.Fitted()
	return cfg, err
}
