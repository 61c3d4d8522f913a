package policy

import (
	"math"
	"math/bits"
	"time"
)

// What starting and stopping cost, under chronus: in each lease, since a job may be moved out of the way of larger tasks when one
// begins. Whoever has to leave writes its checkpoint, then the job starts and goes on from its own.

// leaseCosts is what starting and stopping a job cost, in ns.
type leaseCosts struct {
	lost   int64 // from when there is room until it computes
	leaves int64 // others may have to wait so long until it has left
}

// reckon finds out what starting and stopping a job costs, and who may have to be waited for: all that may be running.
func (b *leaseBoard) reckon(t *booking) {
	c := &t.j.Spec().Checkpoint
	t.lost = int64(b.overhead + max(c.Restart, c.Suspend))
	t.leaves = int64(max(0, t.j.SwitchTakes()-c.Restart))
	if old := t.j.Target(); t.j.Running() || old != nil && !old.Idle {
		b.wait = max(b.wait, t.leaves)
	}
}

// slowed is what is left of the job, and the time that its periodic checkpoints take meanwhile, in ns.
func (t *booking) slowed() int64 {
	c := &t.j.Spec().Checkpoint
	if c.Interval <= 0 || c.Cost <= 0 || c.None {
		return t.left
	}
	hi, lo := bits.Mul64(uint64(t.left), uint64(c.Interval+c.Cost))
	if hi >= uint64(c.Interval)/4 {
		return math.MaxInt64 / 2
	}
	q, _ := bits.Div64(hi, lo, uint64(c.Interval))
	return int64(q) + 1
}

// useful is how long a job computes in a lease, in ns.
func (b *leaseBoard) useful(t *booking, l int) int64 {
	wait := time.Duration(b.wait + t.lost)
	switch start := b.end.Add(-b.lease); {
	case l > 0:
		return max(0, int64(b.lease-wait))
	case b.begins:
		return max(0, int64(b.end.Sub(b.v.Now())-wait))
	case t.j.Running() && t.j.Started() >= start:
		return max(0, int64(b.end.Sub(max(b.v.Now(), t.j.Started().Add(time.Duration(t.lost))))))
	default: // it may not have started yet
		return max(0, int64(b.end.Sub(max(b.v.Now(), start.Add(wait)))))
	}
}

// allCovered reports whether the leases of all accepted jobs but one suffice.
func (b *leaseBoard) allCovered(but *booking) bool {
	for i := range b.list {
		if t := &b.list[i]; t.accepted && t != but && !b.covers(t, t.leases) {
			return false
		}
	}
	return true
}

// holdBack has jobs without a promise wait that would take so long to leave again that accepted ones could be late.
func (b *leaseBoard) holdBack() {
	for i := range b.list {
		t := &b.list[i]
		if t.leaves <= b.wait || t.j.Running() {
			continue
		}
		wait, short := b.wait, !b.allCovered(nil)
		if b.wait = t.leaves; !short && !b.allCovered(nil) {
			t.late, b.wait = true, wait
		}
	}
}
