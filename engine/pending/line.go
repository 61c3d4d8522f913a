// Package pending is what waits: the line, in which order jobs of it are considered, and what brings a job into it:
// timers, and the starts and ends of other jobs.
package pending

import (
	"cmp"
	"container/heap"
	"fmt"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
)

// Line is the eligible jobs, in lanes and groups. A lane holds what is never reordered by a job's key: tier, partition
// priority and, where queues matter, the queue. Within a lane, a group holds the jobs of one shape (and one user, where
// users matter): what is refused for its first job is refused for all.
type Line struct {
	World  *sched.World
	Policy sched.Policy
	Heads  sched.HeadKeyer  // nil: Key compares groups, too
	Queues sched.QueueOrder // nil: the policy does not choose among queues
	Jobs   func() []*job.State
	Touch  func(j *job.State) // notes that a job's record changes

	byUser  bool   // jobs of different users are different
	nested  []bool // by queue: not all of its children are leaves
	lanes   []lane
	laneID  map[laneKey]int32
	groups  []Group
	groupID map[groupKey]int32
	n       int          // jobs
	homed   int          // ... that are suspended: only where their memory is will do
	several int          // ... of several task sets, which a start can make fit
	items   []order.Item // memory of Rekey
}

type laneKey struct {
	rank  int8 // 0: waits longer than the starvation bound
	tier  cluster.Tier
	part  int64 // minus the partition's priority tier
	queue int32 // -1: queues do not matter
}

type lane struct {
	laneKey
	groups order.List // by the key of each group's first job
	n      int
}

type groupKey struct {
	lane, shape, user, queue int32
}

// Group is jobs of one lane for which the same is refused.
type Group struct {
	Stuck int64 // claims on devices at which its first job could not even preempt

	groupKey
	jobs  order.List
	head  order.Item // as it is in the lane's list
	inUse bool       // in the lane's list
}

// First returns the number of the group's first job; false: the group is empty.
func (g *Group) First() (int32, bool) {
	it, ok := g.jobs.First()
	return it.ID, ok
}

// Leads reports whether a job is the group's first: what one behind it may not take, which a reservation keeps from
// more than that, says nothing of the group.
func (g *Group) Leads(j *job.State) bool {
	id, ok := g.First()
	return ok && id == int32(j.Spec.ID)
}

// Shape is the shape of all jobs of the group; false: it is one suspended job.
func (g *Group) Shape() (int32, bool) { return g.shape, !g.homed() }

// homed reports whether a suspended job is all of the group.
func (g *Group) homed() bool { return g.shape < 0 }

// Group returns the group of an eligible job. It is valid until another job comes into line.
func (l *Line) Group(j *job.State) *Group { return &l.groups[j.Group] }

// GroupOf returns the group of an item of the line.
func (l *Line) GroupOf(it *order.Item) *Group { return &l.groups[it.Group] }

// Tier is the tier of all jobs of a group.
func (l *Line) Tier(g *Group) cluster.Tier { return l.lanes[g.lane].tier }

// Promoted reports whether the jobs of a group have waited longer than the starvation bound.
func (l *Line) Promoted(g *Group) bool { return l.lanes[g.lane].rank == 0 }

// Len is the number of jobs in line.
func (l *Line) Len() int { return l.n }

// Homed is the number of those that are suspended.
func (l *Line) Homed() int { return l.homed }

// Several is the number of those of several task sets. These are placed one after the other, so that where the first
// goes decides whether the next fits: what another job takes may send the first elsewhere.
func (l *Line) Several() int { return l.several }

// Unstick has the first job of each group be asked again whether it can preempt.
func (l *Line) Unstick() {
	for i := range l.groups {
		l.groups[i].Stuck = -1
	}
}

// SetQueues drops all lanes, which are empty, and takes over what matters in the queue tree of the world.
func (l *Line) SetQueues(byUser bool) {
	if l.n > 0 {
		panic("pending: queues are replaced while jobs are in line")
	}
	l.byUser, l.lanes, l.groups = byUser, nil, nil
	l.laneID, l.groupID = map[laneKey]int32{}, map[groupKey]int32{}
	tree := l.World.Tree
	l.nested = make([]bool, tree.Len())
	for q := range l.nested {
		if parent := tree.Parent(q); parent >= 0 && !tree.Leaf(q) {
			l.nested[parent] = true
		}
	}
}

