package kube

import (
	"context"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/books"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// View is the cluster as the interface shows it: what muster queue, why,
// nodes, usage, top and the dashboard read. Jobs are gangs, their users are
// namespaces, and their numbers count from the scheduler's start.
type View struct {
	look.Reader
	d *Driver
}

// View returns what there is to see of the driver's cluster, from any goroutine.
func (d *Driver) View() View { return View{d.desk.Reader(), d} }

// Scheduling names the policy and the placer.
func (v View) Scheduling(context.Context) (policy, placer string, err error) {
	return v.d.opt.Rules.Policy, v.d.opt.Rules.Placer, nil
}

// Job is a gang with its pods.
func (v View) Job(ctx context.Context, id int) (show.Job, error) {
	w, err := v.tell(ctx, id, false)
	return w.Job, err
}

// Why explains a gang: from the engine as it is at this moment.
func (v View) Why(ctx context.Context, id int) (show.Why, error) { return v.tell(ctx, id, true) }

func (v View) tell(ctx context.Context, id int, why bool) (w show.Why, err error) {
	w.Blockers = []string{}
	l, err := v.d.desk.Look(ctx)
	if err != nil {
		return w, err
	}
	got := make(chan books.Answer, 1)
	if err = v.d.desk.Ask(ctx, func() { got <- v.d.answerOf(id, why) }); err != nil {
		return w, err
	}
	a := <-got
	w, err = a.Of(id, l, cluster.Time(v.d.opt.Now().UnixNano()))
	if a.Live > 0 {
		w.Moves, err = v.wouldHelp(ctx, id, a.Live)
	}
	return w, err
}

// answerOf is what the loop knows of a job; why: also why it is as it is.
func (d *Driver) answerOf(id int, why bool) (a books.Answer) {
	g := d.scene(d.now).Find(id)
	if g == nil {
		return a
	}
	a = d.books.Answer(g, d.scene(d.now))
	a.Row.Sharing = d.reader.SharingOf(g)
	if g.Phase == gang.Running || g.Phase == gang.Starting {
		a.Network = d.networkOf(g)
	}
	if why {
		d.books.Explain(&a, g, d.scene(d.clock()))
	}
	return a
}

// Speeds is what gangs' progress told of their speeds, since this scheduler leads.
func (v View) Speeds(ctx context.Context) (s show.Speeds, err error) {
	got := make(chan show.Speeds, 1)
	if err := v.d.desk.Ask(ctx, func() { got <- progress.Speeds(v.d.eng) }); err != nil {
		return s, err
	}
	return <-got, nil
}
