package engine_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/quota"
)

// phases of a job in the random world
const (
	waits = iota
	starts
	runs
	leaves
	ended
)

type worldJob struct {
	spec    *cluster.Job
	phase   int
	attempt uint32
	step    uint32 // of the attempt: voids reports that are overtaken
	allocs  []engine.Alloc
	held    []engine.Alloc // physically, while a resize is under way
	resize  bool
	packed  bool // in this run it was on the devices of another, or another on its own
	reason  engine.StopReason
	milli   cluster.Milli
	served  int64 // milli-GPU-milliseconds up to since
	since   cluster.Time
	left    time.Duration
	kicked  int // order preemptions at this instant
}

type report struct {
	at   cluster.Time
	seq  int
	job  cluster.JobID
	step uint32
	typ  engine.EventType
	ext  *engine.Event
}

// randomWorld is a driver that reacts at random and checks every decision.
type randomWorld struct {
	moves    int // of jobs for others
	chained  int // of those, to where another was
	parted   int // of those, shares and slices
	wide     int // times that a job moved for a job with shares of several GPUs
	emptied  int // nodes
	sc       *scenario
	e, twin  *engine.Engine
	memoTwin bool
	now      cluster.Time
	wake     cluster.Time
	queue    []report
	seq      int
	jobs     []*worldJob
	nodes    map[string]int
	state    []cluster.NodeState
	drained  []bool
	specs    []cluster.Node
	bad      []uint64
	events   int
	sameNow  int
	idle     int // steps with nothing to come but wake-ups
	alive    int
	log      []string
	keepLog  bool
	used     map[string]cluster.Milli
	changed  bool                               // limits changed in this batch
	records  map[cluster.JobID]engine.JobRecord // as kept by a driver that writes down only what changed; looked up only

	twinRecords map[cluster.JobID]engine.JobRecord // likewise
	found       map[engine.EventType]int           // reports about running jobs and nodes that were taken over
}

// play runs a scenario to its end; it returns how many events it took.
func play(sc *scenario, keepLog bool) (w *randomWorld, err error) {
	w = &randomWorld{sc: sc, wake: cluster.Never, nodes: map[string]int{}, keepLog: keepLog, memoTwin: sc.seed%2 == 0,
		records: map[cluster.JobID]engine.JobRecord{}, twinRecords: map[cluster.JobID]engine.JobRecord{},
		found: map[engine.EventType]int{}}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if w.e, err = engine.New(sc.cfg); err != nil {
		return w, errInvalid
	}
	if w.twin, err = engine.New(sc.cfg); err != nil {
		return w, err
	}
	w.e.Rank(sc.seed%3 > 0)
	w.twin.Rank(sc.seed%3 == 0)
	for _, n := range sc.cfg.Spec.Nodes {
		w.addNode(n)
	}
	for i := range sc.stimuli {
		w.push(report{at: sc.stimuli[i].at, ext: &sc.stimuli[i].ev})
	}
	for w.events < 40*len(sc.stimuli)+1000 {
		more, err := w.step()
		if err != nil {
			return w, fmt.Errorf("at %v, step of %d events so far: %w", w.now, w.events, err)
		}
		if !more {
			break
		}
	}
	return w, nil
}

var errInvalid = errors.New("not a valid configuration")

func (w *randomWorld) addNode(n cluster.Node) {
	w.nodes[n.Name] = len(w.specs)
	w.specs, w.state, w.bad = append(w.specs, n), append(w.state, n.State), append(w.bad, n.Bad)
	w.drained = append(w.drained, n.State == cluster.Draining)
}

func (w *randomWorld) push(r report) {
	w.seq++
	r.seq = w.seq
	i := sort.Search(len(w.queue), func(i int) bool { return w.queue[i].at > r.at })
	w.queue = append(w.queue, report{})
	copy(w.queue[i+1:], w.queue[i:])
	w.queue[i] = r
}

// draw gives the chance of one reaction of one attempt of a job.
func (w *randomWorld) draw(id cluster.JobID, attempt uint32, what uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.sc.seed^uint64(id)<<32, uint64(attempt)<<8|what))
}

