package engine

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// CheckInvariants compares everything that the engine keeps up to date step by
// step with a recomputation from scratch: the books of each node, who holds
// what physically, the index, the lists, the lanes, the queues' usage, who
// waits for whom; and that no job waits for devices that it could have. It is
// slow and meant for tests; it changes nothing that decisions depend on.
func (e *Engine) CheckInvariants() error {
	var errs []error
	for _, check := range []func() error{e.checkIdleState, e.checkJobs, e.checkBeside, e.checkTenants, e.checkBooks, e.checkPhysical, e.checkIndexes,
		e.checkLists, e.checkLanes, e.checkPools, e.checkUsage, e.checkPast, e.checkFragments, e.checkWaits, e.checkLoans, e.checkAsleep, e.checkDependencies, e.checkWork, e.checkWhys} {
		if err := check(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// checkIdleState checks that nothing tentative is left.
func (e *Engine) checkIdleState() error {
	switch {
	case e.st.tentative():
		return fmt.Errorf("%d changes of nodes and %d of queues could be undone between steps", len(e.st.undo), len(e.st.notes))
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
		if int(a.Node) >= len(e.st.nodes) || int(a.Set) >= len(s.sets) || a.Tasks < 0 {
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
		case !s.suits[a.Set].has(e.st.nodes[a.Node].class) && !e.astrayByPlan(j, a.Node, r):
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
func (e *Engine) checkSlice(a *Alloc, r *cluster.Request) error {
	model := &e.st.classes[e.st.nodes[a.Node].class].model
	p, ok := model.Profile(r.Profile)
	if !ok {
		return fmt.Errorf("holds a %s of a %s", r.Profile, model.Name)
	}
	n, dev := &e.st.nodes[a.Node], bits.TrailingZeros64(a.GPUs)
	if n.stays(dev) && !slices.ContainsFunc(n.fixed.instances[dev], func(in existing) bool { return in.profile == p.Name && in.mask == a.Slots }) {
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
func (e *Engine) checkDivided(a *Alloc, r *cluster.Request) error {
	model := &e.st.classes[e.st.nodes[a.Node].class].model
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
			m := e.st.classes[e.st.nodes[a.Node].class].model.Name
			if model == "" {
				model = m
			}
			if m != model {
				return fmt.Errorf("its gang is on two GPU models, %s and %s", model, m)
			}
		}
	}
	if l := s.topo.Level; s.topo.Required && l != cluster.LevelAny && !e.together(j.allocs, l) {
		return fmt.Errorf("must be within one %s and holds %+v", l, j.allocs)
	}
	return nil
}

// tally is what some jobs hold of a node, added up.
type tally struct {
	whole uint64
	among uint64 // ... by jobs that were not alone on them in this run
	guest uint64 // devices on which guests are
	cut   uint64 // devices in MIG mode
	cpu   cluster.Milli
	ram   cluster.MiB
	devs  []device // used, not free
	sizes sizes
}

// add counts an allocation; it fails where two cannot go together.
func (t *tally) add(a *Alloc, packed bool) error {
	t.cpu += a.CPU
	t.ram += a.RAM
	if a.GPUs == 0 {
		return nil
	}
	if hi := 64 - bits.LeadingZeros64(a.GPUs); hi > len(t.devs) {
		return fmt.Errorf("device %d does not exist", hi-1)
	}
	if a.Beside {
		t.sizes[sizeOf(a)] += max(1, a.Tasks)
		t.guest |= a.GPUs
		for i := range t.devs {
			t.devs[i].guests += int8(a.GPUs >> i & 1)
		}
		return nil
	}
	if t.whole&a.GPUs != 0 && !(packed && t.whole&a.GPUs&^t.among == 0) {
		return fmt.Errorf("devices %b are held twice", t.whole&a.GPUs)
	}
	for i := range t.devs {
		if a.GPUs>>i&1 == 0 {
			continue
		}
		d := &t.devs[i]
		if a.Slots == 0 && t.cut>>i&1 == 1 {
			return fmt.Errorf("device %d is in MIG mode and not held in slices", i)
		}
		if a.Share == 0 {
			if d.tenants > 0 {
				return fmt.Errorf("device %d is held whole and shared", i)
			}
			continue
		}
		if d.media && a.Media {
			return fmt.Errorf("device %d: two instances have its media engines", i)
		}
		d.media = d.media || a.Media
		if d.slots&a.Slots != 0 {
			return fmt.Errorf("device %d: slots %08b are held twice", i, d.slots&a.Slots)
		}
		if d.tenants > 0 && (d.slots == 0) != (a.Slots == 0) {
			return fmt.Errorf("device %d is shared both by slices and by fractions", i)
		}
		if d.tenants > 0 && d.user != a.User {
			return fmt.Errorf("device %d is shared by %q and %q", i, d.user, a.User)
		}
		d.user = a.User
		d.tenants++
		d.milli += a.Share
		d.mem += a.Mem
		d.slots |= a.Slots
		d.compute += a.Compute
	}
	if a.GPUs != 0 {
		t.sizes[sizeOf(a)] += max(1, a.Tasks)
	}
	if a.Share == 0 {
		t.whole |= a.GPUs
		if packed {
			t.among |= a.GPUs
		}
	}
	return nil
}

// fits checks a tally against what the node has.
func (t *tally) fits(n *nodeState, c *class) error {
	model := &c.model
	if n.spec.CPU > 0 && t.cpu > n.spec.CPU || n.spec.RAM > 0 && t.ram > n.spec.RAM {
		return fmt.Errorf("%d CPU and %d RAM are held of %d and %d", t.cpu, t.ram, n.spec.CPU, n.spec.RAM)
	}
	for i := range t.devs {
		d := &t.devs[i]
		if int64(d.milli) > cluster.Whole || d.mem > model.Memory || int(d.compute) > max(0, model.Compute) {
			return fmt.Errorf("device %d: %d milli-GPU, %d MiB, %d compute slices are held", i, d.milli, d.mem, d.compute)
		}
		if c.clients > 0 && d.slots == 0 && int(d.tenants) > c.clients {
			return fmt.Errorf("device %d: %d shares, MPS takes %d clients", i, d.tenants, c.clients)
		}
	}
	return nil
}

func (e *Engine) tallies() []tally {
	ts := make([]tally, len(e.st.nodes))
	for i := range ts {
		ts[i].devs = make([]device, e.st.nodes[i].spec.GPUs)
		if f := e.st.nodes[i].fixed; f != nil {
			ts[i].cut = f.cut
		}
	}
	return ts
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
	ts := e.tallies()
	for _, j := range e.jobs {
		if j == nil {
			continue
		}
		allocs := j.dest
		if j.booked() {
			allocs = j.allocs
		}
		for i := range allocs {
			if err := ts[allocs[i].Node].add(&allocs[i], false); err != nil {
				return fmt.Errorf("books: node %d, job %d: %w", allocs[i].Node, j.spec.ID, err)
			}
		}
	}
	for id := range ts {
		n, t := &e.st.nodes[id], &ts[id]
		model := &e.st.classes[n.class].model
		free := n.whole() &^ t.whole
		for i := range t.devs {
			d, u := &n.devs[i], &t.devs[i]
			if u.tenants > 0 {
				free &^= 1 << i
			}
			want := device{int32(cluster.Whole) - u.milli, u.slots, u.compute, u.tenants, u.guests, u.media, model.Memory - u.mem, u.user}
			if *d != want {
				return fmt.Errorf("books: node %d, device %d: %+v, recomputed %+v", id, i, *d, want)
			}
			if (u.tenants > 0 || t.whole>>i&1 == 1) && n.healthy>>i&1 == 0 {
				return fmt.Errorf("books: node %d, device %d is held though it is bad", id, i)
			}
		}
		cpu, ram := n.spec.CPU, n.spec.RAM
		if cpu == 0 {
			cpu = notModelled
		}
		if ram == 0 {
			ram = notModelled
		}
		switch {
		case t.guest&^t.whole != 0 || n.guested != t.guest || n.hosts != t.whole:
			return fmt.Errorf("books: node %d: held %b with guests on %b, recomputed %b and %b", id, n.hosts, n.guested, t.whole, t.guest)
		case n.free != free || int(n.nfree) != bits.OnesCount64(free):
			return fmt.Errorf("books: node %d: free %b (%d), recomputed %b", id, n.free, n.nfree, free)
		case n.sizes != t.sizes:
			return fmt.Errorf("books: node %d: %v tasks by size, recomputed %v", id, n.sizes, t.sizes)
		case n.cpu != cpu-t.cpu || n.ram != ram-t.ram:
			return fmt.Errorf("books: node %d: %d CPU and %d RAM free, recomputed %d and %d", id, n.cpu, n.ram, cpu-t.cpu, ram-t.ram)
		}
		if err := t.fits(n, &e.st.classes[n.class]); err != nil {
			return fmt.Errorf("books: node %d: %w", id, err)
		}
	}
	return nil
}

// checkPhysical checks that no two jobs are on one device at the same time,
// those that are leaving included.
func (e *Engine) checkPhysical() error {
	ts := e.tallies()
	stops := make([][]cluster.JobID, len(ts))
	for _, j := range e.jobs {
		if j == nil || !j.holding() {
			continue
		}
		for _, a := range append(slices.Clone(j.allocs), j.leaving...) {
			if err := ts[a.Node].add(&a, j.packed); err != nil {
				return fmt.Errorf("physically: node %d, job %d: %w", a.Node, j.spec.ID, err)
			}
		}
		for _, a := range j.goingAllocs() {
			if !hasID(stops[a.Node], j.spec.ID) {
				stops[a.Node] = append(stops[a.Node], j.spec.ID)
			}
		}
	}
	for id := range ts {
		n := &e.st.nodes[id]
		if err := ts[id].fits(n, &e.st.classes[n.class]); err != nil {
			return fmt.Errorf("physically: node %d: %w", id, err)
		}
		have := slices.Clone(n.stopping)
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
	c := &e.st.classes[e.st.nodes[node].class]
	return e.plans.planner != nil && len(e.parts) > 0 && acceptsGPU(j.spec, c.model.Name) && whyNotClass(r, c) == ""
}
