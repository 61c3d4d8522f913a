package relocations

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/terms"
)

// Which gangs are to be moved is found by a second engine, to which gangs whose pods something makes again are jobs
// that come back when they are stopped. If it finds moves that are worth it, and disruption budgets allow them, and
// moving is on, those gangs, and no others, become such jobs of the engine that decides, which is asked the same.

// Describe begins a question to a second engine: the gangs by the numbers and names that people know, and the pods of
// those that run.
func Describe(byID map[cluster.JobID]*gang.Gang) *moves.Question {
	q := &moves.Question{Job: cluster.NoJob, Numbers: map[cluster.JobID]int{},
		Pods: map[cluster.JobID][]*v1.Pod{}, Names: map[cluster.JobID]string{}}
	for id, g := range byID {
		q.Numbers[id], q.Names[id] = g.Book.Number, g.Name
		if g.Phase == gang.Running {
			q.Pods[id] = g.Members()
		}
	}
	return q
}

// Draft is a snapshot for a second engine, in which gangs can be made free to move.
type Draft struct {
	snap  *engine.Snapshot
	known map[string]bool // sets of nodes, by name
}

// NewDraft changes this snapshot.
func NewDraft(snap *engine.Snapshot) *Draft {
	d := &Draft{snap: snap, known: map[string]bool{}}
	for i := range snap.Sets {
		d.known[snap.Sets[i].Name] = true
	}
	return d
}

// Candidate is a gang that is asked whether it may be moved.
type Candidate struct {
	Gang *gang.Gang
	Spec cluster.Job // a copy: the engine goes on with its own
	job  *engine.JobRecord
}

// Candidates lists the gangs that run, but those that are kept where they are.
func (d *Draft) Candidates(byID map[cluster.JobID]*gang.Gang, kept map[cluster.JobID]string) (list []*Candidate) {
	for i := range d.snap.Jobs {
		j := &d.snap.Jobs[i]
		g := byID[j.Spec.ID]
		if g != nil && j.State == engine.Running && g.Phase == gang.Running && kept[j.Spec.ID] == "" {
			list = append(list, &Candidate{Gang: g, Spec: *j.Spec, job: j})
		}
	}
	return list
}

// Free has a gang be moved as its copied job says, on nodes of a set.
func (d *Draft) Free(c *Candidate, s *nodes.Set) {
	if !d.known[s.Name] {
		d.snap.Sets = append(d.snap.Sets, cluster.NodeSet{Name: s.Name, Nodes: s.Names})
		d.known[s.Name] = true
	}
	c.job.Spec = &c.Spec
}

// WouldReturn says why a gang that is stopped would not come back; nil: it would.
func WouldReturn(g *gang.Gang) error {
	if !isMadeAgain(g) || g.Leaves != "" {
		return errors.New("its pods would not be made again, or are bound to where they are")
	}
	return nil
}

// isMadeAgain reports whether something makes new pods in place of a gang's, which could run on any node of their kind:
// no volumes, claims, ports or neighbours bind them.
func isMadeAgain(g *gang.Gang) bool {
	for _, p := range g.Pods {
		if metav1.GetControllerOf(p.Obj) == nil || p.Needs != nil || p.Replica.Name != "" || p.Over() {
			return false
		}
	}
	return len(g.Pods) > 0
}

// MayMove says why a gang is not moved, though something makes its pods again; nil: it may be. besides is how many pods
// of its own run beside it.
func MayMove(g *gang.Gang, t *terms.Terms, besides int, owners *gangs.Objects) error {
	if g.Of != "" || besides > 0 || len(g.Missing) > 0 || g.Repair.IsPatch || len(g.Pods) != len(g.Places) {
		return errors.New("it is not as it started, or part of another")
	}
	for i := range g.Places {
		if p := g.Pods[g.Places[i].Pod]; p == nil || p.Leaves() || p.Node == "" {
			return errors.New("it is not whole")
		}
	}
	first := g.Sorted()[0]
	for _, p := range g.Sorted() {
		switch {
		case p.Signature != first.Signature:
			return errors.New("its pods have places of their own")
		case t.Movable == "true":
		case t.Movable == "false":
			return fmt.Errorf("%s says so", terms.AnnotationMovable)
		case !owners.Forgives(p.Obj):
			return fmt.Errorf("what owns pod %s may count that against it, or is not known: %s permits it", p.Obj.Name,
				terms.AnnotationMovable)
		}
	}
	return nil
}

// FitsAgain says why a gang's pods could not be placed again as its owner would make them, on nodes of this set that
// take so many; nil: they could.
func FitsAgain(pods []*gang.Pod, s *nodes.Set, l *fit.Limits) error {
	if slices.ContainsFunc(pods, func(p *gang.Pod) bool { return !slices.Contains(s.Names, p.Node) }) {
		return errors.New("its node would not take it again")
	}
	if l.Why != "" {
		return errors.New(l.Why)
	}
	return nil
}

// Free makes a running gang's job one that comes back when it is stopped.
func Free(spec *cluster.Job, t *terms.Terms, l *fit.Limits) {
	spec.NoRequeue, spec.PerNode, spec.NodeLimits, spec.Topology = false, l.Each, l.Nodes, t.Topology
	spec.Checkpoint = cluster.Checkpoint{None: true} // it is not said what its pods save
	if t.Saves > 0 {
		// That they write one when they are told to leave, is not said either: as if it took longer than they have.
		spec.Checkpoint = cluster.Checkpoint{Interval: t.Saves, Cost: cluster.MaxDuration}
	}
}
