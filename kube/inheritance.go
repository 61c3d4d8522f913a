package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/succession"
	"github.com/muster-gpu/muster/kube/terms"
)

// A gang that had to leave is another job when its owner has made its pods again. That one goes on where it stopped: it
// keeps its turn, and what it received and saved counts with every policy. The pods carry it: those that wait in an
// annotation, those that are bound in their plan; while there are none, it is the scheduler's memory.

// partingOf is a gang's that leaves, or left, with these pods.
func (d *Driver) partingOf(g *gang.Gang, pods []*gang.Pod) succession.Parting {
	return succession.Of(g.Key, gang.Objects(pods), d.now)
}

// departs notes whose pods a gang that is told to leave has, and why it leaves.
func (d *Driver) departs(g *gang.Gang, a *engine.Action) {
	g.Parting = succession.Parting{}
	if g.Of != "" || a.Reason != engine.Preempted && a.Reason != engine.NodeLost && a.Reason != engine.WasCancelled {
		return
	}
	if pods := g.Seated(); len(pods) > 0 {
		g.Parting = d.partingOf(g, pods)
	}
}

// leaveTo keeps what a job was given, for those that come in its place; of its preemptions
// the engine has not heard of so many yet.
func (d *Driver) leaveTo(p succession.Parting, id cluster.JobID, spec *cluster.Job, preemptions int32) {
	if p.Owner == "" || spec == nil {
		return
	}
	if b := d.eng.Carryover(id, d.now); b != nil {
		b.Preemptions += preemptions
		left := plans.Before{Carryover: *b, Submit: spec.Submit, Work: d.scene(d.now).Work(id)}
		d.inheritances.Keep(&succession.Inheritance{Parting: p, At: d.now, Before: left}, d.now)
	}
}

// inherit gives a gang that gathers what one before it left, if these pods were made in
// place of that one's, or carry it themselves.
func (d *Driver) inherit(g *gang.Gang, pods []*gang.Pod) {
	if g.Inheritance != nil || g.Of != "" || len(pods) == 0 {
		return
	}
	var said *plans.Before
	for i := 0; i < len(pods) && said == nil; i++ {
		said = d.opt.Seal.BeforeOf(pods[i].Obj)
	}
	if len(d.inheritances.Kept()) == 0 && said == nil {
		return
	}
	now := d.partingOf(g, pods)
	if now.Owner == "" {
		return
	}
	g.Inheritance = d.inheritances.Take(now.Owner, gang.Objects(pods))
	switch {
	case g.Inheritance != nil:
		d.carry(g, pods[0].Obj)
	case said != nil:
		g.Inheritance = &succession.Inheritance{Parting: now, At: d.now, Carried: true, Before: *said}
	}
}

// carry writes to a pod what its gang inherited.
func (d *Driver) carry(g *gang.Gang, obj *v1.Pod) {
	d.noteFor(obj, AnnotationBefore, g.Inheritance.Text())
}

// noteFor writes to a pod that waits what the scheduler's successor is to know.
func (d *Driver) noteFor(obj *v1.Pod, annotation, text string) {
	notes := map[string]string{}
	d.opt.Seal.Write(notes, obj.UID, annotation, text)
	d.writer.Annotate(obj, notes, func(err error) {
		d.opt.Log.Debug("what the next scheduler should know cannot be written to a pod that waits", "pod",
			obj.Namespace+"/"+obj.Name, "annotation", annotation, "error", err)
	})
}

// goOn makes a gang's job go on as the one before it. What pods carry is not believed so far
// that they would be older than what makes them.
func (d *Driver) goOn(g *gang.Gang, first *v1.Pod, spec *cluster.Job) *engine.Carryover {
	l := g.Inheritance
	if l == nil {
		return nil
	}
	submit := l.Submit
	l.SetEstimate(spec)
	if l.Carried {
		origins, err := d.reader.Origins(g, first)
		if err != nil {
			return &l.Carryover
		}
		submit = max(submit, cluster.Time(terms.Created(origins, g.Members()).UnixNano()))
	}
	spec.Submit = min(spec.Submit, submit)
	return &l.Carryover
}
