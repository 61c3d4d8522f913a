package speed

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// Jobs in shares of one GPU slow each other down (gpulet, ATC'22). What is left
// of a job's speed on a device is the product of what is left of it beside each of the
// others there. A share goes beside others only if every job then keeps the speed that it
// asks for (cluster.Job.MinSpeed), and if what it does there is more than what the others
// lose by it, each in units of its speed alone. Their loss counts as if each had been
// alone there, which is the most that it can be: so a job that may go beside many may go
// beside a part of them, and one that fits beside none has to wait until one leaves.

// Pairs is a Speeds that knows what jobs in shares of one GPU do to each other.
type Pairs interface {
	// Pair returns what is left of the speed of a job of one model in its share of a
	// GPU beside a job of another, in ppm; 1,000,000 where it is not known.
	Pair(model, beside string) int64
}

// Estimator is a Pairs that estimates what was neither stated nor measured.
type Estimator interface {
	// Estimates returns a function that estimates pairs from those that the table states and
	// those that were measured, in ppm; false: it is stated, or there is no estimate. nil:
	// nothing is estimated. It depends on nothing else, and must not keep the map.
	Estimates(measured map[[2]string]int64) func(model, beside string) (ppm int64, ok bool)
}

// Turns is a Pairs that knows what is left of a job's speed when its processes take turns
// with those of others on a GPU, where they are not clients of MPS.
type Turns interface {
	TakesTurns() bool // anything of that is known
	// Turns returns that for a job of one model among others, in ppm of its speed alone;
	// false: it is not known for all of them. With more others it is not more.
	Turns(model string, beside []string) (ppm int64, ok bool)
}

// between is what the engine knows of jobs that share a GPU.
type between struct {
	table    Pairs               // nil: nothing is stated
	believed map[[2]string]int64 // what the table said; looked up only
	measured map[[2]string]int64 // what was measured instead
	parted   map[[2]string]bool  // ... for which a job had to leave; looked up only
	turns    Turns               // nil: not known, or they do not take turns
	guessed  map[[2]string]int64 // what is estimated since the last measurement; 0: nothing is; looked up only
	guess    func(model, beside string) (ppm int64, ok bool)
}

// Least is the least part of its speed alone that a job accepts in a share, ppm.
func (b *Book) Least(j *job.State) int64 { return cmp.Or(j.Spec.MinSpeed, b.MinSpeed) }

// Left is what is left of a job's speed beside another, in ppm. That a job would be
// faster in company is not counted upon.
func (b *Book) Left(j, beside *job.State) int64 {
	key := [2]string{j.Spec.Model, beside.Spec.Model}
	if f, ok := b.between.measured[key]; ok {
		return min(f, job.Million)
	}
	return min(b.between.assumed(key), job.Million)
}

// assumed is the value for a pair that was not measured, in ppm: what is estimated from
// the others that were, else what the table says.
func (b *between) assumed(key [2]string) int64 {
	if b.turns != nil {
		if v, ok := b.turns.Turns(key[0], key[1:]); ok {
			return v
		}
	}
	if len(b.measured) == 0 {
		return b.stated(key) // with estimates of its own
	}
	if b.guessed == nil {
		if t, ok := b.table.(Estimator); ok {
			b.guess = t.Estimates(b.measured)
		}
		b.guessed = map[[2]string]int64{}
	}
	if b.guess == nil {
		return b.stated(key)
	}
	f, ok := b.guessed[key]
	if !ok {
		if v, ok := b.guess(key[0], key[1]); ok {
			f = max(1, v)
		}
		b.guessed[key] = f
	}
	if f == 0 {
		return b.stated(key)
	}
	return f
}

// stated is what the table says of a pair, in ppm.
func (b *between) stated(key [2]string) int64 {
	if b.table == nil {
		return job.Million
	}
	f, ok := b.believed[key]
	if !ok {
		f = b.table.Pair(key[0], key[1])
		if b.believed == nil {
			b.believed = map[[2]string]int64{}
		}
		b.believed[key] = f
	}
	return f
}

// KnowsPairs reports whether it matters which job is beside which. On Kubernetes the kubelet
// chooses the device, so that this is not known in advance: its driver sees whole nodes.
func (b *Book) KnowsPairs() bool {
	return (b.between.table != nil || len(b.between.measured) > 0) && !b.Unshared
}

// Tenants lists the jobs with shares of a device, but for one, by number.
func (b *Book) Tenants(n *inventory.Node, dev int, but *job.State) (list []*job.State) {
	for _, t := range n.Tenants() {
		if o := b.Jobs()[t.Job-1]; int(t.Device) == dev && t.Job != but.Tenant() && !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *job.State) int { return cmp.Compare(a.Spec.ID, b.Spec.ID) })
	return list
}

