package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// A policy that plans says from time to time how much of what each job gets.
// The engine keeps the targets, and every mechanism that there is carries them
// out: a target's rank is (part of) the job's key, so that jobs with a place in the plan
// preempt those without one; its GPU model and size narrow what a
// waiting job asks for; a running job is stopped, shrunk or grown towards it.

// DeadlineAnswer returns what the policy says of a job's deadline.
func (e *Engine) DeadlineAnswer(id cluster.JobID) job.DeadlineAnswer {
	if j := e.job(id); j != nil && j.Target != nil {
		return j.Target.Deadline
	}
	return job.DeadlineUnanswered
}

// planState is what the engine knows of the plan in force.
type planState struct {
	sched.PlanMemory
	planner sched.Planner // nil: the policy does not plan
	chooser sched.Chooser // nil: plans are about all jobs
	dirty   bool          // which jobs could run, or where, has changed since
	next    cluster.Time
	moves   []cluster.JobID // whose targets say Move
	moving  bool            // there was a target that says Move
	changed bool            // a node is another: some jobs may not be able to follow their targets any more
	joining bool            // the plan puts a job beside another, or on an instance
	aimed   []*job.State    // jobs with devices that got another target
	// jobs that may be planned, by number (State.InPlan); those that are done are dropped now and then
	live    []cluster.JobID
	planned []*job.State    // jobs that have targets in the last plan
	shown   []sched.JobView // memory for the next plan
}

// planDue reports whether it is time to plan.
func (e *Engine) planDue() bool {
	p := &e.plans
	if p.planner == nil {
		return false
	}
	if r := cluster.Time(e.w.Traits.Round); r > 0 && e.w.Now/r == p.Last/r {
		return false
	}
	return p.dirty || e.w.Now >= p.next
}

// planWake is when the engine wants to be called to plan.
func (e *Engine) planWake() cluster.Time {
	p := &e.plans
	if p.planner == nil || e.live == 0 {
		return cluster.Never
	}
	at, r := p.next, cluster.Time(e.w.Traits.Round)
	if p.dirty {
		at = e.w.Now
	}
	if at == cluster.Never || r == 0 {
		return at
	}
	at = max(at, (p.Last/r+1)*r)
	return (at + r - 1) / r * r
}

// makePlan asks the policy for targets and sets out for them.
func (e *Engine) makePlan() {
	p := &e.plans
	shown, planned, live := p.shown[:0], p.planned[:0], p.live[:0]
	for _, id := range p.live {
		j := e.jobs[id]
		if j.InPlan = j.State != job.Done && !e.leaves(j) && (j.State != job.Pending || e.chooses(j)); !j.InPlan {
			continue
		}
		if e.joinPool(j) {
			j.InPlan = false
			continue
		}
		live = append(live, id)
		if j.Plans() {
			shown, planned = append(shown, e.w.Job(j)), append(planned, j)
		}
	}
	p.live, p.shown, p.planned, p.Drawn, p.dirty = live, shown, planned, p.Drawn[:0], false
	if len(shown) == 0 && e.pools.n == 0 {
		p.Last, p.next = e.w.Now, cluster.Never
		return
	}
	e.stats.Plans++
	plan := p.planner.Plan(e.w.View(), shown)
	jobs := append(planned, p.Drawn...)
	p.planned = jobs
	if len(plan.Targets) != len(jobs) {
		panic(fmt.Sprintf("engine: policy %s has %d targets for %d jobs", p.planner.Name(), len(plan.Targets),
			len(jobs)))
	}
	p.Last, p.next, p.Memo = e.w.Now, plan.Next, append(p.Memo[:0], plan.Memo...)
	e.drawn(p.Drawn, plan.Targets[len(shown):])
	p.joining, p.aimed = false, p.aimed[:0]
	for i := range jobs {
		t := &plan.Targets[i]
		p.joining, p.moving = p.joining || t.Beside > 0 || t.Slice != nil, p.moving || t.Move
		if t.Move && jobs[i].Hosted() { // before its host leaves it the devices
			e.aim(jobs[i], t)
		}
	}
	for i := range jobs {
		e.aim(jobs[i], &plan.Targets[i])
	}
	e.running.UpdateAimed(p.aimed)
	e.listMoves()
	e.joinPlanned()
	p.dirty = false // what follows from a plan is no reason for another
	e.epoch++       // others may be victims now
	e.fresh = true
}

