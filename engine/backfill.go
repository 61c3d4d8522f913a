package engine

import (
	"cmp"
	"slices"
	"sort"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// Backfill: a blocked job is promised the earliest placement that the expected
// ends of running jobs allow; others may run around it as long as what they
// leave suffices. EASY promises to the first blocked job, conservative to each.

// reservation is a promise made in this pass.
type reservation struct {
	job    cluster.JobID // NoJob: an advance reservation
	at     cluster.Time
	until  cluster.Time
	hold   bool // from now on, until the job fits; at is the earliest that it can
	nodes  []slack
	any    inventory.ClassSet
	within *shape.NodeSet    // nil: all nodes of these classes
	masks  []uint64          // devices that stand for it while the profile is walked
	allocs []inventory.Alloc // as it was planned: scratch memory, good until something else is placed
}

// slack is what others may use of a node from a reservation's start on.
type slack struct {
	node     int32
	gpus     int32 // left beside the reservation
	cpu      cluster.Milli
	ram      cluster.MiB
	tookGPUs int32 // by the reservation itself
	tookCPU  cluster.Milli
	tookRAM  cluster.MiB
}

// limit has a candidate use no more of the node.
func (s *slack) limit(h *placement.Slack) { h.Limit(s.node, s.gpus, s.cpu, s.ram) }

// ending is a time at which the profile changes.
type ending struct {
	at   cluster.Time
	job  cluster.JobID // ends; or
	resv int32         // reservation begins (take) or ends
	take bool
}

// reserved is the limits for a job that starts now; nil: none. They are valid until others are asked for at the same
// depth.
func (e *Engine) reserved(j *job.State, depth placement.Depth) *placement.Slack {
	if len(e.resv) == 0 && len(e.advance) == 0 {
		return nil
	}
	return e.reservedAt(j, e.w.Now, false, depth)
}

// reservedAt is reserved for a run from an instant on; booked says that
// reservations which have begun by then are in the books themselves.
func (e *Engine) reservedAt(j *job.State, from cluster.Time, booked bool, depth placement.Depth) *placement.Slack {
	h := e.find.Slack(depth)
	h.Reset(len(e.st.Nodes()))
	end := from.Add(j.ExpectedRun(e.limitOf(j)))
	met := false
	for i := range e.resv {
		r := &e.resv[i]
		if r.at >= end || r.until <= from || r.job == j.Spec.ID || booked && r.at <= from {
			continue
		}
		met = true
		for k := range r.nodes {
			r.nodes[k].limit(h)
		}
	}
	if met = e.constrainAdvance(h, j, from, end) || met; !met {
		return nil
	}
	return h
}

// consume books a job that started in this pass against the slack of the
// reservations that it meets.
func (e *Engine) consume(j *job.State) {
	if len(e.resv) == 0 {
		return
	}
	e.holdSlack(j, j.Allocs, 1)
}

func popcount(m uint64) (n int) {
	for ; m != 0; m &= m - 1 {
		n++
	}
	return n
}

// reservedFor reports whether a reservation already stands in the job's way:
// EASY makes one for each separate part of the cluster.
func (e *Engine) reservedFor(s *shape.Shape) bool {
	for i := range e.resv {
		if e.meets(s, &e.resv[i]) {
			return true
		}
	}
	return false
}

// reserve promises the job its earliest placement. If there is none in sight
// (running jobs whose end nobody knows), nothing is promised.
func (e *Engine) reserve(j *job.State) {
	r, ok := e.earliest(j, false)
	if e.holdDue(j) && (!ok || e.outOfSight(r.at)) {
		if hold, found := e.holdFor(j); found {
			if e.mode == sched.Conservative && j.Promise != cluster.Never { // its record has the promise
				e.touch(j)
			}
			j.Promise, j.Plan = cluster.Never, nil
			e.resv = append(e.resv, hold)
			return
		}
	}
	if !ok {
		return
	}
	if e.mode == sched.Conservative && (r.at != j.Promise || !slices.Equal(r.allocs, j.Plan)) {
		e.touch(j)
		j.Plan = append(j.Plan[:0], r.allocs...)
	}
	j.Promise = r.at
	for i := range e.resv { // it uses up what was left beside those that begin meanwhile
		if o := &e.resv[i]; r.at < o.at && o.at < r.until {
			o.share(&r)
		}
	}
	e.resv = append(e.resv, r)
}

// share takes what another reservation holds from what is left beside r.
func (r *reservation) share(o *reservation) {
	for i := range r.nodes {
		for k := range o.nodes {
			if s, t := &r.nodes[i], &o.nodes[k]; s.node == t.node {
				s.gpus, s.cpu, s.ram = s.gpus-t.tookGPUs, s.cpu-t.tookCPU, s.ram-t.tookRAM
			}
		}
	}
}

// earliest finds the first time at which the job fits (now, if that is asked,
// or later), going through the
// expected ends of running jobs and the reservations so far. The books are as
// before when it returns.
func (e *Engine) earliest(j *job.State, now bool) (reservation, bool) {
	s := e.shapes.At(j.Shape)
	mark := e.st.Mark()
	defer func() { e.st.Rollback(mark) }()
	r := e.anywhere()
	single := s.Min == 1 && len(s.Sets) == 1
	if now {
		r.Reserved = e.reservedAt(j, e.w.Now, false, placement.Future)
		if allocs, ok := e.find.Place(r, j, s, s.Min); ok {
			return e.promiseOf(j, s, e.w.Now, allocs), true
		}
	}
	tl := e.timeline()
	e.keepOff.Reset(len(e.st.Nodes()))
	for c, ok := tl.peek(); ok; c, ok = tl.peek() {
		at := c.at
		near := !single
		for ; ok && c.at == at; c, ok = tl.peek() {
			tl.pop()
			near = e.applyChange(&c, &s.Sets[0].Request) || near
		}
		if !near {
			continue
		}
		at = max(at, e.w.Now)
		r.Reserved = e.reservedAt(j, at, true, placement.Future)
		before := e.st.Mark()
		if at == j.Promise {
			if allocs, ok := e.find.PlaceAgain(r, j, s); ok {
				return e.promiseOf(j, s, at, allocs), true
			}
		}
		if allocs, ok := e.find.Place(r, j, s, s.Min); ok {
			return e.promiseOf(j, s, at, e.spareIdle(r, j, s, allocs, before)), true
		}
	}
	return reservation{}, false
}

// spareIdle moves a promise off nodes that are idle already, as far as it can:
// they are what others may run on until then, and beyond. It places anew with
// as few of the idle nodes as suffice, the first ones.
func (e *Engine) spareIdle(r placement.Request, j *job.State, s *shape.Shape, allocs []inventory.Alloc,
	before inventory.Mark) []inventory.Alloc {
	uses := false
	for i := range allocs {
		uses = uses || !e.keepOff.Freed(allocs[i].Node)
	}
	if !uses || j.Home != nil {
		return allocs
	}
	e.st.Rollback(before)
	idle := e.scratch.idle[:0]
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		if n.TakesJobs() && !e.keepOff.Freed(int32(id)) && (n.FreeGPUs() > 0 || n.Spec().GPUs == 0) &&
			s.Any.Has(n.Class()) && s.Reaches(int32(id)) {
			idle = append(idle, int32(id))
		}
	}
	e.scratch.idle = idle
	r.Avoid = &e.keepOff
	with := func(k int) bool { // the first k idle nodes may be used
		for i, id := range idle {
			e.keepOff.Avoid(id, i >= k)
		}
		var ok bool
		allocs, ok = e.find.Place(r, j, s, s.Min)
		return ok
	}
	k := sort.Search(len(idle), func(k int) bool {
		ok := with(k)
		e.st.Rollback(before)
		return ok
	})
	if !with(k) {
		panic("engine: a promise that fits with every node does not fit with every node")
	}
	return allocs
}

