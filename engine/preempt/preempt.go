package preempt

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/speed"
	"github.com/muster-gpu/muster/quota"
)

// Preemption falls out of the order: a job may take devices only from jobs
// that come strictly after it, so a chain of preemptions at one instant always
// descends and ends. Strictly after means: of a lower tier; or in a queue that
// borrows what the job's queue is owed; or, where the policy preempts, with a
// higher first key element in the same tier.

// Finder finds the jobs that leave for another. There is one search at a time.
type Finder struct {
	Mode Mode // whether jobs are ranked

	rules   Rules
	places  *placement.Finder
	world   *sched.World
	st      *inventory.Store
	speeds  *speed.Book
	limits  *limits.Book
	around  Around
	ranking ranking
	tail    tail
	owing   []*job.State // of the last search: removed jobs of the job's own queue that do not borrow
	scratch struct {
		victims victims
		removed []*job.State
		booked  []order.Item
		steady  []order.Item
		growing []order.Item
	}
}

// Rules are what is configured of preemption.
type Rules struct {
	MinRuntime time.Duration // protects a job after each start
	Suspends   [3]bool       // by tier: jobs are suspended as far as their memory may stay
}

// Around is what a search needs to know of the jobs that hold devices.
type Around interface {
	// RunItem is the place of a job that holds devices in the order of victims, as it is now.
	RunItem(j *job.State) order.Item
	// Booked counts the jobs that hold devices and were not told to leave, by tier.
	Booked() *[3]int
	// ListBooked appends what place says of each of them, in no order.
	ListBooked(buf []order.Item, place func(j *job.State) order.Item) []order.Item
}

// New makes a finder of jobs that leave, where another finder finds places, within what queues may hold.
func New(rules Rules, places *placement.Finder, limit *limits.Book, around Around) Finder {
	return Finder{rules: rules, places: places, world: places.World, st: places.World.Store, speeds: places.Speeds,
		limits: limit, around: around}
}

func (f *Finder) job(id int32) *job.State { return f.places.Around.Jobs()[id] }

// booked counts the jobs that hold devices.
func (f *Finder) booked() int {
	n := f.around.Booked()
	return n[0] + n[1] + n[2]
}

func (f *Finder) entitled(j *job.State) bool {
	return f.world.Tree.Entitled(int(j.Queue), j.Milli, j.Spec.Tier)
}

// May is a quick necessary condition.
func (f *Finder) May(j *job.State) bool {
	if f.booked() == 0 || f.world.Shapes.At(j.Shape).NoPreempt {
		return false
	}
	return f.world.QueuesMatter && j.Milli > 0 && f.entitled(j) || f.Outranks(j.Spec.Tier)
}

// Outranks reports whether a job of the tier may preempt some jobs as they are,
// whatever its queue.
func (f *Finder) Outranks(tier cluster.Tier) bool {
	if f.world.Traits.Preempts {
		return true
	}
	for t := tier + 1; t <= cluster.BestEffort; t++ {
		if f.around.Booked()[t] > 0 {
			return true
		}
	}
	return false
}

// Departure is the jobs that leave for another, and what that gets. Both are valid until the next search.
type Departure struct {
	Jobs      []*job.State
	Allocs    []inventory.Alloc
	Fits      bool
	Straddled bool // which of a queue's jobs could leave depended on which left first
}

// Find finds the least harmful set of victims whose devices let the job start. If it fits, they have released theirs
// and it is placed there, which the caller commits; else the inventory is as it was.
func (f *Finder) Find(r placement.Request, j *job.State, s *shape.Shape) Departure {
	way := f.removeFor(r, j, s)
	if way.Fits {
		way.Jobs = f.dropBack(j, way)
	}
	return way
}

