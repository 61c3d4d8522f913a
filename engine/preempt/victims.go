package preempt

import (
	"cmp"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/shape"
)

// victim is a job that may have to leave.
type victim struct {
	j    *job.State
	key0 int64 // worst first, where the policy preempts by order
	lost int64 // what stopping it wastes
	tier cluster.Tier
	only bool // allowed only while its queue stays at its guarantee, by reclaim or by order
	lend bool // ... by order, of what its queue borrows
	part bool // ... except by part of this one job, where nothing else is left
	swap bool // it is smaller, and of the same queue
}

// fewVictims is how many are looked at first where order alone decides, but queues have quotas; only if those, the last
// in the order, do not suffice are all looked at that may have to leave.
const fewVictims = 256

// victims are the jobs that may have to leave for another, best victim first. Where order
// alone decides, and no queue's quota, they come as they are asked for, from the end
// of the order: the first few suffice as a rule, of hundreds.
type victims struct {
	order.Firsts[victim]
	f       *Finder
	j       *job.State
	s       *shape.Shape
	key0    int64
	tiers   bool // there are jobs of a lower tier
	reclaim bool // the job is owed what others borrow
	lacks   bool // quotas keep it from starting
	lazy    bool // they come from the tail
	next    int  // ... so many of it have been looked at
	cut     bool // there may be more
}

// victims lists the jobs that may have to leave for another; most bounds the list (fewVictims). It is valid until the
// next is made.
func (f *Finder) victims(j *job.State, s *shape.Shape, most int) *victims {
	l := &f.scratch.victims
	*l = victims{Firsts: order.Firsts[victim]{List: l.List[:0], Cmp: l.Cmp}, f: f, j: j, s: s, key0: j.Key.Key[0],
		lacks: f.limits.Lacks(j)}
	// guarantees are of GPUs: a job without any is owed none
	l.reclaim = f.world.QueuesMatter && j.Milli > 0 && f.entitled(j)
	for t := j.Spec.Tier + 1; t <= cluster.BestEffort; t++ {
		l.tiers = l.tiers || f.around.Booked()[t] > 0
	}
	if f.world.Traits.Falling {
		l.key0 = order.AddSat(l.key0, int64(f.world.Now))
	}
	if l.Cmp == nil {
		l.Cmp = l.worstFirst
	}
	if l.lazy = !l.tiers && !f.world.QueuesMatter; l.lazy {
		f.rankAgain()
		f.ranking.unasked = 0
		l.next = 0
		return l
	}
	for at := f.places.Around.Running().Reverse(); at.Item() != nil; at.Next() {
		it := at.Item()
		if !l.tiers && !l.reclaim && it.Key[0] <= l.key0 {
			break // those before come even earlier in the order
		}
		if l.cut = !l.tiers && !l.reclaim && len(l.List) >= most; l.cut {
			break
		}
		if x, ok := l.take(f.job(it.ID)); ok {
			l.List = append(l.List, x)
		}
	}
	if l.reclaim {
		l.Firsts.All() // which queue borrows most depends on which jobs have been removed
	}
	return l
}

// has returns a victim that is not before the i-th in order; nil: there are no more than i.
func (l *victims) has(i int) *victim {
	for l.lazy && len(l.List) <= i {
		l.findNext()
	}
	if i >= len(l.List) {
		return nil
	}
	return &l.List[i]
}

// all is the whole list, sorted.
func (l *victims) all() []victim {
	for l.lazy {
		l.findNext()
	}
	return l.Firsts.All()
}

// findNext finds one more.
func (l *victims) findNext() {
	t := &l.f.tail
	for {
		i := t.alive(l.next)
		v := t.at(l.f, i)
		if l.lazy = v != nil && v.key0 > l.key0; !l.lazy {
			return // those before come even earlier in the order
		}
		if l.next = i + 1; v.gone() {
			t.gone[i] = 1
			continue
		}
		if x, ok := l.f.mayTake(l.j, v.j, l.key0, l.reclaim); ok && l.f.Useful(l.s, v.j, l.lacks) {
			x.tier, x.lost, x.key0 = v.tier, v.lost, v.key0
			l.List = append(l.List, x)
			l.Sorted++
			return
		}
	}
}

// take is a job as a victim, if it may have to leave and that helps.
func (l *victims) take(v *job.State) (x victim, ok bool) {
	f := l.f
	x, ok = f.mayTake(l.j, v, l.key0, l.reclaim)
	if !ok || !f.Useful(l.s, v, l.lacks) {
		return x, false
	}
	x.tier, x.lost = v.Tier(), v.LostAt(f.world.Now, f.world.Oracle.HowToStop(v))
	if f.world.Traits.Preempts {
		x.key0 = v.Key.Key[0]
	}
	return x, true
}

