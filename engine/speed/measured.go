package speed

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// slowBelow is the part of what it accepts, in ppm, below which a job counts as too
// slow: measurements are not better than that. So one does too little only if the others
// lose a twentieth of a job's speed more than it does.
const slowBelow = 950_000

// PairRecord is what is left of the speed of jobs of one model beside those of another
// in shares of one GPU, as it was measured, in ppm.
type PairRecord struct {
	Model  string `json:"model"`
	Beside string `json:"beside"`
	Speed  int64  `json:"speed"`
	// a job had to leave because of it: other jobs of the two models do not raise it
	Parted bool `json:"parted,omitempty"`
}

// Company lists the other jobs that compute in shares of the GPUs of which a job has
// shares, also those that are told to leave, by number.
func (b *Book) Company(id cluster.JobID) (ids []cluster.JobID) {
	jobs := b.Jobs()
	if id < 0 || int(id) >= len(jobs) || jobs[id] == nil {
		return nil
	}
	j := jobs[id]
	if !j.Holding() || !j.Spec.Shares() {
		return nil
	}
	found := map[cluster.JobID]bool{}
	for i := range j.Allocs {
		a := &j.Allocs[i]
		n := &b.World.Store.Nodes()[a.Node]
		if a.Tenant == 0 {
			continue
		}
		for _, t := range n.Tenants() {
			if o := b.Jobs()[t.Job-1]; a.GPUs>>t.Device&1 == 1 && o != j && o.State == job.Running {
				found[o.Spec.ID] = true
			}
		}
		for _, id := range n.Stopping() {
			if id != j.Spec.ID && slices.ContainsFunc(b.Jobs()[id].Allocs, func(b inventory.Alloc) bool {
				return b.Tenant != 0 && b.Node == a.Node && b.GPUs&a.GPUs != 0
			}) {
				found[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Kept is the job's speed relative to its speed alone, in ppm; 0: that is not known.
func (b *Book) Kept(j *job.State) int64 {
	alone := j.Solo
	if s := b.World.Speeds; alone == 0 && s != nil {
		alone = s.Speed(j.Spec, inventory.GPUOf(b.World.Store, j.Allocs), int(j.Tasks))
	}
	if alone <= 0 {
		return 0
	}
	return min(j.Rate, 100*alone) * job.Million / alone
}

// TooSlow reports whether a job is measured to be slower than it accepts.
func (b *Book) TooSlow(j *job.State) bool {
	part := b.Kept(j)
	return part > 0 && part < b.Least(j)*slowBelow/job.Million
}

// reported reports whether a job's speed was measured among these others.
func (b *Book) reported(j *job.State, among []cluster.JobID) bool {
	return slices.Equal(among, j.Among) && b.Kept(j) > 0
}

// seen is what is left of a job's speed among others, in ppm: as it was measured among
// these, else as it is believed.
func (b *Book) seen(j *job.State, among []cluster.JobID) int64 {
	if b.reported(j, among) {
		return min(b.Kept(j), job.Million)
	}
	return b.Among(j, b.JobsOf(among)...)
}

// takes is what a job leaves of the speed of another that it is beside, in ppm: what
// the others there do not account for.
func (b *Book) takes(j, o *job.State) int64 {
	among := b.Company(o.Spec.ID)
	rest := slices.DeleteFunc(b.JobsOf(among), func(x *job.State) bool { return x == j })
	return min(b.seen(o, among)*job.Million/max(1, b.Among(o, rest...)), job.Million)
}

// Harms reports whether a job does less than those beside it lose by it, each in units
// of its speed alone: without it more would get done.
func (b *Book) Harms(j *job.State) bool {
	among, lost := b.Company(j.Spec.ID), int64(0)
	for _, o := range b.JobsOf(among) {
		lost += job.Million - b.takes(j, o)
	}
	return b.seen(j, among) < lost-(job.Million-slowBelow)
}

// Correct moves what is believed of a pair towards what is measured. Differences of
// less than a hundredth are ignored: each change makes all waiting jobs be considered again.
func (b *Book) Correct(j, o *job.State, part int64) (changed bool) {
	key := [2]string{j.Spec.Model, o.Spec.Model}
	if key[0] == "" || key[1] == "" {
		return false
	}
	assumed := b.between.assumed(key)
	was, ok := b.between.measured[key]
	if !ok {
		was = assumed
	}
	v := min(max(was+(part-was)/5, min(was, assumed/2)), max(was, 2*assumed))
	if d := v - was; d >= job.Million/100 && !b.between.parted[key] || -d >= job.Million/100 {
		b.between.learn(key, v)
		return true
	}
	return false
}

// Blame attributes the slowness of a job that the others do not account for: to the last that
// came or, if that is the job itself, to the one that is believed to slow it most.
func (b *Book) Blame(j, last *job.State, among []cluster.JobID) {
	if last == j {
		last = b.worstFor(j, among)
	}
	rest := slices.DeleteFunc(b.JobsOf(among), func(o *job.State) bool { return o == last })
	part := b.seen(j, among) * job.Million / max(1, b.Among(j, rest...))
	b.between.blame(j, last, min(part, b.Left(j, last)))
}

// BlameAll books what a job and those beside it were measured to do to each other.
func (b *Book) BlameAll(j *job.State) {
	among := b.Company(j.Spec.ID)
	others := b.JobsOf(among)
	parts := make([]int64, len(others)) // all of them before anything of that is learnt
	for i, o := range others {
		parts[i] = b.takes(j, o)
	}
	if b.reported(j, among) {
		b.Blame(j, j, among)
	}
	for i, o := range others {
		if b.reported(o, b.Company(o.Spec.ID)) {
			b.between.blame(o, j, min(parts[i], b.Left(o, j)))
		}
	}
}

// worstFor is the job beside it that is believed to slow a job most.
func (b *Book) worstFor(j *job.State, among []cluster.JobID) *job.State {
	return slices.MinFunc(b.JobsOf(among), func(x, y *job.State) int { return cmp.Compare(b.Left(j, x), b.Left(j, y)) })
}

// OutOfPlace reports whether a job that left would not be put back where it has shares.
func (b *Book) OutOfPlace(j *job.State) bool {
	return slices.ContainsFunc(j.Allocs, func(a inventory.Alloc) bool {
		return a.Tenant != 0 && b.Shunned(&b.World.Store.Nodes()[a.Node], j)&a.GPUs != 0
	})
}

// JobsOf lists the jobs of these numbers.
func (b *Book) JobsOf(ids []cluster.JobID) (list []*job.State) {
	for _, id := range ids {
		list = append(list, b.Jobs()[id])
	}
	return list
}