func (w *randomWorld) delay(r *rand.Rand) time.Duration {
	if w.sc.instant || chance(r, 25) {
		return 0
	}
	return seconds(r.IntN(40))
}

// forgive forgets which jobs were preempted at this instant.
func (w *randomWorld) forgive() {
	for _, j := range w.jobs {
		if j != nil {
			j.kicked = 0
		}
	}
}

// step delivers the next batch; false: nothing more will happen.
func (w *randomWorld) step() (bool, error) {
	at := w.wake
	if len(w.queue) > 0 {
		at = min(at, w.queue[0].at)
	}
	if w.idle++; len(w.queue) > 0 && w.queue[0].at < w.now.Add(6*time.Hour) { // some jobs run for years
		w.idle = 0
	}
	if at == cluster.Never || w.idle > 20 { // budgets and periodic reservations tick for ever
		return false, w.checkService()
	}
	if at < w.now {
		return false, fmt.Errorf("wake-up at %v lies in the past", at)
	}
	if at == w.now && w.events > 0 {
		if w.sameNow++; w.sameNow > 60+10*w.alive {
			return false, fmt.Errorf("%d steps at one instant: no fixed point", w.sameNow)
		}
	} else {
		w.sameNow = 0
		w.forgive()
	}
	w.now = at
	b := engine.Batch{Seq: int64(w.seq), Now: at}
	most := 1 + w.draw(-2, uint32(w.events), 0).IntN(4)*3 // events of one instant come together or one by one
	w.changed = false
	for len(w.queue) > 0 && w.queue[0].at == at && len(b.Events) < most {
		r := w.queue[0]
		w.queue = w.queue[1:]
		if ev, ok := w.happen(r); ok {
			b.Events = append(b.Events, ev)
		}
	}
	w.events += max(1, len(b.Events))
	return true, w.decide(b)
}

func (w *randomWorld) decide(b engine.Batch) error {
	before := w.e.Stats().Passes
	d := w.e.Step(b)
	w.note("%v %s", b.Now, describe(&b, &d))
	w.keepRecords()
	if err := w.checkEmptied(); err != nil {
		return err
	}
	if err := w.e.CheckInvariants(); err != nil {
		return err
	}
	if err := w.e.CheckSpeeds(); err != nil && !w.sc.facts {
		return err
	}
	if err := w.look(); err != nil {
		return err
	}
	passed := w.e.Stats().Passes > before
	if w.memoTwin && (passed || !w.e.TimedPasses()) {
		w.twin.Forget()
	}
	if err := w.restart(); err != nil {
		return err
	}
	d2 := w.twin.Step(b)
	w.keepTwinRecords()
	if err := w.checkRecords(); err != nil {
		return err
	}
	if !reflect.DeepEqual(d.Actions, d2.Actions) && len(d.Actions)+len(d2.Actions) > 0 || d.Hash != d2.Hash ||
		!w.memoTwin && d.WakeAt != d2.WakeAt {
		return fmt.Errorf("a second engine (memory disabled: %v) decides\n%s (wakes at %v)\ninstead of\n%s (wakes at %v)", w.memoTwin,
			describe(&b, &d2), d2.WakeAt, describe(&b, &d), d.WakeAt)
	}
	if d.WakeAt <= b.Now {
		return fmt.Errorf("wake-up at %v, not after %v", d.WakeAt, b.Now)
	}
	w.wake = d.WakeAt
	if err := w.settle(&b); err != nil {
		return err
	}
	if len(d.Actions) > 3*w.alive+10 {
		return fmt.Errorf("%d actions for %d jobs", len(d.Actions), w.alive)
	}
	for i := range d.Actions {
		if err := w.apply(&d.Actions[i]); err != nil {
			return fmt.Errorf("%s: %w", describe(nil, &engine.Decision{Actions: d.Actions[i : i+1]}), err)
		}
	}
	if err := w.checkStates(); err != nil {
		return err
	}
	return w.checkLimits()
}