// noResv marks the beginning or end of an advance reservation.
const noResv = -1

// timeline goes through the changes of what is free, in order of time: expected
// ends of jobs (those that are leaving have left the books already), and the
// beginnings and ends of reservations.
type timeline struct {
	late  []ending     // overdue jobs, expected to end soon
	extra []ending     // reservations
	ends  *order.List  // of the running jobs; it does not change meanwhile
	at    order.Cursor // in ends
	head  ending       // what is there
	more  bool         // there is something
}

func (e *Engine) timeline() timeline {
	tl := timeline{ends: e.byEnd(), late: e.scratch.ends[:0]}
	for i := range e.resv {
		r := &e.resv[i]
		r.masks = r.masks[:0] // the last one may have been left half-way
		tl.extra = append(tl.extra, ending{at: r.at, job: cluster.NoJob, resv: int32(i), take: true},
			ending{at: r.until, job: cluster.NoJob, resv: int32(i)})
	}
	for i := range e.advance { // they hold nothing in the books, but what may start changes
		if a := &e.advance[i]; a.end != cluster.Never {
			tl.extra = append(tl.extra, ending{at: max(a.start, e.w.Now), job: cluster.NoJob, resv: noResv},
				ending{at: a.end, job: cluster.NoJob, resv: noResv})
		}
	}
	for _, id := range e.defrag.movers {
		tl.extra = append(tl.extra, ending{at: e.w.Now.Add(e.jobs[id].ExpectedRun(e.limitOf(e.jobs[id]))), job: id})
	}
	sortEndings(tl.extra)
	tl.look()
	for c, ok := tl.head, tl.more; ok && c.at <= e.w.Now; c, ok = tl.head, tl.more {
		c.at = e.endOf(e.jobs[c.job])
		tl.late = append(tl.late, c)
		tl.step()
	}
	sortEndings(tl.late)
	e.scratch.ends = tl.late
	return tl
}

// step goes to the next entry of the list of expected ends.
func (tl *timeline) step() {
	tl.at.Next()
	tl.look()
}

