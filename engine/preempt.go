package engine

import (
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/quota"
)

// Preemption falls out of the order: a job may take devices only from jobs
// that come strictly after it, so a chain of preemptions at one instant always
// descends and ends. Strictly after means: of a lower tier; or in a queue that
// borrows what the job's queue is owed; or, where the policy preempts, with a
// higher first key element in the same tier.

// mayPreempt is a quick necessary condition.
func (e *Engine) mayPreempt(j *job.State) bool {
	if e.bookedJobs() == 0 || e.shapes.At(j.Shape).NoPreempt {
		return false
	}
	return e.limits.byQueue && j.Milli > 0 && e.line.Entitled(j) || e.outranks(j.Spec.Tier)
}

// outranks reports whether a job of the tier may preempt some jobs as they are,
// whatever its queue.
func (e *Engine) outranks(tier cluster.Tier) bool {
	if e.w.Traits.Preempts {
		return true
	}
	for t := tier + 1; t <= cluster.BestEffort; t++ {
		if e.holding[t] > 0 {
			return true
		}
	}
	return false
}

// preemptFor finds the least harmful set of victims whose devices let the job
// start, tells them to leave and places the job on their devices.
func (e *Engine) preemptFor(r placement.Request, j *job.State) (done, straddled bool) {
	s := e.shapes.At(j.Shape)
	way := e.liftFor(r, j, s)
	if !way.ok {
		return false, way.straddled
	}
	lifted, allocs := e.dropBack(j, way.lifted), way.allocs
	for _, v := range lifted {
		e.unlist(v)
	}
	e.st.Commit()
	successors := e.leaveAll(lifted)
	e.epoch++
	for _, v := range lifted {
		if v.State == job.Placed {
			e.forgetPlacement(v)
			e.admit(v)
			continue
		}
		e.markStopping(v, e.howToStop(v), job.Preempted, j.Spec.ID)
	}
	tasks := s.Min
	if j.Home != nil {
		tasks = tasksOf(allocs)
	}
	e.book(j, allocs, tasks)
	for _, successor := range successors {
		e.inherit(successor) // now that it is known what quota is left
	}
	return true, way.straddled
}

// departure is who was lifted for a job, and what it gets.
type departure struct {
	lifted    []*job.State
	allocs    []inventory.Alloc
	ok        bool // it fits
	straddled bool // which of a queue's jobs could leave depended on who left first
}

// liftFor lifts victims until the job fits and leaves it placed, or leaves the
// books as they were.
func (e *Engine) liftFor(r placement.Request, j *job.State, s *shape.Shape) (way departure) {
	straddled := false
	for most := fewVictims; ; most = math.MaxInt {
		victims := e.victims(j, s, most)
		if victims.has(0) == nil {
			return departure{straddled: straddled}
		}
		mark := e.st.Mark()
		way = e.liftUntilFits(r, j, s, victims)
		straddled = straddled || way.straddled
		if way.ok {
			way.straddled = straddled
			return way
		}
		e.st.Rollback(mark)
		if !victims.cut {
			way = e.liftOnNode(r, j, s, victims.all())
			way.straddled = straddled || way.straddled
			return way
		}
	}
}

// liftOnNode tries the victims of one node at a time, for a job of one task.
// Reclaim stops at the victims' guarantees: those that come first in the order
// may be spread over nodes of which none then has room for the whole task.
func (e *Engine) liftOnNode(r placement.Request, j *job.State, s *shape.Shape, all []victim) (way departure) {
	task := &s.Sets[0].Request
	if s.Min != 1 || len(s.Sets) != 1 || task.Fractional() || task.Profile != "" ||
		!slices.ContainsFunc(all, func(x victim) bool { return x.only }) {
		return departure{}
	}
	straddled := false
	var nodes []int32
	on := map[int32][]victim{} // looked up only
	gain := map[int32]int{}    // looked up only
	for i := range all {
		for _, a := range all[i].j.Allocs {
			if on[a.Node] == nil {
				nodes = append(nodes, a.Node)
			}
			if l := on[a.Node]; len(l) == 0 || l[len(l)-1].j != all[i].j {
				on[a.Node] = append(l, all[i])
			}
			gain[a.Node] += popcount(a.GPUs)
		}
	}
	for _, id := range nodes {
		n := &e.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) || !s.Reaches(id) || int(n.FreeGPUs())+gain[id] < task.GPUs {
			continue
		}
		mark := e.st.Mark()
		way = e.liftUntilFits(r, j, s, &victims{Firsts: order.Firsts[victim]{List: on[id], Sorted: len(on[id])}})
		straddled = straddled || way.straddled
		if way.ok {
			way.straddled = straddled
			return way
		}
		e.st.Rollback(mark)
	}
	return departure{straddled: straddled}
}

