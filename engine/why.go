package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/engine/words"
)

// Why explains a job's present state: what blocks it, which jobs hold what it needs,
// and when it is expected to start.
type Why struct {
	Job      cluster.JobID
	Name     string
	State    string // pending, placed, starting, running, stopping, done
	Waiting  time.Duration
	Ahead    int      // eligible jobs before it in its order; -1: it is not in line
	Blockers []string // every one, not the first
	Holders  []string // running jobs that hold what it needs, soonest end first
	Text     string   // what it holds, or how it ended
	Expected cluster.Time
	Rough    bool // Expected is from the amount of work ahead, not from promises
}

// maxAhead bounds how many jobs ahead are promised a start before this one.
const maxAhead = 64

// FindJob finds a job by number or, the latest first, by name.
func (e *Engine) FindJob(name string) (cluster.JobID, bool) {
	if n, err := strconv.Atoi(name); err == nil && e.job(cluster.JobID(n)) != nil {
		return cluster.JobID(n), true
	}
	for i := len(e.jobs) - 1; i >= 0; i-- {
		if e.jobs[i] != nil && e.jobs[i].Spec.Name == name {
			return cluster.JobID(i), true
		}
	}
	return cluster.NoJob, false
}

// Look moves the engine's idea of the time forward without a step, so that an
// explanation counts waiting and remaining times from that instant.
func (e *Engine) Look(at cluster.Time) { e.w.Now = max(e.w.Now, at) }

// Why explains a job. It does not change what the engine will decide.
func (e *Engine) Why(id cluster.JobID) Why { return e.WhyForeseen(id, nil) }

// WhyForeseen is Why, where others are said to leave as was foreseen: by the same look ahead as the start that is told.
func (e *Engine) WhyForeseen(id cluster.JobID, ends map[cluster.JobID]ForeseenEnd) Why {
	y := e.whyNow(id, ends)
	if j := e.job(id); j != nil && j.State != job.Done && j.Target != nil &&
		j.Target.Deadline != job.DeadlineUnanswered {
		y.Text = strings.TrimPrefix(y.Text+"; "+j.Target.Deadline.String(), "; ")
	}
	return y
}

func (e *Engine) whyNow(id cluster.JobID, ends map[cluster.JobID]ForeseenEnd) Why {
	j := e.job(id)
	if j == nil {
		return Why{Job: id, State: "unknown", Ahead: -1, Expected: cluster.Never}
	}
	y := Why{Job: id, Name: j.Spec.Name, State: j.State.String(), Ahead: -1, Expected: cluster.Never}
	x := e.explainer()
	switch j.State {
	case job.Pending:
		y.Waiting = e.w.Now.Sub(j.Since)
		if !j.Eligible {
			y.Blockers = []string{e.parkedText(j)}
			if j.Parked == job.ParkedBegin {
				y.Expected = j.Spec.Begin
			}
			return y
		}
		e.whyPending(j, &y, ends)
	case job.Done:
		y.Text = "ended " + j.Reason.String() + " at " + e.clock(j.Ended)
	case job.Placed:
		y.Text = fmt.Sprintf("has %s on %s", words.Holds(&e.st, j.Allocs), x.Where(j))
		y.Blockers = []string{"waits for " + x.Leavers(j)}
		y.Expected = e.w.Now
	default:
		y.Text = fmt.Sprintf("%s on %s since %s%s%s", words.Holds(&e.st, j.Allocs), x.Where(j), e.clock(j.Started),
			x.Company(j), x.Waking(j)+e.plan.Explained(j)+e.onNetwork(j))
	}
	return y
}

func (e *Engine) explainer() *explain.Explainer { return explain.New(&e.find, e.clock) }

func (e *Engine) parkedText(j *job.State) string {
	switch j.Parked {
	case job.ParkedHold:
		return "held by a person until it is released"
	case job.ParkedBegin:
		return "not to begin before " + e.clock(j.Spec.Begin)
	case job.ParkedDependency:
		return e.dependencyText(j)
	case job.ParkedArray:
		return fmt.Sprintf("its array runs at most %d at once", j.Spec.Array.Cap)
	case job.ParkedPlan:
		return e.plan.Text(j, e.clock)
	case job.ParkedSingleton:
		return "singleton: an earlier job of its name and user is not done"
	}
	return "not in line"
}

