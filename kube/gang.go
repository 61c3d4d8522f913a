package kube

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
)

// specOf makes the engine's job of a gang whose pods these are.
func (d *Driver) specOf(g *gang.Gang, pods []*gang.Pod, m gangs.Membership) (*cluster.Job, error) {
	first := pods[0].Obj
	submit := m.Submit
	for _, p := range pods {
		if at := p.Obj.CreationTimestamp.Time; m.Submit.IsZero() && (submit.IsZero() || at.Before(submit)) {
			submit = at
		}
	}
	t, err := d.terms(g, first)
	if err != nil {
		return nil, err
	}
	g.Repair.Wanted, g.Converge = t.Repair, t.Converge
	for _, p := range pods {
		p.Want = t.Want
		p.Sign(d.fit)
	}
	if d.claims.Shared(gang.Neighbours(pods)) {
		t.Topology = cluster.Topology{Level: cluster.LevelNode, Required: true}
	}
	j := &cluster.Job{Name: g.Name, User: first.Namespace, Queue: t.Queue, Kind: g.Kind, Tier: t.Tier,
		Priority: t.Priority, Topology: t.Topology,
		Estimate: t.RunTime, Deadline: t.Deadline, Submit: cluster.Time(submit.UnixNano()), NoRequeue: true,
		Tasks:     gang.TaskSets(pods),
		NoPreempt: g.NeverPreempts(first), Checkpoint: cluster.Checkpoint{Interval: t.Saves}}
	j.Model, j.MinSpeed, j.Traffic = t.Sharer.Model, t.Sharer.Least, t.Traffic
	j.Service = d.opt.lender(first)
	return j, nil
}
