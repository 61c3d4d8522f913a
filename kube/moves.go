package kube

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/relocations"
	"github.com/muster-gpu/muster/show"
)

var (
	// ErrNoMoves is returned where the configuration says that no job is moved.
	ErrNoMoves = errors.New("the configuration says that no job is moved; defragment: {mode: plan} lets people ask for it (docs/howto/defragment.md)")
	// ErrProtected is returned in a time in which no job is moved.
	ErrProtected = driver.ErrProtected
	// ErrMoving is returned while moves are being decided on.
	ErrMoving = errors.New("moves are being decided on already; ask again in a moment")
)

// PlanMoves says which gangs, were they elsewhere, would let a waiting one start, or
// leave a node empty. Nothing is changed: a second engine is asked, which costs the
// loop a snapshot.
func (v View) PlanMoves(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	q, err := v.d.question(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return q.Plan()
}

// mostToMove bounds for how many live gangs the explanation of one looks for moves, which copies what the engine knows:
// a request to POST moves waits for as long as that takes.
const mostToMove = 5000

// wouldHelp says which moves would be worth it for a gang that waits; "": none, or no job is moved here.
func (v View) wouldHelp(ctx context.Context, job, live int) (string, error) {
	if v.d.opt.Rules.Defrag == nil || live > mostToMove {
		return "", nil
	}
	q, err := v.d.question(ctx, &ask.MovesRequest{Job: job}, nil)
	if errors.Is(err, ErrNoJob) {
		return "", nil // it is over, or lost a pod, since it was explained
	}
	if err != nil {
		return "", err
	}
	return q.Line()
}

// MakeMoves makes the moves that are worth it and that disruption budgets allow, and
// returns what was found.
func (v View) MakeMoves(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	if v.d.opt.Rules.Defrag == nil {
		return nil, ErrNoMoves
	}
	if err := driver.MayMove(v.d.opt.Rules.Defrag, cluster.Time(v.d.opt.Now().UnixNano())); err != nil {
		return nil, err
	}
	return v.d.makeMoves(ctx, r)
}

// question gathers what a second engine has to know; kept are gangs that are not to be
// moved.
func (d *Driver) question(ctx context.Context, r *ask.MovesRequest,
	kept map[cluster.JobID]string) (*moves.Question, error) {
	by, err := driver.Asked(r)
	if err != nil {
		return nil, err
	}
	var q *moves.Question
	var failed error
	err = d.desk.Ask(ctx, func() {
		q = relocations.Describe(by, d.byID)
		if g := d.scene(d.now).Find(r.Job); g != nil && g.Job != cluster.NoJob {
			q.Job = g.Job
		} else if r.Job != 0 {
			failed = fmt.Errorf("%w: %d, or it is not complete yet", ErrNoJob, r.Job)
		}
		if failed == nil {
			q.Snapshot, q.Config, failed = d.movable(kept)
		}
	})
	if err != nil {
		return nil, err // the loop may be at work on it yet
	}
	return q, failed
}

// makeMoves looks for moves and has those made that are worth it.
func (d *Driver) makeMoves(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	gather := func(kept map[cluster.JobID]string) (*moves.Question, error) { return d.question(ctx, r, kept) }
	found, err := moves.Find(ctx, gather, moves.Budgets{Client: d.opt.Client, Log: d.opt.Log})
	switch {
	case err != nil:
		return nil, err
	case len(found.Jobs) == 0:
		return found.Shown, nil
	}
	return d.carryOut(ctx, found)
}

// carryOut asks the engine that decides.
func (d *Driver) carryOut(ctx context.Context, q *moves.Answer) ([]show.Moves, error) {
	r := relocations.NewRequest(q.Job, q.By)
	taken := make(chan bool, 1)
	err := d.desk.Ask(ctx, func() { taken <- d.askToMove(r, q.Jobs) })
	switch {
	case err != nil:
		return nil, err
	case !<-taken:
		return nil, ErrMoving
	}
	select {
	case list := <-r.Answer:
		return list, nil
	case <-d.desk.Over():
		return nil, ErrNotLeading
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// askToMove asks the engine for moves of these gangs; false: it is being asked already.
func (d *Driver) askToMove(r *relocations.Request, ids []cluster.JobID) bool {
	if d.relocations.Asked() {
		return false
	}
	chosen, events := d.mayGo(ids)
	d.relocations.Ask(r, chosen)
	d.queued = append(append(d.queued, events...), r.Event)
	return true
}

// answered passes on what the engine found in the step before.
func (d *Driver) answered() {
	r, staying := d.relocations.Answered()
	if r == nil {
		return
	}
	r.Answer <- driver.Moves(d.eng.Moved(), func(id cluster.JobID) int {
		if g := d.byID[id]; g != nil {
			return g.Book.Number
		}
		return 0
	})
	for _, g := range staying {
		d.queued = append(d.queued, d.staysPut(g))
	}
}

// round looks for moves, beside the loop.
func (d *Driver) round(now cluster.Time) {
	list := d.relocations.StartRound(d.opt.Rules.Defrag, now, d.gangs)
	if len(list) == 0 {
		return
	}
	d.writer.Do(func(ctx context.Context) {
		for _, r := range list {
			if _, err := d.makeMoves(ctx, r); err != nil && ctx.Err() == nil && !errors.Is(err, ErrMoving) &&
				!errors.Is(err, ErrNotLeading) {
				d.opt.Log.Warn("moves cannot be looked for", "error", err)
			}
		}
		d.inbox.Put(d.relocations.RoundOver)
	})
}

// movable is what a second engine has to know that looks for moves: as this one, but gangs that something would make
// again come back when they are stopped, on the nodes that suit them. It runs on the loop; the policy and the placer
// are new ones.
func (d *Driver) movable(kept map[cluster.JobID]string) (engine.Snapshot, engine.Config, error) {
	d.eng.Look(d.clock())
	snap := d.eng.Snapshot()
	_, cfg, err := d.rules(d.cfg.Spec)
	if err != nil {
		return snap, cfg, err
	}
	cfg.Spec.Queues = d.queues.Fitted()
	draft := relocations.NewDraft(&snap)
	for _, c := range draft.Candidates(d.byID, kept) {
		if s, err := d.freed(c.Gang, &c.Spec); err == nil {
			draft.Free(c, s)
		}
	}
	return snap, cfg, nil
}

// freed makes a running gang's job one that comes back when it is stopped, on nodes of the set that is returned; an
// error says why it cannot be such.
func (d *Driver) freed(g *gang.Gang, spec *cluster.Job) (*nodes.Set, error) {
	if err := relocations.WouldReturn(g); err != nil {
		return nil, err
	}
	pods := g.Sorted()
	t, err := d.reader.Terms(g, pods[0].Obj)
	if err != nil {
		return nil, err
	}
	if d.opt.Rules.Defrag != nil {
		if err := relocations.MayMove(g, &t, d.singletons[g.Key], d.objects); err != nil {
			return nil, err
		}
	}
	s, l := d.reader.NodesFor(pods), d.reader.Limits(pods, false, false)
	if err := relocations.FitsAgain(pods, s, &l); err != nil {
		return nil, err
	}
	d.nodes.Loans.Confine(spec, s.Within())
	relocations.Free(spec, &t, &l)
	return s, nil
}
