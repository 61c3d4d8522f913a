package relocations

import (
	"context"
	"errors"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/show"
)

var (
	// ErrNoMoves is returned where the configuration says that no job is moved.
	ErrNoMoves = errors.New("the configuration says that no job is moved; defragment: {mode: plan} lets people ask for it (docs/howto/defragment.md)")
	// ErrMoving is returned while moves are being decided on.
	ErrMoving = errors.New("moves are being decided on already; ask again in a moment")
)

// mostToMove bounds for how many live gangs the explanation of one looks for moves, which copies what the engine knows:
// a request to POST moves waits for as long as that takes.
const mostToMove = 5000

// Loop is what the search asks of the scheduler's loop, on which these run.
type Loop struct {
	// Question is what a second engine has to know to look for moves for a gang, by its number, or for any, 0. Those
	// that are kept are not moved.
	Question func(number int, kept map[cluster.JobID]string) (*moves.Question, error)
	// Ask has the engine that decides be asked for moves of these jobs; false: it is being asked already.
	Ask func(q *Request, ids []cluster.JobID) bool
}

// Search looks for moves with a second engine, and has those made that are worth it, beside the loop.
type Search struct {
	Loop
	Desk    *look.Desk
	Budgets moves.Budgets
}

// MayAsk says why people may not have moves made now; nil: they may.
func MayAsk(f *engine.Defrag, now cluster.Time) error {
	if f == nil {
		return ErrNoMoves
	}
	return driver.MayMove(f, now)
}

// Plan says which moves there are. Nothing is changed; it costs the loop a snapshot.
func (s *Search) Plan(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	q, err := s.question(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return q.Plan()
}

// Line says which moves would be worth it for a gang that waits, one of so many; "": none, or there are too many gangs.
func (s *Search) Line(ctx context.Context, number, live int) (string, error) {
	if live > mostToMove {
		return "", nil
	}
	q, err := s.question(ctx, &ask.MovesRequest{Job: number}, nil)
	switch {
	case errors.Is(err, look.ErrNoJob):
		return "", nil // it is over, or lost a pod, since it was explained
	case err != nil:
		return "", err
	}
	return q.Line()
}

// Make has the moves made that are worth it and that disruption budgets allow, and returns what was found.
func (s *Search) Make(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	gather := func(kept map[cluster.JobID]string) (*moves.Question, error) { return s.question(ctx, r, kept) }
	found, err := moves.Find(ctx, gather, s.Budgets)
	switch {
	case err != nil:
		return nil, err
	case len(found.Jobs) == 0:
		return found.Shown, nil
	}
	return s.decide(ctx, found)
}

// Round makes moves without being asked.
func (s *Search) Round(ctx context.Context, list []*ask.MovesRequest) {
	for _, r := range list {
		_, err := s.Make(ctx, r)
		expected := errors.Is(err, ErrMoving) || errors.Is(err, look.ErrNotLeading)
		if err != nil && ctx.Err() == nil && !expected {
			s.Budgets.Log.Warn("moves cannot be looked for", "error", err)
		}
	}
}

// question gathers on the loop what a second engine has to know.
func (s *Search) question(ctx context.Context, r *ask.MovesRequest,
	kept map[cluster.JobID]string) (*moves.Question, error) {
	by, err := driver.Asked(r)
	if err != nil {
		return nil, err
	}
	var q *moves.Question
	var failed error
	err = s.Desk.Ask(ctx, func() { q, failed = s.Question(r.Job, kept) })
	switch {
	case err != nil:
		return nil, err // the loop may be at work on it yet
	case failed != nil:
		return nil, failed
	}
	q.By = by
	return q, nil
}

// decide asks the engine that decides.
func (s *Search) decide(ctx context.Context, q *moves.Answer) ([]show.Moves, error) {
	r := NewRequest(q.Job, q.By)
	taken := make(chan bool, 1)
	err := s.Desk.Ask(ctx, func() { taken <- s.Ask(r, q.Jobs) })
	switch {
	case err != nil:
		return nil, err
	case !<-taken:
		return nil, ErrMoving
	}
	select {
	case list := <-r.Answer:
		return list, nil
	case <-s.Desk.Over():
		return nil, look.ErrNotLeading
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