// look asks now and then what is explained or foreseen of some jobs: the engine is the same afterwards, and decides as
// the second one does, which is not asked.
func (w *randomWorld) look() error {
	r := w.draw(-5, uint32(w.events), 0)
	if !chance(r, 6) || len(w.jobs) == 0 {
		return nil
	}
	w.e.SpendBudgets()
	before := w.e.Snapshot()
	asked := 0
	for n, from := 0, r.IntN(len(w.jobs)); n < len(w.jobs) && asked < 4; n++ {
		id := cluster.JobID((from + n) % len(w.jobs))
		if w.e.StateOf(id) == engine.Done && !chance(r, 10) {
			continue // there is little to say about it
		}
		asked++
		w.e.Why(id)
		w.e.PlanMoves(id)
	}
	w.e.Line(3)
	w.e.PlanEmptying(engine.EmptyNodes)
	after := w.e.Snapshot()
	if reflect.DeepEqual(before, after) {
		return w.e.CheckInvariants()
	}
	for f, v := range reflect.ValueOf(before).Fields() {
		was, is := v.Interface(), reflect.ValueOf(after).FieldByName(f.Name).Interface()
		if !reflect.DeepEqual(was, is) {
			return fmt.Errorf("looking changed %s of the engine from\n%+v to\n%+v", f.Name, was, is)
		}
	}
	return errors.New("looking changed the engine")
}

// happen turns a report into what the engine is told.
func (w *randomWorld) happen(r report) (engine.Event, bool) {
	if r.ext != nil {
		return w.outside(r.ext)
	}
	j := w.jobs[r.job]
	if j.step != r.step {
		return engine.Event{}, false
	}
	ev := engine.Event{Type: r.typ, Job: r.job}
	switch r.typ {
	case engine.Started:
		j.phase = runs
		ev.Rate = w.rate(r.job)
		if j.spec.Kind != cluster.Service {
			run := j.left * time.Duration(1_000_000) / time.Duration(cmp.Or(ev.Rate, 1_000_000))
			w.push(report{at: w.now.Add(run.Round(time.Second) + time.Second), job: r.job, step: j.step,
				typ: engine.Stopped})
		}
	case engine.Resized:
		j.resize, j.held = false, nil
		ev.Rate = w.rate(r.job)
	case engine.StartFailed:
		if j.phase == starts {
			w.forgive() // a job that starts in vain may take the same again: no circle, and tries are counted
		}
		w.depart(j, waits)
	case engine.Stopped:
		ev.Reason, ev.Done = engine.Completed, 0
		d := w.draw(r.job, j.attempt, 5)
		switch {
		case j.phase == leaves && !chance(d, 4):
			ev.Reason = j.reason
			if chance(d, 30) {
				ev.Reason = engine.Preempted // a driver that only knows that it was told
			}
		case chance(d, 15):
			ev.Reason = engine.Failed
		}
		ev.Done = seconds(d.IntN(50))
		w.depart(j, waits)
	}
	return ev, true
}

// rate is a property of the job: how fast it runs does not change with the attempt.
func (w *randomWorld) rate(id cluster.JobID) int64 {
	return pick[int64](w.draw(id, 0, 9), 0, 1_000_000, 500_000, 1_500_000)
}

func (w *randomWorld) depart(j *worldJob, to int) {
	w.serve(j)
	j.phase, j.allocs, j.held, j.milli, j.resize = to, nil, nil, 0, false
	j.packed = false
	j.step++
}