// chooses reports whether plans are about a job while it waits.
func (e *Engine) chooses(j *job.State) bool {
	return !e.leaves(j) && (e.plans.chooser == nil || e.plans.chooser.Chooses(j.Spec))
}

// include has plans be about a job from now on.
func (e *Engine) include(j *job.State) {
	p := &e.plans
	if p.planner == nil || j.InPlan {
		return
	}
	j.InPlan = true
	i, _ := slices.BinarySearch(p.live, j.Spec.ID)
	p.live = slices.Insert(p.live, i, j.Spec.ID)
}

// listMoves lists the running jobs that are to move to others' devices.
func (e *Engine) listMoves() {
	p := &e.plans
	p.moves = p.moves[:0]
	if !p.moving {
		return
	}
	for _, id := range p.live {
		if j := e.jobs[id]; j.State != job.Done && j.Target != nil && j.Target.Move {
			p.moves = append(p.moves, id)
		}
	}
}

// aim gives a job its target.
func (e *Engine) aim(j *job.State, t *job.Target) {
	e.tidy(j, t)
	if !t.Same(j.Target) {
		e.touch(j)
		e.setTarget(j, t)
		if j.Booked() {
			e.plans.aimed = append(e.plans.aimed, j)
		}
	} else if j.State == job.Pending &&
		(j.Parked == job.ParkedPlan || j.Eligible && j.Asks() == j.Shape && !j.Idle() && !j.Sliced()) {
		return
	}
	switch j.State {
	case job.Pending:
		e.aimPending(j)
	case job.Placed:
		if j.Idle() || e.astray(j) {
			since := j.EligibleSince
			e.unplace(j)
			e.admit(j)
			e.keepAge(j, since)
		}
	case job.Starting, job.Running:
		if e.moves(j) {
			e.stop(j, e.howToStop(j), job.Preempted, cluster.NoJob)
		} else {
			e.follow(j)
		}
	case job.Stopping, job.Done: // what it holds it leaves anyhow
	}
}

// tidy takes out of a target what does not concern the job.
func (e *Engine) tidy(j *job.State, t *job.Target) {
	s := e.shapes.Get(j.Base)
	switch {
	case s.Min == s.Max || t.Tasks <= 0:
		t.Tasks, t.Least = 0, 0
	default:
		t.Tasks = min(max(t.Tasks, int(s.Min)), int(s.Max))
		if t.Least == 0 {
			t.Least = t.Tasks
		}
		t.Least = min(max(t.Least, int(s.Min)), t.Tasks)
	}
	if t.Slice != nil {
		if _, ok := e.sliceOf(j, t.Slice); ok && !t.Idle {
			t.GPU = ""
		} else {
			t.Slice = nil
		}
	}
	if t.GPU != "" && !job.AcceptsGPU(j.Spec, t.GPU) {
		t.GPU = ""
	}
	// what grows, grows where it may by itself
	if t.Partition != "" && (s.Min < s.Max || !e.admission.Admits(t.Partition, j.Spec)) {
		t.Partition = ""
	}
	if t.Within != cluster.LevelAny && (s.Min < s.Max || s.Topo.Level != cluster.LevelAny) {
		t.Within = cluster.LevelAny
	}
}

// setTarget notes a copy of a target, without what the job can never follow: what
// most jobs keep must not hold on to the whole of an old plan. It takes the place of
// the old one, whose memory it uses: a policy may change all of them with every plan.
func (e *Engine) setTarget(j *job.State, t *job.Target) {
	if j.Target == nil {
		j.Target = &job.Target{}
	}
	c := j.Target
	memo := c.Memo
	*c = *t
	if c.Memo = nil; len(t.Memo) > 0 {
		c.Memo = append(memo[:0], t.Memo...)
	}
	if t.Slice != nil {
		slice := *t.Slice
		c.Slice = &slice
	}
	j.Narrow = e.admission.Narrowed(j.Spec, c, j.Base)
	if j.Narrow < 0 {
		j.Narrow, c.GPU, c.Tasks, c.Least, c.Partition, c.Within = j.Base, "", 0, 0, "", cluster.LevelAny
	}
}

// renewTarget takes out of a job's target what its spec does not let it follow.
func (e *Engine) renewTarget(j *job.State) {
	if j.Target == nil {
		return
	}
	t := *j.Target
	j.Target = nil // it may be a snapshot's
	e.tidy(j, &t)
	e.setTarget(j, &t)
}