func (l *Line) laneOf(j *job.State) int32 {
	k := laneKey{rank: 1, tier: j.Spec.Tier, queue: -1}
	if j.Promoted {
		k.rank = 0
	}
	if l.World.QueuesMatter || l.Queues != nil {
		k.queue = j.Queue
	}
	own, _ := l.World.Shapes.PriorityTier(j.Spec.Partitions)
	k.part = -own
	id, ok := l.laneID[k]
	if !ok {
		id = int32(len(l.lanes))
		l.lanes = append(l.lanes, lane{laneKey: k})
		l.laneID[k] = id
	}
	return id
}

func (l *Line) groupOf(j *job.State) int32 {
	k := groupKey{lane: l.laneOf(j), shape: j.Shape, user: -1, queue: -1}
	if j.Home != nil { // only its own devices will do: a group of its own
		k.shape = -1 - int32(j.Spec.ID)
	}
	if l.byUser {
		k.user, k.queue = j.User, j.Queue
	}
	if l.World.QueuesMatter || l.Queues != nil {
		k.queue = j.Queue
	}
	id, ok := l.groupID[k]
	if !ok {
		id = int32(len(l.groups))
		l.groups = append(l.groups, Group{groupKey: k, Stuck: -1})
		l.groupID[k] = id
	}
	return id
}

// Insert makes a job eligible, and reports whether it is the first of its group.
func (l *Line) Insert(j *job.State) (leads bool) {
	j.Group = l.groupOf(j)
	j.Key = l.Item(j)
	j.Eligible = true
	g := l.Group(j)
	g.jobs.Insert(j.Key)
	l.count(j, g, 1)
	if first, _ := g.jobs.First(); first != j.Key {
		return false
	}
	g.Stuck = -1
	l.relist(g)
	return true
}

// Remove takes an eligible job out of its group.
func (l *Line) Remove(j *job.State) {
	j.Eligible = false
	g := l.Group(j)
	if !g.jobs.Remove(j.Key) {
		panic("pending: an eligible job is missing from its group")
	}
	l.count(j, g, -1)
	l.relist(g)
}

func (l *Line) count(j *job.State, g *Group, sign int) {
	l.n += sign
	l.lanes[g.lane].n += sign
	l.homed += sign * count(g.homed())
	l.several += sign * count(l.World.Shapes.At(j.Shape).Several())
}

// SetKey gives an eligible job the key that it had before a restart.
func (l *Line) SetKey(j *job.State, key order.Key) {
	g := l.Group(j)
	g.jobs.Remove(j.Key)
	j.Key.Key = key
	g.jobs.Insert(j.Key)
	l.relist(g)
}

// Item is a waiting job's place in the order.
func (l *Line) Item(j *job.State) order.Item {
	it := order.Item{Submit: j.Spec.Submit, ID: int32(j.Spec.ID), Group: j.Group}
	if !j.Promoted {
		it.Key = l.Policy.Key(l.World.View(), l.World.Job(j))
	}
	return it
}

// relist puts the group where its first job belongs.
func (l *Line) relist(g *Group) {
	la := &l.lanes[g.lane]
	first, ok := g.jobs.First()
	if g.inUse {
		if ok && g.head == l.groupItem(g, first) {
			return
		}
		la.groups.Remove(g.head)
		g.inUse = false
	}
	if ok {
		g.head = l.groupItem(g, first)
		g.inUse = true
		la.groups.Insert(g.head)
	}
}

// groupItem is the group's entry in its lane: that of its first job, with a key evaluated now where the policy says
// that heads must be compared so.
func (l *Line) groupItem(g *Group, first order.Item) order.Item {
	if l.Heads != nil && !l.Promoted(g) {
		first.Key = l.Heads.HeadKey(l.World.View(), l.World.Job(l.Jobs()[first.ID]))
	}
	return first
}

