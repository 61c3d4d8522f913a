package engine

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/sched"
)

// Pending work is kept in lanes and groups. A lane holds what the engine never
// reorders by a job's key: tier, partition priority and, where queues matter,
// the queue. Within a lane, a group holds the jobs of one shape (and one user,
// where users matter): what is refused for its first job is refused for all.

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

type group struct {
	groupKey
	jobs  order.List
	head  order.Item // as it is in the lane's list
	inUse bool       // in the lane's list
	stuck int64      // claims at which its first job could not even preempt
}

// first reports whether a job is the group's first: what one behind it may not take, which a
// reservation keeps from more than that, says nothing of it.
func (g *group) first(j *job.State) bool {
	it, ok := g.jobs.First()
	return ok && it.ID == int32(j.Spec.ID)
}

// homed reports whether a suspended job is all of the group.
func (g *group) homed() bool { return g.shape < 0 }

func (e *Engine) laneOf(j *job.State) int32 {
	k := laneKey{rank: 1, tier: j.Spec.Tier, queue: -1}
	if j.Promoted {
		k.rank = 0
	}
	if e.limits.byQueue || e.queues != nil {
		k.queue = j.Queue
	}
	for i := range e.parts {
		if e.shapes.PartMask(j.Spec.Partitions)>>i&1 == 1 {
			k.part = min(k.part, -e.parts[i].spec.PriorityTier)
		}
	}
	id, ok := e.laneID[k]
	if !ok {
		id = int32(len(e.lanes))
		e.lanes = append(e.lanes, lane{laneKey: k})
		e.laneID[k] = id
	}
	return id
}

func (e *Engine) groupOf(j *job.State) int32 {
	k := groupKey{lane: e.laneOf(j), shape: j.Shape, user: -1, queue: -1}
	if j.Home != nil { // only its own devices will do: a group of its own
		k.shape = -1 - int32(j.Spec.ID)
	}
	if e.w.Traits.ByUser || e.limits.byUser {
		k.user, k.queue = j.User, j.Queue
	}
	if e.limits.byQueue || e.queues != nil {
		k.queue = j.Queue
	}
	id, ok := e.groupID[k]
	if !ok {
		id = int32(len(e.groups))
		e.groups = append(e.groups, group{groupKey: k, stuck: -1})
		e.groupID[k] = id
	}
	return id
}

// enqueue makes a pending job eligible.
func (e *Engine) enqueue(j *job.State) {
	j.EligibleSince = e.w.Now
	e.lineUp(j)
}

// lineUp is enqueue for a job that was in line already: its age is what it was.
func (e *Engine) lineUp(j *job.State) {
	e.touch(j)
	e.awaitPromotion(j)
	e.ask(j)
	j.Group = e.groupOf(j)
	j.Key = e.pendingItem(j)
	j.Eligible = true
	g := &e.groups[j.Group]
	g.jobs.Insert(j.Key)
	e.pending++
	e.find.Await(j, 1)
	e.homing += count(g.homed())
	e.watchHome(j)
	e.severalSets += count(e.several(j))
	e.lanes[g.lane].n++
	if first, _ := g.jobs.First(); first == j.Key {
		g.stuck = -1
		e.relist(g)
		e.fresh = true
	} else if e.mode >= sched.EASY || e.cfg.Starvation > 0 || e.resv.HasAdvance() {
		e.fresh = true // it may be short enough to backfill
	}
}

// several reports whether a job has several task sets. They are placed one
// after the other, so that where the first goes decides whether the next fits:
// what somebody else takes may send the first elsewhere.
func (e *Engine) several(j *job.State) bool { return e.shapes.At(j.Shape).Several() }

// pendingItem is a waiting job's place in the order.
func (e *Engine) pendingItem(j *job.State) order.Item {
	it := order.Item{Submit: j.Spec.Submit, ID: int32(j.Spec.ID), Group: j.Group}
	if !j.Promoted {
		it.Key = e.cfg.Policy.Key(e.w.View(), e.w.Job(j))
	}
	return it
}

// dequeue takes a job out of its group.
func (e *Engine) dequeue(j *job.State) {
	if !j.Eligible {
		return
	}
	e.touch(j)
	j.Eligible = false
	g := &e.groups[j.Group]
	if !g.jobs.Remove(j.Key) {
		panic("engine: an eligible job is missing from its group")
	}
	e.pending--
	e.find.Await(j, -1)
	e.homing -= count(g.homed())
	e.severalSets -= count(e.several(j))
	e.lanes[g.lane].n--
	e.relist(g)
	e.reshape(j, j.Base)
}

// relist puts the group where its first job belongs.
func (e *Engine) relist(g *group) {
	l := &e.lanes[g.lane]
	first, ok := g.jobs.First()
	if g.inUse {
		if ok && g.head == e.groupItem(g, first) {
			return
		}
		l.groups.Remove(g.head)
		g.inUse = false
	}
	if ok {
		g.head = e.groupItem(g, first)
		g.inUse = true
		l.groups.Insert(g.head)
	}
}

// groupItem is the group's entry in its lane: that of its first job, with a
// key evaluated now where the policy says that heads must be compared so.
func (e *Engine) groupItem(g *group, first order.Item) order.Item {
	if e.heads != nil && e.lanes[g.lane].rank > 0 {
		first.Key = e.heads.HeadKey(e.w.View(), e.w.Job(e.jobs[first.ID]))
	}
	return first
}

// rekey evaluates keys again: of the groups' first jobs where the order within
// a group cannot change (HeadKeyer), else of every pending job.
func (e *Engine) rekey() {
	for gi := range e.groups {
		g := &e.groups[gi]
		if g.jobs.Len() == 0 || e.lanes[g.lane].rank == 0 {
			continue
		}
		if e.heads == nil {
			e.scratch.items = g.jobs.Rewrite(e.scratch.items, func(old order.Item) order.Item {
				j := e.jobs[old.ID]
				if it := e.pendingItem(j); it != old {
					e.touch(j)
					j.Key = it
				}
				return j.Key
			})
		}
		g.stuck = -1
		e.relist(g)
	}
	e.fresh = true
	e.epoch++
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
