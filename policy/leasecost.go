package policy

import (
	"math"
	"math/bits"
	"time"
)

// The cost of starting and stopping under chronus: it is counted in each lease, since a job may be
// moved to make room for larger tasks when one begins. Jobs that make room write their checkpoints,
// then the job starts from its own.

// leaseCosts is the cost of starting and stopping a job, in ns.
type leaseCosts struct {
	lost   int64 // from when there is room until the job computes
	leaves int64 // how long others may have to wait until it has left
}

// reckon sets the costs of a job, and raises the board's wait if the job may be running.
func (b *leaseBoard) reckon(t *booking) {
	c := &t.j.Spec().Checkpoint
	t.lost = int64(b.overhead + max(c.Restart, c.Suspend))
	t.leaves = int64(max(0, t.j.SwitchTakes()-c.Restart))
	if old := t.j.Target(); t.j.Running() || old != nil && !old.Idle {
		b.wait = max(b.wait, t.leaves)
	}
}

// slowed is the job's remaining work plus the time of its periodic checkpoints, in ns.
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

// useful is how long a job computes during a lease, in ns.
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

// allCovered reports whether the leases of all accepted jobs except one suffice.
func (b *leaseBoard) allCovered(but *booking) bool {
	for i := range b.list {
		if t := &b.list[i]; t.accepted && t != but && !b.covers(t, t.leases) {
			return false
		}
	}
	return true
}

// holdBack keeps jobs without a promise from starting if they would take so long to leave that
// accepted jobs could miss their deadlines.
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
