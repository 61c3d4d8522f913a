package engine

import (
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

// CheckIndexes recomputes the classes' buckets and counts.
func (e *Engine) checkIndexes() error {
	capacity, err := e.st.CheckIndexes()
	if err != nil {
		return err
	}
	if capacity != e.w.Capacity || capacity != e.w.Tree.Capacity() {
		return fmt.Errorf("capacity %d, of the tree %d, recomputed %d", e.w.Capacity, e.w.Tree.Capacity(), capacity)
	}
	return nil
}

// checkLine compares the line, and what is counted of it, with the eligible jobs.
func (e *Engine) checkLine() error {
	waiting := map[int32]int32{} // by shape; looked up only
	for _, j := range e.jobs {
		if j != nil && j.Eligible && e.shapes.Get(j.Shape).Sliced() {
			waiting[j.Shape]++
		}
	}
	for i := range e.shapes.Count() {
		id := int32(i)
		if n := e.shapes.Get(id).Waiting; n != waiting[id] {
			return fmt.Errorf("%d jobs of shape %d are in line for slices, counted %d", waiting[id], id, n)
		}
	}
	return e.line.Check()
}

// checkWaits checks that placed jobs wait exactly for the jobs that still hold what they were promised.
func (e *Engine) checkWaits() error { return e.leavers.Check(e.moves.OnTheWay()) }

// checkDependencies checks that parked jobs have a reason to be, and that something
// will wake them.
func (e *Engine) checkDependencies() error {
	for _, j := range e.jobs {
		if j == nil || j.State != job.Pending || j.Eligible {
			continue
		}
		if err := e.checkParked(j); err != nil {
			return fmt.Errorf("parked job %d: %w", j.Spec.ID, err)
		}
	}
	return e.deps.Check()
}

func (e *Engine) checkParked(j *job.State) error {
	switch j.Parked {
	case job.ParkedHold:
		if !j.Spec.Hold {
			return fmt.Errorf("it is not held")
		}
	case job.ParkedBegin:
		if j.Spec.Begin <= e.w.Now {
			return fmt.Errorf("it may begin since %v", j.Spec.Begin)
		}
	case job.ParkedDependency, job.ParkedSingleton:
		if !e.deps.Wakes(j.Spec.ID) && !e.timers.Wakes(j, e.w.Now) {
			return fmt.Errorf("no live job will wake it, and no timer")
		}
	case job.ParkedPlan:
		if !e.plan.Gated(j) {
			return fmt.Errorf("the plan does not keep it from running")
		}
	case job.ParkedArray: // see Deps.Check
	default:
		return fmt.Errorf("no reason")
	}
	return nil
}

// checkWork checks that no idle devices are left to a job that could have them
// at once: the first of every group where any may pass, else the first in
// line. It says nothing if the engine knows that it must look again.
func (e *Engine) checkWork() error {
	if e.epoch != e.seenAt || e.fresh || len(e.resv.Windows()) > 0 || e.resv.HasAdvance() {
		return nil
	}
	first := e.line.First()
	var err error
	e.line.Firsts(func(j *job.State) {
		if err != nil || e.mode != sched.Skip && j != first || !e.limits.Allows(j, e.w.LeastMilli(j)) {
			return
		}
		if e.find.Fits(e.anywhere(), j, e.shapes.At(j.Shape)) {
			err = fmt.Errorf("job %d (mode %s) fits now and waits", j.Spec.ID, e.mode)
		}
	})
	return err
}

// checkWhys asks for explanations of a few pending jobs: there is always one.
func (e *Engine) checkWhys() error {
	if e.epoch != e.seenAt || e.fresh || len(e.jobs) == 0 || e.stats.Steps%8 != 0 {
		return nil // it is much the most expensive check
	}
	from := int(e.stats.Steps * 7)
	for n, asked := 0, 0; n < len(e.jobs) && asked < 1; n++ {
		j := e.jobs[(from+n)%len(e.jobs)]
		if j == nil || j.State != job.Pending {
			continue
		}
		asked++
		y := e.Why(j.Spec.ID)
		if len(y.Blockers) == 0 || y.Blockers[0] == "" || y.Blockers[0] == "not in line" {
			return fmt.Errorf("job %d waits and nothing says why: %+v", j.Spec.ID, y)
		}
		if y.Ahead >= 0 {
			if err := e.checkAhead(j, y.Ahead, y.Expected); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAhead holds the line against what a pass looks at first and against a job's explanation.
func (e *Engine) checkAhead(j *job.State, ahead int, expected cluster.Time) error {
	list := e.line.Order()
	if first := e.line.First(); list[0] != first {
		return fmt.Errorf("the line begins with job %d; a pass looks at job %d first", list[0].Spec.ID, first.Spec.ID)
	}
	at := slices.Index(list, j)
	if at < 0 {
		return fmt.Errorf("job %d is eligible and not in the line", j.Spec.ID)
	}
	if at != ahead {
		return fmt.Errorf("job %d is number %d in the line; its explanation says that %d jobs are ahead of it",
			j.Spec.ID, at+1, ahead)
	}
	if at >= explain.MostAhead || e.stats.Steps%32 != 0 {
		return nil
	}
	if w := e.Line(at + 1)[at]; w.Expected != expected {
		return fmt.Errorf("job %d is expected at %v; the line says %v", j.Spec.ID, expected, w.Expected)
	}
	return nil
}