func (e *Engine) howToStop(v *job.State) job.How {
	how := e.cfg.Stop[v.Spec.Tier].How
	if how == job.Suspend && !e.mayFreeze(v.Allocs) {
		how = job.Checkpoint
	}
	if how == job.Checkpoint && v.Spec.Checkpoint.None {
		return job.Kill
	}
	return how
}

// mayFreeze reports whether the memory of a job can stay on the devices that it holds while
// it is suspended. It would keep a GPU from being partitioned anew, and one on which shares
// under MPS are, or come, has to be MPS' alone (NVIDIA's MPS documentation).
func (e *Engine) mayFreeze(allocs []inventory.Alloc) bool {
	for i := range allocs {
		a := &allocs[i]
		n := &e.st.Nodes()[a.Node]
		for m := a.GPUs; m != 0; m &= m - 1 {
			recut := !n.Stays(bits.TrailingZeros64(m)) && e.st.Classes()[n.Class()].Model().MIG()
			if a.Slots != 0 && recut ||
				a.Slots == 0 && (e.cfg.Spec.Sharing == cluster.MPS || e.cfg.Spec.MIG == cluster.DynamicMIG && recut) {
				return false
			}
		}
	}
	return true
}

// mayTake reports whether the job may take v's devices. If the victim is in
// another queue, that queue keeps its guarantee: what is borrowed may be taken
// by order (lend) or reclaimed, and a job that straddles the guarantee last
// (part). Both are asked again when others have been lifted.
func (e *Engine) mayTake(j, v *job.State, key0 int64, reclaim bool) (x victim, ok bool) {
	if e.safeUntil(j, v) > e.w.Now {
		return x, false
	}
	return e.after(j, v, key0, reclaim)
}

// safeUntil is when v's minimum run time protects it from j no more.
func (e *Engine) safeUntil(j, v *job.State) cluster.Time {
	if v.State == job.Placed || j.Spec.Tier == cluster.Critical {
		return 0
	}
	return v.Started.Add(e.cfg.MinRuntime)
}

// after is mayTake without regard to the minimum run time.
func (e *Engine) after(j, v *job.State, key0 int64, reclaim bool) (x victim, ok bool) {
	x.j = v
	if v.Spec.Tier == cluster.Critical {
		return x, false
	}
	if v.Tier() > j.Spec.Tier {
		return x, true
	}
	if v.Tier() < j.Spec.Tier {
		return x, false
	}
	if e.w.Traits.Preempts && key0 < e.freshKey(v) && !v.Promoted {
		if v.Queue == j.Queue || !e.limits.byQueue {
			x.swap = e.limits.byQueue && v.Milli < j.Milli && j.Spec.Tier != cluster.BestEffort
			return x, true
		}
		x.lend = e.lends(v, j)
	}
	if v.Queue == j.Queue || !reclaim && !x.lend {
		return x, false
	}
	x.only = true
	if x.lend || e.w.Tree.Reclaimable(int(v.Queue), int(j.Queue), v.Milli, j.Milli, j.Spec.Tier) {
		return x, true
	}
	x.part = true
	return x, e.w.Tree.ReclaimableWhole(int(v.Queue), int(j.Queue), j.Milli, j.Spec.Tier)
}

// freshKey is the first element of a holding job's key. Where keys are
// refreshed from time to time only, it is judged as it is now, too: who is taken
// by an old key would take the devices back at once. What has grown meanwhile
// counts from the next refresh on.
func (e *Engine) freshKey(v *job.State) int64 {
	if e.w.Traits.Rerun == 0 || v.State == job.Placed {
		return v.Key.Key[0]
	}
	return min(v.Key.Key[0], e.runItem(v).Key[0])
}