// outside books a stimulus in the world.
func (w *randomWorld) outside(ev *engine.Event) (engine.Event, bool) {
	switch ev.Type {
	case engine.Submitted:
		for len(w.jobs) <= int(ev.Job) {
			w.jobs = append(w.jobs, nil)
		}
		w.jobs[ev.Job] = &worldJob{spec: ev.Spec, left: seconds(10 + w.draw(ev.Job, 0, 1).IntN(400))}
		if ev.Carryover != nil {
			w.jobs[ev.Job].served = ev.Carryover.Attained
		}
		w.alive++
		return *ev, true
	case engine.QueueChanged:
		w.changed = true
		return *ev, true
	case engine.Adopted:
		w.changed = true
		return w.find(ev), true
	case engine.JobReshaped:
		w.changed = true
		now := *ev
		if now.Job = w.someRunning(ev.Job); now.Job == cluster.NoJob {
			return now, false
		}
		return w.find(&now), true
	case engine.NodeChanged:
		w.changed = true
		return *ev, true
	case engine.NodeResized:
		i := w.nodes[ev.Node]
		w.specs[i].CPU, w.specs[i].RAM = ev.Size.CPU, ev.Size.RAM
		return *ev, true
	case engine.NodeUp, engine.NodeDown, engine.NodeDrained, engine.GPUBad:
		w.changed = true
		i, ok := w.nodes[ev.Node]
		if !ok {
			if ev.Spare == nil {
				return *ev, true
			}
			w.addNode(*ev.Spare)
			return *ev, true
		}
		switch {
		case ev.Type == engine.NodeUp && w.drained[i]:
			w.state[i] = cluster.Draining
		case ev.Type == engine.NodeUp:
			w.state[i] = cluster.Up
		case ev.Type == engine.NodeDown:
			w.state[i] = cluster.Down
		case ev.Type == engine.NodeDrained:
			if w.drained[i] = !ev.Undo; w.state[i] == cluster.Down {
				break
			}
			if w.state[i] = cluster.Up; !ev.Undo {
				w.state[i] = cluster.Draining
			}
		case ev.Type == engine.GPUBad && ev.Undo:
			w.bad[i] &^= ev.GPUs
		case ev.Type == engine.GPUBad:
			w.bad[i] |= ev.GPUs
		}
		return *ev, true
	}
	if ev.Type != engine.Tick && ev.Type != engine.Defragment && (int(ev.Job) >= len(w.jobs) || w.jobs[ev.Job] == nil) {
		return *ev, true // about a job that is not known
	}
	if ev.Type == engine.Progress && w.jobs[ev.Job].phase != runs {
		return *ev, false
	}
	return *ev, true
}

func (w *randomWorld) serve(j *worldJob) {
	j.served += quota.Work(j.milli, j.since, w.now)
	j.since = w.now
}

func milliOf(allocs []engine.Alloc) (m cluster.Milli) {
	for i := range allocs {
		a := allocs[i]
		a.Beside = false // a guest is served, too
		m += a.Milli()
	}
	return m
}

// apply carries out an action and checks that it is a legal one.
func (w *randomWorld) apply(a *engine.Action) error {
	if a.Job < 0 || int(a.Job) >= len(w.jobs) || w.jobs[a.Job] == nil {
		return errors.New("the job was never submitted")
	}
	j := w.jobs[a.Job]
	w.serve(j)
	switch a.Type {
	case engine.Start:
		if j.phase != waits {
			return fmt.Errorf("the job is in phase %d", j.phase)
		}
		j.phase, j.allocs, j.milli = starts, a.Allocs, milliOf(a.Allocs)
		j.attempt++
		j.step++
		d := w.draw(a.Job, j.attempt, 2)
		typ := engine.Started
		if chance(d, 5) {
			typ = engine.StartFailed
		}
		w.push(report{at: w.now.Add(w.delay(d)), job: a.Job, step: j.step, typ: typ})
		w.pack(a)
		return w.checkDevices(a, true)
	case engine.Preempt:
		if j.phase != starts && j.phase != runs {
			return fmt.Errorf("the job is in phase %d", j.phase)
		}
		if a.Reason == engine.Preempted && w.e.TierOf(a.Job) == cluster.Critical &&
			len(w.sc.cfg.Spec.Reservations) == 0 && !w.onGiven(j.allocs) {
			return errors.New("a critical job is preempted")
		}
		if a.For != cluster.NoJob {
			if j.kicked++; j.kicked > 3 {
				return fmt.Errorf("the job is preempted %d times at one instant", j.kicked)
			}
		}
		typ := engine.Stopped
		d := w.draw(a.Job, j.attempt, 3)
		if j.phase == starts && chance(d, 30) {
			typ = engine.StartFailed
		}
		j.phase, j.reason = leaves, a.Reason
		j.step++
		w.push(report{at: w.now.Add(w.delay(d)), job: a.Job, step: j.step, typ: typ})
	case engine.Resize:
		if j.phase != runs || j.resize {
			return fmt.Errorf("the job is in phase %d, resizing %v", j.phase, j.resize)
		}
		if milliOf(a.Allocs) < j.milli || len(a.Allocs) < len(j.allocs) {
			j.held = j.allocs
		}
		j.resize = true
		j.allocs, j.milli = a.Allocs, milliOf(a.Allocs)
		w.push(report{at: w.now.Add(w.delay(w.draw(a.Job, j.attempt, 4))), job: a.Job, step: j.step,
			typ: engine.Resized})
		return w.checkDevices(a, false)
	case engine.Reject:
		if j.phase != waits {
			return fmt.Errorf("the job is in phase %d", j.phase)
		}
	}
	return nil
}