// retarget takes out of targets what jobs can never follow, since a node has become another.
func (e *Engine) retarget() {
	if !e.plans.changed {
		return
	}
	e.plans.changed = false
	for _, j := range e.jobs {
		if j == nil || j.State == job.Done || j.Target == nil {
			continue
		}
		was := j.Target.Copied()
		if e.renewTarget(j); j.Target.Same(was) {
			continue
		}
		e.touch(j)
		if j.State == job.Pending {
			e.aimPending(j)
		}
	}
}

// aimPending has a waiting job ask for what its target says.
func (e *Engine) aimPending(j *job.State) {
	switch {
	case j.Eligible && (j.Idle() || j.Sliced()):
		e.dequeue(j)
		j.Parked = job.ParkedPlan
	case j.Eligible:
		if j.Asks() == j.Shape && e.line.Item(j) == j.Key {
			return
		}
		since := j.EligibleSince
		e.dequeue(j)
		e.lineUp(j)
		e.keepAge(j, since)
	case j.Parked == job.ParkedPlan && !j.Idle() && !j.Sliced():
		e.admit(j)
	}
}

// keepAge gives a job that is in line again the age that it had.
func (e *Engine) keepAge(j *job.State, since cluster.Time) {
	if j.Eligible && j.EligibleSince != since {
		e.dequeue(j)
		j.EligibleSince = since
		e.lineUp(j)
	}
}

// gated reports whether a job that has become ready waits for a plan.
func (e *Engine) gated(j *job.State) bool {
	if e.plans.planner == nil || j.Planless() {
		return false
	}
	return j.Target == nil && e.w.Traits.Gated && e.chooses(j) || j.Idle() || j.Sliced()
}

// ask sets what a job that comes into line asks for.
func (e *Engine) ask(j *job.State) {
	if e.plans.planner == nil {
		return
	}
	if j.Home != nil && e.estranged(j) { // its memory is not where it is to run
		j.Thaw()
	}
	e.reshape(j, j.Asks())
}

// reshape has a waiting job ask for something else.
func (e *Engine) reshape(j *job.State, shape int32) {
	if shape == j.Shape {
		return
	}
	j.Shape, j.Promise, j.Plan = shape, cluster.Never, nil // its tasks are others
	s := e.shapes.At(shape)
	j.Milli, j.Tasks, j.Devices = e.w.AskedMilli(j), s.Max, int32(s.Devices(int(s.Max)))
}

// estranged reports whether a suspended job's target is not where its memory is.
func (e *Engine) estranged(j *job.State) bool {
	t := j.Target
	return t != nil && !j.Planless() && (e.offSlice(j, j.Home) || !e.shapes.Within(j.Home, j.Partitions()) ||
		t.Tasks > 0 && t.Tasks != int(tasksOf(j.Home)) || t.GPU != "" && inventory.GPUOf(&e.st, j.Home) != t.GPU)
}

// astray reports whether a job holds devices of another model than its target's, or
// of another partition, or another instance, or others' where it is to be alone.
func (e *Engine) astray(j *job.State) bool {
	t := j.Target
	if t == nil || j.Planless() {
		return false
	}
	if j.State == job.Placed && t.Tasks > 0 && (int(j.Tasks) > t.Tasks || int(j.Tasks) < t.Least) {
		return true
	}
	if t.Alone && j.Hosted() && j.GuestOf != t.Beside || e.offSlice(j, j.Allocs) ||
		t.Partition != "" && !e.shapes.Within(j.Allocs, j.Partitions()) {
		return true
	}
	if t.GPU == "" {
		return false
	}
	held := inventory.GPUOf(&e.st, j.Allocs)
	return held != "" && held != t.GPU
}

// follow has a running job go where its target is: it stops if it is to have
// nothing, or another model; it gives back what it has too much. It reports
// whether the job was told anything. Growing waits for the end of the pass.
func (e *Engine) follow(j *job.State) bool {
	t := j.Target
	if t == nil || j.Planless() || j.State != job.Starting && j.State != job.Running {
		return false
	}
	switch {
	case j.Idle() || e.astray(j):
		if !e.mayStop(j) {
			return false // when its minimum run time is over, it follows
		}
		e.stop(j, e.howToStop(j), job.Preempted, cluster.NoJob)
	case t.Tasks > 0 && int(j.Tasks) > t.Tasks && j.State == job.Running && !j.Resizing:
		return e.cutTo(j, t.Tasks)
	default:
		return false
	}
	return true
}

