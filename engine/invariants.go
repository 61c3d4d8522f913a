package engine

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// CheckInvariants compares everything that the engine keeps up to date step by
// step with a recomputation from scratch: the books of each node, who holds
// what physically, the index, the lists, the lanes, the queues' usage, who
// waits for whom; and that no job waits for devices that it could have. It is
// slow and meant for tests; it changes nothing that decisions depend on.
func (e *Engine) CheckInvariants() error {
	var errs []error
	for _, check := range []func() error{e.checkIdleState, e.checkJobs, e.checkBeside, e.checkTenants, e.checkBooks, e.checkPhysical, e.checkIndexes,
		e.checkLists, e.checkLanes, e.checkPools, e.checkUsage, e.checkPast, func() error { return e.st.CheckFragments(&e.demand) }, e.checkWaits, e.checkLoans, e.checkAsleep, e.checkDependencies, e.checkWork, e.checkWhys} {
		if err := check(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkIdleState checks that nothing tentative is left.
func (e *Engine) checkIdleState() error {
	switch {
	case e.st.Tentative():
		return errors.New("changes of nodes or of what queues use could be undone between steps")
	case e.held != nil:
		return errors.New("what a candidate must leave alone is set between steps")
	case e.blockedBy != nil:
		return errors.New("blocked classes are set between steps")
	case !reflect.ValueOf(&e.none).Elem().IsZero():
		return fmt.Errorf("something was given to all that were given nothing: %+v", e.none)
	}
	return nil
}

// booked reports whether the books count the job's allocations as taken.
func (j *jobState) booked() bool {
	return j.state == Placed || j.state == Starting || j.state == Running
}

// checkJobs checks each job by itself: a gang is whole or absent.
func (e *Engine) checkJobs() error {
	live := 0
	for id, j := range e.jobs {
		if j == nil {
			continue
		}
		if j.state != Done {
			live++
		}
		var err error
		switch {
		case int(j.spec.ID) != id:
			err = fmt.Errorf("is stored as job %d", id)
		case j.state == Pending && j.eligible != (j.parked == NotParked):
			err = fmt.Errorf("eligible %v, parked %d", j.eligible, j.parked)
		case j.state != Pending && j.eligible:
			err = errors.New("eligible, but not pending")
		case (j.state == Pending || j.state == Done) && (len(j.allocs) > 0 || len(j.leaving) > 0 || j.waits != 0 || len(j.waiters) > 0):
			err = fmt.Errorf("has %d allocations, %d leaving, waits for %d, %d wait for it", len(j.allocs), len(j.leaving), j.waits, len(j.waiters))
		case (j.dest != nil) != slices.Contains(e.defrag.movers, j.spec.ID) || j.dest != nil && (j.state != Stopping || j.reason != Preempted && j.reason != NodeLost):
			err = fmt.Errorf("goes to %+v, and %v are on their way", j.dest, e.defrag.movers)
		case j.state == Done && j.inArray:
			err = errors.New("keeps its array's place")
		case j.servedBefore < 0 || j.servedBefore > j.serviceAt(e.now) || j.ranBefore < 0 || j.ranBefore > j.ran || j.promotion > e.now:
			err = fmt.Errorf("promoted at %v after %d of %d and %v of %v", j.promotion, j.servedBefore, j.serviceAt(e.now), j.ranBefore, j.ran)
		case j.eligible && e.promoter != nil && e.promotionOf(j) != j.promoteAt || j.eligible && e.promoter != nil && j.promoteAt <= e.now && j.lined != e.now:
			err = fmt.Errorf("is to be promoted at %v, not at %v", e.promotionOf(j), j.promoteAt)
		case j.state != Done && j.shape != j.base && (!j.eligible || j.shape != j.asks()):
			err = errors.New("asks for something else than its spec and its plan say")
		case j.eligible && e.gated(j):
			err = errors.New("is in line although its plan gives it nothing")
		case j.state == Placed && (j.waits < 1 || !j.waited):
			err = fmt.Errorf("waits for %d jobs to leave", j.waits)
		case j.state != Placed && j.waits != 0:
			err = fmt.Errorf("waits for %d jobs to leave", j.waits)
		case j.booked() || j.state == Stopping:
			err = e.checkGang(j)
		}
		if err != nil {
			return fmt.Errorf("job %d (%s): %w", j.spec.ID, j.state, err)
		}
	}
	if live != e.live {
		return fmt.Errorf("%d live jobs, counted %d", e.live, live)
	}
	return nil
}

// checkGang checks that a job holds exactly what it asked for, where it may.
func (e *Engine) checkGang(j *jobState) error {
	s := e.shapeAt(j.shape)
	tasks := make([]int, len(s.sets))
	gpus := make([]int, len(s.sets))
	on := map[int32]int{} // looked up only
	for i := range j.allocs {
		a := &j.allocs[i]
		if int(a.Node) >= len(e.st.Nodes()) || int(a.Set) >= len(s.sets) || a.Tasks < 0 {
			return fmt.Errorf("holds %+v", *a)
		}
		if on[a.Node] += int(a.Tasks); on[a.Node] > s.most.each() {
			return fmt.Errorf("has %d tasks on node %d; at most %d may be on one", on[a.Node], a.Node, s.most.each())
		}
		r := &s.sets[a.Set].Request
		n := bits.OnesCount64(a.GPUs)
		tasks[a.Set] += int(a.Tasks)
		gpus[a.Set] += n
		shared := r.Fractional() || r.Profile != ""
		switch {
		case !s.suits[a.Set].Has(e.st.Nodes()[a.Node].Class()) && !e.astrayByPlan(j, a.Node, r):
			return fmt.Errorf("is on node %d, which does not suit it", a.Node)
		case a.CPU != r.CPU*int64(a.Tasks) || a.RAM != r.RAM*int64(a.Tasks):
			return fmt.Errorf("holds %d CPU and %d RAM for %d tasks of %+v", a.CPU, a.RAM, a.Tasks, *r)
		case e.onSlice(j, j.allocs):
			if err := e.checkDivided(a, r); err != nil {
				return err
			}
		case shared && (n != 1 || a.Share <= 0), !shared && (a.Share != 0 || n != int(a.Tasks)*r.GPUs):
			return fmt.Errorf("holds %+v for %+v", *a, *r)
		case shared && r.Profile == "" && (int64(a.Share) != r.Share || a.Mem != r.Memory || a.Slots != 0):
			return fmt.Errorf("holds %+v for %+v", *a, *r)
		case r.Profile != "":
			if err := e.checkSlice(a, r); err != nil {
				return err
			}
		}
	}
	for i := range s.sets {
		least, most := s.sets[i].Count, s.sets[i].Count
		if i == 0 {
			least, most = int(s.min), int(s.max)
			if int(j.tasks) != tasks[0] {
				return fmt.Errorf("counts %d tasks and holds %d", j.tasks, tasks[0])
			}
		}
		if tasks[i] < least || tasks[i] > most || gpus[i] != tasks[i]*s.sets[i].Request.GPUs {
			return fmt.Errorf("set %d has %d tasks on %d GPUs, wants %d to %d tasks of %d", i, tasks[i], gpus[i], least, most, s.sets[i].Request.GPUs)
		}
	}
	if j.milli != e.heldMilli(j) || int(j.devices) != s.devices(int(j.tasks)) {
		return fmt.Errorf("counts for %d milli-GPU on %d devices, holds %d on %d", j.milli, j.devices, e.heldMilli(j), s.devices(int(j.tasks)))
	}
	return e.checkSpan(j, s)
}

// checkSlice checks that a MIG slice is at a legal start.
func (e *Engine) checkSlice(a *inventory.Alloc, r *cluster.Request) error {
	model := e.st.Classes()[e.st.Nodes()[a.Node].Class()].Model()
	p, ok := model.Profile(r.Profile)
	if !ok {
		return fmt.Errorf("holds a %s of a %s", r.Profile, model.Name)
	}
	n, dev := &e.st.Nodes()[a.Node], bits.TrailingZeros64(a.GPUs)
	if n.Stays(dev) && !slices.ContainsFunc(n.Fixed().Instances()[dev], func(in inventory.Instance) bool { return in.Profile() == p.Name && in.Mask() == a.Slots }) {
		return fmt.Errorf("holds slots %08b of GPU %d for %s, where there is no such instance", a.Slots, dev, r.Profile)
	}
	for _, start := range p.Starts {
		if p.Mask(start) == a.Slots && int(a.Compute) == p.Compute {
			return nil
		}
	}
	return fmt.Errorf("holds slots %08b of a %s for %s", a.Slots, model.Name, r.Profile)
}

// checkDivided checks that an instance on which a plan has a job that asks for a
// whole GPU suits it.
func (e *Engine) checkDivided(a *inventory.Alloc, r *cluster.Request) error {
	model := e.st.Classes()[e.st.Nodes()[a.Node].Class()].Model()
	p, _, ok := model.Held(a.Slots, int(a.Compute), a.Media)
	if !ok || p.Memory < r.Memory || r.GPUs != 1 || a.Tasks != 1 {
		return fmt.Errorf("holds slots %08b of a %s for %+v", a.Slots, model.Name, *r)
	}
	instead := *r
	instead.Profile = p.Name
	return e.checkSlice(a, &instead)
}

// checkSpan checks that a gang's GPUs are of one model, and that it is within
// its domain.
func (e *Engine) checkSpan(j *jobState, s *shape) error {
	model := ""
	for i := range j.allocs {
		if a := &j.allocs[i]; a.GPUs != 0 {
			m := e.st.Classes()[e.st.Nodes()[a.Node].Class()].Model().Name
			if model == "" {
				model = m
			}
			if m != model {
				return fmt.Errorf("its gang is on two GPU models, %s and %s", model, m)
			}
		}
	}
	if l := s.topo.Level; s.topo.Required && l != cluster.LevelAny && !e.st.Together(j.allocs, l) {
		return fmt.Errorf("must be within one %s and holds %+v", l, j.allocs)
	}
	return nil
}

// checkBeside checks that guests and those on whose devices they are know of each
// other, and that they are on the same.
func (e *Engine) checkBeside() error {
	for _, j := range e.jobs {
		if j == nil {
			continue
		}
		for _, id := range j.guests {
			if g := e.jobs[id]; int(g.beside) != int(j.spec.ID)+1 || j.hosted() || !j.booked() || !g.booked() {
				return fmt.Errorf("job %d (%s) has guest %d (%s), a guest of %d", j.spec.ID, j.state, id, g.state, g.beside-1)
			}
		}
		for i := range j.allocs {
			if j.allocs[i].Beside != j.hosted() && j.booked() {
				return fmt.Errorf("job %d is a guest: %v, and holds %+v", j.spec.ID, j.hosted(), j.allocs[i])
			}
		}
		if !j.hosted() {
			continue
		}
		h := e.host(j)
		if !hasID(h.guests, j.spec.ID) {
			return fmt.Errorf("job %d is a guest of %d, which does not know of it", j.spec.ID, h.spec.ID)
		}
		for i := range j.allocs {
			mask := uint64(0)
			for k := range h.allocs {
				if h.allocs[k].Node == j.allocs[i].Node {
					mask |= h.allocs[k].GPUs
				}
			}
			if mask != j.allocs[i].GPUs {
				return fmt.Errorf("job %d, a guest of %d, holds %+v, that %+v", j.spec.ID, h.spec.ID, j.allocs, h.allocs)
			}
		}
	}
	return nil
}

// checkBooks recomputes what is free on each node.
func (e *Engine) checkBooks() error {
	ts := e.st.Tallies()
	for _, j := range e.jobs {
		if j == nil {
			continue
		}
		allocs := j.dest
		if j.booked() {
			allocs = j.allocs
		}
		for i := range allocs {
			if err := ts[allocs[i].Node].Add(&allocs[i], false); err != nil {
				return fmt.Errorf("books: node %d, job %d: %w", allocs[i].Node, j.spec.ID, err)
			}
		}
	}
	return e.st.Compare(ts)
}

// checkPhysical checks that no two jobs are on one device at the same time,
// those that are leaving included.
func (e *Engine) checkPhysical() error {
	ts := e.st.Tallies()
	stops := make([][]cluster.JobID, len(ts))
	for _, j := range e.jobs {
		if j == nil || !j.holding() {
			continue
		}
		for _, a := range append(slices.Clone(j.allocs), j.leaving...) {
			if err := ts[a.Node].Add(&a, j.packed); err != nil {
				return fmt.Errorf("physically: node %d, job %d: %w", a.Node, j.spec.ID, err)
			}
		}
		for _, a := range j.goingAllocs() {
			if !hasID(stops[a.Node], j.spec.ID) {
				stops[a.Node] = append(stops[a.Node], j.spec.ID)
			}
		}
	}
	if err := e.st.Misfit(ts); err != nil {
		return fmt.Errorf("physically: %w", err)
	}
	for id := range ts {
		n := &e.st.Nodes()[id]
		have := slices.Clone(n.Stopping())
		slices.Sort(have)
		if !slices.Equal(have, stops[id]) {
			return fmt.Errorf("node %d: jobs %v are leaving, recomputed %v", id, have, stops[id])
		}
		if _, listed := slices.BinarySearch(e.beingLeft, int32(id)); listed != (len(have) > 0) {
			return fmt.Errorf("node %d: listed as being left: %v, by jobs %v", id, listed, have)
		}
	}
	return nil
}

// astrayByPlan reports whether but for its partition a node suits a job, which a plan
// may have had run there.
func (e *Engine) astrayByPlan(j *jobState, node int32, r *cluster.Request) bool {
	c := &e.st.Classes()[e.st.Nodes()[node].Class()]
	return e.plans.planner != nil && len(e.parts) > 0 && acceptsGPU(j.spec, c.Model().Name) && inventory.WhyNotClass(r, c) == ""
}