// checkStates compares what the engine believes with the world.
func (w *randomWorld) checkStates() error {
	w.alive = 0
	for id, j := range w.jobs {
		if j == nil {
			continue
		}
		s := w.e.StateOf(cluster.JobID(id))
		ok := false
		switch j.phase {
		case waits:
			ok = s == engine.Pending || s == engine.Placed || s == engine.Done
		case starts:
			ok = s == engine.Starting
		case runs:
			ok = s == engine.Running
		case leaves:
			ok = s == engine.Stopping
		}
		if !ok {
			return fmt.Errorf("job %d is in phase %d and the engine believes that it is %s", id, j.phase, s)
		}
		if s != engine.Done {
			w.alive++
		}
	}
	return nil
}

// pack notes which job is beside which.
func (w *randomWorld) pack(a *engine.Action) {
	for i := range a.Allocs {
		for id, o := range w.jobs {
			if al := &a.Allocs[i]; al.Beside && o != nil && id != int(a.Job) &&
				slices.ContainsFunc(o.allocs, func(b engine.Alloc) bool {
					return b.Node == al.Node && b.GPUs&al.GPUs != 0
				}) {
				o.packed, w.jobs[a.Job].packed = true, true
			}
		}
	}
}

// checkDevices checks that nothing is on a device twice, counted by the world.
func (w *randomWorld) checkDevices(act *engine.Action, first bool) error {
	type dev struct {
		whole, tenants int
		lone           bool // whole for one that was never beside another
		share          int64
		slots          uint8
		user           string
	}
	devs := make([][64]dev, len(w.specs))
	cpu, ram := make([]int64, len(w.specs)), make([]int64, len(w.specs))
	for id, j := range w.jobs {
		if j == nil || j.phase == waits {
			continue
		}
		list := j.allocs
		if j.held != nil {
			list = j.held
		}
		for _, a := range list {
			cpu[a.Node] += a.CPU
			ram[a.Node] += a.RAM
			for m := a.GPUs; m != 0; m &= m - 1 {
				d := &devs[a.Node][bits.TrailingZeros64(m)]
				if a.Share == 0 {
					d.whole++
					d.lone = d.lone || !j.packed
				} else {
					d.tenants++
					user := w.e.Record(cluster.JobID(id)).Spec.User // it may have been updated
					if d.tenants > 1 && a.Slots == 0 && user != d.user && w.sc.cfg.Spec.Sharing == cluster.MPS {
						return fmt.Errorf("job %d of %q is on a device of node %d on which %q is", id, user, a.Node,
							d.user)
					}
					d.user = user
				}
				if d.whole > 1 && d.lone || d.whole > 0 && d.tenants > 0 || d.slots&a.Slots != 0 {
					return fmt.Errorf("job %d is on a device of node %d that another job still holds", id, a.Node)
				}
				d.slots |= a.Slots
				if d.share += int64(a.Share); d.share > 1000 {
					return fmt.Errorf("a device of node %d is shared beyond its capacity", a.Node)
				}
			}
		}
	}
	for i := range w.specs {
		takesCPU, takesRAM := true, true
		if w.sc.facts { // a node may have become smaller, but nothing starts then that adds to what is held
			c, r := dumbHost(act.Allocs, int32(i))
			takesCPU, takesRAM = first && c > 0, first && r > 0
		}
		if takesCPU && w.specs[i].CPU > 0 && cpu[i] > w.specs[i].CPU ||
			takesRAM && w.specs[i].RAM > 0 && ram[i] > w.specs[i].RAM {
			return fmt.Errorf("node %d has %d CPU and %d RAM in use", i, cpu[i], ram[i])
		}
	}
	for _, a := range act.Allocs {
		if first && w.state[a.Node] != cluster.Up {
			return fmt.Errorf("node %d is %s", a.Node, w.state[a.Node])
		}
		if w.bad[a.Node]&a.GPUs != 0 {
			return fmt.Errorf("node %d: a bad device", a.Node)
		}
		if a.GPUs>>w.specs[a.Node].GPUs != 0 {
			return fmt.Errorf("node %d: no such device", a.Node)
		}
	}
	return nil
}

