package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/preempt"
	"github.com/muster-gpu/muster/engine/speed"
)

// What jobs in shares of one GPU really do to each other is seen in the progress that
// they report (gpulet, ATC'22, online correction): each report of a job beside
// one other moves what is believed of the pair by a fifth towards what it says, down to
// half and up to twice of what was stated or is estimated. If a job stays slower than it accepts, the last
// that came to its GPU leaves; so does the last that does less there than the others lose by it: the rule by
// which shares go beside others (speed.Book.Disturbs) also holds for jobs that are there already. From then
// on the measurement counts as it is, so that they are not put together again.

// slowFor is how long a job has to be too slow, or too little to get done, until a job leaves.
const slowFor = time.Minute

// Measured lists what jobs in shares of one GPU were measured to do to each other.
func (e *Engine) Measured() []speed.PairRecord { return e.speeds.PairRecords() }

// Paces lists how fast jobs were measured to go, by job model.
func (e *Engine) Paces() []speed.PaceRecord { return e.speeds.PaceRecords() }

// Company lists the other jobs that compute in shares of the GPUs of which a job has
// shares, also those that are told to leave, by number.
func (e *Engine) Company(id cluster.JobID) []cluster.JobID { return e.speeds.Company(id) }

// noteSpeed books what a job with shares tells of its speed.
func (e *Engine) noteSpeed(j *job.State, ev *Event) {
	among := e.speeds.Company(j.Spec.ID)
	switch {
	case len(among) == 0:
		j.Solo, j.Among, j.Slow = j.Rate, nil, 0
	case ev.Type == Progress && ev.Rate > 0:
		e.measure(j, among)
	}
}

// measure books what a job reports of its speed among others.
func (e *Engine) measure(j *job.State, among []cluster.JobID) {
	if e.cfg.Unshared || j.State != job.Running {
		return
	}
	same := slices.Equal(among, j.Among)
	j.Among = among
	if part := e.speeds.Kept(j); part > 0 && len(among) == 1 {
		if e.speeds.Correct(j, e.jobs[among[0]], part) {
			e.epoch++ // jobs that were kept apart may fit now
		}
	}
	switch {
	case !e.speeds.TooSlow(j) &&
		!slices.ContainsFunc(e.speeds.JobsOf(append([]cluster.JobID{j.Spec.ID}, among...)), e.speeds.Harms):
		j.Slow = 0
	case j.Slow == 0 || !same:
		j.Slow = e.w.Now
		e.timers.Set(j.Slow.Add(slowFor), pending.Slow, j)
	}
}

// stopSlow stops a job where one is too slow among others, or one of them does too
// little, unless the stopped one would be put back there.
func (e *Engine) stopSlow(j *job.State) {
	e.touch(j)
	among := e.speeds.Company(j.Spec.ID)
	j.Slow = 0
	if !slices.Equal(among, j.Among) { // they came or went: start again
		if len(among) > 0 {
			e.measure(j, among)
		}
		return
	}
	anyJob := func(*job.State) bool { return true }
	last := e.lastAmong(j, among, anyJob)
	switch {
	case last != nil && e.speeds.TooSlow(j):
		e.speeds.Blame(j, last, among)
	default:
		if last = e.lastAmong(j, among, e.speeds.Harms); last != nil {
			e.speeds.BlameAll(last)
		}
	}
	if last == nil || !e.speeds.OutOfPlace(last) {
		e.measure(j, among) // perhaps one may be stopped later
		return
	}
	e.stop(last, preempt.Save(last), job.Preempted, j.Spec.ID)
}

// lastAmong is the last to come of a job and those beside it that may be stopped and
// satisfy f; nil: there is none, one of them leaves already, or one has no model, so that
// the pair could not be kept apart.
func (e *Engine) lastAmong(j *job.State, among []cluster.JobID, f func(*job.State) bool) (last *job.State) {
	for _, id := range append([]cluster.JobID{j.Spec.ID}, among...) {
		v := e.jobs[id]
		switch {
		case v.State != job.Running || v.Spec.Model == "":
			return nil
		case v.Spec.Tier == cluster.Critical || v.Spec.NoRequeue || v.Resizing || !e.victims.MayStop(v) || !f(v):
		case last == nil || cmp.Or(cmp.Compare(v.Started, last.Started), cmp.Compare(v.Spec.ID, last.Spec.ID)) > 0:
			last = v
		}
	}
	return last
}
