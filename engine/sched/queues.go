package sched

import (
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/quota"
)

// Tree returns the queue tree. It must not be changed.
func (v View) Tree() *quota.Tree { return v.w.Tree }

// Queue returns the index of the job's queue in the tree.
func (j JobView) Queue() int { return int(j.j.Queue) }

// User returns the dense number of the job's owner.
func (j JobView) User() int { return int(j.j.User) }

// UsedShare returns what the queue holds relative to its capacity, in ppm: its
// guarantee, or its weight where its siblings have no guarantees.
func (v View) UsedShare(q int) int64 {
	t := v.w.Tree
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
func (v View) WeightedUse(q int) int64 { return ppm(v.w.Tree.Used(q), v.w.Tree.Weight(q)) }

// DominantShare returns the queue's largest share of any resource of the
// cluster, divided by its weight (1000: 1), in ppm (DRF; Volcano).
func (v View) DominantShare(q int) int64 {
	cpu, ram := v.w.Oracle.QueueUse(q)
	share := ppm(v.w.Tree.Used(q), v.w.Capacity)
	share = max(share, ppm(cpu, v.w.CPU), ppm(ram, v.w.RAM))
	return share * 1000 / max(1, v.w.Tree.Weight(q))
}

// ppm expresses num/den in parts per million; 0/0 is zero, and any other x/0 is larger than
// everything else.
func ppm(num, den int64) int64 {
	switch {
	case num <= 0:
		return 0
	case den <= 0:
		return 1 << 50
	case num > (1<<62)/job.Million:
		return num / (den/job.Million + 1)
	}
	return num * job.Million / den
}

// FairShare returns the Fair Tree factor of a job's owner in its queue, in ppm: rank / users,
// larger is better. It is computed at each Rekey of the policy and when a user without a rank
// appears.
func (j JobView) FairShare() int64 { return j.w.Oracle.FairShare(j.j) }

// PriorityTier returns the highest priority tier of the job's partitions, and
// the highest of all.
func (j JobView) PriorityTier() (own, most int64) {
	return j.w.Shapes.PriorityTier(j.j.Spec.Partitions)
}
