package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
)

// Moves on a cluster are only thought of. To the engine a gang's run is a job that does not
// come back: the pods that its owner makes in place of evicted ones are another job,
// and whether they come, when, and how many, is the owner's affair. So nothing is
// booked for them. What moving would help is said for people, who may then delete pods,
// cordon nodes, or let it be.

// PlanMoves says which gangs, were they elsewhere, would let a waiting one start, or
// leave a node empty. Nothing is changed: a second engine is asked, which costs the
// loop a snapshot.
func (v View) PlanMoves(ctx context.Context, r *api.MovesRequest) ([]api.Moves, error) {
	by, err := driver.Asked(r)
	if err != nil {
		return nil, err
	}
	type question struct {
		err     error
		job     cluster.JobID
		snap    engine.Snapshot
		cfg     engine.Config
		numbers map[cluster.JobID]int
	}
	got := make(chan *question, 1)
	err = v.d.ask(ctx, func() {
		q := &question{job: cluster.NoJob, numbers: map[cluster.JobID]int{}}
		if g := v.d.find(r.Job); g != nil && g.id != cluster.NoJob {
			q.job = g.id
		} else if r.Job != 0 {
			q.err = fmt.Errorf("%w: %d, or it is not complete yet", ErrNoJob, r.Job)
		}
		for id, g := range v.d.byID {
			q.numbers[id] = g.number
		}
		if q.err == nil {
			q.snap, q.cfg, q.err = v.d.movable()
		}
		got <- q
	})
	if err != nil {
		return nil, err
	}
	q := <-got
	if q.err != nil {
		return nil, q.err
	}
	e, err := engine.Restore(q.cfg, &q.snap)
	if err != nil {
		return nil, fmt.Errorf("a second engine cannot be made: %w", err)
	}
	number := func(id cluster.JobID) int { return q.numbers[id] }
	if by != engine.NoCompact {
		return driver.Moves(e.LookForEmptying(by), number), nil
	}
	return driver.Moves(e.LookForMoves(q.job), number), nil
}

// movable is what a second engine has to know that looks for moves: as this one, but
// gangs that somebody would make anew come back when they are stopped, on the nodes that
// suit them. It runs on the loop; the policy and the placer are new ones.
func (d *Driver) movable() (engine.Snapshot, engine.Config, error) {
	d.eng.Look(d.clock())
	snap := d.eng.Snapshot()
	_, cfg, err := d.rules(d.cfg.Spec)
	if err != nil {
		return snap, cfg, err
	}
	cfg.Spec.Queues = d.fitted
	parts, known := cfg.Spec.Partitions[:len(cfg.Spec.Partitions):len(cfg.Spec.Partitions)], map[string]bool{}
	for i := range parts {
		known[parts[i].Name] = true
	}
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		g := d.byID[j.Spec.ID]
		if g == nil || j.State != engine.Running || g.phase != running || !g.wouldReturn() {
			continue
		}
		s := d.partition(g.sorted())
		if slices.ContainsFunc(g.sorted(), func(p *pod) bool { return !slices.Contains(s.names, p.node) }) {
			continue // its node would not take it again
		}
		if !known[s.name] {
			if len(parts) == maxParts {
				continue
			}
			parts, known[s.name] = append(parts, cluster.Partition{Name: s.name, Nodes: s.names}), true
		}
		l := d.limitsOf(g.sorted(), false, false)
		spec := *j.Spec // the engine goes on with it
		spec.NoRequeue, spec.Partitions, spec.PerNode, spec.NodeLimits = false, []string{s.name}, l.each, l.nodes
		spec.Checkpoint = cluster.Checkpoint{None: true} // nobody says what its pods save
		j.Spec = &spec
	}
	cfg.Spec.Partitions = parts
	return snap, cfg, nil
}

// wouldReturn reports whether something makes new pods in place of a gang's, which could
// run on any node of their kind: no volumes, claims, ports or neighbours bind them.
func (g *gang) wouldReturn() bool {
	for _, p := range g.pods {
		if metav1.GetControllerOf(p.obj) == nil || p.needs != nil || p.replica.name != "" || p.over() {
			return false
		}
	}
	return len(g.pods) > 0
}
