package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
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
	case num > (1<<62)/job.Million:
		return num / (den/job.Million + 1)
	}
	return num * job.Million / den
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
// cluster, divided by its weight (1000: 1), in ppm (DRF; Volcano).
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
	e.association(j.j.Queue, j.j.User)
	id := e.limits.userID[[2]int32{j.j.Queue, j.j.User}]
	if int(id) >= len(e.limits.ranks) {
		e.fairRanks()
		e.limits.rekeyed = -1 // everybody's rank may be another: compare all anew
	}
	return int64(e.limits.ranks[id]) * job.Million / int64(max(1, e.limits.ranked))
}

// Lined returns when the job became eligible in its present wait.
func (j JobView) Lined() cluster.Time { return j.j.EligibleSince }

// Age returns how long the job has been eligible in its present wait, as of
// the last Rekey: so that heads listed at different moments can be compared.
func (j JobView) Age() time.Duration {
	at := j.e.now
	if p := cluster.Time(j.e.traits.Rekey); p > 0 {
		at -= at % p
	}
	return max(0, at.Sub(j.j.EligibleSince))
}

// PriorityTier returns the highest priority tier of the job's partitions, and
// the highest of all.
func (j JobView) PriorityTier() (own, most int64) {
	mask := j.e.shapes.PartMask(j.j.Spec.Partitions)
	for i := range j.e.parts {
		t := j.e.parts[i].spec.PriorityTier
		most = max(most, t)
		if mask>>i&1 == 1 {
			own = max(own, t)
		}
	}
	return own, most
}

// Stats returns what the engine did so far.
func (e *Engine) Stats() Stats { return e.stats }

// Backfill returns the backfill mode in force.
func (e *Engine) Backfill() Backfill { return e.mode }

// Targets returns n empty targets for a plan, in memory that the engine uses
// again: a policy has one plan at a time.
func (v View) Targets(n int) []job.Target {
	p := &v.e.plans
	if cap(p.targets) < n {
		p.targets = make([]job.Target, n+n/2)
	}
	clear(p.targets[:n])
	return p.targets[:n]
}

// Scratch returns n zero values, in memory that the engine uses again for the
// next plan.
func Scratch[T any](v View, n int) []T {
	list, ok := v.e.plans.scratch.(*[]T)
	if !ok || cap(*list) < n {
		fresh := make([]T, n, n+n/2)
		v.e.plans.scratch = &fresh
		return fresh
	}
	clear((*list)[:n])
	return (*list)[:n]
}

// Memory is what Scratch is, of whatever kind a policy likes: it comes as the last plan left
// it, so that slices in it can be filled anew. Nothing may depend on what is in it.
func Memory[T any](v View) *T {
	m, ok := v.e.plans.scratch.(*T)
	if !ok {
		m = new(T)
		v.e.plans.scratch = m
	}
	return m
}

// Memo is what the policy's last plan asked to be shown. It must not be changed.
func (v View) Memo() []int64 { return v.e.plans.memo }

// Planned returns when the last plan was made; 0: none was yet.
func (v View) Planned() cluster.Time { return v.e.plans.last }

// Kinds lists the GPU models of the cluster, in the order in which their first
// nodes joined. The list is the engine's: it must not be changed.
func (v View) Kinds() []inventory.Kind { return v.e.st.ListKinds() }

// Speed returns what the scheduler believes of the job's speed with so many
// tasks of its first set on GPUs of a model, in ppm (see Speeds): without any
// knowledge, as the tasks are to those that it asks for.
func (v View) Speed(j JobView, gpu string, tasks int) int64 {
	return v.e.speed(j.j, gpu, tasks)
}

// Measured reports whether anything is known of speeds: else a job is as fast on all GPUs.
func (v View) Measured() bool { return v.e.cfg.Speeds != nil || v.e.paces.revision > 0 }

// Target returns what the last plan gave the job; nil: it was not there.
func (j JobView) Target() *job.Target { return j.j.Target }

// GPU returns the model of the GPUs that the job holds; "" while it waits.
func (j JobView) GPU() string { return j.e.gpuOf(j.j.Allocs) }

// Within reports whether the job holds devices, all on nodes of a partition.
func (j JobView) Within(partition string) bool { return j.e.within(j.j.Allocs, []string{partition}) }

// MayEnter reports whether the job can be told to run on the nodes of a partition
// (Target.Partition): the partition's rules let it in, and the nodes are large enough.
func (j JobView) MayEnter(partition string) bool {
	s := j.e.shapes.Get(j.j.Base)
	return s.Min == s.Max && j.e.admits(partition, j.j.Spec) && j.e.narrowed(j.j.Spec, &job.Target{Partition: partition}, j.j.Base) >= 0
}

// Tasks returns how many tasks of its first set the job has running, 0 while it
// waits; least and most are its own bounds.
func (j JobView) Tasks() (now, least, most int) {
	if j.Running() {
		now = int(j.j.Tasks)
	}
	s := j.e.shapes.Get(j.j.Base)
	return now, int(s.Min), int(s.Max)
}

// GPUs returns the devices that the job takes with so many tasks of its first set.
func (j JobView) GPUs(tasks int) int { return j.e.shapes.Get(j.j.Base).Devices(tasks) }

// Shape is the same number for jobs that ask for the same, in everything that decides
// where they may run.
func (j JobView) Shape() int32 { return j.j.Base }

// Accepts reports whether the job may run on GPUs of the model, and fits nodes
// that have it.
func (j JobView) Accepts(gpu string) bool {
	s := j.e.shapes.At(j.j.Base)
	for ci := range j.e.st.Classes() {
		if s.Any.Has(int32(ci)) && j.e.st.Classes()[ci].Model().Name == gpu {
			return true
		}
	}
	return false
}

// Loses reports whether stopping the job would lose work that it has done: it
// saves nothing when it is told to leave, or takes longer to than it is given. One that
// was found not to (Event.Saves), or that is too slow, loses little if it saves now and then of its own accord.
func (j JobView) Loses() bool {
	switch j.e.howToStop(j.j) {
	case job.Kill:
		return true
	case job.Checkpoint:
		late := j.j.Spec.Checkpoint.Cost > j.e.cfg.Stop[j.j.Spec.Tier].Grace
		return (j.j.IgnoresCheckpoint || late) && j.j.Spec.Checkpoint.Interval == 0 && j.j.Saved == 0
	}
	return false
}
