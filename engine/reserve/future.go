package reserve

import (
	"cmp"
	"slices"
	"sort"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// Earliest finds the first instant at which a job fits (now: or now), by the expected ends of running jobs and the
// windows so far. The inventory is as before when it returns.
func (b *Book) Earliest(j *job.State, now bool) (Window, bool) {
	s, st := b.World.Shapes.At(j.Shape), b.World.Store
	mark := st.Mark()
	defer func() { st.Rollback(mark) }()
	defer b.Find.Lending.Aside()()
	r := b.anywhere()
	single := s.Min == 1 && len(s.Sets) == 1
	if now {
		r.Reserved = b.limits(j, b.World.Now, false, placement.Future)
		if allocs, ok := b.Find.Place(r, j, s, s.Min); ok {
			return b.windowOf(j, s, b.World.Now, allocs), true
		}
	}
	jobs := b.Around.Jobs()
	tl := b.timeline(jobs)
	b.keepOff.Reset(len(st.Nodes()))
	for c, ok := tl.peek(); ok; c, ok = tl.peek() {
		at := c.at
		near := !single
		for ; ok && c.at == at; c, ok = tl.peek() {
			tl.pop()
			near = b.apply(&c, jobs, &s.Sets[0].Request) || near
		}
		if !near {
			continue
		}
		at = max(at, b.World.Now)
		r.Reserved = b.limits(j, at, true, placement.Future)
		before := st.Mark()
		if at == j.Promise {
			if allocs, ok := b.Find.PlaceAgain(r, j, s); ok {
				return b.windowOf(j, s, at, allocs), true
			}
		}
		if allocs, ok := b.Find.Place(r, j, s, s.Min); ok {
			return b.windowOf(j, s, at, b.spareIdle(r, j, s, allocs, before)), true
		}
	}
	return Window{}, false
}

// spareIdle moves a promise off nodes that are idle already, as far as it can: others may run on these until then, and
// beyond. It places again with as few of the idle nodes as suffice, the first ones.
func (b *Book) spareIdle(r placement.Request, j *job.State, s *shape.Shape, allocs []inventory.Alloc,
	before inventory.Mark) []inventory.Alloc {
	onIdle := slices.ContainsFunc(allocs, func(a inventory.Alloc) bool { return !b.keepOff.Freed(a.Node) })
	if !onIdle || j.Home != nil {
		return allocs
	}
	st := b.World.Store
	st.Rollback(before)
	idle := b.idle[:0]
	for id := range st.Nodes() {
		n := &st.Nodes()[id]
		if n.TakesJobs() && !b.keepOff.Freed(int32(id)) && (n.FreeGPUs() > 0 || n.Spec().GPUs == 0) &&
			s.Any.Has(n.Class()) && s.Reaches(int32(id)) {
			idle = append(idle, int32(id))
		}
	}
	b.idle = idle
	r.Avoid = &b.keepOff
	with := func(k int) bool { // the first k idle nodes may be used
		for i, id := range idle {
			b.keepOff.Avoid(id, i >= k)
		}
		var ok bool
		allocs, ok = b.Find.Place(r, j, s, s.Min)
		return ok
	}
	k := sort.Search(len(idle), func(k int) bool {
		ok := with(k)
		st.Rollback(before)
		return ok
	})
	if !with(k) {
		panic("engine: a promise that fits with every node does not fit with every node")
	}
	return allocs
}

// ending is an instant at which what is free changes.
type ending struct {
	at     cluster.Time
	job    cluster.JobID // ends; or
	window int32         // begins (take) or ends
	take   bool
}

// noWindow marks the beginning or end of an advance reservation.
const noWindow = -1

// timeline goes through the changes of what is free, in order of time: expected ends of jobs (those that are leaving
// have left the inventory already), and the beginnings and ends of reservations.
type timeline struct {
	late  []ending     // overdue jobs, expected to end soon
	extra []ending     // reservations
	ends  *order.List  // of the running jobs; it does not change meanwhile
	at    order.Cursor // in ends
	head  ending       // what is there
	more  bool         // there is something
}

func (b *Book) timeline(jobs []*job.State) timeline {
	now := b.World.Now
	tl := timeline{ends: b.Around.Ends(), late: b.ends[:0]}
	for i := range b.windows {
		w := &b.windows[i]
		w.masks = w.masks[:0] // the last timeline may have been left half-way
		tl.extra = append(tl.extra, ending{at: w.At, job: cluster.NoJob, window: int32(i), take: true},
			ending{at: w.Until, job: cluster.NoJob, window: int32(i)})
	}
	for i := range b.advance { // they hold nothing in the inventory, but what may start changes
		if a := &b.advance[i]; a.end != cluster.Never {
			tl.extra = append(tl.extra, ending{at: max(a.start, now), job: cluster.NoJob, window: noWindow},
				ending{at: a.end, job: cluster.NoJob, window: noWindow})
		}
	}
	for _, id := range b.Around.Moving() {
		tl.extra = append(tl.extra, ending{at: now.Add(b.run(jobs[id])), job: id})
	}
	sortEndings(tl.extra)
	tl.readHead()
	for c, ok := tl.head, tl.more; ok && c.at <= now; c, ok = tl.head, tl.more {
		c.at = b.World.EndOf(jobs[c.job])
		tl.late = append(tl.late, c)
		tl.step()
	}
	sortEndings(tl.late)
	b.ends = tl.late
	return tl
}

// step goes to the next entry of the list of expected ends.
func (tl *timeline) step() {
	tl.at.Next()
	tl.readHead()
}

// readHead reads the entry of the list of expected ends at which it is.
func (tl *timeline) readHead() {
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

// sortEndings sorts by time; at one instant what ends comes before what begins on its devices.
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

// apply moves the tentative inventory past one change; it reports whether a job of one task may fit now where it did
// not before.
func (b *Book) apply(c *ending, jobs []*job.State, r *cluster.Request) bool {
	if c.window == noWindow {
		return true
	}
	if c.job == cluster.NoJob {
		b.applyWindow(&b.windows[c.window], c.take)
		return !c.take
	}
	j, st := jobs[c.job], b.World.Store
	near, allocs := false, j.Allocs
	if j.State == job.Stopping {
		allocs = j.Dest
	}
	st.ReleaseAll(allocs)
	b.Find.Lending.Charge(j, -1)
	for i := range allocs {
		b.keepOff.Free(allocs[i].Node)
		n := &st.Nodes()[allocs[i].Node]
		near = near || n.TakesJobs() && st.Room(n, r, 1) > 0
	}
	return near
}

// applyWindow takes or returns a window's amounts. Which devices it has is open until it starts: amounts are moved by
// count.
func (b *Book) applyWindow(w *Window, take bool) {
	if !take && len(w.masks) == 0 {
		return // it ends as it begins
	}
	for i := range w.nodes {
		p := &w.nodes[i]
		n := &b.World.Store.Nodes()[p.node]
		a := inventory.Alloc{Node: p.node, CPU: p.tookCPU, RAM: p.tookRAM}
		if take {
			a.GPUs = n.PickWhole(min(int(p.tookGPUs), int(n.FreeGPUs())), inventory.AnyDevice)
			w.masks = append(w.masks, a.GPUs)
			b.World.Store.Take(&a)
			continue
		}
		a.GPUs = w.masks[i]
		b.World.Store.Release(&a)
	}
	if !take {
		w.masks = w.masks[:0]
	}
}
