package serving

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// exchange is the way from the running instances to a plan, change by change (exchange and compact of ParvaGPU,
// SC'24): new instances start before old ones stop, so that every service keeps its floor; an instance that is
// in the way of a new one but needed is replaced elsewhere first, temporarily. What is no longer needed goes
// last, so that the result is on the GPUs of the plan.
type exchange struct {
	m       *cluster.GPUModel
	sizes   []size // of temporary instances
	floor   []float64
	forced  bool // floors are undercut where there is no other way
	have    []float64
	rooms   []room // GPUs that may be used, those in use first
	live    []liveInstance
	goals   []Instance // not yet running
	pending []int      // of the goals, in the order in which they are tried
	changes []change
}

// room is a GPU with what is used of it.
type room struct {
	gpu int
	held
}

// liveInstance is a running instance.
type liveInstance struct {
	Instance
	stays bool // it is part of the plan
}

// change is an instance that is started or stopped.
type change struct {
	Instance
	start bool
}

// run makes the changes; false: it is stuck.
func (e *exchange) run() bool {
	for e.startFree(); len(e.pending) > 0; e.startFree() {
		if !e.unblock() && !e.bridge() && !e.clear() && !(e.forced && e.force()) {
			return false
		}
	}
	for i := range e.live {
		if !e.live[i].stays {
			e.changes = append(e.changes, change{e.live[i].Instance, false})
		}
	}
	return true
}

func (e *exchange) room(gpu int) *room {
	return &e.rooms[slices.IndexFunc(e.rooms, func(r room) bool { return r.gpu == gpu })]
}

func (e *exchange) profile(in *Instance) *cluster.SliceProfile {
	p, _ := e.m.Profile(in.Profile)
	return p
}

func (e *exchange) start(in Instance, stays bool) {
	r := e.room(in.GPU)
	r.held, _ = r.add(e.m, e.profile(&in), in.Start)
	e.have[in.Service] += in.Capacity()
	e.live = append(e.live, liveInstance{in, stays})
	e.changes = append(e.changes, change{in, true})
}

func (e *exchange) stop(in Instance) {
	e.live = slices.DeleteFunc(e.live, func(l liveInstance) bool {
		return l.GPU == in.GPU && l.Instance.Instance == in.Instance
	})
	r := e.room(in.GPU)
	r.held = r.without(e.profile(&in), in.Start)
	e.have[in.Service] -= in.Capacity()
	e.changes = append(e.changes, change{in, false})
}

func (h held) without(p *cluster.SliceProfile, start int) held {
	return held{h.slots &^ p.Mask(start), h.compute - p.Compute}
}

// startFree starts the goals whose place is already free.
func (e *exchange) startFree() {
	e.pending = slices.DeleteFunc(e.pending, func(g int) bool {
		in := &e.goals[g]
		_, ok := e.room(in.GPU).add(e.m, e.profile(in), in.Start)
		if ok {
			e.start(*in, true)
		}
		return ok
	})
}

// blockers are the instances that must go before a goal can start: those on its memory slices, and, as long as
// too many compute slices are taken, the smallest others that do not stay.
func (e *exchange) blockers(in *Instance) (list []Instance, left held) {
	p, left := e.profile(in), e.room(in.GPU).held
	mask := p.Mask(in.Start)
	var others []Instance
	for i := range e.live {
		l := &e.live[i]
		if l.GPU != in.GPU || l.stays {
			continue
		}
		if q := e.profile(&l.Instance); q.Mask(l.Start)&mask != 0 {
			list, left = append(list, l.Instance), left.without(q, l.Start)
		} else {
			others = append(others, l.Instance)
		}
	}
	slices.SortStableFunc(others, func(a, b Instance) int { return cmp.Compare(a.Compute, b.Compute) })
	for i := range others {
		if left.compute+p.Compute > e.m.Compute {
			list, left = append(list, others[i]), left.without(e.profile(&others[i]), others[i].Start)
		}
	}
	return list, left
}

// lacking is by how much each service would be below its floor without the given instances.
func (e *exchange) lacking(without []Instance) (lack []float64, any bool) {
	lack = make([]float64, len(e.have))
	for i := range without {
		lack[without[i].Service] += without[i].Capacity()
	}
	for k := range lack {
		if lack[k] > 0 {
			lack[k] -= e.have[k] - e.floor[k]
		}
		if lack[k] <= roundingError*e.floor[k] || e.floor[k] == 0 {
			lack[k] = 0
		}
		any = any || lack[k] > 0
	}
	return lack, any
}

// roundingError is the part of a rate that may be due to rounding.
const roundingError = 1e-9