// checkLimits: a queue is never brought above its limit by a decision.
func (w *randomWorld) checkLimits() error {
	names, used, limit := w.e.Queues()
	old := w.used
	w.used = map[string]cluster.Milli{}
	for i, name := range names {
		w.used[name] = used[i]
		was, known := old[name]
		if limit[i] >= 0 && used[i] > limit[i] && (!known || used[i] > was) && !w.changed {
			return fmt.Errorf("queue %s uses %d of at most %d; before the step it was %d", name, used[i], limit[i], was)
		}
	}
	return nil
}

// checkService: service is the integral of what was held.
func (w *randomWorld) checkService() error {
	for id, j := range w.jobs {
		if j == nil {
			continue
		}
		w.serve(j)
		if got := w.e.Attained(cluster.JobID(id)); got != j.served {
			return fmt.Errorf("job %d was served %d milli-GPU-ms, the engine counts %d", id, j.served, got)
		}
	}
	return nil
}

func (w *randomWorld) note(format string, args ...any) {
	if w.keepLog {
		w.log = append(w.log, fmt.Sprintf(format, args...))
	}
}

func describe(b *engine.Batch, d *engine.Decision) string {
	var s strings.Builder
	if b != nil {
		for i := range b.Events {
			ev := &b.Events[i]
			fmt.Fprintf(&s, "[%s", ev.Type)
			switch ev.Type {
			case engine.NodeUp, engine.NodeDown, engine.NodeDrained, engine.GPUBad, engine.NodeAsleep,
				engine.NodeResized, engine.NodeChanged:
				fmt.Fprintf(&s, " %s %b undo=%v", ev.Node, ev.GPUs, ev.Undo)
				if ev.Size != nil || ev.Type == engine.NodeChanged {
					fmt.Fprintf(&s, " %+v %+v", ev.Size, ev.Spare)
				}
			case engine.Submitted, engine.Updated:
				fmt.Fprintf(&s, " %+v", *ev.Spec)
			case engine.JobReshaped:
				fmt.Fprintf(&s, " %d %+v", ev.Job, ev.Reshape)
			case engine.Adopted:
				fmt.Fprintf(&s, " %+v on %+v", *ev.Record.Spec, ev.Record.Allocs)
			case engine.NodesNamed:
				fmt.Fprintf(&s, " %+v", *ev.Set)
			case engine.QueueChanged:
				fmt.Fprintf(&s, " %+v", ev.Queues)
			case engine.Stopped:
				fmt.Fprintf(&s, " %d %s done=%v", ev.Job, ev.Reason, ev.Done)
			default:
				fmt.Fprintf(&s, " %d undo=%v rate=%d", ev.Job, ev.Undo, ev.Rate)
			}
			s.WriteString("] ")
		}
		s.WriteString("-> ")
	}
	for i := range d.Actions {
		a := &d.Actions[i]
		fmt.Fprintf(&s, "{%s %d", a.Type, a.Job)
		for _, al := range a.Allocs {
			fmt.Fprintf(&s, " n%d:%b", al.Node, al.GPUs)
			if al.Share > 0 {
				fmt.Fprintf(&s, "/%d", al.Share)
			}
			if al.Tasks != 1 {
				fmt.Fprintf(&s, "x%d", al.Tasks)
			}
		}
		if a.Type == engine.Preempt {
			fmt.Fprintf(&s, " %s for %d", a.Reason, a.For)
		}
		s.WriteString(a.Text + "} ")
	}
	return s.String()
}
