package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
)

// What jobs in shares of one GPU really do to each other is seen in the progress that
// they report (gpulet, ATC'22, online correction): each report of a job beside
// one other moves what is believed of the pair by a fifth towards what it says, down to
// half and up to twice of what was stated or is estimated. A job that stays slower than it accepts has
// whoever came last leave, and so has one on whose GPU somebody does less than the others lose by it: the
// rule by which shares go beside others (between.go) holds for those who are there. What was
// measured then counts as it is, so that they are not put together again.

// slowFor is how long a job has to be too slow, or too little to get done, until somebody leaves.
const slowFor = time.Minute

// slowBelow is the part of what it accepts, in ppm, below which a job counts as too
// slow: measurements are not better than that. So one does too little only if the others
// lose a twentieth of a job's speed more than it does.
const slowBelow = 950_000

// PairRecord is what is left of the speed of jobs of one model beside those of another
// in shares of one GPU, as it was measured, in ppm.
type PairRecord struct {
	Model  string `json:"model"`
	Beside string `json:"beside"`
	Speed  int64  `json:"speed"`
	Parted bool   `json:"parted,omitempty"` // somebody had to leave for it: other jobs of the two models do not raise it
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

// part keeps what is measured of a pair from rising: for that somebody had to leave, and
// would come and go if others of these models, who bear each other, had the last word.
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

// Measured lists what jobs in shares of one GPU were measured to do to each other.
func (e *Engine) Measured() []PairRecord { return e.between.records() }

// Company lists the other jobs that compute in shares of the GPUs of which a job has
// shares, also those that are told to leave, by number.
func (e *Engine) Company(id cluster.JobID) (ids []cluster.JobID) {
	j := e.job(id)
	if j == nil || !j.Holding() || !j.Spec.Shares() {
		return nil
	}
	found := map[cluster.JobID]bool{}
	for i := range j.Allocs {
		a := &j.Allocs[i]
		n := &e.st.Nodes()[a.Node]
		if a.Tenant == 0 {
			continue
		}
		for _, t := range n.Tenants() {
			if o := e.jobs[t.Job-1]; a.GPUs>>t.Device&1 == 1 && o != j && o.State == job.Running {
				found[o.Spec.ID] = true
			}
		}
		for _, id := range n.Stopping() {
			if id != j.Spec.ID && slices.ContainsFunc(e.jobs[id].Allocs, func(b inventory.Alloc) bool {
				return b.Tenant != 0 && b.Node == a.Node && b.GPUs&a.GPUs != 0
			}) {
				found[id] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// listen books what a job with shares tells of its speed.
func (e *Engine) listen(j *job.State, ev *Event) {
	among := e.Company(j.Spec.ID)
	switch {
	case len(among) == 0:
		j.Solo, j.Among, j.Slow = j.Rate, nil, 0
	case ev.Type == Progress && ev.Rate > 0:
		e.measure(j, among)
	}
}

// kept is what the job's speed is of that alone, in ppm; 0: nobody knows that.
func (e *Engine) kept(j *job.State) int64 {
	alone := j.Solo
	if s := e.cfg.Speeds; alone == 0 && s != nil {
		alone = s.Speed(j.Spec, inventory.GPUOf(&e.st, j.Allocs), int(j.Tasks))
	}
	if alone <= 0 {
		return 0
	}
	return min(j.Rate, 100*alone) * job.Million / alone
}

// measure books what a job reports of its speed among others.
func (e *Engine) measure(j *job.State, among []cluster.JobID) {
	if e.cfg.Unshared || j.State != job.Running {
		return
	}
	same := slices.Equal(among, j.Among)
	j.Among = among
	if part := e.kept(j); part > 0 && len(among) == 1 {
		e.correct(j, e.jobs[among[0]], part)
	}
	switch {
	case !e.tooSlow(j) && !slices.ContainsFunc(e.jobsOf(append([]cluster.JobID{j.Spec.ID}, among...)), e.harms):
		j.Slow = 0
	case j.Slow == 0 || !same:
		j.Slow = e.w.Now
		e.timers.push(timer{j.Slow.Add(slowFor), timerSlow, int32(j.Spec.ID), j.Gen})
	}
}

// tooSlow reports whether a job is measured to be slower than it accepts.
func (e *Engine) tooSlow(j *job.State) bool {
	part := e.kept(j)
	return part > 0 && part < e.minSpeed(j)*slowBelow/job.Million
}

// reported reports whether a job's speed was measured among these others.
func (e *Engine) reported(j *job.State, among []cluster.JobID) bool {
	return slices.Equal(among, j.Among) && e.kept(j) > 0
}

// seen is what is left of a job's speed among others, in ppm: as it was measured among
// these, else as it is believed.
func (e *Engine) seen(j *job.State, among []cluster.JobID) int64 {
	if e.reported(j, among) {
		return min(e.kept(j), job.Million)
	}
	return e.speedAmong(j, e.jobsOf(among)...)
}

// takes is what a job leaves of the speed of another that it is beside, in ppm: what
// the others there do not account for.
func (e *Engine) takes(j, o *job.State) int64 {
	among := e.Company(o.Spec.ID)
	rest := slices.DeleteFunc(e.jobsOf(among), func(x *job.State) bool { return x == j })
	return min(e.seen(o, among)*job.Million/max(1, e.speedAmong(o, rest...)), job.Million)
}

// harms reports whether a job does less than those beside it lose by it, each in units
// of its speed alone: without it more would get done.
func (e *Engine) harms(j *job.State) bool {
	among, lost := e.Company(j.Spec.ID), int64(0)
	for _, o := range e.jobsOf(among) {
		lost += job.Million - e.takes(j, o)
	}
	return e.seen(j, among) < lost-(job.Million-slowBelow)
}

// correct moves what is believed of a pair towards what is measured. Differences of
// less than a hundredth are left alone: each has everybody who waits looked at again.
func (e *Engine) correct(j, o *job.State, part int64) {
	key := [2]string{j.Spec.Model, o.Spec.Model}
	if key[0] == "" || key[1] == "" {
		return
	}
	assumed := e.between.assumed(key)
	was, ok := e.between.measured[key]
	if !ok {
		was = assumed
	}
	v := min(max(was+(part-was)/5, min(was, assumed/2)), max(was, 2*assumed))
	if d := v - was; d >= job.Million/100 && !e.between.parted[key] || -d >= job.Million/100 {
		e.between.learn(key, v)
		e.epoch++ // who was kept apart may fit now
	}
}

// stillSlow has somebody leave where a job is too slow among others, or one of them does
// too little, unless that one would be put back.
func (e *Engine) stillSlow(j *job.State) {
	e.touch(j)
	among := e.Company(j.Spec.ID)
	j.Slow = 0
	if !slices.Equal(among, j.Among) { // they came or went: it begins anew
		if len(among) > 0 {
			e.measure(j, among)
		}
		return
	}
	anybody := func(*job.State) bool { return true }
	last := e.lastAmong(j, among, anybody)
	switch {
	case last != nil && e.tooSlow(j):
		e.blame(j, last, among)
	default:
		if last = e.lastAmong(j, among, e.harms); last != nil {
			e.blameAll(last)
		}
	}
	if last == nil || !e.outOfPlace(last) {
		e.measure(j, among) // perhaps somebody may be stopped later
		return
	}
	how := job.Checkpoint
	if last.Spec.Checkpoint.None {
		how = job.Kill
	}
	e.stop(last, how, job.Preempted, j.Spec.ID)
}

// lastAmong is who came last of a job and those beside it, of those who may be stopped
// and of whom f is true; nil: nobody is, somebody leaves already, or nobody could say
// beside whom not to go.
func (e *Engine) lastAmong(j *job.State, among []cluster.JobID, f func(*job.State) bool) (last *job.State) {
	for _, id := range append([]cluster.JobID{j.Spec.ID}, among...) {
		v := e.jobs[id]
		switch {
		case v.State != job.Running || v.Spec.Model == "":
			return nil
		case v.Spec.Tier == cluster.Critical || v.Spec.NoRequeue || v.Resizing || !e.mayStop(v) || !f(v):
		case last == nil || cmp.Or(cmp.Compare(v.Started, last.Started), cmp.Compare(v.Spec.ID, last.Spec.ID)) > 0:
			last = v
		}
	}
	return last
}

// blame books why a job is slow: for whoever came last or, if that is the job itself,
// whoever is believed to slow it most. It is what the others do not account for.
func (e *Engine) blame(j, last *job.State, among []cluster.JobID) {
	if last == j {
		last = e.worstFor(j, among)
	}
	rest := slices.DeleteFunc(e.jobsOf(among), func(o *job.State) bool { return o == last })
	part := e.seen(j, among) * job.Million / max(1, e.speedAmong(j, rest...))
	e.between.blame(j, last, min(part, e.left(j, last)))
}

// blame books what is left of a job's speed beside one that has to leave, or stays, for it.
func (b *between) blame(j, beside *job.State, part int64) {
	key := [2]string{j.Spec.Model, beside.Spec.Model}
	b.learn(key, part)
	b.part(key)
}

// blameAll books what a job and those beside it were measured to do to each other.
func (e *Engine) blameAll(j *job.State) {
	among := e.Company(j.Spec.ID)
	others := e.jobsOf(among)
	parts := make([]int64, len(others)) // all of them before anything of that is learnt
	for i, o := range others {
		parts[i] = e.takes(j, o)
	}
	if e.reported(j, among) {
		e.blame(j, j, among)
	}
	for i, o := range others {
		if e.reported(o, e.Company(o.Spec.ID)) {
			e.between.blame(o, j, min(parts[i], e.left(o, j)))
		}
	}
}

// worstFor is who is believed to slow a job most of those beside it.
func (e *Engine) worstFor(j *job.State, among []cluster.JobID) *job.State {
	return slices.MinFunc(e.jobsOf(among), func(a, b *job.State) int { return cmp.Compare(e.left(j, a), e.left(j, b)) })
}

// outOfPlace reports whether a job that left would not be put back where it has shares.
func (e *Engine) outOfPlace(j *job.State) bool {
	return slices.ContainsFunc(j.Allocs, func(a inventory.Alloc) bool {
		return a.Tenant != 0 && e.shunned(&e.st.Nodes()[a.Node], j)&a.GPUs != 0
	})
}

func (e *Engine) jobsOf(ids []cluster.JobID) (list []*job.State) {
	for _, id := range ids {
		list = append(list, e.jobs[id])
	}
	return list
}
