// Package replicas knows of the replicas of services what other jobs do not have: what their service does not use is
// lent, and has to be back within a time; neighbours on their GPUs slow them, as they measure themselves.
package replicas

import (
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/show"
)

// What a service does not use, jobs that may be preempted hold meanwhile. Where the service says within which time it
// has it back (ask.Replica), that bounds the time of those that make room for its replicas.

// returnMargin is the part of that time which is not the leaving jobs': for all that happens before and after.
const returnMargin = time.Second

// Offers is what replicas of services can count on.
type Offers struct {
	Return time.Duration // shortest time within which jobs can be sure to have left
	Parts  bool          // a replica can have a part of a GPU, on which others do not disturb it
}

// LeastReturn is the shortest time within which jobs can be sure to have left, of which each has so long after SIGTERM.
func LeastReturn(killWait time.Duration) time.Duration { return killWait + returnMargin }

// Loans are what services lend to jobs now. The zero value is ready for use; the machine's loop changes it.
type Loans struct {
	hurry map[cluster.JobID]time.Duration // within which a job makes room, where its tier has longer

	mu sync.Mutex
	by map[int]string // by job: which service lends it what it holds, in words
}

// Ask notes that a job makes room, for a replica or for another job (or nil), and returns how long it has to do so, of
// the grace of its tier. What a replica waits for is stored with it, so that a restart does not forget since when.
func (l *Loans) Ask(j, replica *record.Job, how engine.How, grace, killWait time.Duration,
	now cluster.Time) time.Duration {
	delete(l.hurry, j.ID)
	if replica == nil || replica.Sub.Replica == nil || replica.Sub.Replica.Within == 0 {
		return grace
	}
	within, info := replica.Sub.Replica.Within, replica.Own()
	loan := show.Loan{Asked: at(now), Within: within}
	if info.Loan != nil && info.Loan.Back.IsZero() {
		loan = *info.Loan
	}
	loan.Jobs = append(slices.Clone(loan.Jobs), int(j.ID))
	info.Loan = &loan
	hurry := within - returnMargin
	if how != engine.Kill { // SIGTERM comes after the grace
		hurry -= killWait
	}
	if l.hurry == nil {
		l.hurry = map[cluster.JobID]time.Duration{}
	}
	l.hurry[j.ID] = max(hurry, time.Millisecond)
	return l.Grace(j.ID, grace)
}

// Grace is how long a job that was asked last has to make room, of the grace of its tier.
func (l *Loans) Grace(job cluster.JobID, grace time.Duration) time.Duration {
	if hurry, ok := l.hurry[job]; ok {
		return min(grace, hurry)
	}
	return grace
}

// Back notes that a job has its place: a replica has what was lent.
func (l *Loans) Back(j *record.Job, now cluster.Time) {
	info := j.Own()
	if info.Loan == nil {
		return
	}
	if !info.Loan.Back.IsZero() { // of an earlier run
		info.Loan = nil
		return
	}
	loan := *info.Loan
	loan.Back = at(now)
	info.Loan = &loan
}

// Forget forgets a job that is over.
func (l *Loans) Forget(job cluster.JobID) { delete(l.hurry, job) }

func at(t cluster.Time) time.Time { return time.Unix(0, int64(t)).UTC() }

// Say says of running jobs which service lends them what they hold, in words; those that are not in it hold nothing of
// that kind.
func (l *Loans) Say(by map[int]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by = by
}

// Text is what was said of a job; "": nothing.
func (l *Loans) Text(job int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[job]
}

// MakeRoom lists the running jobs that would make room, all or part of what they hold, if a number of jobs like one
// came now, with numbers from its own on, in the order in which they would be asked. The engine is one to try it on.
func MakeRoom(e *engine.Engine, like cluster.Job, n int, now cluster.Time) (jobs []int) {
	var asked []engine.Event
	for i := range n {
		one := like
		one.ID += cluster.JobID(i)
		asked = append(asked, engine.Event{Type: engine.Submitted, Job: one.ID, Spec: &one})
	}
	d := e.Step(engine.Batch{Now: max(now, e.Now()), Events: asked})
	for i := range d.Actions {
		a := &d.Actions[i]
		leaves := a.Type == engine.Preempt && a.For >= like.ID && a.For != cluster.NoJob || a.Type == engine.Resize
		if leaves && a.Job < like.ID && !slices.Contains(jobs, int(a.Job)) {
			jobs = append(jobs, int(a.Job))
		}
	}
	return jobs
}