// Rekey evaluates keys again: of the groups' first jobs where the order within a group cannot change (HeadKeyer), else
// of every job.
func (l *Line) Rekey() {
	jobs := l.Jobs()
	for gi := range l.groups {
		g := &l.groups[gi]
		if g.jobs.Len() == 0 || l.Promoted(g) {
			continue
		}
		if l.Heads == nil {
			l.items = g.jobs.Rewrite(l.items, func(old order.Item) order.Item {
				j := jobs[old.ID]
				if it := l.Item(j); it != old {
					l.Touch(j)
					j.Key = it
				}
				return j.Key
			})
		}
		g.Stuck = -1
		l.relist(g)
	}
}

// before orders the next candidates of two lanes: starving jobs, then tiers, then partitions; then jobs within their
// queue's guarantee before borrowers; then the policy's order of queues; then the jobs' own.
func (l *Line) before(a int, ai *order.Item, b int, bi *order.Item) bool {
	la, lb := &l.lanes[a], &l.lanes[b]
	switch {
	case la.tier != lb.tier && (la.tier == cluster.Critical || lb.tier == cluster.Critical):
		return la.tier < lb.tier
	case la.rank != lb.rank:
		return la.rank < lb.rank
	case la.tier != lb.tier:
		return la.tier < lb.tier
	case la.part != lb.part:
		return la.part < lb.part
	}
	if la.queue != lb.queue {
		if l.World.QueuesMatter {
			jobs := l.Jobs()
			ea, eb := l.Entitled(jobs[ai.ID]), l.Entitled(jobs[bi.ID])
			if ea != eb {
				return ea
			}
		}
		if l.Queues != nil {
			if c := l.compareQueues(int(la.queue), int(lb.queue)); c != 0 {
				return c < 0
			}
		}
	}
	if *ai == *bi {
		return a < b
	}
	return ai.Before(bi)
}

// Entitled reports whether a job is within its queue's guarantee.
func (l *Line) Entitled(j *job.State) bool {
	return l.World.Tree.Entitled(int(j.Queue), j.Milli, j.Spec.Tier)
}

// compareQueues compares two queues where their paths part.
func (l *Line) compareQueues(a, b int) int {
	pa, pb := l.World.Tree.Path(a), l.World.Tree.Path(b)
	i := 0
	for i < len(pa) && i < len(pb) && pa[i] == pb[i] {
		i++
	}
	if i == len(pa) || i == len(pb) {
		return 0
	}
	ka, kb := l.Queues.QueueKey(l.World.View(), pa[i]), l.Queues.QueueKey(l.World.View(), pb[i])
	switch {
	case ka < kb:
		return -1
	case ka > kb:
		return 1
	case l.nested[pa[i-1]]: // jobs of leaves in turn of age and whole subtrees by key would be no order at all
		return cmp.Compare(pa[i], pb[i])
	}
	return 0 // equal leaves: the jobs' own order decides
}

// Firsts calls f for the first job of each group.
func (l *Line) Firsts(f func(j *job.State)) {
	for gi := range l.groups {
		if id, ok := l.groups[gi].First(); ok {
			f(l.Jobs()[id])
		}
	}
}

// First is the job that a walk begins with; nil: none is in line.
func (l *Line) First() *job.State {
	best := -1
	var first order.Item
	for li := range l.lanes {
		it, ok := l.lanes[li].groups.First()
		if ok && (best < 0 || l.before(li, &it, best, &first)) {
			best, first = li, it
		}
	}
	if best < 0 {
		return nil
	}
	return l.Jobs()[first.ID]
}

// Order lists the eligible jobs: of each lane the group whose next job is the best, and of the lanes the best, as a
// walk picks them.
func (l *Line) Order() (list []*job.State) {
	lanes := make([]laneLine, len(l.lanes))
	for li := range l.lanes {
		ll := &lanes[li]
		ll.line, ll.lane = l, li
		l.lanes[li].groups.Walk(func(gi order.Item) bool {
			r := rest{}
			l.groups[l.Jobs()[gi.ID].Group].jobs.Walk(func(it order.Item) bool {
				r.jobs = append(r.jobs, l.Jobs()[it.ID])
				return true
			})
			r.rekey(l)
			ll.groups = append(ll.groups, r)
			return true
		})
		heap.Init(ll)
	}
	for {
		best := -1
		for li := range lanes {
			if ll := &lanes[li]; len(ll.groups) > 0 &&
				(best < 0 || l.before(li, &ll.groups[0].head, best, &lanes[best].groups[0].head)) {
				best = li
			}
		}
		if best < 0 {
			return list
		}
		list = append(list, lanes[best].take())
	}
}

