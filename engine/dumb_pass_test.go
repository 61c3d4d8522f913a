package engine_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

func (d *dumb) books() books {
	b := newBooks(d.nodes)
	for _, j := range d.jobs {
		if j.inBooks() {
			b.take(j.allocs)
		}
	}
	return b
}

// order compares pending jobs of a lane: key, submission, number.
func (d *dumb) order(a, b *dumbJob) int {
	ka, kb := d.key(a), d.key(b)
	return cmp.Or(slices.Compare(ka[:], kb[:]), cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
}

// pass considers each pending job once, in order: tier, then key. Jobs of a
// shape that was refused are passed over; a tier in which nothing was waiting,
// or in which all have been looked at, is done with.
func (d *dumb) pass() {
	closed, blocked := map[string]bool{}, map[kind]bool{}
	var last [3]*dumbJob
	var done [3]bool
	for t := range done {
		done[t] = !slices.ContainsFunc(d.jobs, func(j *dumbJob) bool { return j.eligible && int(j.Tier) == t })
	}
	for {
		var next [3]*dumbJob
		for _, j := range d.jobs {
			t := j.Tier
			if !j.eligible || done[t] || closed[j.shape] || last[t] != nil && d.order(j, last[t]) <= 0 {
				continue
			}
			if next[t] == nil || d.order(j, next[t]) < 0 {
				next[t] = j
			}
		}
		for t := range done {
			done[t] = next[t] == nil
		}
		t := slices.IndexFunc(next[:], func(j *dumbJob) bool { return j != nil })
		if t < 0 {
			return
		}
		j := next[t]
		before := *j
		if !d.try(j, blocked) {
			closed[j.shape] = true
			if d.mode == engine.Strict && d.block(j, blocked) {
				return
			}
		}
		last[t] = &before
	}
}

// block closes the kinds of node on which a blocked job could run; true: none
// is left open.
func (d *dumb) block(j *dumbJob, blocked map[kind]bool) bool {
	all := true
	for i := range d.nodes {
		if d.suits(j, i) {
			blocked[d.kind(i)] = true
		}
	}
	for i := range d.nodes {
		all = all && blocked[d.kind(i)]
	}
	return all
}

func (d *dumb) try(j *dumbJob, blocked map[kind]bool) bool {
	b := d.books()
	if allocs := d.place(j, b, blocked); allocs != nil {
		d.book(j, allocs)
		return true
	}
	open := false
	for i := range d.nodes {
		open = open || d.suits(j, i) && !blocked[d.kind(i)]
	}
	return open && d.preempt(j, b, blocked)
}

// preempt takes victims, best first, until the job fits; those who need not
// leave after all stay, the last chosen first.
func (d *dumb) preempt(j *dumbJob, b books, blocked map[kind]bool) bool {
	var gone []*dumbJob
	var allocs []engine.Alloc
	for _, v := range d.victims(j) {
		b.give(v.allocs)
		gone = append(gone, v)
		if allocs = d.place(j, b, blocked); allocs != nil {
			break
		}
	}
	if allocs == nil {
		return false
	}
	b.take(allocs)
	for i := len(gone) - 1; i >= 0; i-- {
		if b.exactly(gone[i].allocs) {
			b.take(gone[i].allocs)
			gone = slices.Delete(gone, i, i+1)
		}
	}
	for _, v := range gone {
		if v.state == engine.Placed {
			d.unplace(v)
		} else {
			d.stop(v, engine.Preempted, j.ID)
		}
	}
	d.book(j, allocs)
	return true
}

// victims are the jobs that come strictly after: of a lower tier, or of the
// same and later in the order of a policy that preempts; only those who hold
// what is needed on nodes that suit, and who have run for as long as is granted
// to all. Best first: the lowest tier, the last in the order, the least lost
// work, the youngest, the highest number.
func (d *dumb) victims(j *dumbJob) (list []*dumbJob) {
	mine := d.first(j)
	for _, v := range d.jobs {
		safe := v.state != engine.Placed && d.now.Sub(v.started) < d.minRuntime && j.Tier != cluster.Critical
		later := d.preempting() && mine < d.listed(v) && (v.state == engine.Placed || mine < d.first(v))
		if v.inBooks() && v.Tier != cluster.Critical && !safe && (v.Tier > j.Tier || v.Tier == j.Tier && later) && d.useful(j, v) {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b *dumbJob) int {
		c := cmp.Compare(b.Tier, a.Tier)
		if c == 0 && d.preempting() {
			c = cmp.Compare(d.listed(b), d.listed(a))
		}
		return cmp.Or(c, cmp.Compare(d.lost(a), d.lost(b)), cmp.Compare(b.started, a.started), cmp.Compare(b.ID, a.ID))
	})
	return list
}

// useful: v holds something that the job needs where the job can run.
func (d *dumb) useful(j, v *dumbJob) bool {
	for _, a := range v.allocs {
		for _, t := range j.Tasks {
			r := t.Request
			if d.suits(j, int(a.Node)) && (r.GPUs > 0 && a.GPUs != 0 || r.CPU > 0 && a.CPU > 0 || r.RAM > 0 && a.RAM > 0) {
				return true
			}
		}
	}
	return false
}

// lost is the device time that a stop wastes: what was computed since the last
// checkpoint, or for standard jobs the cost of writing one, and the restart.
// Best-effort jobs are killed.
func (d *dumb) lost(v *dumbJob) int64 {
	d.accrue(v)
	if v.state == engine.Placed {
		return 0
	}
	c := v.Checkpoint
	lost := v.done - v.saved
	if c.Interval > 0 && !c.None {
		lost = min(lost, v.done%c.Interval)
	}
	if v.Tier == cluster.Standard && !c.None {
		lost = min(lost, c.Cost)
	}
	return d.milli(v) * int64((lost+c.Restart)/time.Millisecond)
}
