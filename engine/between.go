package engine

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/shape"
)

// Jobs in shares of one GPU slow each other down (gpulet, ATC'22). What is left
// of a job's speed on a device is the product of what is left of it beside each of the
// others there. A share goes beside others only if everybody then keeps what they ask
// for (cluster.Job.MinSpeed), and if what it does there is more than what the others
// lose by it, each in units of its speed alone. Their loss counts as if each had been
// alone there, which is the most that it can be: so who may go beside many may go
// beside a part of them, and whom nobody takes now nobody takes before somebody leaves.

// Pairs is a Speeds that knows what jobs in shares of one GPU do to each other.
type Pairs interface {
	// Pair returns what is left of the speed of a job of one model in its share of a
	// GPU beside a job of another, in ppm; 1,000,000 where nobody knows.
	Pair(model, beside string) int64
}

// Estimator is a Pairs that estimates what nobody stated or measured.
type Estimator interface {
	// Estimates returns what estimates pairs from those that the table states and
	// those that were measured, in ppm; false: it is stated, or nobody can say. nil:
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
	table    Pairs               // nil: nobody stated anything
	believed map[[2]string]int64 // what the table said; looked up only
	measured map[[2]string]int64 // what was measured instead
	parted   map[[2]string]bool  // ... for which somebody had to leave; looked up only
	turns    Turns               // nil: nobody knows, or they do not take turns
	guessed  map[[2]string]int64 // what is estimated since the last measurement; 0: nothing is; looked up only
	guess    func(model, beside string) (ppm int64, ok bool)
}

// inName is a copy of a job's allocations in which shares are its own.
func inName(j *job.State, allocs []inventory.Alloc) []inventory.Alloc {
	list := slices.Clone(allocs)
	for i := range list {
		if list[i].Share != 0 && list[i].Slots == 0 {
			list[i].Tenant = j.Tenant()
		}
	}
	return list
}

// minSpeed is the least part of its speed alone that a job accepts in a share, ppm.
func (e *Engine) minSpeed(j *job.State) int64 { return cmp.Or(j.Spec.MinSpeed, e.cfg.Spec.MinSpeed) }

// left is what is left of a job's speed beside another, in ppm. That a job would be
// faster in company is not counted upon.
func (e *Engine) left(j, beside *job.State) int64 {
	key := [2]string{j.Spec.Model, beside.Spec.Model}
	if f, ok := e.between.measured[key]; ok {
		return min(f, job.Million)
	}
	return min(e.between.assumed(key), job.Million)
}

// assumed is what is taken for a pair that nobody measured, in ppm: what is estimated from
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

// knowsPairs reports whether it matters who is beside whom. On Kubernetes the kubelet
// chooses the device, so that nobody can say who will be: its driver looks at whole nodes.
func (e *Engine) knowsPairs() bool {
	return (e.between.table != nil || len(e.between.measured) > 0) && !e.cfg.Unshared
}

// company lists the jobs with shares of a device, but for one, by number.
func (e *Engine) company(n *inventory.Node, dev int, but *job.State) (list []*job.State) {
	for _, t := range n.Tenants() {
		if o := e.jobs[t.Job-1]; int(t.Device) == dev && t.Job != but.Tenant() && !slices.Contains(list, o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *job.State) int { return cmp.Compare(a.Spec.ID, b.Spec.ID) })
	return list
}

// speedAmong is what is left of a job's speed among others, in ppm.
func (e *Engine) speedAmong(j *job.State, others ...*job.State) int64 {
	v := int64(job.Million)
	for _, o := range others {
		if o != j {
			v = v * e.left(j, o) / job.Million
		}
	}
	if e.between.turns != nil && len(others) > 1 {
		v = min(v, e.inTurns(j, others))
	}
	return v
}

// inTurns is what is left of a job's speed among others as far as their processes take
// turns, which is less than pairs say; beside those others of whom that is not known, or
// was measured otherwise, it is as in pairs. In ppm.
func (e *Engine) inTurns(j *job.State, others []*job.State) int64 {
	v, models := int64(job.Million), []string(nil)
	for _, o := range others {
		if o == j {
			continue
		}
		key := [2]string{j.Spec.Model, o.Spec.Model}
		_, measured := e.between.measured[key]
		if _, ok := e.between.turns.Turns(key[0], key[1:]); ok && !measured {
			models = append(models, key[1])
		} else {
			v = v * e.left(j, o) / job.Million
		}
	}
	if all, ok := e.between.turns.Turns(j.Spec.Model, models); ok {
		v = v * all / job.Million
	}
	return v
}

