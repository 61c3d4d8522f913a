package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/terms"
	"github.com/muster-gpu/muster/show"
)

// Which gangs are to be moved is found by a second engine, to which gangs whose pods something makes again are jobs
// that come back when they are stopped. If it finds moves that are worth it, and disruption budgets allow them, and
// moving is on, those gangs, and no others, become such jobs of the engine that decides, which is asked the same
// (move.go carries out what it says).

var (
	// ErrNoMoves is returned where the configuration says that no job is moved.
	ErrNoMoves = errors.New("the configuration says that no job is moved; defragment: {mode: plan} lets people ask for it (docs/howto/defragment.md)")
	// ErrProtected is returned in a time in which no job is moved.
	ErrProtected = driver.ErrProtected
	// ErrMoving is returned while moves are being decided on.
	ErrMoving = errors.New("moves are being decided on already; ask again in a moment")
)

// moveState is where the driver is in moving gangs.
type moveState struct {
	relocations map[cluster.JobID]*gang.Gang // those on their way: stopping, or moving
	chosen      map[*gang.Gang]bool          // come back when they are stopped, while the engine is asked
	asking      *moveRequest                 // what the engine is asked
	searching   bool                         // moves are looked for in the present round
	roundAt     cluster.Time                 // the next one; 0: not known yet
}