// Among is what is left of a job's speed among others, in ppm.
func (b *Book) Among(j *job.State, others ...*job.State) int64 {
	v := int64(job.Million)
	for _, o := range others {
		if o != j {
			v = v * b.Left(j, o) / job.Million
		}
	}
	if b.between.turns != nil && len(others) > 1 {
		v = min(v, b.inTurns(j, others))
	}
	return v
}

// inTurns is what is left of a job's speed among others as far as their processes take
// turns, which is less than pairs say; beside those others for which that is not known, or
// was measured otherwise, it is as in pairs. In ppm.
func (b *Book) inTurns(j *job.State, others []*job.State) int64 {
	v, models := int64(job.Million), []string(nil)
	for _, o := range others {
		if o == j {
			continue
		}
		key := [2]string{j.Spec.Model, o.Spec.Model}
		_, measured := b.between.measured[key]
		if _, ok := b.between.turns.Turns(key[0], key[1:]); ok && !measured {
			models = append(models, key[1])
		} else {
			v = v * b.Left(j, o) / job.Million
		}
	}
	if all, ok := b.between.turns.Turns(j.Spec.Model, models); ok {
		v = v * all / job.Million
	}
	return v
}

// Disturbed says why a job does not go beside others on a device.
type Disturbed struct {
	Job  *job.State // the job that would be slower than it accepts; nil: the others would lose more than the job does
	Left int64      // what would be left of its speed, ppm
	Lost int64      // Job is nil: what the others would lose together, ppm
}

// Disturbs reports whether the job must not go beside others, and why.
func (b *Book) Disturbs(j *job.State, others []*job.State) (d Disturbed, yes bool) {
	own, lost := b.Among(j, others...), int64(0)
	if own < b.Least(j) {
		return Disturbed{Job: j, Left: own}, true
	}
	all := append(slices.Clone(others), j)
	for _, o := range others {
		if least := b.Least(o); least > 0 {
			if v := b.Among(o, all...); v < least {
				return Disturbed{Job: o, Left: v}, true
			}
		}
		lost += job.Million - b.Left(o, j)
	}
	return Disturbed{Left: own, Lost: lost}, own <= lost
}

// Shunned is the devices of a node on which there are jobs that the job must not go
// beside.
func (b *Book) Shunned(n *inventory.Node, j *job.State) (mask uint64) {
	if len(n.Tenants()) == 0 || !b.KnowsPairs() || !j.Spec.Shares() {
		return 0
	}
	seen := uint64(0)
	for _, t := range n.Tenants() {
		if seen>>t.Device&1 == 1 {
			continue
		}
		seen |= 1 << t.Device
		if _, yes := b.Disturbs(j, b.Tenants(n, int(t.Device), j)); yes {
			mask |= 1 << t.Device
		}
	}
	return mask
}

// BearsAll reports whether no job is disturbed too much if a job has these shares again.
func (b *Book) BearsAll(allocs []inventory.Alloc) bool {
	for i := range allocs {
		if a := &allocs[i]; a.Tenant != 0 &&
			b.Shunned(&b.World.Store.Nodes()[a.Node], b.Jobs()[a.Tenant-1])&a.GPUs != 0 {
			return false
		}
	}
	return true
}

func (b *between) records() (list []PairRecord) {
	for key, v := range b.measured { // order does not matter: it is sorted
		list = append(list, PairRecord{key[0], key[1], v, b.parted[key]})
	}
	slices.SortFunc(list, func(x, y PairRecord) int {
		return cmp.Or(cmp.Compare(x.Model, y.Model), cmp.Compare(x.Beside, y.Beside))
	})
	return list
}

func (b *between) restore(list []PairRecord) {
	for _, r := range list {
		key := [2]string{r.Model, r.Beside}
		if b.learn(key, r.Speed); r.Parted {
			b.part(key)
		}
	}
}

// part keeps the measurement of a pair from rising: a job had to leave because of it, and would
// come and go if better measurements of other jobs of the two models overwrote it.
func (b *between) part(key [2]string) {
	if b.parted == nil {
		b.parted = map[[2]string]bool{}
	}
	b.parted[key] = true
}

func (b *between) learn(key [2]string, v int64) {
	if b.measured == nil {
		b.measured = map[[2]string]int64{}
	}
	b.measured[key] = max(1, v)
	b.guessed, b.guess = nil, nil // it says something of others, too
}

// blame books what is left of a job's speed beside one that has to leave, or stays, for it.
func (b *between) blame(j, beside *job.State, part int64) {
	key := [2]string{j.Spec.Model, beside.Spec.Model}
	b.learn(key, part)
	b.part(key)
}
