package serving

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// Doing is the kind of a step.
type Doing uint8

// The steps.
const (
	Repartition Doing = iota // the GPU gets other MIG instances; those that are added or removed are idle
	Create                   // a service is started on an idle instance
	Migrate                  // ... and then stopped on another one that it had
	Delete                   // a service is stopped on an instance
)

var doings = [...]string{"repartition", "create", "migrate", "delete"}

// String is the kind in a word.
func (d Doing) String() string { return doings[d] }

// Step is one change of a deployment. It begins when the step before it is done.
type Step struct {
	Do       Doing
	Instance // Repartition: its GPU only
	From     Instance
	Geometry []cluster.Instance // Repartition: the GPU's instances from then on, by start
}

// Change is a way from one deployment to another.
type Change struct {
	Names []string  // services: those of the new plan, then those that no longer exist
	Floor []float64 // requests per second: the smaller of the old and the new rate; 0: it has only one
	Least []float64 // the least capacity that it has at any time, requests per second
	Spare int       // GPUs used in addition to those of the larger plan
	Keeps int       // instances that stay as they are
	Steps []Step
	Plan  *Plan // the final state: the new plan, in which some GPUs may have other numbers
}

// Short is how far a service is below its floor at worst, in requests per second.
func (c *Change) Short(k int) float64 {
	if short := c.Floor[k] - c.Least[k]; short > roundingError*c.Floor[k] {
		return short
	}
	return 0
}

// mostOrders is how many orders of changes are tried for each number of spare GPUs.
const mostOrders = 12

// To finds a way from a deployment to a plan for services on which no service falls below its floor: with as few
// spare GPUs as it finds, up to spare (below 0: as many as it takes), then in as few steps. Where it finds none
// with those, floors are undercut as little as it finds, in proportion (Change.Short).
func (d *Deployment) To(m *cluster.GPUModel, plan *Plan, services []Service, spare int) *Change {
	have, names := d.instances(m, serviceNames(services))
	w := &way{m: m, sizes: sizes(m, services), have: have, plan: plan, floor: make([]float64, len(names))}
	for i := range d.Services {
		if k := slices.IndexFunc(services, func(s Service) bool { return s.Name == d.Services[i].Name }); k >= 0 {
			w.floor[k] = min(services[k].Rate, d.Services[i].Rate)
		}
	}
	most := spare
	if spare < 0 {
		most = len(plan.Instances)
	}
	for s := 0; s <= most; s++ {
		if w.try(s, false); w.best != nil {
			break
		}
	}
	if w.best == nil {
		w.try(most, true)
	}
	c := w.steps()
	c.Names = names
	return c
}

// way searches for a way from a deployment to a plan.
type way struct {
	m     *cluster.GPUModel
	sizes []size
	have  []Instance
	plan  *Plan
	floor []float64
	best  *exchange
	short float64 // of the best way: the worst of all services, as a part of its floor
}

// try tries several orders with this many spare GPUs, and plans of which some GPUs, those on which nothing
// stays, are replaced by spare ones.
func (w *way) try(spare int, forced bool) {
	gpus := w.numbers(spare)
	fresh := w.fresh()
	r := rand.New(rand.NewPCG(1, uint64(spare)))
	for moved := 0; moved <= min(spare, len(fresh)); moved++ {
		goals := slices.Clone(w.plan.Instances)
		for i := range goals {
			if at := slices.Index(fresh[:moved], goals[i].GPU); at >= 0 {
				goals[i].GPU = gpus[len(gpus)-spare+at]
			}
		}
		for order := range mostOrders {
			e := w.begin(goals, gpus)
			e.forced = forced
			switch {
			case order == 1:
				slices.Reverse(e.pending)
			case order > 1:
				r.Shuffle(len(e.pending), func(i, j int) { e.pending[i], e.pending[j] = e.pending[j], e.pending[i] })
			}
			if !e.run() {
				continue
			}
			if short := w.worst(e); w.best == nil || short < w.short ||
				short == w.short && len(e.changes) < len(w.best.changes) {
				w.best, w.short = e, short
			}
		}
	}
}

