package engine

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/quota"
)

// State is where a job is in its life.
type State uint8

// The states. A placed job has devices that its predecessors have not left yet.
const (
	Pending  State = iota
	Placed         // devices chosen, waiting for those who leave them
	Starting       // Start was decided, Started has not come back
	Running
	Stopping // Preempt was decided, Stopped has not come back
	Done
)

// jobState is a job as the engine sees it. Times that accrue (attained, ran,
// done) hold up to acc and are continued from there with what the job holds.
type jobState struct {
	spec    *cluster.Job
	*tenure            // Engine.none of a job that was given nothing so far
	key     order.Item // while eligible: in the group; while running: in the running list; while in a pool: there
	nextKey cluster.Time

	state    State
	reason   StopReason
	parked   Parked
	how      How  // while it stops: how it was told to
	rank     rank // where it is in the ranking,
	rerank   bool // which may be another place now
	eligible bool // pending and in its group's list
	inArray  bool // it has one of its array's places
	promoted bool // waits longer than the starvation bound
	waited   bool // listed while it was placed
	lifted   bool // while victims are looked for: it is one
	touched  bool // its record changed in this step
	demoted  bool // while it runs: it counts as best-effort
	warm     bool // it was suspended while it computed; while it has devices: and went on in place
	resizing bool // a Resize was decided, Resized has not come back
	packed   bool // in this run others were on its devices, or it on theirs
	deaf     bool // asked for a checkpoint it saves nothing, as its driver found
	inPlan   bool // plans may be about it, and are shown it
	whole    bool // plans only divide GPUs (Traits.OnlyDivides), and none that can be divided suits it
	pooled   bool // ... and may draw it,

	pool        int32 // from here: key is its place
	queue       int32
	user        int32
	shape       int32
	base        int32 // the shape of its spec; shape is narrow while it waits in line under a plan
	narrow      int32 // the shape of its spec as its target has it
	group       int32 // while eligible
	inPlaced    int32 // 1 + its place among those placed; 0: it is not there
	gen         uint32
	devices     int32 // held, or asked for
	tasks       int32 // of the (elastic) first set
	waits       int32 // stopping jobs that must leave before it can start
	beside      int32 // 1 + the job whose guest it is; 0: none's
	fails       int32 // failed launches in a row
	preemptions int32

	milli      cluster.Milli // held, or asked for at full size
	weight     int64         // what an hour of its GPU model counts for, thousandths, as it was booked
	poolless   cluster.Time  // it has no place in a pool before
	since      cluster.Time  // last became pending
	lined      cluster.Time  // last became eligible
	hungry     cluster.Time  // in line since then, for the starvation bound; Never: not in line
	firstStart cluster.Time
	ended      cluster.Time
	predicted  time.Duration     // how long such jobs ran, as of its submission
	promoteAt  cluster.Time      // while eligible: the next one, if it waits on
	promise    cluster.Time      // expected start from a reservation; Never: none
	plan       []inventory.Alloc // conservative: where the promise would have it run
	anchor     anchor            // how measurements of its model become its speeds
	target     *Target           // what the policy's plan gives it; nil: not planned yet
}

// tenure is what comes of the devices that a job was given. Of the many that wait in line most were given none yet:
// they share an empty one, which is only read. Who is given something gets its own first (give).
type tenure struct {
	allocs  []inventory.Alloc
	home    []inventory.Alloc // of a suspended job: its memory is there, it resumes nowhere else
	frozen  []inventory.Alloc // where its memory is, also when it may go on elsewhere
	asleep  time.Duration     // useful work that it has in memory
	leaving []inventory.Alloc // given back by a shrink, physically still held
	dest    []inventory.Alloc // while it stops to be moved: where it goes, booked for it
	waiters []cluster.JobID   // who is to start where it leaves
	claims  []Claim           // what they count on of its CPU and RAM
	guests  []cluster.JobID   // who runs beside it, the first to come first
	moved   []cluster.Time    // when, as far back as keepMoves
	endKey  order.Item        // while it holds devices: in the list of expected ends
	loss    int64             // what stopping it wasted when it was ranked

	started    cluster.Time // of the current run
	limitAt    cluster.Time // when the time limit strikes
	acc        cluster.Time
	attained   int64         // milli-GPU-milliseconds
	weighted   int64         // ... by the weights of the GPU models, up to the last change of weight
	unweighted int64         // ... of attained, what was received up to then
	ran        time.Duration // wall time on devices
	done       time.Duration // useful, on the reference GPU
	saved      time.Duration // ... of which safe in a checkpoint
	served     []Served      // wall time on devices by GPU model, where a policy plans

	servedBefore int64         // of its weighted service, what was received before the last promotion
	ranBefore    time.Duration // of ran, likewise
	doneBefore   time.Duration // useful work that it had at the last promotion
	promotion    cluster.Time  // the last one; 0: there was none

	rate   int64           // ppm of the reference; 0 until Started
	speed  int64           // the last rate known with its GPUs for itself; 0: none
	memory cluster.MiB     // the most that it was measured to use of any of its GPUs; 0: nobody measured it
	solo   int64           // the last rate known with nobody else in shares of its GPUs; 0: none
	among  []cluster.JobID // who computed in shares of its GPUs when its speed was measured last
	slow   cluster.Time    // since then it is measured to be slower among them than it accepts; 0: it is not
}

