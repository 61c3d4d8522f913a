package engine_test

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// submit takes a job in, unless it can never run: even on the empty, healthy
// cluster there is no place for it.
func (d *dumb) submit(spec *cluster.Job, before *engine.Carryover) {
	if int(spec.ID) < len(d.jobs) {
		return // it was adopted
	}
	j := d.newJob(spec)
	if before != nil {
		j.stints = []stint{{weight: cluster.Whole, work: before.Attained}}
		j.ran, j.done, j.saved, j.began, j.firstStart = before.Ran, before.Done, before.Done, true, before.FirstStart
	}
	d.jobs = append(d.jobs, j)
	if d.refused(j) || !d.everFits(j) && !d.someInstance(j) {
		d.reject(j, engine.Impossible)
		return
	}
	d.admit(j)
}

// newJob is a job of which nothing but its spec is known.
func (d *dumb) newJob(spec *cluster.Job) *dumbJob {
	j := &dumbJob{Job: spec, starvingSince: cluster.Never, predicted: d.predict(spec), promoted: promoted{since: d.now},
		firstStart: cluster.Never, hold: spec.Hold, shape: d.shapeOf(spec)}
	for _, o := range d.jobs { // names may change later
		if o.state != engine.Done && o.User == j.User && o.Name == j.Name {
			j.namesakes = append(j.namesakes, o)
		}
	}
	return j
}

// shapeOf is what jobs have in common that are refused together.
func (d *dumb) shapeOf(spec *cluster.Job) string {
	shape := fmt.Sprint(spec.Tier, spec.Tasks, spec.GPUTypes, spec.PerNode, spec.NodeLimits, spec.Nodes, spec.NoPreempt)
	if d.mf != nil {
		shape += fmt.Sprint(d.ownerOf(&dumbJob{Job: spec}))
	}
	if spec.Shares() {
		shape += fmt.Sprint(spec.Model, spec.MinSpeed)
	}
	if d.queued() {
		shape += spec.Queue
	}
	if d.byUser() || d.mps && spec.Shares() {
		shape += " " + spec.User
	}
	return shape
}

// everFits reports whether there is a place for a job on the empty, healthy cluster that is awake.
func (d *dumb) everFits(j *dumbJob) bool {
	if d.unshareable(j) {
		return false
	}
	blank := *d
	blank.nodes, blank.possible = slices.Clone(d.nodes), true
	for i := range blank.nodes {
		blank.nodes[i].State, blank.nodes[i].Bad, blank.nodes[i].Asleep = cluster.Up, 0, 0
	}
	return blank.place(j, newBooks(blank.nodes), nil) != nil
}

func (d *dumb) reject(j *dumbJob, why engine.StopReason) {
	d.preempts = append(d.preempts, fmt.Sprintf("reject %d %s", j.ID, why))
	d.finish(j, why)
}

func (d *dumb) finish(j *dumbJob, why engine.StopReason) {
	if why == engine.Completed {
		d.completed = append(d.completed, earlier{j.service(), j.ran, j.User, j.Name, j.GPUMilli()})
	}
	j.state, j.reason, j.allocs, j.waits, j.eligible, j.idled, j.inArray = engine.Done, why, nil, nil, false, false,
		false
	d.line()
}

// admit puts a pending job into the line, at its old place in the order. A job
// that is held leaves it, and its array's place to others.
func (d *dumb) admit(j *dumbJob) {
	j.eligible, j.idled, j.begun = false, false, j.Begin <= d.now
	if j.hold {
		j.inArray, j.asked = false, 0
	}
	d.line()
}

// line makes eligible what may be considered: jobs not held, begun, whose
// dependencies hold, and which have one of their array's places, which go to those
// that asked first. A job whose dependencies can never hold is rejected.
func (d *dumb) line() {
	for again := true; again; {
		again = false
		var asks []*dumbJob
		for _, j := range d.jobs {
			if j.state != engine.Pending || j.eligible || j.idled || j.hold || !j.begun {
				continue
			}
			ok, never := d.depends(j)
			switch {
			case never:
				d.reject(j, engine.NeverReady)
				return // it has looked at all others
			case !ok:
			case j.Array == nil || j.Array.Cap == 0 || j.inArray:
				if j.idled = d.gated(j); !j.idled {
					j.eligible = true
					d.enters(j)
				}
			default:
				if j.asked == 0 {
					d.turns++
					j.asked = d.turns
				}
				asks = append(asks, j)
			}
		}
		slices.SortFunc(asks, func(a, b *dumbJob) int { return a.asked - b.asked })
		for _, j := range asks {
			active := 0
			for _, o := range d.jobs {
				if o.inArray && o.Array.ID == j.Array.ID {
					active++
				}
			}
			if active < j.Array.Cap {
				j.inArray, j.asked, again = true, 0, true
			}
		}
	}
}

// depends reports whether a job's dependencies hold, or never will.
func (d *dumb) depends(j *dumbJob) (ok, never bool) {
	one, lost := false, 0
	ok = true
	for _, dep := range j.After {
		this, out := d.depend(j, dep)
		ok, one = ok && this, one || this
		if out {
			lost++
		}
	}
	if j.AnyOf && len(j.After) > 0 {
		return one, lost == len(j.After)
	}
	return ok, lost > 0
}

func (d *dumb) depend(j *dumbJob, dep cluster.Dependency) (ok, never bool) {
	ok = true
	if dep.Type == cluster.Singleton {
		for _, o := range j.namesakes {
			ok = ok && o.state == engine.Done
		}
		return ok, false
	}
	failed := false
	for _, o := range d.jobs[dep.Job : dep.Last()+1] {
		done := o.state == engine.Done
		failed = failed || done && o.reason != engine.Completed
		if dep.Type == cluster.AfterStart {
			ok = ok && (done || o.began) && (o.firstStart == cluster.Never || d.now >= o.firstStart.Add(dep.Delay))
		} else {
			ok = ok && done
		}
	}
	switch dep.Type {
	case cluster.AfterOK:
		return ok && !failed, failed
	case cluster.AfterNotOK:
		return ok && failed, ok && !failed
	}
	return ok, false
}
