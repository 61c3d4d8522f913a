package engine

import (
	"slices"

	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/preempt"
)

// keptList is the jobs that hold devices, in some order. It is kept in order while it is read: where jobs come
// and go by the thousand and it is not read, because the ranking says all that passes ask for, it is dropped,
// and made again when it is read next. A list that is always kept is its dumb twin.
type keptList struct {
	list    order.List
	dropped bool
	unread  int // changes since it was last read
}

func (k *keptList) insert(it order.Item) {
	if k.unread++; !k.dropped {
		k.list.Insert(it)
	}
}

func (k *keptList) remove(it order.Item) {
	if k.unread++; !k.dropped {
		k.list.Remove(it)
	}
}

func (k *keptList) drop() { k.list, k.dropped = order.List{}, true }

// read returns the list of jobs, each where place says. The memory of buf is used.
func (k *keptList) read(e *Engine, buf []order.Item, place func(j *job.State) order.Item) []order.Item {
	if k.unread = 0; !k.dropped {
		return buf
	}
	buf = e.eachBooked(slices.Grow(buf[:0], e.bookedJobs()), place)
	k.list.Fill(buf)
	k.dropped = false
	return buf
}

// byKey lists the jobs that hold devices (and were not told to leave) by their keys.
func (e *Engine) byKey() *order.List {
	e.scratch.booked = e.running.read(e, e.scratch.booked, func(j *job.State) order.Item { return j.Key })
	return &e.running.list
}

// byEnd lists the same jobs by their expected ends.
func (e *Engine) byEnd() *order.List {
	e.scratch.booked = e.ends.read(e, e.scratch.booked, func(j *job.State) order.Item { return j.EndKey })
	return &e.ends.list
}

// eachBooked appends what place says of each job that holds devices, in no order.
func (e *Engine) eachBooked(buf []order.Item, place func(j *job.State) order.Item) []order.Item {
	add := func(it order.Item) bool {
		buf = append(buf, place(e.jobs[it.ID]))
		return true
	}
	if !e.running.dropped {
		e.running.list.Walk(add)
	} else if !e.victims.Ranked(add) {
		panic("engine: the jobs that hold devices are not listed")
	}
	return buf
}

// dropUnread drops the lists of jobs with devices that were not read for longer than it takes to make them
// again. The one by keys is dropped only while there is a ranking: it lists the same jobs.
func (e *Engine) dropUnread() {
	worth := e.bookedJobs() + preempt.LargeLevel
	switch e.victims.Mode {
	case preempt.RankAlways:
		worth = 0
	case preempt.RankNever:
		return
	case preempt.RankIfWorth:
	}
	if ranked, _ := e.victims.Ranks(); ranked && e.running.unread > worth {
		e.running.drop()
	}
	if e.ends.unread > worth {
		e.ends.drop()
	}
}

// bookedJobs counts the jobs that hold devices.
func (e *Engine) bookedJobs() int { return e.holding[0] + e.holding[1] + e.holding[2] }