// give lets a job have something: it shares nothing with those that wait.
func (e *Engine) give(j *jobState) {
	if j.tenure == &e.none {
		j.tenure = &tenure{}
	}
}

func (j *jobState) holding() bool { return j.state >= Starting && j.state <= Stopping }

// tier is what the job counts as against others.
func (j *jobState) tier() cluster.Tier {
	if j.demoted {
		return cluster.BestEffort
	}
	return j.spec.Tier
}

func (j *jobState) attainedAt(now cluster.Time) int64 {
	if !j.holding() {
		return j.attained
	}
	return j.attained + quota.Work(j.serves(), j.acc, now)
}

// serviceAt is what the job attained in hours that count alike: those of a GPU model
// by its weight.
func (j *jobState) serviceAt(now cluster.Time) int64 {
	return j.weighted + thousandths(j.attainedAt(now)-j.unweighted, j.weight)
}

// thousandths is floor(n*of/1000).
func thousandths(n, of int64) int64 { return n/1000*of + n%1000*of/1000 }

// reweigh notes what an hour of the GPUs counts for that a job has got.
func (e *Engine) reweigh(j *jobState) {
	weight := cluster.Whole
	if model := e.modelOf(j.allocs); model != nil && model.Weight > 0 {
		weight = model.Weight
	}
	if weight != j.weight {
		j.weighted, j.unweighted, j.weight = j.serviceAt(e.now), j.attainedAt(e.now), weight
	}
}

func (j *jobState) ranAt(now cluster.Time) time.Duration {
	if !j.holding() {
		return j.ran
	}
	return j.ran + now.Sub(j.acc)
}

func (j *jobState) doneAt(now cluster.Time) time.Duration {
	return doneBy(now, j.state, j.resizing, j.done, j.acc, j.rate)
}

// DoneAt is the useful work of the job of a record up to now, on the reference GPU, as the engine
// counts it: while it starts anew, or saves what it has, it gets no further.
func (r *JobRecord) DoneAt(now cluster.Time) time.Duration {
	return doneBy(now, r.State, r.Resizing, r.Done, r.Acc, r.Rate)
}

func doneBy(now cluster.Time, s State, resizing bool, done time.Duration, acc cluster.Time, rate int64) time.Duration {
	if !computes(s, resizing, rate) {
		return done
	}
	return done + scale(now.Sub(acc), rate)
}

// computes reports whether a job gets further: it does not wait, start anew, or save what it has.
func computes(s State, resizing bool, rate int64) bool {
	return s >= Starting && s < Stopping && rate != 0 && !resizing
}

// scale returns d*ppm/1e6 without overflow for any accepted duration.
func scale(d time.Duration, ppm int64) time.Duration {
	if ppm == million {
		return d
	}
	q, r := d/million, d%million
	return q*time.Duration(ppm) + r*time.Duration(ppm)/million
}

const million = 1_000_000

// unscale returns how long d of reference time takes at ppm.
func unscale(d time.Duration, ppm int64) time.Duration {
	if ppm == million || ppm <= 0 {
		return d
	}
	q, r := d/time.Duration(ppm), d%time.Duration(ppm)
	return q*million + r*million/time.Duration(ppm)
}

