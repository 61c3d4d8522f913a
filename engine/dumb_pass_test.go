package engine_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/quota"
)

func (d *dumb) books() books {
	b := newBooks(d.nodes)
	b.d = d
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

// lane is jobs whose order only their keys decide: of one tier, and where queues
// matter of one queue.
type lane struct {
	tier  cluster.Tier
	queue string
	shape string // multifactor: only one user's jobs of a shape keep their order
}

func (d *dumb) laneOf(j *dumbJob) lane {
	switch {
	case d.mf != nil:
		return lane{tier: j.Tier, shape: j.shape}
	case d.queued():
		return lane{tier: j.Tier, queue: j.Queue}
	}
	return lane{tier: j.Tier}
}

// pass considers each pending job once. In each lane it goes through the jobs in
// order; jobs of a shape that was refused there are passed over.
func (d *dumb) pass() {
	closed, blocked := map[string]bool{}, map[kind]bool{}
	d.promises, d.passing = nil, true
	defer func() { d.passing = false }()
	last := map[lane]*dumbJob{}
	for {
		next := map[lane]*dumbJob{}
		var heads []*dumbJob
		for _, j := range d.jobs {
			l := d.laneOf(j)
			if !j.eligible || closed[j.shape+j.narrow+j.part] || last[l] != nil && d.order(j, last[l]) <= 0 {
				continue
			}
			if next[l] == nil || d.order(j, next[l]) < 0 {
				next[l] = j
			}
		}
		for _, j := range d.jobs {
			if next[d.laneOf(j)] == j && !slices.ContainsFunc(d.jobs, func(o *dumbJob) bool {
				return next[d.laneOf(o)] == o && o.Tier == j.Tier && (!d.queued() || o.Queue == j.Queue) &&
					d.before(o, j) < 0
			}) {
				heads = append(heads, j)
			}
		}
		j := d.best(heads)
		if j == nil {
			return
		}
		before := *j
		last[d.laneOf(j)] = &before
		switch v := d.try(j, blocked); {
		case v == begun:
			continue
		case d.mode == engine.Conservative && (v == noRoom || v == notBeside) && len(d.promises) < 16 && d.promise(j):
			continue // each blocked job has a promise of its own, also one of the same shape
		case d.mode == engine.EASY && v == noRoom && (!d.stands(j) || d.holdDue(j) && d.openEnded(j)):
			d.promise(j)
		case d.mode == engine.Strict && v == noRoom && d.block(j, blocked):
			return
		case v == notBeside:
			continue // the next of its shape may be shorter
		}
		closed[j.shape+j.narrow+j.part] = true
	}
}

// verdict is what becomes of a job that is considered.
type verdict int

const (
	begun     verdict = iota
	noQuota           // limits, or guarantees of others
	noRoom            // nor may it take enough from others
	notBeside         // only a promise is in its way
)

// block closes the kinds of node on which a blocked job could run; true: none
// is left open.
func (d *dumb) block(j *dumbJob, blocked map[kind]bool) bool {
	all := true
	for i := range d.nodes {
		switch {
		case !d.competes(j, i):
		case j.Nodes != "":
			blocked[kind{node: i + 1}] = true
		default:
			blocked[d.kind(i)] = true
		}
	}
	for i := range d.nodes {
		all = all && blocked[d.kind(i)]
	}
	return all
}

func (d *dumb) try(j *dumbJob, blocked map[kind]bool) verdict {
	b, v, until := d.beside(d.books(), j, d.now, false), noRoom, d.now.Add(d.run(j))
	if d.over(j, nil) {
		v = noQuota
	} else if allocs := d.placeNow(j, b, blocked); allocs != nil {
		d.book(j, allocs)
		d.uses(j, until)
		return begun
	} else if len(b.keep) > 0 && d.place(j, d.books(), blocked) != nil {
		return notBeside
	}
	if d.takes(j, b, blocked) {
		d.uses(j, until)
		return begun
	}
	return v
}

// takes: others have to leave for the job.
func (d *dumb) takes(j *dumbJob, b books, blocked map[kind]bool) bool {
	if j.NoPreempt {
		return false
	}
	list := d.victims(j)
	if !d.looks && slices.ContainsFunc(list, func(x victim) bool { return x.only || x.swap }) {
		return false
	}
	if d.preempt(j, b, blocked, list) {
		return true
	}
	// Reclaim stops at guarantees, so the first victims may be spread over nodes of
	// which none then has room: one node after the other, for a job of one task.
	if j.gang() || partial(&j.Tasks[0].Request) || !slices.ContainsFunc(list, func(x victim) bool { return x.only }) {
		return false
	}
	var seen []int32
	for _, x := range list {
		for _, a := range x.allocs {
			if slices.Contains(seen, a.Node) || d.nodes[a.Node].State != cluster.Up || !d.competes(j, int(a.Node)) {
				continue
			}
			seen = append(seen, a.Node)
			here := slices.DeleteFunc(slices.Clone(list), func(x victim) bool {
				return !slices.ContainsFunc(x.allocs, func(b engine.Alloc) bool { return b.Node == a.Node })
			})
			if d.preempt(j, b, blocked, here) {
				return true
			}
		}
	}
	return false
}

// preempt takes victims, best first, until the job fits and its quota allows it;
// jobs that need not leave after all stay, the last chosen first.
func (d *dumb) preempt(j *dumbJob, b books, blocked map[kind]bool, list []victim) bool {
	b = b.clone()
	var gone []*dumbJob
	var allocs []engine.Alloc
	var owing []*dumbJob // of its own queue, and not borrowed: only within the guarantee
	leaves := func(x victim) bool {
		v := x.dumbJob
		if x.swap && !d.lendsUpTo(v, quota.Root, gone) {
			owing = append(owing, v)
		}
		b.give(v.allocs)
		gone = append(gone, v)
		if d.over(j, gone) || len(owing) > 0 && !d.within(j, gone) {
			return false
		}
		allocs = d.place(j, b, blocked)
		return allocs != nil
	}
	var straddle []victim // jobs that now reach below their queue's guarantee: last
	fits := slices.ContainsFunc(list, func(x victim) bool {
		if x.only && !d.stillMayTake(j, x, gone) {
			straddle = append(straddle, x)
			return false
		}
		return leaves(x)
	}) || slices.ContainsFunc(straddle, func(x victim) bool { return d.straddles(j, x.dumbJob, gone) && leaves(x) })
	if !fits {
		return false
	}
	b.take(allocs)
	for i := len(gone) - 1; i >= 0; i-- {
		rest := slices.Delete(slices.Clone(gone), i, i+1)
		owes := slices.ContainsFunc(rest, func(v *dumbJob) bool { return slices.Contains(owing, v) })
		if b.exactly(gone[i].allocs) && !d.over(j, rest) && (!owes || d.within(j, rest)) {
			b.take(gone[i].allocs)
			gone = rest
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

// victim is a job that may have to leave.
type victim struct {
	*dumbJob
	only, lend, part, swap bool // see mayTake
}

// victims are the jobs that come strictly after, if they hold what is needed on
// nodes that suit, or quota that the job lacks. Best first: those that can leave
// as a whole, the lowest tier, the queue that is furthest above its guarantee,
// the last in the order, the least lost work, the youngest, the highest number.
func (d *dumb) victims(j *dumbJob) (list []victim) {
	for _, v := range d.jobs {
		if v.inBooks() && (d.over(j, nil) || d.useful(j, v)) {
			if x, ok := d.mayTake(j, v); ok {
				list = append(list, x)
			}
		}
	}
	slices.SortFunc(list, func(a, b victim) int {
		c := cmp.Or(yes(a.part)-yes(b.part), cmp.Compare(b.tier(), a.tier()))
		if c == 0 && d.owed(j) && a.Queue != b.Queue {
			l := d.ledger(nil)
			c = l.CompareVictims(l.of(a.dumbJob), l.of(b.dumbJob), l.of(j))
		}
		if c == 0 && d.preempting() {
			c = cmp.Compare(d.listed(b.dumbJob), d.listed(a.dumbJob))
		}
		return cmp.Or(c, cmp.Compare(d.lost(a.dumbJob), d.lost(b.dumbJob)), cmp.Compare(b.started, a.started),
			cmp.Compare(b.ID, a.ID))
	})
	return list
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

// mayTake: of a lower tier; of the same and later in the order of a policy that
// preempts, in the same queue or as far as the other queue borrows (lend); or
// reclaimed from a queue that borrows. Critical jobs never leave, nor, but for
// them, those that have not yet run for as long as is granted to all. only says
// that the queue must stay at its guarantee, part that it does not by this job,
// swap that a larger job of its own queue takes its place.
func (d *dumb) mayTake(j, v *dumbJob) (x victim, ok bool) {
	x.dumbJob = v
	safe := v.state != engine.Placed && d.now.Sub(v.started) < d.minRuntime && j.Tier != cluster.Critical
	if safe || v.Tier == cluster.Critical || v.tier() < j.Tier {
		return x, false
	}
	later := d.preempting() && d.first(j) < d.listed(v) &&
		(v.state == engine.Placed || d.policy != "srsf" || d.first(j) < d.first(v))
	if v.tier() > j.Tier || later && (!d.byQueue() || v.Queue == j.Queue) {
		x.swap = v.tier() == j.Tier && d.byQueue() && d.milli(v) < d.milli(j) && j.Tier != cluster.BestEffort
		return x, true
	}
	x.lend = later && d.lends(j, v, nil)
	if !d.byQueue() || v.Queue == j.Queue || !x.lend && !d.owed(j) {
		return x, false
	}
	x.only = true
	if x.lend || d.reclaimable(j, v, nil) {
		return x, true
	}
	x.part = true
	return x, d.straddles(j, v, nil)
}

// stillMayTake asks again when others are gone.
func (d *dumb) stillMayTake(j *dumbJob, x victim, gone []*dumbJob) bool {
	switch {
	case x.lend && d.lends(j, x.dumbJob, gone):
		return true
	case x.part:
		return d.straddles(j, x.dumbJob, gone)
	}
	return d.reclaimable(j, x.dumbJob, gone)
}

// useful: v holds something that the job needs where the job can run.
func (d *dumb) useful(j, v *dumbJob) bool {
	for _, a := range v.allocs {
		if d.shut(j, int(a.Node)) {
			continue
		}
		for set := range j.Tasks {
			r := j.Tasks[set].Request
			if d.suits(j, set, int(a.Node)) &&
				(r.GPUs > 0 && a.GPUs != 0 || r.CPU > 0 && a.CPU > 0 || r.RAM > 0 && a.RAM > 0) {
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
	if v.Tier == cluster.Standard && !c.None && !v.deaf {
		lost = min(lost, c.Cost)
	}
	return d.milli(v) * int64((lost+c.Restart)/time.Millisecond)
}
