package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/sched"
)

// Rooms are the books of what jobs go through, between two steps.
type Rooms struct {
	World     *sched.World
	Jobs      []*job.State // by number; nil where there is none
	Live      int          // how many of them are counted that are not done
	OnTheWay  []cluster.JobID
	Plan      *plan.Book
	Line      *pending.Line
	Deps      *pending.Deps
	Timers    *pending.Timers
	Limits    *limits.Book
	Find      *placement.Finder
	Explain   *explain.Explainer
	PromoteAt func(j *job.State) cluster.Time // when a job in line is promoted; nil: none is
	Strays    bool                            // a plan may have jobs run in other partitions than theirs
}

// Check checks each job by itself, the line, and what is counted of the cluster.
func (r *Rooms) Check() error { return errors.Join(r.lives(), r.Capacity(), r.line()) }

// Pass is how a pass looks for places, and in which step it was.
type Pass struct {
	Placer    placement.Placer
	Mode      sched.Backfill
	Step      int64
	Unbounded bool // no reservation kept a job from what there is
}

// Settled checks what holds after a pass until something happens: no job waits for what it could have, and there is a
// reason for which each waits.
func (r *Rooms) Settled(p *Pass) error { return errors.Join(r.work(p), r.explanations(p)) }

// lives checks each job by itself: a gang is whole or absent.
func (r *Rooms) lives() error {
	live := 0
	for id, j := range r.Jobs {
		if j == nil {
			continue
		}
		if j.State != job.Done {
			live++
		}
		var err error
		switch {
		case int(j.Spec.ID) != id:
			err = fmt.Errorf("is stored as job %d", id)
		case j.State == job.Pending && j.Eligible != (j.Parked == job.NotParked):
			err = fmt.Errorf("eligible %v, parked %d", j.Eligible, j.Parked)
		case j.State != job.Pending && j.Eligible:
			err = errors.New("eligible, but not pending")
		case (j.State == job.Pending || j.State == job.Done) &&
			(len(j.Allocs) > 0 || len(j.Leaving) > 0 || j.Waits != 0 || len(j.Waiters) > 0):
			err = fmt.Errorf("has %d allocations, %d leaving, waits for %d, %d wait for it", len(j.Allocs),
				len(j.Leaving), j.Waits, len(j.Waiters))
		case (j.Dest != nil) != slices.Contains(r.OnTheWay, j.Spec.ID) || j.Dest != nil &&
			(j.State != job.Stopping || j.Reason != job.Preempted && j.Reason != job.NodeLost):
			err = fmt.Errorf("goes to %+v, and %v are on their way", j.Dest, r.OnTheWay)
		case j.State == job.Done && j.InArray:
			err = errors.New("keeps its array's place")
		case j.ServedBefore < 0 || j.ServedBefore > j.ServiceAt(r.World.Now) ||
			j.RanBefore < 0 || j.RanBefore > j.Ran || j.Promotion > r.World.Now:
			err = fmt.Errorf("promoted at %v after %d of %d and %v of %v", j.Promotion, j.ServedBefore,
				j.ServiceAt(r.World.Now), j.RanBefore, j.Ran)
		case j.Eligible && r.PromoteAt != nil && r.PromoteAt(j) != j.PromoteAt ||
			j.Eligible && r.PromoteAt != nil && j.PromoteAt <= r.World.Now && j.EligibleSince != r.World.Now:
			err = fmt.Errorf("is to be promoted at %v, not at %v", r.PromoteAt(j), j.PromoteAt)
		case j.State != job.Done && j.Shape != j.Base && (!j.Eligible || j.Shape != j.Asks()):
			err = errors.New("asks for something else than its spec and its plan say")
		case j.Eligible && r.Plan.Gated(j):
			err = errors.New("is in line although its plan gives it nothing")
		case j.State == job.Placed && (j.Waits < 1 || !j.Waited):
			err = fmt.Errorf("waits for %d jobs to leave", j.Waits)
		case j.State != job.Placed && j.Waits != 0:
			err = fmt.Errorf("waits for %d jobs to leave", j.Waits)
		case j.Booked() || j.State == job.Stopping:
			err = placement.CheckHeld(r.World, j, true, r.Strays)
		}
		if err != nil {
			return fmt.Errorf("job %d (%s): %w", j.Spec.ID, j.State, err)
		}
	}
	if live != r.Live {
		return fmt.Errorf("%d live jobs, counted %d", r.Live, live)
	}
	return nil
}

// Capacity recomputes the classes' buckets and counts, and how many GPUs there are.
func (r *Rooms) Capacity() error {
	capacity, err := r.World.Store.CheckIndexes()
	if err != nil {
		return err
	}
	if of := r.World.Tree.Capacity(); capacity != r.World.Capacity || capacity != of {
		return fmt.Errorf("capacity %d, of the tree %d, recomputed %d", r.World.Capacity, of, capacity)
	}
	return nil
}

