// Package running keeps the jobs that hold devices and were not told to leave: in the order of their keys, by which
// others may take their devices from them, and in that of their expected ends.
package running

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/sched"
)

// Jobs is the jobs that hold devices and were not told to leave, those that still wait for their devices included.
type Jobs struct {
	world   *sched.World
	policy  sched.Policy
	keyer   sched.KeyChanger // nil: keys change with events only
	victims *preempt.Finder
	all     *[]*job.State
	touch   func(j *job.State)

	byKey  lazyList
	byEnd  lazyList // by expected end
	tiers  [3]int   // how many there are, by tier
	placed []*job.State
	times  pending.Timers // of changes of keys

	buf     []order.Item // memory of lists that are made again
	items   []order.Item // memory of rewrites
	changed []*job.State // memory of ChangeKeys
}

// New makes an empty list. Jobs are ranked by victims, all lists the jobs by number, and touch notes that a
// job's record changes.
func New(w *sched.World, policy sched.Policy, victims *preempt.Finder, all *[]*job.State,
	touch func(j *job.State)) Jobs {
	l := Jobs{world: w, policy: policy, victims: victims, all: all, touch: touch}
	l.keyer, _ = policy.(sched.KeyChanger)
	l.times.Holds = func(t *pending.Timer) bool {
		j := (*all)[t.Job]
		return t.Current(j) && t.At == j.NextKey
	}
	return l
}

// lazyList is jobs in some order. It is kept in order while it is read: where jobs come
// and go by the thousand and it is not read, because the ranking of victims says all that passes ask for, it is
// dropped, and made again when it is read next. A list that is always kept is its dumb twin.
type lazyList struct {
	list    order.List
	dropped bool
	unread  int // changes since it was last read
}

func (k *lazyList) insert(it order.Item) {
	if k.unread++; !k.dropped {
		k.list.Insert(it)
	}
}

func (k *lazyList) remove(it order.Item) {
	if k.unread++; !k.dropped {
		k.list.Remove(it)
	}
}

func (k *lazyList) drop() { k.list, k.dropped = order.List{}, true }

func keyOf(j *job.State) order.Item { return j.Key }
func endOf(j *job.State) order.Item { return j.EndKey }

// read makes a list again that was dropped, each job where place says.
func (l *Jobs) read(k *lazyList, place func(j *job.State) order.Item) *order.List {
	if k.unread = 0; k.dropped {
		l.buf = l.ListBooked(slices.Grow(l.buf[:0], l.Count()), place)
		k.list.Fill(l.buf)
		k.dropped = false
	}
	return &k.list
}

// ByKey lists the jobs by their keys.
func (l *Jobs) ByKey() *order.List { return l.read(&l.byKey, keyOf) }

// ByEnd lists the jobs by their expected ends.
func (l *Jobs) ByEnd() *order.List { return l.read(&l.byEnd, endOf) }

// ListBooked appends what place says of each job, in no order.
func (l *Jobs) ListBooked(buf []order.Item, place func(j *job.State) order.Item) []order.Item {
	add := func(it order.Item) bool {
		buf = append(buf, place((*l.all)[it.ID]))
		return true
	}
	if !l.byKey.dropped {
		l.byKey.list.Walk(add)
	} else if !l.victims.Ranked(add) {
		panic("running: the jobs that hold devices are not listed")
	}
	return buf
}

// DropUnread drops the lists that were not read for longer than it takes to make them
// again. The one by keys is dropped only while there is a ranking: it lists the same jobs.
func (l *Jobs) DropUnread() {
	worth := l.Count() + preempt.LargeLevel
	switch l.victims.Mode {
	case preempt.RankAlways:
		worth = 0
	case preempt.RankNever:
		return
	case preempt.RankIfWorth:
	}
	if ranked, _ := l.victims.Ranks(); ranked && l.byKey.unread > worth {
		l.byKey.drop()
	}
	if l.byEnd.unread > worth {
		l.byEnd.drop()
	}
}

// Dropped reports which lists are not kept at present.
func (l *Jobs) Dropped() (byKey, byEnd bool) { return l.byKey.dropped, l.byEnd.dropped }

// Count is how many jobs there are.
func (l *Jobs) Count() int { return l.tiers[0] + l.tiers[1] + l.tiers[2] }

// Booked counts the jobs by tier.
func (l *Jobs) Booked() *[3]int { return &l.tiers }

// Placed lists the jobs that wait for their devices, in no order. It is valid until the next change.
func (l *Jobs) Placed() []*job.State { return l.placed }

