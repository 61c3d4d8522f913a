package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/muster-gpu/muster/engine/check"
	"github.com/muster-gpu/muster/engine/job"
)

// CheckInvariants compares everything that the engine keeps up to date step by
// step with a recomputation from scratch: the books of each node, what each job
// holds physically, the index, the lists, the lanes, the queues' usage, which job
// waits for which; and that no job waits for devices that it could have. It is
// slow and meant for tests; it changes nothing that decisions depend on.
func (e *Engine) CheckInvariants() error {
	var errs []error
	for _, f := range []func() error{
		e.checkIdleState, e.checkJobs, e.books().Check, e.checkIndexes, e.running.Check, e.checkLine, e.plan.Check,
		func() error { return e.limits.CheckUse(e.jobs) }, e.past.Check, e.find.CheckFragments, e.checkWaits,
		func() error { return e.loans.Check(e.jobs) }, e.checkDependencies, e.checkWork, e.checkWhys,
		func() error { return e.lending.Check(e.jobs) }} {
		if err := f(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// books is what package check compares.
func (e *Engine) books() *check.Books {
	return &check.Books{Spec: &e.cfg.Spec, Store: &e.st, Jobs: e.jobs}
}

// checkIdleState checks that nothing tentative is left.
func (e *Engine) checkIdleState() error {
	switch {
	case e.st.Tentative():
		return errors.New("changes of nodes or of what queues use could be undone between steps")
	case e.current.walk.Open():
		return errors.New("a pass goes on between steps")
	case !reflect.ValueOf(&e.noTenure).Elem().IsZero():
		return fmt.Errorf("something was given to all that were given nothing: %+v", e.noTenure)
	}
	return nil
}

// checkJobs checks each job by itself: a gang is whole or absent.
func (e *Engine) checkJobs() error {
	live := 0
	for id, j := range e.jobs {
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
		case (j.Dest != nil) != slices.Contains(e.moves.OnTheWay(), j.Spec.ID) || j.Dest != nil &&
			(j.State != job.Stopping || j.Reason != job.Preempted && j.Reason != job.NodeLost):
			err = fmt.Errorf("goes to %+v, and %v are on their way", j.Dest, e.moves.OnTheWay())
		case j.State == job.Done && j.InArray:
			err = errors.New("keeps its array's place")
		case j.ServedBefore < 0 || j.ServedBefore > j.ServiceAt(e.w.Now) || j.RanBefore < 0 || j.RanBefore > j.Ran ||
			j.Promotion > e.w.Now:
			err = fmt.Errorf("promoted at %v after %d of %d and %v of %v", j.Promotion, j.ServedBefore,
				j.ServiceAt(e.w.Now), j.RanBefore, j.Ran)
		case j.Eligible && e.promoter != nil && e.promotionOf(j) != j.PromoteAt ||
			j.Eligible && e.promoter != nil && j.PromoteAt <= e.w.Now && j.EligibleSince != e.w.Now:
			err = fmt.Errorf("is to be promoted at %v, not at %v", e.promotionOf(j), j.PromoteAt)
		case j.State != job.Done && j.Shape != j.Base && (!j.Eligible || j.Shape != j.Asks()):
			err = errors.New("asks for something else than its spec and its plan say")
		case j.Eligible && e.plan.Gated(j):
			err = errors.New("is in line although its plan gives it nothing")
		case j.State == job.Placed && (j.Waits < 1 || !j.Waited):
			err = fmt.Errorf("waits for %d jobs to leave", j.Waits)
		case j.State != job.Placed && j.Waits != 0:
			err = fmt.Errorf("waits for %d jobs to leave", j.Waits)
		case j.Booked() || j.State == job.Stopping:
			err = e.checkHeld(j, true)
		}
		if err != nil {
			return fmt.Errorf("job %d (%s): %w", j.Spec.ID, j.State, err)
		}
	}
	if live != e.live {
		return fmt.Errorf("%d live jobs, counted %d", e.live, live)
	}
	return nil
}