// remainingAt is the estimated wall time left; without an estimate, forever.
func (j *jobState) remainingAt(now cluster.Time) time.Duration {
	if j.spec.Estimate == 0 {
		return cluster.MaxDuration
	}
	left := max(0, j.spec.Estimate-j.doneAt(now))
	if j.holding() && j.rate > 0 {
		return unscale(left, j.rate)
	}
	return unscale(left, j.speed)
}

// accrue brings the counters up to now.
func (e *Engine) accrue(j *jobState) {
	e.serve(j)
	j.attained, j.ran, j.done = j.attainedAt(e.now), j.ranAt(e.now), j.doneAt(e.now)
	j.acc = e.now
}

// unsavedAt is the useful work that an abrupt stop would lose: everything since
// the last periodic checkpoint, or since the last one that the job reported.
func (j *jobState) unsavedAt(now cluster.Time) time.Duration {
	done := j.doneAt(now)
	c := &j.spec.Checkpoint
	if c.Interval > 0 && !c.None {
		return min(done-j.saved, done%c.Interval)
	}
	return done - j.saved
}

// thaw lets a suspended job go where it likes: what it has in memory counts only
// if it happens to come back there.
func (j *jobState) thaw() {
	j.home, j.done = nil, j.done-j.unsavedAt(0) // it computes nothing: the time does not matter
}

// wake is what a suspended job goes on with where it starts: with what it has in
// memory, or elsewhere from its last checkpoint.
func (e *Engine) wake(j *jobState) {
	switch {
	case j.frozen == nil:
		j.warm = false
	case SameDevices(j.frozen, j.allocs):
		j.done = max(j.done, j.asleep)
		e.freeze(j, nil, 0)
	default:
		j.warm = false
		e.loseMemory(j)
	}
}

// loseMemory is the loss of what a suspended job had in memory.
func (e *Engine) loseMemory(j *jobState) {
	if j.frozen != nil {
		j.done = max(j.done, j.asleep)
		j.done, j.home = j.done-j.unsavedAt(0), nil
		e.freeze(j, nil, 0)
	}
}

// freeze notes where the memory of a suspended job is and how much useful work is in it;
// nil: it has none any more. Nodes count who has memory there.
func (e *Engine) freeze(j *jobState, at []inventory.Alloc, work time.Duration) {
	if j.frozen == nil && at == nil {
		return
	}
	e.st.Thaw(j.frozen)
	e.st.Freeze(at)
	j.frozen, j.asleep = at, work
}

// lostAt is the device time that stopping the job wastes, in milli-GPU times
// milliseconds: what it computed since its last checkpoint (or the cost of
// writing one now, if it can) plus the restart (C-checkpoint, victim choice).
func (j *jobState) lostAt(now cluster.Time, how How) int64 {
	if j.state == Placed {
		return 0
	}
	c := &j.spec.Checkpoint
	lost := j.unsavedAt(now)
	switch {
	case how == Suspend:
		return j.serves() * int64(c.Suspend/time.Millisecond)
	case how == Checkpoint && !c.None && !j.deaf:
		lost = min(lost, c.Cost)
	}
	return j.serves() * int64((lost+c.Restart)/time.Millisecond)
}

// expectedEnd is when the scheduler may count on the devices: after the
// estimate, at the latest at the limit. An overdue job is expected to end
// after another twentieth of its run, at least a minute (never in the past).
func (j *jobState) expectedEnd(now cluster.Time) cluster.Time {
	end := j.limitAt
	if j.spec.Estimate > 0 {
		end = min(end, now.Add(j.remainingAt(now)))
		if end <= now {
			end = now.Add(max(time.Minute, j.ranAt(now)/20))
		}
	}
	return end
}

// expectedRun is how long a pending job will hold its devices.
func (j *jobState) expectedRun(limit time.Duration) time.Duration {
	d := cluster.MaxDuration
	if limit > 0 {
		d = limit
	}
	if j.spec.Estimate > 0 {
		left := j.spec.Estimate - j.done
		if left <= 0 { // it was wrong: as for an overdue job that runs
			left = max(time.Minute, j.ran/20)
		}
		d = min(d, left+j.spec.Checkpoint.Restart)
	}
	return d
}