// removeFor removes victims until the job fits and leaves it placed, or leaves the
// books as they were.
func (f *Finder) removeFor(r placement.Request, j *job.State, s *shape.Shape) (way Departure) {
	if f.places.Lending.Servers(j) {
		if way = f.servers(r, j, s); way.Fits {
			return way
		}
	}
	straddled := false
	for most := fewVictims; ; most = math.MaxInt {
		victims := f.victims(j, s, most)
		if victims.has(0) == nil {
			return Departure{Straddled: straddled}
		}
		mark := f.st.Mark()
		way = f.removeUntilFits(r, j, s, victims)
		straddled = straddled || way.Straddled
		if way.Fits {
			way.Straddled = straddled
			return way
		}
		f.st.Rollback(mark)
		if !victims.cut {
			way = f.removeOnNode(r, j, s, victims.all())
			way.Straddled = straddled || way.Straddled
			return way
		}
	}
}

// removeOnNode tries the victims of one node at a time, for a job of one task.
// Reclaim stops at the victims' guarantees: those that come first in the order
// may be spread over nodes of which none then has room for the whole task.
func (f *Finder) removeOnNode(r placement.Request, j *job.State, s *shape.Shape, all []victim) (way Departure) {
	task := &s.Sets[0].Request
	if s.Min != 1 || len(s.Sets) != 1 || task.Fractional() || task.Profile != "" ||
		!slices.ContainsFunc(all, func(x victim) bool { return x.only }) {
		return Departure{}
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
			gain[a.Node] += bits.OnesCount64(a.GPUs)
		}
	}
	for _, id := range nodes {
		n := &f.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) || !s.Reaches(id) || int(n.FreeGPUs())+gain[id] < task.GPUs {
			continue
		}
		mark := f.st.Mark()
		way = f.removeUntilFits(r, j, s, &victims{Firsts: order.Firsts[victim]{List: on[id], Sorted: len(on[id])}})
		straddled = straddled || way.Straddled
		if way.Fits {
			way.Straddled = straddled
			return way
		}
		f.st.Rollback(mark)
	}
	return Departure{Straddled: straddled}
}

// mayTake reports whether the job may take v's devices. If the victim is in
// another queue, that queue keeps its guarantee: what is borrowed may be taken
// by order (lend) or reclaimed, and a job that straddles the guarantee last
// (part). Both are checked again after each removal.
func (f *Finder) mayTake(j, v *job.State, key0 int64, reclaim bool) (x victim, ok bool) {
	if f.safeUntil(j, v) > f.world.Now {
		return x, false
	}
	return f.after(j, v, key0, reclaim)
}

// safeUntil is when v's minimum run time protects it from j no more.
func (f *Finder) safeUntil(j, v *job.State) cluster.Time {
	if v.State == job.Placed || j.Spec.Tier == cluster.Critical {
		return 0
	}
	return v.Started.Add(f.rules.MinRuntime)
}

// after is mayTake without regard to the minimum run time.
func (f *Finder) after(j, v *job.State, key0 int64, reclaim bool) (x victim, ok bool) {
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
	if f.world.Traits.Preempts && key0 < f.FreshKey(v) && !v.Promoted {
		if v.Queue == j.Queue || !f.world.QueuesMatter {
			x.swap = f.world.QueuesMatter && v.Milli < j.Milli && j.Spec.Tier != cluster.BestEffort
			return x, true
		}
		x.lend = f.lends(v, j)
	}
	if v.Queue == j.Queue || !reclaim && !x.lend {
		return x, false
	}
	x.only = true
	if x.lend || f.world.Tree.Reclaimable(int(v.Queue), int(j.Queue), v.Milli, j.Milli, j.Spec.Tier) {
		return x, true
	}
	x.part = true
	return x, f.world.Tree.ReclaimableWhole(int(v.Queue), int(j.Queue), j.Milli, j.Spec.Tier)
}

// FreshKey is the first element of a holding job's key. Where keys are refreshed from time to time only, it is judged
// as it is now, too: a job that lost its devices by an old key would take them back at once. What has grown meanwhile
// counts from the next refresh on.
func (f *Finder) FreshKey(v *job.State) int64 {
	if f.world.Traits.Rerun == 0 || v.State == job.Placed {
		return v.Key.Key[0]
	}
	return min(v.Key.Key[0], f.around.RunItem(v).Key[0])
}

