package engine_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/quota"
)

// dumb is the engine's twin: the documented rules and nothing else. It keeps no
// index, no list and no memory: what is free is added up for every question,
// what-if is a copy, every order is a sort. It knows gangs of whole GPUs, of
// shares and of MIG slices, with CPU and RAM; GPU types, tiers, priorities; the
// policies that key knows; three placers; strict order and skip; arrays,
// dependencies, begin times, holds and time limits; bounds of single nodes; queues; promises and backfill.
//
// The files: dumb_line_test.go, which job may be considered at all; dumb_pass_test.go,
// which is next and which has to leave; dumb_queues_test.go, which may hold how much;
// dumb_backfill_test.go, what is promised; dumb_books_test.go, what is free and
// where a gang goes; dumb_waits_test.go, which waits for those that leave.
type dumb struct {
	policy, placer string
	mode           engine.Backfill
	minRuntime     time.Duration
	holdAfter      time.Duration
	now            cluster.Time
	nodes          []cluster.Node
	drained        map[int]bool // looked up only
	queues         []cluster.Queue
	mps            bool           // the shares of one device are of one user
	clients        map[string]int // ... and so many at most, by model
	pairs          pairs          // what is left of a job beside another in its share
	minSpeed       int64          // of jobs that state none
	parts          []cluster.Partition
	ledgers        [8]ledger
	ledgersAsked   int
	sets           map[string][]string     // of nodes, that jobs name; looked up only
	stagesOf       map[whereFrom][][][]int // known since nodes or sets changed last; looked up only
	weights        map[string]int64        // of GPU models; looked up only
	jobs           []*dumbJob
	turns          int
	completed      []earlier
	known          []earlier    // of them, those that count
	learned        cluster.Time // when they were looked at
	minute         cluster.Time // srsf, e-las: when the order of running jobs was last refreshed
	promises       []*promise
	possible       bool         // asking what could ever be
	passing        bool         // going through the line
	looks          bool         // the engine goes through it in this step
	mf             *multifactor // nil: another policy
	preempts       []string
	others         []string
	inPlan         []*dumbJob // by the last plan
	told           tally      // reports about running jobs; nil: not counted
}

type dumbJob struct {
	*cluster.Job
	shape         string // what is refused for one of these is refused for all
	state         engine.Phase
	hold          bool
	begun         bool // its begin time is over
	began         bool // it ran at all
	eligible      bool
	inArray       bool
	asked         int // when it asked for its array's place; 0: it did not
	allocs        []engine.Alloc
	waits         []cluster.JobID
	claims        []dumbClaim
	turn          int // when it was placed
	reason        engine.StopReason
	started       cluster.Time
	firstStart    cluster.Time
	limitAt       cluster.Time
	acc           cluster.Time
	stints        []stint // the GPU time that it had, one after the other
	ran           time.Duration
	end           cluster.Time // expected, as of when it was listed last
	done          time.Duration
	saved         time.Duration
	deaf          bool // asked for a checkpoint it saves nothing
	computes      bool
	eligibleSince cluster.Time // when it came into line last
	starvingSince cluster.Time // when it came into line first since it ran, or was held; Never: it is not there
	demoted       bool
	refreshed     int64          // its first key element when it was listed last
	goal          *engine.Target // what the policy's plan gives it
	narrow        string         // the only GPU model that it takes while it waits
	part          string         // the partition in which it runs
	idled         bool           // it would be eligible, but for the plan
	promisedAt    cluster.Time
	plan          []engine.Alloc // conservative: where it is promised to run
	predicted     time.Duration  // as of its submission
	namesakes     []*dumbJob     // the user's jobs of its name that were not done when it came
	promoted
}

// tier is what it counts as: best-effort while it is demoted.
func (j *dumbJob) tier() cluster.Tier {
	if j.demoted {
		return cluster.BestEffort
	}
	return j.Tier
}

func (j *dumbJob) holds() bool {
	return j.state == engine.Starting || j.state == engine.Running || j.state == engine.Stopping
}

func (j *dumbJob) inBooks() bool {
	return j.state == engine.Placed || j.state == engine.Starting || j.state == engine.Running
}

// milli is what it holds, or asks for: a slice counts by its compute share, the
// largest of those that it may get.
func (d *dumb) milli(j *dumbJob) (m int64) {
	if j.holds() || j.state == engine.Placed {
		for i := range j.allocs {
			m += j.allocs[i].Milli()
		}
		return m
	}
	for set, t := range j.Tasks {
		one := t.Request.Milli()
		if t.Request.Profile != "" {
			one = 0
			for i := range d.nodes {
				model := modelOf(&d.nodes[i])
				if p, ok := model.Profile(t.Request.Profile); ok && d.suits(j, set, i) {
					one = max(one, int64(p.Compute*1000/model.Compute))
				}
			}
		}
		m += one * int64(t.Count)
	}
	return m
}

