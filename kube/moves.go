package kube

import (
	"context"
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

// Errors of requests for moves: the configuration says that no job is moved, not at this time, and not while moves are
// being decided on.
var (
	ErrNoMoves   = relocations.ErrNoMoves
	ErrProtected = driver.ErrProtected
	ErrMoving    = relocations.ErrMoving
)

// PlanMoves says which gangs, were they elsewhere, would let a waiting one start, or leave a node empty. Nothing is
// changed: a second engine is asked, which costs the loop a snapshot.
func (v View) PlanMoves(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	return v.d.search().Plan(ctx, r)
}

// wouldHelp says which moves would be worth it for a gang that waits; "": none, or no job is moved here.
func (v View) wouldHelp(ctx context.Context, job, live int) (string, error) {
	if v.d.opt.Rules.Defrag == nil {
		return "", nil
	}
	return v.d.search().Line(ctx, job, live)
}

// MakeMoves makes the moves that are worth it and that disruption budgets allow, and returns what was found.
func (v View) MakeMoves(ctx context.Context, r *ask.MovesRequest) ([]show.Moves, error) {
	if err := relocations.MayAsk(v.d.opt.Rules.Defrag, cluster.Time(v.d.opt.Now().UnixNano())); err != nil {
		return nil, err
	}
	return v.d.search().Make(ctx, r)
}

// search looks for moves beside the loop.
func (d *Driver) search() *relocations.Search {
	return &relocations.Search{Loop: relocations.Loop{Question: d.question, Ask: d.askToMove}, Desk: d.desk,
		Budgets: moves.Budgets{Client: d.opt.Client, Log: d.opt.Log}}
}

// question is what a second engine has to know to look for moves for a gang, or for any.
func (d *Driver) question(number int, kept map[cluster.JobID]string) (*moves.Question, error) {
	q := relocations.Describe(d.byID)
	g := d.scene(d.now).Find(number)
	switch {
	case g != nil && g.Job != cluster.NoJob:
		q.Job = g.Job
	case number != 0:
		return nil, fmt.Errorf("%w: %d, or it is not complete yet", ErrNoJob, number)
	}
	var err error
	q.Snapshot, q.Config, err = d.movable(kept)
	return q, err
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

// answered passes on what the engine found in the step before. Gangs that it does not move stay where they are.
func (d *Driver) answered() {
	for _, g := range d.relocations.Answered(d.eng, d.byID) {
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
		d.search().Round(ctx, list)
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