// look reads the entry of the list of expected ends at which it is.
func (tl *timeline) look() {
	it := tl.ends.Peek(&tl.at)
	if tl.more = it != nil; tl.more {
		tl.head.at, tl.head.job = cluster.Time(it.Key[0]), cluster.JobID(it.ID)
	}
}

// peek returns the next change; at one instant jobs end first.
func (tl *timeline) peek() (ending, bool) {
	c, ok := tl.head, tl.more
	if len(tl.late) > 0 && (!ok || tl.late[0].at <= c.at) {
		c, ok = tl.late[0], true
	}
	if len(tl.extra) > 0 && (!ok || tl.extra[0].at < c.at) {
		return tl.extra[0], true
	}
	return c, ok
}

// pop takes what peek returned.
func (tl *timeline) pop() {
	c, ok := tl.head, tl.more
	late := len(tl.late) > 0 && (!ok || tl.late[0].at <= c.at)
	if late {
		c, ok = tl.late[0], true
	}
	switch {
	case len(tl.extra) > 0 && (!ok || tl.extra[0].at < c.at):
		tl.extra = tl.extra[1:]
	case late:
		tl.late = tl.late[1:]
	default:
		tl.step()
	}
}

// sortEndings sorts by time; at one instant what ends comes before what begins
// on its devices.
func sortEndings(l []ending) {
	slices.SortStableFunc(l, func(a, b ending) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.take == b.take:
			return 0
		case a.take:
			return 1
		}
		return -1
	})
}

// refreshEnds gives overdue jobs a new expected end: they are expected for
// another twentieth of their run, so each is listed again a few times only.
func (e *Engine) refreshEnds() {
	if e.mode < sched.EASY && e.cfg.Starvation == 0 {
		return
	}
	for it, ok := e.byEnd().First(); ok && cluster.Time(it.Key[0]) <= e.w.Now; it, ok = e.byEnd().First() {
		j := e.jobs[it.ID]
		e.ends.remove(it)
		j.EndKey.Key[0] = int64(max(e.endOf(j), e.w.Now+1))
		e.ends.insert(j.EndKey)
	}
}

// applyChange moves the tentative books past one change; it reports whether a
// one-task job may fit now where it did not before.
func (e *Engine) applyChange(c *ending, r *cluster.Request) bool {
	if c.resv == noResv {
		return true
	}
	if c.job == cluster.NoJob {
		e.applyReservation(&e.resv[c.resv], c.take)
		return !c.take
	}
	j := e.jobs[c.job]
	near, allocs := false, j.Allocs
	if j.State == job.Stopping {
		allocs = j.Dest
	}
	e.st.ReleaseAll(allocs)
	for i := range allocs {
		e.keepOff.Free(allocs[i].Node)
		n := &e.st.Nodes()[allocs[i].Node]
		near = near || n.TakesJobs() && e.st.Room(n, r, 1) > 0
	}
	return near
}

// applyReservation takes or returns a reservation's amounts. Which devices is
// open until it starts; so amounts are moved by count.
func (e *Engine) applyReservation(r *reservation, take bool) {
	if !take && len(r.masks) == 0 {
		return // it ends as it begins
	}
	for i := range r.nodes {
		s := &r.nodes[i]
		n := &e.st.Nodes()[s.node]
		a := inventory.Alloc{Node: s.node, CPU: s.tookCPU, RAM: s.tookRAM}
		if take {
			a.GPUs = n.PickWhole(min(int(s.tookGPUs), int(n.FreeGPUs())), inventory.AnyDevice)
			r.masks = append(r.masks, a.GPUs)
			e.st.Take(&a)
			continue
		}
		a.GPUs = r.masks[i]
		e.st.Release(&a)
	}
	if !take {
		r.masks = r.masks[:0]
	}
}

// promiseOf turns a tentative placement into a reservation.
func (e *Engine) promiseOf(j *job.State, s *shape.Shape, at cluster.Time, allocs []inventory.Alloc) reservation {
	r := reservation{job: j.Spec.ID, at: at, until: at.Add(max(1, j.ExpectedRun(e.limitOf(j)))), any: s.Any,
		within: s.Most.Within, allocs: allocs}
	for i := range allocs {
		a := &allocs[i]
		k := -1
		for x := range r.nodes {
			if r.nodes[x].node == a.Node {
				k = x
			}
		}
		if k < 0 {
			k = len(r.nodes)
			r.nodes = append(r.nodes, slack{node: a.Node})
		}
		sl := &r.nodes[k]
		sl.tookGPUs += int32(popcount(a.GPUs))
		sl.tookCPU += a.CPU
		sl.tookRAM += a.RAM
	}
	for i := range r.nodes { // what is left beside it, as the books stand now
		n := &e.st.Nodes()[r.nodes[i].node]
		r.nodes[i].gpus, r.nodes[i].cpu, r.nodes[i].ram = int32(n.FreeGPUs()), n.CPU(), n.RAM()
	}
	return r
}
