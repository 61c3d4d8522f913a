package kube

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/terms"
)

// A gang that had to leave is another job when its owner has made its pods again. That one goes on where it stopped: it
// keeps its turn, and what it received and saved counts with every policy. The pods carry it: those that wait in an
// annotation, those that are bound in their plan; while there are none, it is the scheduler's memory.

// parting is a gang that was told to leave, for those that come in its place.
type parting struct {
	owner string    // what the next pods have in common with these (ownersOf); "": none are made
	began time.Time // whole seconds, as of creation timestamps
}

// partingOf is a gang's that leaves, or left, with these pods.
func (d *Driver) partingOf(g *gang, pods []*pod) parting {
	return parting{ownersOf(g, pods), time.Unix(0, int64(d.now)).Truncate(time.Second)}
}

// inheritance is what a gang that has left leaves to the next.
type inheritance struct {
	parting
	at      cluster.Time
	carried bool // its pods say so, not the scheduler's own memory
	plans.Before
}

const (
	inheritanceKept  = 24 * time.Hour // as long as pods may take to be made again: their owner may be suspended
	mostInheritances = 10_000         // gangs
)

// departs notes whose pods a gang that is told to leave has, and why it leaves.
func (d *Driver) departs(g *gang, a *engine.Action) {
	g.parting = parting{}
	if g.of != "" || a.Reason != engine.Preempted && a.Reason != engine.NodeLost && a.Reason != engine.WasCancelled {
		return
	}
	if pods := g.seated(); len(pods) > 0 {
		g.parting = d.partingOf(g, pods)
	}
}

// leaveTo keeps what a job was given, for those that come in its place; of its preemptions
// the engine has not heard of so many yet.
func (d *Driver) leaveTo(p parting, id cluster.JobID, spec *cluster.Job, preemptions int32) {
	if p.owner == "" || spec == nil {
		return
	}
	if b := d.eng.Given(id, d.now); b != nil {
		b.Preemptions += preemptions
		left := plans.Before{Given: *b, Submit: spec.Submit, Work: d.workOf(id)}
		d.keep(inheritance{parting: p, at: d.now, Before: left})
	}
}

// keep remembers an inheritance, and forgets those that no gang came for.
func (d *Driver) keep(l inheritance) {
	isOld := func(o inheritance) bool { return d.now.Sub(o.at) > inheritanceKept }
	d.inheritances = slices.DeleteFunc(d.inheritances, isOld)
	if len(d.inheritances) == mostInheritances {
		d.inheritances = d.inheritances[1:]
	}
	d.inheritances = append(d.inheritances, l)
}

// inherit gives a gang that gathers what one before it left, if these pods were made in
// place of that one's, or carry it themselves.
func (d *Driver) inherit(g *gang, pods []*pod) {
	if g.inheritance != nil || g.of != "" || len(pods) == 0 {
		return
	}
	var said *plans.Before
	for i := 0; i < len(pods) && said == nil; i++ {
		said = d.opt.Seal.BeforeOf(pods[i].Obj)
	}
	if len(d.inheritances) == 0 && said == nil {
		return
	}
	now := d.partingOf(g, pods)
	if now.owner == "" {
		return
	}
	i := slices.IndexFunc(d.inheritances, func(l inheritance) bool {
		return l.owner == now.owner &&
			!slices.ContainsFunc(pods, func(p *pod) bool { return p.Obj.CreationTimestamp.Time.Before(l.began) })
	})
	switch {
	case i >= 0:
		l := d.inheritances[i]
		d.inheritances = slices.Delete(d.inheritances, i, i+1)
		g.inheritance = &l
		d.carry(g, pods[0].Obj)
	case said != nil:
		g.inheritance = &inheritance{now, d.now, true, *said}
	}
}

// carry writes to a pod what its gang inherited.
func (d *Driver) carry(g *gang, obj *v1.Pod) {
	d.noteFor(obj, AnnotationBefore, g.inheritance.Text())
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
func (d *Driver) goOn(g *gang, first *v1.Pod, spec *cluster.Job) *engine.Given {
	l := g.inheritance
	if l == nil {
		return nil
	}
	submit := l.Submit
	l.SetEstimate(spec)
	if l.carried {
		origins, err := d.annotationSources(g, first)
		if err != nil {
			return &l.Given
		}
		submit = max(submit, cluster.Time(terms.Created(origins, g.Members()).UnixNano()))
	}
	spec.Submit = min(spec.Submit, submit)
	return &l.Given
}

// workBefore is how much work a gang that starts was known to be before; 0: that was not known.
func (g *gang) workBefore() time.Duration {
	if g.inheritance == nil {
		return 0
	}
	return g.inheritance.Work
}

// beforeStart is what a gang that starts now was given before; nil: nothing.
func (g *gang) beforeStart(e *engine.Engine) *plans.Before {
	b := e.Given(g.id, e.Now())
	if b == nil || b.Ran == 0 {
		return nil
	}
	return &plans.Before{Given: *b, Submit: g.spec.Submit, Work: g.workBefore()}
}