// Started lists the jobs that do not wait for their devices, by number.
func (l *Jobs) Started() (list []*job.State) {
	l.ByKey().Walk(func(it order.Item) bool {
		if j := (*l.all)[it.ID]; j.State == job.Starting || j.State == job.Running {
			list = append(list, j)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *job.State) int { return int(a.Spec.ID - b.Spec.ID) })
	return list
}

// RunItem is a job's place in the order of victims, as it is now.
func (l *Jobs) RunItem(j *job.State) order.Item {
	it := order.Item{Key: l.policy.Key(l.world.View(), l.world.Job(j)), Submit: j.Spec.Submit, ID: int32(j.Spec.ID)}
	if l.world.Traits.Falling {
		it.Key[0] = order.AddSat(it.Key[0], int64(l.world.Now))
	}
	return it
}

// Add lists a job that has got devices.
func (l *Jobs) Add(j *job.State) {
	l.touch(j)
	j.Key = l.RunItem(j)
	j.EndKey = order.Item{Key: order.Key{int64(l.world.EndOf(j))}, ID: int32(j.Spec.ID)}
	l.victims.Rank(j)
	l.victims.Came(j)
	l.insert(j)
}

func (l *Jobs) insert(j *job.State) {
	l.byKey.insert(j.Key)
	l.byEnd.insert(j.EndKey)
	l.tiers[j.Tier()]++
	if j.State == job.Placed {
		l.placed = append(l.placed, j)
		j.InPlaced = int32(len(l.placed))
	}
}

// Remove takes a job out, before its key, its tier or its state changes.
func (l *Jobs) Remove(j *job.State) {
	l.touch(j)
	l.victims.Unrank(j)
	l.byKey.remove(j.Key)
	l.byEnd.remove(j.EndKey)
	l.tiers[j.Tier()]--
	if j.InPlaced > 0 {
		last := l.placed[len(l.placed)-1]
		l.placed[j.InPlaced-1], last.InPlaced = last, j.InPlaced
		l.placed, j.InPlaced = l.placed[:len(l.placed)-1], 0
	}
}

// Restore gives a listed job the key and the expected end that it had.
func (l *Jobs) Restore(j *job.State, key order.Key, end int64) {
	l.Remove(j)
	j.Key.Key, j.EndKey.Key[0] = key, end
	l.insert(j)
}

// Update books a change of a job's key and of its expected end.
func (l *Jobs) Update(j *job.State) {
	l.touch(j)
	if it := l.RunItem(j); it != j.Key {
		l.victims.Unrank(j)
		l.byKey.remove(j.Key)
		j.Key = it
		l.byKey.insert(it)
		l.victims.Rank(j)
	}
	l.victims.Came(j)
	l.SetEnd(j, int64(l.world.EndOf(j)))
	l.Watch(j)
}

// UpdateAimed books that the keys of those of these jobs may be others that hold devices. After a new plan that is
// often all that do.
func (l *Jobs) UpdateAimed(aimed []*job.State) {
	if 8*len(aimed) < l.Count() {
		for _, j := range aimed {
			if j.Booked() && l.RunItem(j) != j.Key {
				l.Update(j)
			}
		}
		return
	}
	l.rewriteKeys(func(j *job.State) {
		l.SetEnd(j, int64(l.world.EndOf(j)))
		l.Watch(j)
	})
}

// UpdateKeys evaluates the keys of all jobs again.
func (l *Jobs) UpdateKeys() { l.rewriteKeys(func(*job.State) {}) }

// rewriteKeys evaluates the keys of all jobs again; changed hears of each whose key is another.
func (l *Jobs) rewriteKeys(changed func(j *job.State)) {
	l.victims.Restart()
	l.items = l.ByKey().Rewrite(l.items, func(old order.Item) order.Item {
		j := (*l.all)[old.ID]
		if it := l.RunItem(j); it != old {
			l.touch(j)
			j.Key = it
			changed(j)
		}
		return j.Key
	})
}

// SetEnd lists a job as ending then.
func (l *Jobs) SetEnd(j *job.State, at int64) {
	if at == j.EndKey.Key[0] {
		return
	}
	l.byEnd.remove(j.EndKey)
	j.EndKey.Key[0] = at
	l.byEnd.insert(j.EndKey)
}

// RefreshEnds gives overdue jobs a new expected end: they are expected for
// another twentieth of their run, so each is listed again a few times only.
func (l *Jobs) RefreshEnds() {
	now := l.world.Now
	for it, ok := l.ByEnd().First(); ok && cluster.Time(it.Key[0]) <= now; it, ok = l.ByEnd().First() {
		j := (*l.all)[it.ID]
		l.byEnd.remove(it)
		j.EndKey.Key[0] = int64(max(l.world.EndOf(j), now+1))
		l.byEnd.insert(j.EndKey)
	}
}

// Watch has ChangeKeys look at a job that computes when its key changes by itself.
func (l *Jobs) Watch(j *job.State) {
	if l.keyer == nil {
		return
	}
	if at := l.keyer.NextChange(l.world.View(), l.world.Job(j)); at != j.NextKey || at <= l.world.Now {
		j.NextKey = at
		l.times.Set(at, pending.KeyDue, j)
	}
}

// WatchAll is Watch for all jobs that have started.
func (l *Jobs) WatchAll() {
	l.ByKey().Walk(func(it order.Item) bool {
		if j := (*l.all)[it.ID]; j.State != job.Placed {
			l.Watch(j)
		}
		return true
	})
}

// NextKeyChange is when a job's key changes next by itself.
func (l *Jobs) NextKeyChange() cluster.Time { return l.times.At() }

// ChangeKeys evaluates the keys that change now, and returns how many do.
func (l *Jobs) ChangeKeys() (n int) {
	for due := l.times.Due(l.world.Now); len(due) > 0; due = l.times.Due(l.world.Now) {
		changed := l.changed[:0]
		for i := range due {
			j := (*l.all)[due[i].Job]
			if l.times.Holds(&due[i]) && (j.State == job.Running || j.State == job.Starting) {
				j.NextKey = 0 // should there be a second such timer, it is void
				changed = append(order.Double(changed), j)
			}
		}
		l.victims.Rerank(len(changed), func() {
			for _, j := range changed {
				l.Update(j)
			}
		})
		n += len(changed)
		l.changed = changed
	}
	return n
}

// contents returns the items of a list, or what it would be made of, without reading it.
func (l *Jobs) contents(k *lazyList, place func(j *job.State) order.Item) ([]order.Item, error) {
	if !k.dropped {
		return k.list.Items()
	}
	if k.list.Len() > 0 {
		return nil, fmt.Errorf("it was dropped, and has %d jobs", k.list.Len())
	}
	return l.ListBooked(nil, place), nil
}

// Check compares the lists with the jobs.
func (l *Jobs) Check() error {
	if ranked, _ := l.victims.Ranks(); l.byKey.dropped && !ranked {
		return fmt.Errorf("the jobs with devices are listed nowhere")
	}
	run, err := l.contents(&l.byKey, keyOf)
	if err != nil {
		return fmt.Errorf("list by key: %w", err)
	}
	ends, err := l.contents(&l.byEnd, endOf)
	if err != nil {
		return fmt.Errorf("list of ends: %w", err)
	}
	inRun, inEnds := map[order.Item]bool{}, map[order.Item]bool{} // looked up only
	for i := range run {
		inRun[run[i]] = true
	}
	for i := range ends {
		inEnds[ends[i]] = true
	}
	n, tiers := 0, [3]int{}
	for _, j := range *l.all {
		if j == nil || !j.Booked() {
			continue
		}
		n++
		tiers[j.Tier()]++
		if err := l.checkJob(j); err != nil {
			return fmt.Errorf("job %d (%s) %w", j.Spec.ID, j.State, err)
		}
		if !inRun[j.Key] || !inEnds[j.EndKey] || j.Key.ID != int32(j.Spec.ID) || j.EndKey.ID != int32(j.Spec.ID) {
			return fmt.Errorf("job %d (%s) is not in the lists of jobs with devices", j.Spec.ID, j.State)
		}
	}
	if err := l.victims.Check(n); err != nil {
		return err
	}
	if n != len(run) || n != len(ends) || tiers != l.tiers {
		return fmt.Errorf("%d jobs with devices (%v by tier); lists have %d and %d (%v)", n, tiers, len(run), len(ends),
			l.tiers)
	}
	return nil
}

func (l *Jobs) checkJob(j *job.State) error {
	if (j.InPlaced > 0) != (j.State == job.Placed) || j.InPlaced > 0 && l.placed[j.InPlaced-1] != j {
		return fmt.Errorf("has place %d among %d jobs that wait for their devices", j.InPlaced, len(l.placed))
	}
	if j.Demoted && (j.Spec.Tier == cluster.Critical || j.State == job.Placed) {
		return fmt.Errorf("of tier %s is demoted", j.Spec.Tier)
	}
	if l.keyer == nil || j.State == job.Placed {
		return nil
	}
	if at := l.keyer.NextChange(l.world.View(), l.world.Job(j)); at != j.NextKey {
		return fmt.Errorf("changes its key at %v; it is watched for %v", at, j.NextKey)
	}
	return nil
}
