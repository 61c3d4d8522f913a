package engine_test

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// submit takes a job in, unless it can never run: even on the empty, healthy
// cluster there is no place for it.
func (d *dumb) submit(spec *cluster.Job) {
	j := &dumbJob{Job: spec, firstStart: cluster.Never, hold: spec.Hold, shape: fmt.Sprint(spec.Tier, spec.Tasks, spec.GPUTypes)}
	if d.queued() {
		j.shape += spec.Queue
	}
	if d.byUser() {
		j.shape += " " + spec.User
	}
	d.jobs = append(d.jobs, j)
	blank := *d
	blank.nodes = slices.Clone(d.nodes)
	for i := range blank.nodes {
		blank.nodes[i].State, blank.nodes[i].Bad = cluster.Up, 0
	}
	if d.refused(j) || blank.place(j, newBooks(blank.nodes), nil) == nil {
		d.reject(j, engine.Impossible)
		return
	}
	d.admit(j)
}

func (d *dumb) reject(j *dumbJob, why engine.StopReason) {
	d.preempts = append(d.preempts, fmt.Sprintf("reject %d %s", j.ID, why))
	d.finish(j, why)
}

func (d *dumb) finish(j *dumbJob, why engine.StopReason) {
	j.state, j.reason, j.allocs, j.waits, j.eligible, j.inArray = engine.Done, why, nil, nil, false, false
	d.line()
}

// admit puts a pending job into the line, at its old place in the order. A job
// that is held leaves it, and its array's place to others.
func (d *dumb) admit(j *dumbJob) {
	j.eligible, j.begun = false, j.Begin <= d.now
	if j.hold {
		j.inArray, j.asked = false, 0
	}
	d.line()
}

// line makes eligible who may be considered: not held, begun, whose
// dependencies hold, and who has one of its array's places, which go to those
// who asked first. A job whose dependencies can never hold is rejected.
func (d *dumb) line() {
	for again := true; again; {
		again = false
		var asks []*dumbJob
		for _, j := range d.jobs {
			if j.state != engine.Pending || j.eligible || j.hold || !j.begun {
				continue
			}
			ok, never := d.depends(j)
			switch {
			case never:
				d.reject(j, engine.NeverReady)
				return // it has looked at everybody else
			case !ok:
			case j.Array == nil || j.Array.Cap == 0 || j.inArray:
				j.eligible = true
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
	ok = true
	for _, dep := range j.After {
		if dep.Type == cluster.Singleton {
			for _, o := range d.jobs[:j.ID] {
				ok = ok && (o.state == engine.Done || o.User != j.User || o.Name != j.Name)
			}
			continue
		}
		o := d.jobs[dep.Job]
		good := o.reason == engine.Completed
		switch {
		case o.state != engine.Done:
			ok = false
		case dep.Type == cluster.AfterOK && !good, dep.Type == cluster.AfterNotOK && good:
			never = true
		}
	}
	return ok, never
}