// lacksQuota reports whether quotas keep the job from starting: then the
// departure of others helps wherever they are.
func (e *Engine) lacksQuota(j *job.State) bool {
	return e.limits.byQueue && e.overQuota(j, e.leastMilli(j)).code != notRefused
}

// useful reports whether v's departure can help at all: it holds something that
// the job needs on a node where the job can run, or quota that the job lacks.
func (e *Engine) useful(s *shape.Shape, v *job.State, lacksQuota bool) bool {
	if lacksQuota {
		return true
	}
	for i := range v.Allocs {
		a := &v.Allocs[i]
		class := e.st.Nodes()[a.Node].Class()
		if s.Most.On(a.Node) == 0 {
			continue
		}
		for k := range s.Sets {
			if r := &s.Sets[k].Request; s.Suits[k].Has(class) &&
				(r.GPUs > 0 && a.GPUs != 0 || r.CPU > 0 && a.CPU > 0 || r.RAM > 0 && a.RAM > 0) {
				return true
			}
		}
	}
	return false
}

// liftUntilFits takes victims out of the books, best first, until the job
// fits. What it lifted is returned even if the job does not fit in the end, and
// good until the next call.
func (e *Engine) liftUntilFits(r placement.Request, j *job.State, s *shape.Shape,
	from *victims) (way departure) {
	if !e.enoughWith(s, from) {
		return departure{}
	}
	way.lifted = e.scratch.lifted[:0]
	defer func() { e.scratch.lifted = way.lifted }()
	least := e.leastMilli(j)
	single := s.Min == 1 && len(s.Sets) == 1
	quotaBound := e.lacksQuota(j)
	e.owing = e.owing[:0]
	leaves := func(x *victim) bool {
		v := x.j
		if x.swap && !e.lendsUpTo(v, quota.Root) {
			e.owing = append(e.owing, v)
			single, way.straddled = false, true // the room may be there before the guarantee is
		}
		e.lift(v)
		way.lifted = append(way.lifted, v)
		if quotaBound {
			if e.overQuota(j, least).code != notRefused {
				return false
			}
			quotaBound, single = false, false // now any node may do
		}
		if len(e.owing) > 0 && !e.line.Entitled(j) {
			return false
		}
		if single && !e.roomNear(v, &s.Sets[0].Request) {
			return false
		}
		way.allocs, way.ok = e.find.Place(r, j, s, s.Min)
		return way.ok
	}
	var straddle []int // jobs that now reach below their queue's guarantee: last
	defer func() { way.straddled = way.straddled || len(straddle) > 0 }()
	for i := 0; from.has(i) != nil; i++ {
		x := from.At(i)
		if x.only && !e.stillReclaimable(j, x) {
			straddle = append(straddle, i)
		} else if leaves(x) {
			return way
		}
	}
	for _, i := range straddle {
		x := from.At(i)
		if e.w.Tree.ReclaimableWhole(int(x.j.Queue), int(j.Queue), j.Milli, j.Spec.Tier) && leaves(x) {
			return way
		}
	}
	return way
}

// lends reports whether v's queue, and every queue above it that is not above
// the job's, holds that much more than its guarantee.
func (e *Engine) lends(v, j *job.State) bool {
	// without GPUs it borrows none; jobs could go round in a circle
	return v.Milli > 0 && e.lendsUpTo(v, e.w.Tree.LCA(int(v.Queue), int(j.Queue)))
}

func (e *Engine) lendsUpTo(v *job.State, top int) bool {
	for q := int(v.Queue); q != top; q = e.w.Tree.Parent(q) {
		if e.w.Tree.Borrowed(q) < v.Milli {
			return false
		}
	}
	return true
}

// stillReclaimable asks again, with the victims lifted so far gone.
func (e *Engine) stillReclaimable(j *job.State, x *victim) bool {
	v := x.j
	if x.lend && e.lends(v, j) {
		return true
	}
	if x.part {
		return e.w.Tree.ReclaimableWhole(int(v.Queue), int(j.Queue), j.Milli, j.Spec.Tier)
	}
	return e.w.Tree.Reclaimable(int(v.Queue), int(j.Queue), v.Milli, j.Milli, j.Spec.Tier)
}