// dependencyText says which conditions do not hold yet.
func (e *Engine) dependencyText(j *job.State) string {
	var texts []string
	for i := range j.Spec.After {
		d := &j.Spec.After[i]
		o := e.job(d.Job)
		if v, _ := e.deps.Stands(j, d, e.w.Now); d.Type == cluster.Singleton || o == nil || v != pending.Unmet {
			continue
		}
		text := fmt.Sprintf("%s of job %d (%s)", d.Type, d.Job, o.State)
		if d.Elements > 1 {
			text = fmt.Sprintf("%s of jobs %d to %d (%d of them not done)", d.Type, d.Job, d.Last(),
				e.deps.Live(d))
		}
		if d.Delay > 0 {
			text += " + " + cluster.FormatDuration(d.Delay)
		}
		texts = append(texts, text)
	}
	if j.Spec.AnyOf {
		return "waits for " + strings.Join(texts, " or ")
	}
	return "waits for " + strings.Join(texts, ", ")
}

func (e *Engine) whyPending(j *job.State, y *Why, ends map[cluster.JobID]ForeseenEnd) {
	before := e.before(j)
	y.Ahead = len(before)
	s, x := e.shapes.At(j.Shape), e.explainer()
	if j.Home != nil {
		y.Text = "its memory is on " + x.Memory(j)
	}
	least := e.w.LeastMilli(j)
	r := e.limits.Check(j, least)
	if !r.OK() && !r.Lent() {
		y.Blockers = append(y.Blockers, e.limits.Text(&r, j, e.clock))
	}
	if text := e.lending.Text(j); text != "" {
		y.Blockers = append(y.Blockers, text)
	}
	all := e.anywhere()
	all.IgnoreLoans = true
	beside := all
	beside.Reserved = e.resv.Limits(j, placement.Candidate)
	fits := e.fitsNow(beside, j, s)
	switch free := e.fitsNow(all, j, s); {
	case !free:
		y.Blockers = append(y.Blockers, cmp.Or(x.Shunned(j, s), x.Suspended(j, e.leavesHomeAt(j)), x.Room(j, s)))
		if text := x.Fragments(j, s); text != "" {
			y.Blockers = append(y.Blockers, text)
		}
	case !fits && beside.Reserved != nil:
		y.Blockers = append(y.Blockers, "would delay a reservation: "+e.reservationText(j))
	case len(y.Blockers) == 0 && len(before) > 0:
		first := before[0]
		y.Blockers = append(y.Blockers, "order: "+first.Label()+" comes first and does not fit yet")
	}
	if text := e.holdText(j); text != "" {
		y.Blockers = append(y.Blockers, text)
	}
	if text := e.givenText(j); text != "" && !fits {
		y.Blockers = append(y.Blockers, text)
	}
	if list, from := e.victims.Protected(j, s); len(list) > 0 {
		y.Blockers = append(y.Blockers,
			fmt.Sprintf("minimum run time: %s on what it needs; the first may be preempted from %s on",
				words.Jobs(len(list)), e.clock(from)))
	}
	y.Holders = e.holders(j, s, ends)
	y.Expected = e.expectedStart(j, before)
	if y.Expected != cluster.Never && len(before) > maxAhead {
		y.Expected, y.Rough = max(y.Expected, e.workAhead(before)), true
	}
}

// fitsNow reports whether there is room for a job now.
func (e *Engine) fitsNow(r placement.Request, j *job.State, s *shape.Shape) bool {
	mark := e.st.Mark()
	_, ok := e.find.Place(r, j, s, s.Min)
	e.st.Rollback(mark)
	return ok
}

// before lists the eligible jobs that come before j in line, the first in line first. A pass picks the best
// of the heads again and again: comparing two jobs deep in their groups could give several jobs one place.
func (e *Engine) before(j *job.State) []*job.State {
	list := e.line.Order()
	return list[:max(0, slices.Index(list, j))]
}

func (e *Engine) reservationText(j *job.State) string {
	end := e.w.Now.Add(j.ExpectedRun(e.w.LimitOf(j)))
	var parts []string
	for _, w := range e.resv.Windows() {
		switch {
		case w.At >= end || w.Job == j.Spec.ID:
		case w.Hold:
			parts = append(parts,
				fmt.Sprintf("GPUs are being held for job %d since %s", w.Job, e.clock(e.heldSince(e.jobs[w.Job]))))
		default:
			parts = append(parts, fmt.Sprintf("job %d starts at %s", w.Job, e.clock(w.At)))
		}
	}
	for _, a := range e.resv.Advance() {
		if a.Start() < end && a.End() > e.w.Now && !a.Inside(j) {
			parts = append(parts, fmt.Sprintf("%s begins at %s", a.Name(), e.clock(a.Start())))
		}
	}
	return strings.Join(parts, ", ")
}