// line compares the line, and what is counted of it, with the eligible jobs.
func (r *Rooms) line() error {
	waiting := map[int32]int32{} // by shape; looked up only
	for _, j := range r.Jobs {
		if j != nil && j.Eligible && r.World.Shapes.Get(j.Shape).Sliced() {
			waiting[j.Shape]++
		}
	}
	for i := range r.World.Shapes.Count() {
		id := int32(i)
		if n := r.World.Shapes.Get(id).Waiting; n != waiting[id] {
			return fmt.Errorf("%d jobs of shape %d are in line for slices, counted %d", waiting[id], id, n)
		}
	}
	return r.Line.Check()
}

// Parked checks that parked jobs have a reason to be, and that something
// will wake them.
func (r *Rooms) Parked() error {
	for _, j := range r.Jobs {
		if j == nil || j.State != job.Pending || j.Eligible {
			continue
		}
		if err := r.reason(j); err != nil {
			return fmt.Errorf("parked job %d: %w", j.Spec.ID, err)
		}
	}
	return r.Deps.Check()
}

func (r *Rooms) reason(j *job.State) error {
	switch j.Parked {
	case job.ParkedHold:
		if !j.Spec.Hold {
			return fmt.Errorf("it is not held")
		}
	case job.ParkedBegin:
		if j.Spec.Begin <= r.World.Now {
			return fmt.Errorf("it may begin since %v", j.Spec.Begin)
		}
	case job.ParkedDependency, job.ParkedSingleton:
		if !r.Deps.Wakes(j.Spec.ID) && !r.Timers.Wakes(j, r.World.Now) {
			return fmt.Errorf("no live job will wake it, and no timer")
		}
	case job.ParkedPlan:
		if !r.Plan.Gated(j) {
			return fmt.Errorf("the plan does not keep it from running")
		}
	case job.ParkedArray: // see Deps.Check
	default:
		return fmt.Errorf("no reason")
	}
	return nil
}

// work checks that no idle devices are left to a job that could have them
// at once: the first of every group where any may pass, else the first in
// line.
func (r *Rooms) work(p *Pass) error {
	if !p.Unbounded {
		return nil
	}
	anywhere := placement.Request{In: r.World.Store, Placer: p.Placer}
	first := r.Line.First()
	var err error
	r.Line.Firsts(func(j *job.State) {
		if err != nil || p.Mode != sched.Skip && j != first || !r.Limits.Allows(j, r.World.LeastMilli(j)) {
			return
		}
		if r.Find.Fits(anywhere, j, r.World.Shapes.At(j.Shape)) {
			err = fmt.Errorf("job %d (mode %s) fits now and waits", j.Spec.ID, p.Mode)
		}
	})
	return err
}

// explanations asks why one of the pending jobs waits: there is always an answer.
func (r *Rooms) explanations(p *Pass) error {
	if len(r.Jobs) == 0 || p.Step%8 != 0 {
		return nil // it is much the most expensive check
	}
	from := int(p.Step * 7)
	for n := range r.Jobs {
		j := r.Jobs[(from+n)%len(r.Jobs)]
		if j == nil || j.State != job.Pending {
			continue
		}
		y := r.Explain.Why(j.Spec.ID, nil)
		if len(y.Blockers) == 0 || y.Blockers[0] == "" || y.Blockers[0] == "not in line" {
			return fmt.Errorf("job %d waits and nothing says why: %+v", j.Spec.ID, y)
		}
		if y.Ahead >= 0 {
			if err := r.ahead(p, j, &y); err != nil {
				return err
			}
		}
		break
	}
	return nil
}

// ahead holds the line against what a pass looks at first and against a job's explanation.
func (r *Rooms) ahead(p *Pass, j *job.State, y *explain.Why) error {
	list := r.Line.Order()
	if first := r.Line.First(); list[0] != first {
		return fmt.Errorf("the line begins with job %d; a pass looks at job %d first", list[0].Spec.ID, first.Spec.ID)
	}
	at := slices.Index(list, j)
	if at < 0 {
		return fmt.Errorf("job %d is eligible and not in the line", j.Spec.ID)
	}
	if at != y.Ahead {
		return fmt.Errorf("job %d is number %d in the line; its explanation says that %d jobs are ahead of it",
			j.Spec.ID, at+1, y.Ahead)
	}
	if at >= explain.MostAhead || p.Step%32 != 0 {
		return nil
	}
	if w := r.Explain.Line(at + 1)[at]; w.Expected != y.Expected {
		return fmt.Errorf("job %d is expected at %v; the line says %v", j.Spec.ID, y.Expected, w.Expected)
	}
	return nil
}