// enoughWith is a quick necessary condition: free GPUs and the victims' are
// as many as the job needs at its smallest size.
func (e *Engine) enoughWith(s *shape.Shape, from *victims) bool {
	for i := range s.Sets {
		if r := &s.Sets[i].Request; r.Fractional() || r.Profile != "" {
			return true // several on one GPU
		}
	}
	have := 0
	for ci := range e.st.Classes() {
		if s.Any.Has(int32(ci)) {
			have += e.st.Classes()[ci].Free()
		}
	}
	for i := 0; have < s.GPUs; i++ {
		x := from.has(i)
		if x == nil {
			return false
		}
		have += int(x.j.Devices)
	}
	return true
}

// roomNear reports whether a node that v leaves has room for one task.
func (e *Engine) roomNear(v *job.State, r *cluster.Request) bool {
	for i := range v.Allocs {
		n := &e.st.Nodes()[v.Allocs[i].Node]
		if n.TakesJobs() && e.st.Room(n, r, 1) > 0 {
			return true
		}
	}
	return false
}

func (e *Engine) lift(v *job.State) {
	e.st.ReleaseAll(v.Allocs)
	e.charge(v, -1)
}

// dropBack returns those victims to the books that the job does not need after
// all, the most valuable first; what is left is minimal.
func (e *Engine) dropBack(j *job.State, lifted []*job.State) []*job.State {
	least := e.leastMilli(j)
	for _, v := range lifted {
		v.Lifted = true
	}
	for i := len(lifted) - 1; i >= 0; i-- {
		v := lifted[i]
		if v.Hosted() && e.host(v).Lifted {
			continue // it comes and goes with whom it is beside
		}
		if !e.speeds.BearsAll(v.Allocs) || !e.st.TakeBack(v.Allocs, len(v.Guests) > 0, false) {
			continue
		}
		e.charge(v, 1)
		if e.limits.byQueue && (e.overQuota(j, least).code != notRefused || e.owes(lifted, v) && !e.line.Entitled(j)) {
			e.lift(v)
			continue
		}
		lifted = append(lifted[:i], lifted[i+1:]...)
		v.Lifted = false
	}
	for _, v := range lifted {
		v.Lifted = false
	}
	return lifted
}

// owes reports whether the job takes from its own queue, besides from one job,
// what is not borrowed. It may do that only within the guarantee: else another
// queue would reclaim it, who left would reclaim from others in turn, and so on
// without an end.
func (e *Engine) owes(lifted []*job.State, but *job.State) bool {
	for _, v := range e.owing {
		if v != but && slices.Contains(lifted, v) {
			return true
		}
	}
	return false
}

// limitsChanged makes queues leave what a window's end took from them: first
// what exceeds a limit, then what others borrow of guarantees in force.
func (e *Engine) limitsChanged() {
	e.dropDests(-1, 0)
	for q := e.w.Tree.Len() - 1; q > 0; q-- {
		for e.w.Tree.Excess(q) > 0 && e.dismiss(e.leastIn(q)) {
		}
	}
	for e.w.Tree.Available(quota.Root) < 0 {
		most := -1
		for q := 1; q < e.w.Tree.Len(); q++ {
			if e.w.Tree.Leaf(q) && e.w.Tree.Borrowed(q) > 0 && e.leastIn(q) != nil &&
				(most < 0 || e.w.Tree.Over(q).Cmp(e.w.Tree.Over(most)) > 0) {
				most = q
			}
		}
		if most < 0 || !e.dismiss(e.leastIn(most)) {
			return
		}
	}
}

// dismiss makes a job leave for nobody in particular; false: there is none.
func (e *Engine) dismiss(v *job.State) bool {
	switch {
	case v == nil:
		return false
	case v.State == job.Placed:
		e.unplace(v)
		e.admit(v)
	default:
		e.stop(v, e.howToStop(v), job.Preempted, cluster.NoJob)
	}
	return true
}

// leastIn returns the first job to leave a queue: lowest tier, least lost work.
func (e *Engine) leastIn(q int) *job.State {
	var best *job.State
	var bestLost int64
	e.byKey().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		if v.Spec.Tier == cluster.Critical || v.Milli == 0 || !slices.Contains(e.w.Tree.Path(int(v.Queue)), q) {
			return true
		}
		lost := v.LostAt(e.w.Now, e.howToStop(v))
		if best == nil || v.Tier() > best.Tier() || v.Tier() == best.Tier() && lost < bestLost {
			best, bestLost = v, lost
		}
		return true
	})
	return best
}