// unblock starts a goal whose blockers are all unnecessary, the one whose blockers have the fewest compute
// slices.
func (e *exchange) unblock() bool {
	best, least := -1, 0
	for _, g := range e.pending {
		list, _ := e.blockers(&e.goals[g])
		if _, any := e.lacking(list); any {
			continue
		}
		if c := computeOf(list); best < 0 || c < least {
			best, least = g, c
		}
	}
	if best < 0 {
		return false
	}
	e.replace(best)
	return true
}

// replace starts a goal in place of its blockers.
func (e *exchange) replace(g int) {
	list, _ := e.blockers(&e.goals[g])
	for i := range list {
		e.stop(list[i])
	}
	e.start(e.goals[g], true)
	e.pending = slices.DeleteFunc(e.pending, func(o int) bool { return o == g })
}

func computeOf(list []Instance) (sum int) {
	for i := range list {
		sum += list[i].Compute
	}
	return sum
}

// clear stops an instance that is no longer needed and blocks nothing, which makes room.
func (e *exchange) clear() bool {
	for i := range e.live {
		if l := e.live[i]; !l.stays {
			if _, any := e.lacking([]Instance{l.Instance}); !any {
				e.stop(l.Instance)
				return true
			}
		}
	}
	return false
}

// bridge starts a goal after its necessary blockers have been started elsewhere temporarily; the goal for which
// that takes the fewest compute slices.
func (e *exchange) bridge() bool {
	best, least := -1, 0
	var how []Instance
	for _, g := range e.pending {
		if temps, short := e.temps(g); short == 0 && (best < 0 || computeOf(temps) < least) {
			best, least, how = g, computeOf(temps), temps
		}
	}
	if best < 0 {
		return false
	}
	for i := range how {
		e.start(how[i], false)
	}
	e.replace(best)
	return true
}

// force is like bridge, with the goal that undercuts floors least, in proportion.
func (e *exchange) force() bool {
	best, least := -1, 0.0
	var how []Instance
	for _, g := range e.pending {
		if temps, short := e.temps(g); best < 0 || short < least {
			best, least, how = g, short, temps
		}
	}
	for i := range how {
		e.start(how[i], false)
	}
	e.replace(best)
	return true
}

// temps are the temporary instances that a goal needs before it can start, and how far some service is still
// below its floor, as a part of it.
func (e *exchange) temps(g int) (list []Instance, short float64) {
	goal := &e.goals[g]
	blockers, left := e.blockers(goal)
	lack, _ := e.lacking(blockers)
	after := slices.Clone(e.rooms) // the state once the goal has started
	now := slices.Clone(e.rooms)
	at := slices.IndexFunc(after, func(r room) bool { return r.gpu == goal.GPU })
	after[at].held, _ = left.add(e.m, e.profile(goal), goal.Start)
	for k := range lack {
		for lack[k] > roundingError*e.floor[k] {
			in, ok := e.temp(k, lack[k], blockers, now, after)
			if !ok {
				short = max(short, lack[k]/e.floor[k])
				break
			}
			lack[k] -= in.Capacity()
			list = append(list, in)
		}
	}
	return list, short
}

// temp finds a place for a temporary instance of a service: the smallest with this capacity, else the one with
// the most; on GPUs in use first.
func (e *exchange) temp(k int, capacity float64, blockers []Instance, now, after []room) (in Instance, ok bool) {
	var kinds []Instance
	for i := range e.sizes {
		if s := &e.sizes[i]; k < len(s.best) && s.best[k].Batch > 0 {
			kinds = append(kinds,
				Instance{Service: k, Instance: cluster.Instance{Profile: s.profile.Name}, Point: s.best[k]})
		}
	}
	for i := range blockers {
		if blockers[i].Service == k {
			kinds = append(kinds, blockers[i]) // as it runs now
		}
	}
	slices.SortStableFunc(kinds, func(a, b Instance) int {
		x, y := a.Capacity() >= capacity, b.Capacity() >= capacity
		switch {
		case x && y:
			return cmp.Or(cmp.Compare(a.Compute, b.Compute), cmp.Compare(e.profile(&a).Slots, e.profile(&b).Slots))
		case x:
			return -1
		case y:
			return 1
		}
		return cmp.Compare(b.Capacity(), a.Capacity())
	})
	for _, in := range kinds {
		p := e.profile(&in)
		for r := range now {
			for s := len(p.Starts) - 1; s >= 0; s-- {
				a, ok1 := now[r].add(e.m, p, p.Starts[s])
				b, ok2 := after[r].add(e.m, p, p.Starts[s])
				if ok1 && ok2 {
					now[r].held, after[r].held = a, b
					in.GPU, in.Start = now[r].gpu, p.Starts[s]
					return in, true
				}
			}
		}
	}
	return in, false
}
