package engine

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/muster-gpu/muster/engine/check"
)

// CheckInvariants compares everything that the engine keeps up to date step by
// step with a recomputation from scratch: the books of each node, what each job
// holds physically, the index, the lists, the lanes, the queues' usage, which job
// waits for which; and that no job waits for devices that it could have. It is
// slow and meant for tests; it changes nothing that decisions depend on.
func (e *Engine) CheckInvariants() error {
	rooms := e.rooms()
	return errors.Join(e.checkIdleState(), e.books().Check(), rooms.Check(), e.running.Check(), e.plan.Check(),
		e.limits.CheckUse(e.jobs), e.past.Check(), e.find.CheckFragments(), e.checkWaits(), e.loans.Check(e.jobs),
		rooms.Parked(), e.checkSettled(rooms), e.lending.Check(e.jobs))
}

// books is the inventory and what jobs hold of it, for comparison.
func (e *Engine) books() *check.Books {
	return &check.Books{Spec: &e.cfg.Spec, Store: &e.st, Jobs: e.jobs}
}

// rooms is the other books that are compared.
func (e *Engine) rooms() *check.Rooms {
	r := &check.Rooms{World: &e.w, Jobs: e.jobs, Live: e.live, OnTheWay: e.moves.OnTheWay(), Plan: &e.plan,
		Line: &e.line, Deps: &e.deps, Timers: &e.timers, Limits: &e.limits, Find: &e.find, Explain: e.explain,
		Strays: e.found.Strays()}
	if e.promoter != nil {
		r.PromoteAt = e.promotionOf
	}
	return r
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

// checkWaits checks that placed jobs wait exactly for the jobs that still hold what they were promised.
func (e *Engine) checkWaits() error { return e.leavers.Check(e.moves.OnTheWay()) }

// checkSettled checks what holds after a pass, unless the engine knows that it must look again.
func (e *Engine) checkSettled(r *check.Rooms) error {
	if e.epoch != e.seenAt || e.fresh {
		return nil
	}
	return r.Settled(&check.Pass{Placer: e.cfg.Placer, Mode: e.mode, Step: e.stats.Steps,
		Unbounded: len(e.resv.Windows()) == 0 && !e.resv.HasAdvance()})
}
