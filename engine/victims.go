package engine

import (
	"cmp"

	"github.com/muster-gpu/muster/cluster"
)

// victim is a job that may have to leave.
type victim struct {
	j    *jobState
	key0 int64 // worst first, where the policy preempts by order
	lost int64 // what stopping it wastes
	tier cluster.Tier
	only bool // allowed only while its queue stays at its guarantee, by reclaim or by order
	lend bool // ... by order, of what its queue borrows
	part bool // ... except by part of this one job, where nothing else is left
	swap bool // it is smaller, and of the same queue
}

// fewVictims is how many candidates are looked at first. Where preemption is by
// order alone they are the last in the order; only if those do not suffice is
// everybody who may have to leave looked at.
const fewVictims = 256

// victims are those who may have to leave for a job, best victim first. Where order
// alone decides, and no queue's quota, they come as they are asked for, from the end
// of the order: the first few suffice as a rule, of hundreds.
type victims struct {
	firsts[victim]
	e       *Engine
	j       *jobState
	s       *shape
	key0    int64
	tiers   bool // there are jobs of a lower tier
	reclaim bool // the job is owed what others borrow
	lacks   bool // quotas keep it from starting
	most    int  // so many are looked at, where order alone decides
	next    back
	over    bool // everybody has been looked at
	cut     bool // ... up to most
}

// victims lists who may have to leave for the job. most bounds the list where order
// alone decides. The list is good until the next is made.
func (e *Engine) victims(j *jobState, s *shape, most int) *victims {
	l := &e.scratch.victims
	*l = victims{firsts: firsts[victim]{list: l.list[:0], cmp: l.cmp}, e: e, j: j, s: s, key0: j.key.key[0], lacks: e.lacksQuota(j), most: most, next: e.running.back()}
	l.reclaim = e.limits.byQueue && j.milli > 0 && e.entitled(j) // guarantees are of GPUs: a job without any is owed none
	for t := j.spec.Tier + 1; t <= cluster.BestEffort; t++ {
		l.tiers = l.tiers || e.holding[t] > 0
	}
	if e.traits.Falling {
		l.key0 = addSat(l.key0, int64(e.now))
	}
	if l.cmp == nil {
		l.cmp = l.worstFirst
	}
	if l.tiers || e.limits.byQueue {
		l.rest()
	}
	if l.reclaim {
		l.all() // who borrows most depends on who has been lifted
	}
	return l
}

// has returns one that is not before the i-th in order, the i-th found so far; nil: there are
// no more than i.
func (l *victims) has(i int) *victim {
	for len(l.list) <= i && l.look() {
	}
	if i >= len(l.list) {
		return nil
	}
	return &l.list[i]
}

// all sorts the whole list.
func (l *victims) all() []victim {
	l.rest()
	return l.firsts.all()
}

// rest looks at all that have not been looked at.
func (l *victims) rest() {
	for l.look() {
	}
}

// look goes on until it has found those who come last of all that have not been looked
// at: one, and who is equal to it by the first element of the key. It reports whether
// there may be more.
func (l *victims) look() bool {
	found := len(l.list)
	for at := l.next; !l.over; l.next = at {
		it := at.item()
		switch {
		case it == nil,
			!l.tiers && !l.reclaim && it.key[0] <= l.key0: // those before come even earlier in the order
			l.over = true
			return false
		case !l.tiers && !l.reclaim && len(l.list) >= l.most:
			l.over, l.cut = true, true
			return false
		case len(l.list) > found && it.key[0] != l.list[found].key0:
			return true
		}
		at.move()
		l.take(it)
	}
	return false
}

// take adds a job to the list, if it may have to leave and that helps.
func (l *victims) take(it *item) {
	e := l.e
	v := e.jobs[it.id]
	x, ok := e.mayTake(l.j, v, l.key0, l.reclaim)
	if !ok || !e.useful(l.s, v, l.lacks) {
		return
	}
	x.tier, x.lost = v.tier(), v.lostAt(e.now, e.howToStop(v))
	if e.traits.Preempts {
		x.key0 = it.key[0]
	}
	l.list = append(l.list, x)
}

// worstFirst is the order in which the job looks at its victims.
func (l *victims) worstFirst(a, b *victim) int {
	if a.part != b.part {
		if b.part {
			return -1
		}
		return 1
	}
	if a.tier != b.tier {
		return cmp.Compare(b.tier, a.tier)
	}
	if l.reclaim && a.j.queue != b.j.queue {
		if c := l.e.tree.CompareVictims(int(a.j.queue), int(b.j.queue), int(l.j.queue)); c != 0 {
			return c
		}
	}
	switch {
	case a.key0 != b.key0:
		return cmp.Compare(b.key0, a.key0)
	case a.lost != b.lost:
		return cmp.Compare(a.lost, b.lost)
	case a.j.started != b.j.started:
		return cmp.Compare(b.j.started, a.j.started)
	}
	return cmp.Compare(b.j.spec.ID, a.j.spec.ID)
}