// mayStop reports whether a running job has had its minimum run time. When its time
// limit strikes in this very step, that is why it stops.
func (e *Engine) mayStop(j *job.State) bool {
	return j.Started.Add(e.cfg.MinRuntime) <= e.w.Now && (j.LimitAt <= 0 || j.LimitAt > e.w.Now)
}

// cutTo shrinks a running job to so many tasks of its first set.
func (e *Engine) cutTo(j *job.State, tasks int) bool {
	keep := append([]inventory.Alloc(nil), j.Allocs...)
	var gone []inventory.Alloc
	for n := int(j.Tasks); n > tasks; n-- {
		g := inventory.SplitTask(&keep, &e.shapes.Get(j.Shape).Sets[0].Request)
		if g == nil {
			break
		}
		e.st.ReleaseAll(g)
		gone = append(gone, g...)
	}
	e.st.Commit()
	e.shrink(j, keep, gone)
	if len(gone) > 0 {
		e.running.Update(j)
	}
	return len(gone) > 0
}

// leastTasks and mostTasks bound the first set of a job that holds devices.
func (e *Engine) leastTasks(j *job.State) int32 {
	if t := j.Target; t != nil && t.Tasks > 0 {
		return int32(t.Least)
	}
	return e.shapes.Get(j.Shape).Min
}

func (e *Engine) mostTasks(j *job.State) int32 {
	if t := j.Target; t != nil && t.Tasks > 0 {
		return int32(t.Tasks)
	}
	return e.shapes.Get(j.Shape).Max
}

// replan notes that the jobs that could run have changed.
func (e *Engine) replan() { e.plans.dirty = e.plans.planner != nil }

// serve counts the time that a job has held what it holds. It comes before
// accrue.
func (e *Engine) serve(j *job.State) {
	if e.plans.planner == nil || !j.Holding() || e.w.Now == j.Acc {
		return
	}
	j.Served = serve(j.Served, inventory.GPUOf(&e.st, j.Allocs), e.w.Now.Sub(j.Acc))
}

// serve adds time on GPUs of a model.
func serve(list []job.Served, gpu string, d time.Duration) []job.Served {
	for i := range list {
		if list[i].GPU == gpu {
			list[i].Time += d
			return list
		}
	}
	return append(list, job.Served{GPU: gpu, Time: d})
}

// planText says why a job waits for a plan.
func (e *Engine) planText(j *job.State) string {
	text := "policy " + e.plans.planner.Name() + " gives it nothing for now"
	switch {
	case j.Target == nil:
		text = "waits for policy " + e.plans.planner.Name() + " to plan"
	case j.Sliced():
		t := j.Target.Slice
		text = fmt.Sprintf("waits for a %s of GPU %d of %s, as policy %s has it", t.Profile, t.GPU,
			e.st.Nodes()[t.Node].Spec().Name, e.plans.planner.Name())
	}
	if at := e.planWake(); at != cluster.Never {
		text += "; it plans again at " + e.clock(at)
	}
	return text + e.explained(j)
}

// restoreTargets gives the jobs the targets that they had, if the policy is the
// same.
func (e *Engine) restoreTargets(s *Snapshot) {
	if e.plans.planner == nil || s.Policy != e.cfg.Policy.Name() {
		return
	}
	for i := range s.Jobs {
		if j, t := e.jobs[s.Jobs[i].Spec.ID], s.Jobs[i].Target; t != nil && j.State == job.Done {
			j.Target = t
		} else if t != nil {
			j.Target = t
			e.renewTarget(j)
			e.plans.moving = e.plans.moving || t.Move
		}
	}
}

// restorePlan sets when the policy plans next: another policy does so at once,
// or at its next round.
func (e *Engine) restorePlan(s *Snapshot) {
	p := &e.plans
	p.Last, p.next, p.dirty, p.Memo, p.changed = 0, cluster.Never, p.planner != nil, nil, false
	e.listMoves()
	if r := s.Planned; p.planner != nil && r != nil && s.Policy == e.cfg.Policy.Name() {
		p.Last, p.next, p.dirty, p.Memo = r.Last, r.Next, r.Dirty, slices.Clone(r.Memo)
	}
}

// explained is what the policy says of a job, to be put behind what the engine says.
func (e *Engine) explained(j *job.State) string {
	x, ok := e.plans.planner.(sched.Explainer)
	if !ok || j.Target == nil {
		return ""
	}
	if text := x.Explain(j.Target, e.plans.Memo); text != "" {
		return "; " + text
	}
	return ""
}