// rest is what is left of a group, in order, with the key of its first job.
type rest struct {
	head order.Item
	jobs []*job.State
}

func (r *rest) rekey(l *Line) { r.head = l.groupItem(l.Group(r.jobs[0]), r.jobs[0].Key) }

// laneLine is a heap of a lane's groups.
type laneLine struct {
	line   *Line
	lane   int
	groups []rest
}

// take removes the first job.
func (l *laneLine) take() *job.State {
	r := &l.groups[0]
	j := r.jobs[0]
	if r.jobs = r.jobs[1:]; len(r.jobs) == 0 {
		heap.Pop(l)
		return j
	}
	r.rekey(l.line)
	heap.Fix(l, 0)
	return j
}

func (l *laneLine) Len() int { return len(l.groups) }
func (l *laneLine) Less(a, b int) bool {
	return l.line.before(l.lane, &l.groups[a].head, l.lane, &l.groups[b].head)
}
func (l *laneLine) Swap(a, b int) { l.groups[a], l.groups[b] = l.groups[b], l.groups[a] }
func (l *laneLine) Push(any)      {} // nothing is added
func (l *laneLine) Pop() any {
	l.groups = l.groups[:len(l.groups)-1]
	return nil
}

// Check compares lanes and groups with the eligible jobs: it is slow, and for tests.
func (l *Line) Check() error {
	inGroup := map[int32]int32{} // job to group; looked up only
	perLane, listed := make([]int, len(l.lanes)), make([]int, len(l.lanes))
	for gi := range l.groups {
		g := &l.groups[gi]
		items, err := g.jobs.Items()
		if err != nil {
			return fmt.Errorf("group %d: %w", gi, err)
		}
		perLane[g.lane] += len(items)
		for _, it := range items {
			inGroup[it.ID] = int32(gi)
		}
		if g.inUse != (len(items) > 0) || g.inUse && g.head.ID != items[0].ID {
			return fmt.Errorf("group %d of %d jobs: listed %v as job %d", gi, len(items), g.inUse, g.head.ID)
		}
		listed[g.lane] += count(g.inUse)
	}
	for li := range l.lanes {
		heads, err := l.lanes[li].groups.Items()
		if err != nil || len(heads) != listed[li] || l.lanes[li].n != perLane[li] {
			return fmt.Errorf("lane %d has %d groups and %d jobs, recomputed %d and %d (%w)", li, len(heads),
				l.lanes[li].n, listed[li], perLane[li], err)
		}
		for _, h := range heads {
			if g, ok := inGroup[h.ID]; !ok || l.groups[g].head != h || int(l.groups[g].lane) != li {
				return fmt.Errorf("lane %d lists job %d, which heads no group of it", li, h.ID)
			}
		}
	}
	n, several, homed, groups, lanes := 0, 0, 0, len(l.groups), len(l.lanes)
	for _, j := range l.Jobs() {
		if j == nil || !j.Eligible {
			continue
		}
		n++
		several += count(l.World.Shapes.At(j.Shape).Several())
		homed += count(j.Home != nil)
		if g, ok := inGroup[int32(j.Spec.ID)]; !ok || g != j.Group || g != l.groupOf(j) {
			return fmt.Errorf("job %d is in group %d (%v), belongs to %d or %d", j.Spec.ID, g, ok, j.Group,
				l.groupOf(j))
		}
		if now := l.Item(j); l.World.Traits.Rekey == 0 && j.Key != now {
			return fmt.Errorf("job %d waits at %+v, its key is %+v", j.Spec.ID, j.Key, now)
		}
	}
	if n != l.n || several != l.several || homed != l.homed {
		return fmt.Errorf("%d jobs, %d of several task sets, %d suspended; counted %d, %d and %d", n, several, homed,
			l.n, l.several, l.homed)
	}
	if n != len(inGroup) || groups != len(l.groups) || lanes != len(l.lanes) {
		return fmt.Errorf("%d eligible jobs, in groups %d", n, len(inGroup))
	}
	return nil
}
