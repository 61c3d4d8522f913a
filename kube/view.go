package kube

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
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
	type answer struct {
		row  *look.Row
		why  show.Why
		live int // gangs, if it waits and is whole
	}
	got := make(chan answer, 1)
	err = v.d.desk.Ask(ctx, func() {
		d := v.d
		g := d.find(id)
		if g == nil {
			got <- answer{}
			return
		}
		a := answer{row: d.rowOf(g)}
		a.row.Sharing = d.reader.SharingOf(g)
		a.why.Job.Tasks = gang.Tasks(g)
		if g.Phase == gang.Running || g.Phase == gang.Starting {
			a.why.Job.Network = d.networkOf(g)
		}
		if why && a.why.Job.Network != nil {
			a.why.Text = d.explain(g, d.clock()).Text
		}
		if why && g.Phase == gang.Waiting {
			if g.Job != cluster.NoJob {
				a.live = len(d.byID)
			}
			y := d.explain(g, d.clock())
			if more := d.nodes.MIG.Told(g.Name, d.nodes.CountUsers); more != "" {
				y.Blockers = append(y.Blockers, more)
			}
			a.why.Blockers, a.why.Holders, a.why.Text, a.why.Job.Rough, a.row.Expected = y.Blockers, y.Holders, y.Text,
				y.Rough, y.Expected
		}
		got <- a
	})
	if err != nil {
		return w, err
	}
	a := <-got
	if a.row == nil { // it is over, or never was
		r, err := l.One(id)
		if err != nil {
			return w, err
		}
		w.Job, w.Text = r.Job(l.At), r.Reason
		return w, nil
	}
	tasks, network := a.why.Job.Tasks, a.why.Job.Network
	if i := slices.IndexFunc(l.Rows, func(r *look.Row) bool { return r.Number == id }); i >= 0 && a.row.Position == 0 {
		a.row.Position = l.Rows[i].Position
	}
	w = a.why
	rough := w.Job.Rough
	w.Job = a.row.Job(cluster.Time(v.d.opt.Now().UnixNano()))
	w.Job.Tasks, w.Job.Network, w.Job.Rough = tasks, network, rough && w.Job.Expected != nil
	if w.Blockers == nil {
		w.Blockers = []string{}
	}
	if len(w.Blockers) == 0 && w.Job.State == show.StatePending && w.Job.Reason != "" {
		w.Blockers = append(w.Blockers, w.Job.Reason)
	}
	if w.Job.State != show.StatePending {
		w.Text = cmp.Or(w.Text, a.row.Where())
		if a.row.Answer != "" {
			w.Text = strings.TrimPrefix(w.Text+"; "+a.row.Answer, "; ")
		}
	}
	if a.live > 0 {
		w.Moves, err = v.wouldHelp(ctx, id, a.live)
	}
	return w, err
}

// explain is the engine's own explanation, with the numbers that people know; it
// runs on the loop.
func (d *Driver) explain(g *gang.Gang, now cluster.Time) engine.Why {
	d.eng.Look(now)
	y := d.eng.Why(g.Job)
	for _, list := range [][]string{y.Blockers, y.Holders} {
		for i := range list {
			list[i] = d.numbered(list[i])
		}
	}
	y.Text = d.numbered(y.Text)
	return y
}

var jobNumber = regexp.MustCompile(`\bjob (\d+)\b`)

// numbered puts the numbers that people know in place of the engine's, which are
// others after each time that a gang is submitted.
func (d *Driver) numbered(text string) string {
	return jobNumber.ReplaceAllStringFunc(text, func(m string) string {
		if id, err := strconv.Atoi(m[len("job "):]); err == nil {
			if g := d.byID[cluster.JobID(id)]; g != nil && g.Book.Number > 0 {
				return fmt.Sprintf("job %d", g.Book.Number)
			}
		}
		return m
	})
}

// Speeds is what gangs' progress told of their speeds, since this scheduler leads.
func (v View) Speeds(ctx context.Context) (s show.Speeds, err error) {
	got := make(chan show.Speeds, 1)
	if err := v.d.desk.Ask(ctx, func() { got <- progress.Speeds(v.d.eng) }); err != nil {
		return s, err
	}
	return <-got, nil
}
