package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// Tree returns the queue tree. It must not be changed.
func (v View) Tree() *quota.Tree { return v.e.tree }

// ppm expresses num/den in parts per million; nothing of nothing is zero,
// something of nothing is more than everything.
func ppm(num, den int64) int64 {
	switch {
	case num <= 0:
		return 0
	case den <= 0:
		return 1 << 50
	case num > (1<<62)/million:
		return num / (den/million + 1)
	}
	return num * million / den
}

// UsedShare returns what the queue holds relative to its capacity, in ppm: its
// guarantee, or its weight where its siblings have no guarantees.
func (v View) UsedShare(q int) int64 {
	t := v.e.tree
	if g := t.Guarantee(q); g > 0 {
		return ppm(t.Used(q), g)
	}
	for _, s := range t.Children(max(0, t.Parent(q))) {
		if t.Guarantee(s) > 0 {
			return ppm(t.Used(q), 1) // siblings with a capacity of their own come first
		}
	}
	return v.WeightedUse(q)
}

// WeightedUse returns milli-GPU held per unit of over-quota weight, in ppm.
func (v View) WeightedUse(q int) int64 { return ppm(v.e.tree.Used(q), v.e.tree.Weight(q)) }

// DominantShare returns the queue's largest share of any resource of the
// cluster, divided by its weight (1000: 1), in ppm (DRF; B-volcano).
func (v View) DominantShare(q int) int64 {
	u := &v.e.limits.queues[q]
	share := ppm(v.e.tree.Used(q), v.e.capacity)
	share = max(share, ppm(u.cpu, v.e.totalCPU), ppm(u.ram, v.e.totalRAM))
	return share * 1000 / max(1, v.e.tree.Weight(q))
}

// FairShare returns the Fair Tree factor of a job's owner in its queue, in ppm:
// rank / users, larger is better. It is computed at each Rekey of the policy
// and when a user appears who was not ranked yet.
func (j JobView) FairShare() int64 {
	e := j.e
	e.association(j.j.queue, j.j.user)
	id := e.limits.userID[[2]int32{j.j.queue, j.j.user}]
	if int(id) >= len(e.limits.ranks) {
		e.fairRanks()
		e.limits.rekeyed = -1 // everybody's rank may be another: compare all anew
	}
	return int64(e.limits.ranks[id]) * million / int64(max(1, e.limits.ranked))
}

// Lined returns when the job became eligible in its present wait.
func (j JobView) Lined() cluster.Time { return j.j.lined }

// Age returns how long the job has been eligible in its present wait, as of
// the last Rekey: so that heads listed at different moments can be compared.
func (j JobView) Age() time.Duration {
	at := j.e.now
	if p := cluster.Time(j.e.traits.Rekey); p > 0 {
		at -= at % p
	}
	return max(0, at.Sub(j.j.lined))
}

// PriorityTier returns the highest priority tier of the job's partitions, and
// the highest of all.
func (j JobView) PriorityTier() (own, most int64) {
	mask := j.e.partMask(j.j.spec.Partitions)
	for i := range j.e.parts {
		t := j.e.parts[i].spec.PriorityTier
		most = max(most, t)
		if mask>>i&1 == 1 {
			own = max(own, t)
		}
	}
	return own, most
}

// cpuRAM sums what the job's allocations hold of CPU and RAM.
func (j *jobState) cpuRAM() (cpu cluster.Milli, ram cluster.MiB) {
	for i := range j.allocs {
		cpu += j.allocs[i].CPU
		ram += j.allocs[i].RAM
	}
	return cpu, ram
}

// Stats returns what the engine did so far.
func (e *Engine) Stats() Stats { return e.stats }

// Backfill returns the backfill mode in force.
func (e *Engine) Backfill() Backfill { return e.mode }