// Useful reports whether v's Departure can help at all: it holds something that
// the job needs on a node where the job can run, or quota that the job lacks.
func (f *Finder) Useful(s *shape.Shape, v *job.State, lacksQuota bool) bool {
	if lacksQuota {
		return true
	}
	for i := range v.Allocs {
		a := &v.Allocs[i]
		class := f.st.Nodes()[a.Node].Class()
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

// removeUntilFits takes victims out of the books, best first, until the job
// fits. What it removed is returned even if the job does not fit in the end, and
// good until the next call.
func (f *Finder) removeUntilFits(r placement.Request, j *job.State, s *shape.Shape,
	from *victims) (way Departure) {
	if !f.enoughWith(s, from) {
		return Departure{}
	}
	way.Jobs = f.scratch.removed[:0]
	defer func() { f.scratch.removed = way.Jobs }()
	single := s.Min == 1 && len(s.Sets) == 1
	quotaBound := f.limits.Lacks(j)
	f.owing = f.owing[:0]
	leaves := func(x *victim) bool {
		v := x.j
		if x.swap && !f.lendsUpTo(v, quota.Root) {
			f.owing = append(f.owing, v)
			single, way.Straddled = false, true // the room may be there before the guarantee is
		}
		f.remove(v)
		way.Jobs = append(way.Jobs, v)
		if quotaBound {
			if f.limits.Lacks(j) {
				return false
			}
			quotaBound, single = false, false // now any node may do
		}
		if len(f.owing) > 0 && !f.entitled(j) {
			return false
		}
		if single && !f.roomNear(v, &s.Sets[0].Request) {
			return false
		}
		way.Allocs, way.Fits = f.places.Place(r, j, s, s.Min)
		return way.Fits
	}
	var straddle []int // jobs that now reach below their queue's guarantee: last
	defer func() { way.Straddled = way.Straddled || len(straddle) > 0 }()
	for i := 0; from.has(i) != nil; i++ {
		x := from.At(i)
		if x.only && !f.stillReclaimable(j, x) {
			straddle = append(straddle, i)
		} else if leaves(x) {
			return way
		}
	}
	for _, i := range straddle {
		x := from.At(i)
		if f.world.Tree.ReclaimableWhole(int(x.j.Queue), int(j.Queue), j.Milli, j.Spec.Tier) && leaves(x) {
			return way
		}
	}
	return way
}

// lends reports whether v's queue, and every queue above it that is not above
// the job's, holds that much more than its guarantee.
func (f *Finder) lends(v, j *job.State) bool {
	// without GPUs it borrows none; jobs could go round in a circle
	return v.Milli > 0 && f.lendsUpTo(v, f.world.Tree.LCA(int(v.Queue), int(j.Queue)))
}

func (f *Finder) lendsUpTo(v *job.State, top int) bool {
	for q := int(v.Queue); q != top; q = f.world.Tree.Parent(q) {
		if f.world.Tree.Borrowed(q) < v.Milli {
			return false
		}
	}
	return true
}

// stillReclaimable checks that again, without the victims removed so far.
func (f *Finder) stillReclaimable(j *job.State, x *victim) bool {
	v := x.j
	if x.lend && f.lends(v, j) {
		return true
	}
	if x.part {
		return f.world.Tree.ReclaimableWhole(int(v.Queue), int(j.Queue), j.Milli, j.Spec.Tier)
	}
	return f.world.Tree.Reclaimable(int(v.Queue), int(j.Queue), v.Milli, j.Milli, j.Spec.Tier)
}

// enoughWith is a quick necessary condition: free GPUs and the victims' are
// as many as the job needs at its smallest size.
func (f *Finder) enoughWith(s *shape.Shape, from *victims) bool {
	for i := range s.Sets {
		if r := &s.Sets[i].Request; r.Fractional() || r.Profile != "" {
			return true // several on one GPU
		}
	}
	have := 0
	for ci := range f.st.Classes() {
		if s.Any.Has(int32(ci)) {
			have += f.st.Classes()[ci].Free()
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
func (f *Finder) roomNear(v *job.State, r *cluster.Request) bool {
	for i := range v.Allocs {
		n := &f.st.Nodes()[v.Allocs[i].Node]
		if n.TakesJobs() && f.st.Room(n, r, 1) > 0 {
			return true
		}
	}
	return false
}

// remove takes a victim out of the books.
func (f *Finder) remove(v *job.State) {
	f.st.ReleaseAll(v.Allocs)
	f.limits.Charge(v, -1)
}

// dropBack returns those victims to the books that the job does not need after
// all, the most valuable first; what is left is minimal.
func (f *Finder) dropBack(j *job.State, way Departure) []*job.State {
	removed, lending := way.Jobs, f.places.Lending
	for i := len(removed) - 1; i >= 0; i-- {
		v := removed[i]
		if v.Hosted() && slices.Contains(removed, f.job(v.GuestOf-1)) {
			continue // it comes and goes with its host
		}
		if !f.speeds.BearsAll(v.Allocs) || !f.st.TakeBack(v.Allocs, len(v.Guests) > 0, false) {
			continue
		}
		f.limits.Charge(v, 1)
		lacks := f.limits.Lacks(j) || lending.Shuts(j, way.Allocs)
		if lacks || f.world.QueuesMatter && f.owes(removed, v) && !f.entitled(j) {
			f.remove(v)
			continue
		}
		removed = append(removed[:i], removed[i+1:]...)
	}
	return removed
}

// owes reports whether the job takes from its own queue, besides from one job,
// what is not borrowed. It may do that only within the guarantee: else another queue would reclaim that, the jobs that
// left would reclaim from others in turn, and so on without an end.
func (f *Finder) owes(removed []*job.State, but *job.State) bool {
	for _, v := range f.owing {
		if v != but && slices.Contains(removed, v) {
			return true
		}
	}
	return false
}

// LeastIn returns the first job to leave a queue: lowest tier, least lost work.
func (f *Finder) LeastIn(q int) *job.State {
	var best *job.State
	var bestLost int64
	f.places.Around.Running().Walk(func(it order.Item) bool {
		v := f.job(it.ID)
		if v.Spec.Tier == cluster.Critical || v.Milli == 0 || !slices.Contains(f.world.Tree.Path(int(v.Queue)), q) {
			return true
		}
		lost := v.LostAt(f.world.Now, f.world.Oracle.HowToStop(v))
		if best == nil || v.Tier() > best.Tier() || v.Tier() == best.Tier() && lost < bestLost {
			best, bestLost = v, lost
		}
		return true
	})
	return best
}

// LeastOn returns the first job to leave a node, but for those that may stay: least lost work.
func (f *Finder) LeastOn(node int32, stays func(v *job.State) bool) *job.State {
	var best *job.State
	var bestLost int64
	f.places.Around.Running().Walk(func(it order.Item) bool {
		v := f.job(it.ID)
		if v.Spec.Tier == cluster.Critical || stays(v) || !inventory.OnNode(v.Allocs, node) {
			return true
		}
		if lost := v.LostAt(f.world.Now, f.world.Oracle.HowToStop(v)); best == nil || lost < bestLost {
			best, bestLost = v, lost
		}
		return true
	})
	return best
}

// LeastBorrower returns the first job to leave the queue that borrows most of those that jobs can leave.
func (f *Finder) LeastBorrower() (least *job.State) {
	tree, most := f.world.Tree, -1
	for q := 1; q < tree.Len(); q++ {
		if !tree.Leaf(q) || tree.Borrowed(q) <= 0 || most >= 0 && tree.Over(q).Cmp(tree.Over(most)) <= 0 {
			continue
		}
		if v := f.LeastIn(q); v != nil {
			most, least = q, v
		}
	}
	return least
}