// disturbed says why a job does not go beside others on a device.
type disturbed struct {
	who  *job.State // who would be slower than it accepts; nil: the others would lose more than the job does
	left int64      // what would be left of its speed, ppm
	lost int64      // who is nil: what the others would lose together, ppm
}

// disturbs reports whether the job must not go beside others, and why.
func (e *Engine) disturbs(j *job.State, others []*job.State) (d disturbed, yes bool) {
	own, lost := e.speedAmong(j, others...), int64(0)
	if own < e.minSpeed(j) {
		return disturbed{who: j, left: own}, true
	}
	all := append(slices.Clone(others), j)
	for _, o := range others {
		if least := e.minSpeed(o); least > 0 {
			if v := e.speedAmong(o, all...); v < least {
				return disturbed{who: o, left: v}, true
			}
		}
		lost += job.Million - e.left(o, j)
	}
	return disturbed{left: own, lost: lost}, own <= lost
}

// shunned is the devices of a node on which there are others beside whom the job must
// not go.
func (e *Engine) shunned(n *inventory.Node, j *job.State) (mask uint64) {
	if len(n.Tenants()) == 0 || !e.knowsPairs() || !j.Spec.Shares() {
		return 0
	}
	seen := uint64(0)
	for _, t := range n.Tenants() {
		if seen>>t.Device&1 == 1 {
			continue
		}
		seen |= 1 << t.Device
		if _, yes := e.disturbs(j, e.company(n, int(t.Device), j)); yes {
			mask |= 1 << t.Device
		}
	}
	return mask
}

// bearsAll reports whether nobody is disturbed too much if a job has these shares again.
func (e *Engine) bearsAll(allocs []inventory.Alloc) bool {
	for i := range allocs {
		if a := &allocs[i]; a.Tenant != 0 && e.shunned(&e.st.Nodes()[a.Node], e.jobs[a.Tenant-1])&a.GPUs != 0 {
			return false
		}
	}
	return true
}

// shunnedText says beside whom a job does not go that would have room there, of all
// such devices on that where most would be left of its own speed; "": there is none.
func (e *Engine) shunnedText(j *job.State, s *shape.Shape) (text string) {
	r, best := &s.Sets[0].Request, int64(-1)
	if !e.knowsPairs() || !r.Fractional() || r.Profile != "" {
		return ""
	}
	site := e.find.Look(e.anywhere(), j, s, inventory.Domain{}, nil)
	for id := range e.st.Nodes() {
		n := &e.st.Nodes()[id]
		if !n.TakesJobs() || !s.Any.Has(n.Class()) {
			continue
		}
		for m := e.shunned(n, j) & n.Healthy(); m != 0; m &= m - 1 {
			dev := bits.TrailingZeros64(m)
			others := e.company(n, dev, j)
			if own := e.speedAmong(j, others...); own > best {
				if _, ok := site.DeviceLeft(n, dev, r); ok {
					d, _ := e.disturbs(j, others)
					best, text = own, e.disturbedText(j, others, d)
				}
			}
		}
	}
	return text
}

// disturbedText is why a job does not go beside others.
func (e *Engine) disturbedText(j *job.State, others []*job.State, d disturbed) string {
	names := ""
	for _, o := range others {
		names += ", " + cmp.Or(o.Spec.Model, o.Label())
	}
	names = names[2:]
	switch d.who {
	case j:
		return fmt.Sprintf("beside %s it would be at %s of its speed, it asks for %s", names, partText(d.left), leastText(e.minSpeed(j)))
	case nil:
		return fmt.Sprintf("beside %s it would be at %s of its speed, and cost the others %s of theirs", names, partText(d.left), partText(d.lost))
	}
	return fmt.Sprintf("beside it %s would be at %s of its speed, and asks for %s", d.who.Label(), partText(d.left), leastText(e.minSpeed(d.who)))
}

// partText writes ppm as a factor, to the hundredth and never more than it is.
func partText(ppm int64) string { return fmt.Sprintf("%.2f", float64(ppm/10_000)/100) }

// leastText writes the part of its speed that a job asks for as it was stated.
func leastText(ppm int64) string { return fmt.Sprintf("%g", float64(ppm)/job.Million) }