// accrue counts service and work up to now.
func (d *dumb) accrue(j *dumbJob) {
	if j.holds() {
		work, weight := quota.Work(d.milli(j), j.acc, d.now), d.weight(j)
		if n := len(j.stints); n == 0 || j.stints[n-1].weight != weight {
			j.stints = append(j.stints, stint{weight: weight})
		}
		j.stints[len(j.stints)-1].work += work
		j.ran += d.now.Sub(j.acc)
		if j.computes {
			j.done += d.now.Sub(j.acc)
		}
	}
	j.acc = d.now
}

func (d *dumb) remaining(j *dumbJob) int64 {
	d.accrue(j)
	if j.Estimate == 0 {
		return int64(cluster.MaxDuration)
	}
	return int64(max(0, j.Estimate-j.done))
}

// key is the policy's: lower first.
func (d *dumb) key(j *dumbJob) [2]int64 {
	switch d.policy {
	case "fifo", "yarn-cs", "drf", "proportional":
		return [2]int64{-j.Priority}
	case "sjf", "srtf":
		return [2]int64{d.remaining(j)}
	case "qssf":
		runs := j.predicted
		if runs == 0 {
			runs = j.Estimate // which progress may have changed
		}
		return [2]int64{int64(runs/time.Millisecond) * j.GPUMilli(), j.GPUMilli()}
	case "ssf", "srsf":
		return [2]int64{d.remaining(j) / int64(time.Millisecond) * max(1, d.milli(j)/1000)}
	case "sjf-gpu", "sjf-gpu:preempt=true":
		return [2]int64{j.GPUMilli()}
	case "multifactor", weighted:
		return d.mf.among(j)
	case "edf":
		if j.Deadline == 0 {
			return [2]int64{math.MaxInt64}
		}
		return [2]int64{int64(j.Deadline)}
	case "las:base=1m": // levels end at 1, 2, 4 ... GPU-minutes
		d.accrue(j)
		level := int64(0)
		for end := int64(60_000_000); level < 15 && j.service() >= end; end *= 2 {
			level++
		}
		return [2]int64{level, int64(j.firstStart)}
	}
	if slices.Contains(ofLevels, d.policy) {
		return d.levelKey(j)
	}
	if strings.HasPrefix(d.policy, "scatter") {
		return j.scattered()
	}
	panic("the twin does not know " + d.policy)
}

func (d *dumb) preempting() bool {
	return strings.HasPrefix(d.policy, "scatter") ||
		slices.Contains(append(ofLevels, "srtf", "srsf", "las:base=1m", "edf", "sjf-gpu:preempt=true"), d.policy)
}

// first is the first element of a job's key as it compares with that of jobs
// that run: under srtf theirs falls, so it counts from the origin of time.
func (d *dumb) first(j *dumbJob) int64 {
	if d.policy == "srtf" {
		return d.key(j)[0] + int64(d.now)
	}
	return d.key(j)[0]
}

// list notes the key and the expected end of a job with devices: they count until
// they are noted again.
func (d *dumb) list(j *dumbJob) {
	j.refreshed = d.first(j)
	d.expect(j)
}

// listed is the first key element of a job with devices, as of its last change.
func (d *dumb) listed(j *dumbJob) int64 {
	if d.policy == "srtf" || d.minutely() {
		return j.refreshed
	}
	return d.key(j)[0]
}

// minutely: the order of running jobs is refreshed once a minute, under srsf only
// while jobs wait.
func (d *dumb) minutely() bool { return d.policy == "srsf" || d.policy == byPace || d.policy == byRest }

// book gives devices to a job; it starts when no other is on them any more.
func (d *dumb) book(j *dumbJob, allocs []engine.Alloc) {
	d.turns++
	j.allocs, j.state, j.turn, j.eligible = allocs, engine.Placed, d.turns, false
	j.promisedAt, j.plan = 0, nil
	d.list(j)
	d.waitForLeavers(j)
	if len(j.waits) == 0 {
		d.start(j)
	}
}

func (d *dumb) start(j *dumbJob) {
	j.state, j.started, j.firstStart, j.acc, j.computes = engine.Starting, d.now, min(j.firstStart, d.now), d.now, false
	if j.limitAt = cluster.Never; j.Limit > 0 {
		j.limitAt = d.now.Add(j.Limit)
	}
	d.list(j)
	d.others = append(d.others, fmt.Sprintf("start %d %+v", j.ID, j.allocs))
}

// stop tells a job to leave.
func (d *dumb) stop(j *dumbJob, why engine.StopReason, whom cluster.JobID) {
	d.accrue(j)
	j.state, j.reason = engine.Stopping, why
	d.preempts = append(d.preempts, fmt.Sprintf("preempt %d %s for %d", j.ID, why, whom))
}