// tail is the end of the order of the jobs that hold devices, worst victim first, as far as it has been looked at: one
// preemption is seldom the last of a pass. It is as of the last change of a job that it lists, except that some have
// left meanwhile.
type tail struct {
	list []victim
	// of each in the list, how many from it on have left, as far as is known: they are not looked at again
	gone []int32
	// those of whole levels, as far as levels are listed; of a ranking, only those that are not steady
	levels order.Firsts[victim]
	least  int64         // the last of these levels
	next   int           // so many of them are in the list
	last   order.Item    // of the steady, the last in the list,
	begun  bool          // if any is
	steady order.Reverse // the next of them,
	as     int           // while their list has changed so often
}

// at returns the i-th, which may have left; nil: there are no more.
func (t *tail) at(f *Finder, i int) *victim {
	for i >= len(t.list) {
		if !t.extend(f) {
			return nil
		}
	}
	return &t.list[i]
}

// extend adds the next to the list, of the steady and the others; false: there are no more.
func (t *tail) extend(f *Finder) bool {
	for {
		first := t.nextSteady(f)
		if t.next == len(t.levels.List) {
			if t.listLevel(f, first) {
				continue // some of that may be steady now
			}
			if first == nil {
				return false
			}
		}
		if t.next < len(t.levels.List) {
			x := t.levels.At(t.next)
			var y victim
			if first != nil {
				y = f.victimAt(first)
			}
			if first == nil || worse(x, &y) < 0 {
				t.next++
				t.add(x)
				return true
			}
		}
		t.last, t.begun = *first, true
		t.steady.Next()
		x := f.victimAt(&t.last)
		t.add(&x)
		return true
	}
}

func (t *tail) add(x *victim) {
	t.list, t.gone = append(order.Double(t.list), *x), append(order.Double(t.gone), 0)
}

// alive is the first from the i-th on that is not known to have left. One that has left is skipped together with those
// after it that have, so that all of them cost about as much as each once.
func (t *tail) alive(i int) int {
	for i < len(t.gone) && t.gone[i] > 0 {
		n := t.gone[i]
		if next := i + int(n); next < len(t.gone) {
			t.gone[i] += t.gone[next]
		}
		i += int(n)
	}
	return i
}

// nextSteady is the next of those that are kept in order; nil: there are no more.
func (t *tail) nextSteady(f *Finder) *order.Item {
	r := &f.ranking
	if !r.on {
		return nil
	}
	if !t.begun {
		t.steady = r.steady.Reverse()
	} else if t.as != r.steady.Changes() {
		t.steady = r.steady.Before(&t.last)
	}
	t.as = r.steady.Changes()
	return t.steady.Item()
}

// listLevel lists the next level, unless the first of the steady comes before it; false: there is none.
func (t *tail) listLevel(f *Finder, first *order.Item) bool {
	from := &f.ranking.growing
	if !f.ranking.on {
		from = f.places.Around.Running()
	}
	at := from.Reverse()
	if len(t.levels.List) > 0 {
		at = from.Below(t.least)
	}
	if at.Item() == nil || first != nil && at.Item().Key[0] < first.Key[0] {
		return false
	}
	before := len(t.levels.List)
	var steady []*job.State
	for t.least = at.Item().Key[0]; at.Item() != nil && at.Item().Key[0] == t.least; at.Next() {
		v := f.job(at.Item().ID)
		lost, fixed := f.lossOf(v)
		if fixed && f.ranking.on {
			steady = append(steady, v)
			continue
		}
		t.levels.List = append(t.levels.List, victim{j: v, key0: t.least, tier: v.Tier(), lost: lost})
	}
	if n := len(t.levels.List) - before; n >= LargeLevel {
		f.ranking.listed += n
	}
	for _, v := range steady {
		f.Unrank(v)
		f.Rank(v)
	}
	t.levels.Cmp = worse
	return true
}

// drop has the tail looked at again.
func (t *tail) drop() {
	t.restart()
	t.levels.List, t.levels.Sorted = t.levels.List[:0], 0
}

// restart has the tail put together again from the levels that are listed.
func (t *tail) restart() { t.list, t.gone, t.next, t.begun = t.list[:0], t.gone[:0], 0, false }

// Came notes that a job is in the order of victims now, or has another place there than before.
func (f *Finder) Came(j *job.State) {
	t, steady := &f.tail, f.ranking.on && f.ranking.of(j).list == rankedSteady
	key0 := j.Key.Key[0]
	among := len(t.list) > 0 && key0 >= t.list[len(t.list)-1].key0
	switch {
	case !steady && (among || len(t.levels.List) > 0 && key0 >= t.least):
		t.drop()
	case among:
		t.restart()
	}
}

// gone reports whether a job of the tail has left it.
func (x *victim) gone() bool { return !x.j.Booked() || x.j.Key.Key[0] != x.key0 }

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
	if l.reclaim && a.j.Queue != b.j.Queue {
		if c := l.f.world.Tree.CompareVictims(int(a.j.Queue), int(b.j.Queue), int(l.j.Queue)); c != 0 {
			return c
		}
	}
	return worse(a, b)
}