// numbers lists the GPUs that may be used: those of the deployment and of the plan, then the spare ones, which
// get the smallest free numbers.
func (w *way) numbers(spare int) (gpus []int) {
	for _, list := range [][]Instance{w.have, w.plan.Instances} {
		for i := range list {
			if !slices.Contains(gpus, list[i].GPU) {
				gpus = append(gpus, list[i].GPU)
			}
		}
	}
	slices.Sort(gpus)
	for g := 0; spare > 0; g++ {
		if !slices.Contains(gpus, g) {
			gpus = append(gpus, g)
			spare--
		}
	}
	return gpus
}

// fresh lists the GPUs in use on which no running instance stays.
func (w *way) fresh() (gpus []int) {
	for i := range w.plan.Instances {
		g := w.plan.Instances[i].GPU
		if slices.Contains(gpus, g) || !slices.ContainsFunc(w.have, func(in Instance) bool { return in.GPU == g }) {
			continue
		}
		if !slices.ContainsFunc(w.have, func(in Instance) bool {
			return in.GPU == g && slices.Contains(w.plan.Instances, in)
		}) {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// begin returns an exchange from the running instances to the given goals.
func (w *way) begin(goals []Instance, gpus []int) *exchange {
	e := &exchange{m: w.m, sizes: w.sizes, floor: w.floor, have: make([]float64, len(w.floor))}
	for _, g := range gpus {
		e.rooms = append(e.rooms, room{gpu: g})
	}
	for i := range w.have {
		e.start(w.have[i], slices.Contains(goals, w.have[i]))
	}
	e.changes = e.changes[:0]
	for _, in := range goals {
		if !slices.Contains(w.have, in) {
			e.pending = append(e.pending, len(e.goals))
			e.goals = append(e.goals, in)
		}
	}
	return e
}

// worst is how far a service is below its floor at worst, as a part of it.
func (w *way) worst(e *exchange) (short float64) {
	for k, least := range w.least(e.changes) {
		if lack := (w.floor[k] - least) / w.floor[k]; w.floor[k] > 0 && lack > roundingError {
			short = max(short, lack)
		}
	}
	return short
}

// least is the least capacity of each service during the changes.
func (w *way) least(changes []change) (least []float64) {
	have := make([]float64, len(w.floor))
	for i := range w.have {
		have[w.have[i].Service] += w.have[i].Capacity()
	}
	least = slices.Clone(have)
	for i := range changes {
		c := &changes[i]
		if c.start {
			have[c.Service] += c.Capacity()
		} else {
			have[c.Service] -= c.Capacity()
		}
		least[c.Service] = min(least[c.Service], have[c.Service])
	}
	return least
}

// steps converts the changes of the best way, adding the repartitions that they need.
func (w *way) steps() *Change {
	s := &stepping{m: w.m, changes: w.paired(w.best.changes)}
	c := &Change{Floor: w.floor, Least: w.least(s.changes)}
	for i := range w.have {
		in := &w.have[i]
		s.at(in.GPU).has = append(s.at(in.GPU).has, mig{in.Instance, true})
	}
	for i := 0; i < len(s.changes); i++ {
		i += s.step(i)
	}
	s.tidy()
	c.Steps = s.steps
	end := *w.plan
	end.Instances = nil
	for i := range w.best.live {
		if l := &w.best.live[i]; l.stays {
			end.Instances = append(end.Instances, l.Instance)
			if slices.Contains(w.have, l.Instance) {
				c.Keeps++
			}
		}
	}
	slices.SortFunc(end.Instances, byPlace)
	c.Plan = &end
	used := w.numbers(0)
	for i := range s.changes {
		if g := s.changes[i].GPU; !slices.Contains(used, g) {
			used = append(used, g)
			c.Spare++
		}
	}
	return c
}

// paired lets a stop follow at once on a start of the same kind, where no service falls below its floor by that:
// this is a migration.
func (w *way) paired(changes []change) []change {
	list := slices.Clone(changes)
	for i := 0; i < len(list); i++ {
		if !list[i].start {
			continue
		}
		c := &list[i]
		j := slices.IndexFunc(list[i+1:], func(o change) bool {
			return !o.start && o.Service == c.Service && o.Profile == c.Profile && o.Point == c.Point &&
				(o.GPU != c.GPU || o.Start != c.Start)
		})
		if j < 0 {
			continue
		}
		j += i + 1
		if slices.ContainsFunc(list[i+1:j], func(o change) bool { return o.start && o.Instance == list[j].Instance }) {
			continue // it is only started later
		}
		moved := slices.Clone(list)
		stop := moved[j]
		moved = slices.Insert(slices.Delete(moved, j, j+1), i+1, stop)
		was, is := w.least(list)[c.Service], w.least(moved)[c.Service]
		if is >= was || is >= w.floor[c.Service] {
			list = moved
			i++
		}
	}
	return list
}

// stepping writes changes as steps.
type stepping struct {
	m       *cluster.GPUModel
	changes []change
	gpus    []partitioned
	steps   []Step
}

// partitioned is a GPU with its MIG instances.
type partitioned struct {
	gpu int
	has []mig
}

type mig struct {
	cluster.Instance
	busy bool
}

func (s *stepping) at(gpu int) *partitioned {
	i := slices.IndexFunc(s.gpus, func(p partitioned) bool { return p.gpu == gpu })
	if i < 0 {
		i = len(s.gpus)
		s.gpus = append(s.gpus, partitioned{gpu: gpu})
	}
	return &s.gpus[i]
}

// set marks an instance of a GPU as busy or idle.
func (p *partitioned) set(in cluster.Instance, busy bool) {
	p.has[slices.IndexFunc(p.has, func(m mig) bool { return m.Instance == in })].busy = busy
}

// step writes a change, together with the next one if both are a migration. It returns how many additional
// changes it wrote.
func (s *stepping) step(i int) int {
	c := &s.changes[i]
	if !c.start {
		s.at(c.GPU).set(c.Instance.Instance, false)
		s.steps = append(s.steps, Step{Do: Delete, Instance: c.Instance})
		return 0
	}
	if p := s.at(c.GPU); !slices.Contains(p.has, mig{c.Instance.Instance, false}) {
		s.repartition(p, i)
	}
	s.at(c.GPU).set(c.Instance.Instance, true)
	if i+1 < len(s.changes) {
		if o := &s.changes[i+1]; !o.start && o.Service == c.Service && o.Profile == c.Profile && o.Point == c.Point {
			s.at(o.GPU).set(o.Instance.Instance, false)
			s.steps = append(s.steps, Step{Do: Migrate, Instance: c.Instance, From: o.Instance})
			return 1
		}
	}
	s.steps = append(s.steps, Step{Do: Create, Instance: c.Instance})
	return 0
}

// repartition makes on a GPU the instance of a change and those of later starts there, as far as there is room
// now, and leaves idle instances that are not in the way.
func (s *stepping) repartition(p *partitioned, i int) {
	var with []mig
	h := held{}
	put := func(in mig) {
		profile, _ := s.m.Profile(in.Profile)
		if more, ok := h.add(s.m, profile, in.Start); ok {
			h, with = more, append(with, in)
		}
	}
	for _, in := range p.has {
		if in.busy {
			put(in)
		}
	}
	for _, c := range s.changes[i:] {
		if c.GPU == p.gpu && c.start {
			put(mig{c.Instance.Instance, false})
		}
	}
	for _, in := range p.has {
		if !in.busy {
			put(in)
		}
	}
	p.has = with
	s.steps = append(s.steps, Step{Do: Repartition, Instance: Instance{GPU: p.gpu}, Geometry: p.geometry()})
}

func (p *partitioned) geometry() (list []cluster.Instance) {
	for _, in := range p.has {
		list = append(list, in.Instance)
	}
	slices.SortFunc(list, func(a, b cluster.Instance) int { return cmp.Compare(a.Start, b.Start) })
	return list
}

// tidy removes idle instances.
func (s *stepping) tidy() {
	slices.SortFunc(s.gpus, func(a, b partitioned) int { return cmp.Compare(a.gpu, b.gpu) })
	for i := range s.gpus {
		p := &s.gpus[i]
		n := len(p.has)
		if p.has = slices.DeleteFunc(p.has, func(in mig) bool { return !in.busy }); len(p.has) < n {
			s.steps = append(s.steps, Step{Do: Repartition, Instance: Instance{GPU: p.gpu}, Geometry: p.geometry()})
		}
	}
}