// unplace takes back devices of a job that has not started.
func (d *dumb) unplace(j *dumbJob) {
	j.state, j.allocs, j.waits = engine.Pending, nil, nil
	d.line()
}

// step is Step. Around promises it matters when the scheduler looks, because time
// goes by: there the twin is told; and when a policy plans. So it does where victims
// have to leave their queues what those are guaranteed: which of them come first,
// by what they would lose, changes with time.
func (d *dumb) step(b engine.Batch, looks, plans bool) (others, preempts []string) {
	d.now, d.looks, d.others, d.preempts = b.Now, looks, nil, nil
	d.used()
	var ready []*dumbJob
	for _, ev := range b.Events {
		if ev.Type == engine.Stopped || ev.Type == engine.StartFailed {
			ready = append(ready, d.left(&ev)...)
		}
	}
	for _, ev := range b.Events {
		if ev.Type == engine.JobReshaped {
			d.tell(&ev, d.reshape(d.jobs[ev.Job], ev.Reshape))
		}
		if i := slices.IndexFunc(d.nodes, func(n cluster.Node) bool { return n.Name == ev.Node }); i >= 0 {
			d.node(&ev, i)
		}
	}
	for _, ev := range b.Events {
		d.event(&ev)
	}
	d.timers()
	for _, j := range d.jobs {
		if j.eligible {
			d.promote(j)
		}
	}
	d.learn()
	d.compare()
	for _, j := range ready {
		if j.state == engine.Placed && len(j.waits) == 0 {
			d.start(j)
		}
	}
	if plans {
		d.plan()
	}
	if looks || d.mode < engine.EASY {
		d.overdue()
		d.pass()
	}
	if plans {
		d.divide()
	}
	slices.Sort(d.preempts)
	return d.others, d.preempts
}

// timers: begin times and time limits that are over; srsf refreshes the order
// of running jobs once a minute while jobs wait.
func (d *dumb) timers() {
	var begin []*dumbJob
	for _, j := range d.jobs {
		if j.state == engine.Pending && !j.hold && !j.begun && j.Begin <= d.now {
			begin = append(begin, j)
		}
		if (j.state == engine.Running || j.state == engine.Starting) && j.limitAt <= d.now {
			d.stop(j, engine.TimedOut, cluster.NoJob)
		}
		if j.started.Add(d.minRuntime) == d.now {
			d.follow(j)
		}
	}
	slices.SortStableFunc(begin, func(a, b *dumbJob) int { return cmp.Compare(a.Begin, b.Begin) })
	for _, j := range begin {
		j.begun = true
		d.line()
	}
	d.line() // delays may be over
	waiting := slices.ContainsFunc(d.jobs, func(j *dumbJob) bool { return j.eligible })
	if m := d.now / cluster.Time(time.Minute); d.minutely() && (waiting || d.policy != "srsf") && m != d.minute {
		d.minute = m
		d.refresh()
	}
}

// left books that a job is off its devices; it returns the placed jobs that
// none keeps from their devices any more.
func (d *dumb) left(ev *engine.Event) (ready []*dumbJob) {
	j := d.jobs[ev.Job]
	if !j.holds() {
		return nil
	}
	d.accrue(j)
	if ev.Type == engine.Stopped {
		j.done = ev.Done
		j.saved = j.done
	}
	reason, requeue := ev.Reason, !j.NoRequeue
	if j.state == engine.Stopping &&
		(ev.Type == engine.StartFailed || reason == engine.Preempted || reason == engine.NodeLost &&
			j.reason != engine.Preempted) {
		reason = j.reason
	} else if ev.Type == engine.StartFailed {
		reason, requeue = engine.Preempted, true // it tries again
	}
	again := requeue && (reason == engine.Preempted || reason == engine.NodeLost)
	j.allocs, j.computes, j.demoted, j.state, j.since = nil, false, false, engine.Pending, d.now
	j.starvingSince = cluster.Never
	var placed []*dumbJob
	for _, w := range d.jobs {
		if w.state == engine.Placed && slices.Contains(w.waits, j.ID) {
			placed = append(placed, w)
		}
	}
	slices.SortFunc(placed, func(a, b *dumbJob) int { return cmp.Compare(a.turn, b.turn) })
	for _, w := range placed {
		w.waits = slices.DeleteFunc(w.waits, func(id cluster.JobID) bool { return id == j.ID })
		if len(w.waits) == 0 {
			ready = append(ready, w)
		}
	}
	if again {
		d.admit(j)
	} else {
		d.finish(j, reason)
	}
	return ready
}