// moveRequest is a question to the engine that decides.
type moveRequest struct {
	event  engine.Event
	sent   bool
	answer chan []show.Moves
}

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
	var failed error
	q := &moves.Question{By: by, Job: cluster.NoJob, Numbers: map[cluster.JobID]int{},
		Pods: map[cluster.JobID][]*v1.Pod{}, Names: map[cluster.JobID]string{}}
	err = d.desk.Ask(ctx, func() {
		if g := d.scene(d.now).Find(r.Job); g != nil && g.Job != cluster.NoJob {
			q.Job = g.Job
		} else if r.Job != 0 {
			failed = fmt.Errorf("%w: %d, or it is not complete yet", ErrNoJob, r.Job)
		}
		for id, g := range d.byID {
			q.Numbers[id], q.Names[id] = g.Book.Number, g.Name
			if g.Phase != gang.Running {
				continue
			}
			for _, p := range g.Sorted() {
				q.Pods[id] = append(q.Pods[id], p.Obj)
			}
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
	r := &moveRequest{event: engine.Event{Type: engine.Defragment, Job: q.Job, Compact: q.By},
		answer: make(chan []show.Moves, 1)}
	taken := make(chan bool, 1)
	err := d.desk.Ask(ctx, func() { taken <- d.askToMove(r, q.Jobs) })
	switch {
	case err != nil:
		return nil, err
	case !<-taken:
		return nil, ErrMoving
	}
	select {
	case list := <-r.answer:
		return list, nil
	case <-d.desk.Over():
		return nil, ErrNotLeading
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// askToMove asks the engine for moves of these gangs; false: it is being asked already.
func (d *Driver) askToMove(r *moveRequest, ids []cluster.JobID) bool {
	if d.asking != nil {
		return false
	}
	d.asking, d.chosen = r, map[*gang.Gang]bool{}
	for _, id := range ids {
		if g := d.byID[id]; g != nil {
			d.chosen[g] = true
		}
	}
	d.queued = append(append(d.queued, d.mayGo(d.chosen)...), r.event)
	return true
}

// answered hears what the engine found in the step before.
func (d *Driver) answered() {
	r := d.asking
	if r == nil || !r.sent {
		return
	}
	r.answer <- driver.Moves(d.eng.Moved(), func(id cluster.JobID) int {
		if g := d.byID[id]; g != nil {
			return g.Book.Number
		}
		return 0
	})
	for _, g := range slices.SortedFunc(maps.Keys(d.chosen), gang.ByJob) {
		if g.Phase == gang.Running && g.Relocation == nil {
			d.queued = append(d.queued, d.staysPut(g))
		}
	}
	d.asking, d.chosen = nil, nil
}

// roundEvery is how often moves are looked for, where the configuration does not say.
const roundEvery = 5 * time.Minute

// nextRound is when moves are looked for without being asked for.
func (d *Driver) nextRound(now cluster.Time) cluster.Time {
	f := d.opt.Rules.Defrag
	if f == nil || !f.Auto || d.searching {
		return cluster.Never
	}
	if p := cluster.Time(cmp.Or(f.Every, roundEvery)); d.roundAt == 0 {
		d.roundAt = (now/p + 1) * p
		if end, within := f.Protected.Until(int64(d.roundAt / cluster.Time(time.Second))); within {
			d.roundAt = cluster.Time(end * int64(time.Second))
		}
	}
	return d.roundAt
}

// round looks for moves, beside the loop.
func (d *Driver) round(now cluster.Time) {
	if now < d.nextRound(now) {
		return
	}
	d.roundAt = 0
	var list []*ask.MovesRequest
	for _, g := range d.gangs {
		if g.Phase == gang.Waiting {
			list = append(list, &ask.MovesRequest{})
			break
		}
	}
	if by := d.opt.Rules.Defrag.Compact; by != engine.NoCompact {
		list = append(list, &ask.MovesRequest{Compact: by.String()})
	}
	if len(list) == 0 {
		return
	}
	d.searching = true
	d.writer.Do(func(ctx context.Context) {
		for _, r := range list {
			if _, err := d.makeMoves(ctx, r); err != nil && ctx.Err() == nil && !errors.Is(err, ErrMoving) &&
				!errors.Is(err, ErrNotLeading) {
				d.opt.Log.Warn("moves cannot be looked for", "error", err)
			}
		}
		d.inbox.Put(func() { d.searching = false })
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
	known := map[string]bool{}
	for i := range snap.Sets {
		known[snap.Sets[i].Name] = true
	}
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		g := d.byID[j.Spec.ID]
		if g == nil || j.State != engine.Running || g.Phase != gang.Running || kept[j.Spec.ID] != "" {
			continue
		}
		spec := *j.Spec // the engine goes on with it
		s, err := d.freed(g, &spec)
		if err != nil {
			continue
		}
		if !known[s.Name] {
			snap.Sets, known[s.Name] = append(snap.Sets, cluster.NodeSet{Name: s.Name, Nodes: s.Names}), true
		}
		j.Spec = &spec
	}
	return snap, cfg, nil
}

// freed makes a running gang's job one that comes back when it is stopped, on nodes of
// the set that is returned; an error says why it cannot be such.
func (d *Driver) freed(g *gang.Gang, spec *cluster.Job) (*nodes.Set, error) {
	pods := g.Sorted()
	if !g.WouldReturn() || g.Leaves != "" {
		return nil, errors.New("its pods would not be made again, or are bound to where they are")
	}
	t, err := d.reader.Terms(g, pods[0].Obj)
	if err != nil {
		return nil, err
	}
	if d.opt.Rules.Defrag != nil {
		if err := d.mayMove(g, &t); err != nil {
			return nil, err
		}
	}
	s := d.reader.NodesFor(pods)
	if slices.ContainsFunc(pods, func(p *gang.Pod) bool { return !slices.Contains(s.Names, p.Node) }) {
		return nil, errors.New("its node would not take it again")
	}
	l := d.reader.Limits(pods, false, false)
	if l.Why != "" {
		return nil, errors.New(l.Why)
	}
	d.nodes.Loans.Confine(spec, s.Within())
	spec.NoRequeue, spec.PerNode, spec.NodeLimits, spec.Topology = false, l.Each, l.Nodes, t.Topology
	spec.Checkpoint = cluster.Checkpoint{None: true} // it is not said what its pods save
	if t.Saves > 0 {
		// That they write one when they are told to leave, is not said either: as if it took longer than they have.
		spec.Checkpoint = cluster.Checkpoint{Interval: t.Saves, Cost: cluster.MaxDuration}
	}
	return s, nil
}

// mayMove says why a gang is not moved, though something makes its pods again; nil: it may be.
func (d *Driver) mayMove(g *gang.Gang, t *terms.Terms) error {
	if g.Of != "" || d.singletons[g.Key] > 0 || len(g.Missing) > 0 || g.Repair.IsPatch || len(g.Pods) != len(g.Places) {
		return errors.New("it is not as it started, or part of another")
	}
	for i := range g.Places {
		if p := g.Pods[g.Places[i].Pod]; p == nil || p.Leaves() || p.Node == "" {
			return errors.New("it is not whole")
		}
	}
	first := g.Sorted()[0]
	for _, p := range g.Sorted() {
		switch {
		case p.Signature != first.Signature:
			return errors.New("its pods have places of their own")
		case t.Movable == "true":
		case t.Movable == "false":
			return fmt.Errorf("%s says so", AnnotationMovable)
		case !d.objects.Forgives(p.Obj):
			return fmt.Errorf("what owns pod %s may count that against it, or is not known: %s permits it", p.Obj.Name,
				AnnotationMovable)
		}
	}
	return nil
}