// holders lists running jobs on devices that suit the job, soonest end first.
func (e *Engine) holders(j *job.State, s *shape.Shape, ends map[cluster.JobID]ForeseenEnd) []string {
	const most = 5
	var out []string
	more, lacks := 0, e.limits.Lacks(j)
	e.running.ByEnd().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		if !e.victims.Useful(s, v, lacks) || j.Home != nil && !lacks && !inventory.Overlap(v.Allocs, j.Home) {
			return true
		}
		if len(out) == most {
			more++
			return true
		}
		out = append(out, fmt.Sprintf("%s: %s on %s, %s", v.Label(), words.Holds(&e.st, v.Allocs),
			e.explainer().Where(v), e.leavesText(v, ends)))
		return true
	})
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// leavesText says when a job leaves its devices: as was foreseen, else as was stated. A time limit is when it
// ends at the latest.
func (e *Engine) leavesText(v *job.State, ends map[cluster.JobID]ForeseenEnd) string {
	if f, ok := ends[v.Spec.ID]; ok {
		return EndText(f.Limit, e.seconds(f.At))
	}
	switch at := e.w.EndOf(v); {
	case at >= cluster.Time(cluster.MaxDuration):
		return "expected to end at an unknown time"
	default:
		return EndText(v.Spec.Estimate == 0 || v.State != job.Placed && at == v.LimitAt, e.seconds(at))
	}
}

// EndText says when a job ends: as is expected, or at its time limit if it runs so long.
func EndText(limit bool, at string) string {
	if limit {
		return "ends at the latest at " + at + ", its time limit"
	}
	return "expected to end at " + at
}

// seconds writes an instant that is expected: no better than to the second.
func (e *Engine) seconds(t cluster.Time) string {
	if t > cluster.Time(time.Minute) {
		t = cluster.Time(time.Duration(t).Round(time.Second))
	}
	return e.clock(t)
}

// ForeseenEnd is when a job was seen to leave its devices, by a look ahead.
type ForeseenEnd struct {
	At    cluster.Time
	Limit bool // at its time limit
}

// workAhead is when the work of those ahead would be done if it were a fluid
// that fills every GPU as running jobs leave it: behind a long queue, a start
// before it is not to be expected (jobs of unknown length count as nothing).
func (e *Engine) workAhead(before []*job.State) cluster.Time {
	var work int64 // milli-GPU-seconds
	for _, o := range before {
		if d := o.ExpectedRun(e.w.LimitOf(o)); d < cluster.MaxDuration {
			work += o.Milli * int64(d/time.Second)
		}
	}
	free, at := e.w.Capacity, e.w.Now
	e.running.ByKey().Walk(func(it order.Item) bool { free -= e.jobs[it.ID].Milli; return true })
	done := false
	e.running.ByEnd().Walk(func(it order.Item) bool {
		v := e.jobs[it.ID]
		end := e.w.EndOf(v)
		if could := max(0, free) * int64(end.Sub(at)/time.Second); could >= work {
			done = true
			return false
		} else if end > at {
			work, at = work-could, end
		}
		free += v.Milli
		return true
	})
	if free <= 0 && !done {
		return at
	}
	return at.Add(time.Duration(work/max(1, free)) * time.Second)
}

// expectedStart promises starts to the jobs ahead, then to the job itself.
func (e *Engine) expectedStart(j *job.State, before []*job.State) cluster.Time {
	defer e.resv.Aside()()
	s := e.shapes.At(j.Shape)
	ends := e.foresee(j)
	first := e.limits.FreeAt(j, e.jobs, e.running.ByEnd(), e.w.EndOf)
	e.unforesee(ends)
	for i, o := range before {
		if i == maxAhead {
			break
		}
		if r, ok := e.foreseen(o); ok {
			e.resv.Add(r)
			if e.mode == sched.Strict && e.resv.MeetsOne(s, &r) {
				first = max(first, r.At) // nothing passes it
			}
		}
	}
	r, ok := e.foreseen(j)
	if at := max(first, r.At); ok && !reserve.OutOfSight(e.w.Now, at) {
		return at
	}
	return cluster.Never
}

// clock writes an instant as the configuration wants it.
func (e *Engine) clock(t cluster.Time) string {
	if e.cfg.Clock != nil && t != cluster.Never {
		return e.cfg.Clock(t)
	}
	return t.String()
}