func (d *dumb) node(ev *engine.Event, i int) {
	n := &d.nodes[i]
	if ev.Type == engine.NodeDrained {
		d.drained[i] = !ev.Undo
	}
	switch {
	case ev.Type == engine.NodeDown || ev.Type == engine.NodeAsleep && ev.Undo:
		n.Asleep = 0
	case ev.Type == engine.NodeAsleep && n.State != cluster.Down:
		n.Asleep = ev.Wake
	}
	switch {
	case ev.Type == engine.NodeUp && d.drained[i]: // a person drained it, and meant it
		n.State = cluster.Draining
	case ev.Type == engine.NodeUp:
		n.State = cluster.Up
	case ev.Type == engine.NodeDown:
		n.State = cluster.Down
		d.lose(func(a engine.Alloc) bool { return int(a.Node) == i })
	case ev.Type == engine.NodeDrained && !ev.Undo && n.State == cluster.Up:
		n.State = cluster.Draining
		for _, j := range d.jobs {
			if j.state == engine.Placed &&
				slices.ContainsFunc(j.allocs, func(a engine.Alloc) bool { return int(a.Node) == i }) {
				d.unplace(j)
			}
		}
	case ev.Type == engine.NodeDrained && ev.Undo && n.State == cluster.Draining:
		n.State = cluster.Up
	case ev.Type == engine.NodeResized:
		n.CPU, n.RAM = ev.Size.CPU, ev.Size.RAM
	case ev.Type == engine.NodeChanged:
		n.Rack, n.Fabric, n.CPU, n.RAM = ev.Spare.Rack, ev.Spare.Fabric, ev.Spare.CPU, ev.Spare.RAM
	case ev.Type == engine.GPUBad && ev.Undo:
		n.Bad &^= ev.GPUs
	case ev.Type == engine.GPUBad:
		n.Bad |= ev.GPUs & (uint64(1)<<n.GPUs - 1)
		d.lose(func(a engine.Alloc) bool { return int(a.Node) == i && a.GPUs&ev.GPUs != 0 })
	}
	d.resized()
}

// lose stops every job that holds something that is lost.
func (d *dumb) lose(lost func(a engine.Alloc) bool) {
	for _, j := range d.jobs {
		switch {
		case !j.inBooks() || !slices.ContainsFunc(j.allocs, lost):
		case j.state == engine.Placed:
			d.unplace(j)
		default:
			d.stop(j, engine.NodeLost, cluster.NoJob)
		}
	}
}

func (d *dumb) event(ev *engine.Event) {
	switch ev.Type {
	case engine.NodesNamed:
		d.sets[ev.Set.Name], d.stagesOf = ev.Set.Nodes, nil
	case engine.Submitted:
		d.submit(ev.Spec, ev.Carryover)
	case engine.Adopted:
		d.tell(ev, d.adopt(ev.Record))
	case engine.Updated:
		d.tell(ev, d.amend(d.jobs[ev.Job], ev.Spec))
	case engine.Started:
		if j := d.jobs[ev.Job]; j.holds() {
			d.accrue(j)
			if j.state == engine.Starting {
				j.state = engine.Running
			}
			if j.computes = true; j.state == engine.Running {
				d.list(j)
			}
			j.began = true
			d.line()
		}
	case engine.Progress:
		if j := d.jobs[ev.Job]; j.holds() {
			d.accrue(j)
			spec := *j.Job
			j.Job = &spec
			if ev.Estimate > 0 {
				spec.Estimate = ev.Estimate
			}
			if ev.Switch.Save > 0 {
				spec.Checkpoint.Cost = ev.Switch.Save
			}
			if ev.Switch.Restart > 0 {
				spec.Checkpoint.Restart = ev.Switch.Restart
			}
			if ev.Saves != engine.SavesUnknown {
				j.deaf = ev.Saves == engine.SavesNothing
			}
			if j.state != engine.Stopping {
				d.list(j)
			}
		}
	case engine.Demoted:
		if j := d.jobs[ev.Job]; (j.state == engine.Starting || j.state == engine.Running) &&
			j.Tier != cluster.Critical && j.demoted == ev.Undo {
			j.demoted = !ev.Undo
			d.list(j)
		}
	case engine.Held:
		j := d.jobs[ev.Job]
		if j.hold == !ev.Undo {
			return // a repeated report: it keeps its place in the line
		}
		j.starvingSince = cluster.Never
		if j.hold = !ev.Undo; j.state == engine.Placed && j.hold {
			j.state, j.allocs, j.waits = engine.Pending, nil, nil
		}
		if j.state == engine.Pending {
			d.admit(j)
		}
	case engine.Cancelled:
		switch j := d.jobs[ev.Job]; j.state {
		case engine.Pending, engine.Placed:
			d.finish(j, engine.WasCancelled)
		case engine.Starting, engine.Running:
			d.stop(j, engine.WasCancelled, cluster.NoJob)
		case engine.Stopping:
			j.reason = engine.WasCancelled
		}
	}
}
