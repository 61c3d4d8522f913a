package books

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/show"
)

// Explain is the engine's own explanation of why a gang waits, with the numbers that people know.
func (s Scene) Explain(g *gang.Gang) engine.Why {
	s.Engine.Look(s.Now)
	y := s.Engine.Why(g.Job)
	for _, list := range [][]string{y.Blockers, y.Holders} {
		for i := range list {
			list[i] = s.numbered(list[i])
		}
	}
	y.Text = s.numbered(y.Text)
	return y
}

var jobNumber = regexp.MustCompile(`\bjob (\d+)\b`)

// numbered puts the numbers that people know in place of the engine's, which are
// others after each time that a gang is submitted.
func (s Scene) numbered(text string) string {
	return jobNumber.ReplaceAllStringFunc(text, func(m string) string {
		if id, err := strconv.Atoi(m[len("job "):]); err == nil {
			if g := s.Jobs[cluster.JobID(id)]; g != nil && g.Book.Number > 0 {
				return fmt.Sprintf("job %d", g.Book.Number)
			}
		}
		return m
	})
}

// besides adds to what a gang waits for which nodes are being partitioned for it.
func (r *Room) besides(g *gang.Gang, text string) string {
	more := r.Nodes.MIG.Told(g.Name, r.Nodes.CountUsers)
	switch {
	case more == "":
		return text
	case text == "":
		return more
	}
	return text + "; " + more
}

// Why is what blocks a gang that waits; stem is that part of it that is news when it is another.
func (r *Room) Why(g *gang.Gang, s Scene) (stem, text string) {
	y := s.Explain(g)
	return r.whyText(g, s, &y)
}

// whyText says in words what blocks a gang.
func (r *Room) whyText(g *gang.Gang, s Scene, y *engine.Why) (stem, text string) {
	stem = look.Stem(y, g.KeptOff, len(r.Nodes.Objects()))
	stem = g.WithAnswer(s.Engine, r.besides(g, stem))
	return stem, look.Full(stem, y, s.Now)
}

// Answer is what is said of one gang, as far as the loop knows it.
type Answer struct {
	Row     *look.Row // nil: it is over, or never was
	Network *show.Network
	Live    int // gangs that the engine has, if this is one that waits there

	tasks []show.Task
	why   engine.Why // as far as it was asked
}

// Answer begins what is said of a gang.
func (r *Room) Answer(g *gang.Gang, s Scene) Answer {
	return Answer{Row: r.Row(g, s), tasks: g.Tasks()}
}

// Explain adds to an answer why the gang waits, or what slows it on the network.
func (r *Room) Explain(a *Answer, g *gang.Gang, s Scene) {
	switch {
	case a.Network != nil:
		a.why.Text = s.Explain(g).Text
	case g.Phase == gang.Waiting:
		if g.Job != cluster.NoJob {
			a.Live = len(s.Jobs)
		}
		a.why = s.Explain(g)
		if more := r.Nodes.MIG.Told(g.Name, r.Nodes.CountUsers); more != "" {
			a.why.Blockers = append(a.why.Blockers, more)
		}
		a.Row.Expected = a.why.Expected
	}
}

// Of is the answer for people who asked of a number, with what a sight has beyond it.
func (a *Answer) Of(number int, l *look.Sight, now cluster.Time) (show.Why, error) {
	w := show.Why{Blockers: []string{}}
	if a.Row == nil {
		row, err := l.One(number)
		if err == nil {
			w.Job, w.Text = row.Job(l.At), row.Reason
		}
		return w, err
	}
	if i := slices.IndexFunc(l.Rows, func(r *look.Row) bool { return r.Number == number }); i >= 0 {
		a.Row.Position = cmp.Or(a.Row.Position, l.Rows[i].Position)
	}
	w.Blockers, w.Holders, w.Text = append(w.Blockers, a.why.Blockers...), a.why.Holders, a.why.Text
	w.Job = a.Row.Job(now)
	w.Job.Tasks, w.Job.Network, w.Job.Rough = a.tasks, a.Network, a.why.Rough && w.Job.Expected != nil
	if len(w.Blockers) == 0 && w.Job.State == show.StatePending && w.Job.Reason != "" {
		w.Blockers = append(w.Blockers, w.Job.Reason)
	}
	if w.Job.State != show.StatePending {
		w.Text = cmp.Or(w.Text, a.Row.Where())
		if a.Row.Answer != "" {
			w.Text = strings.TrimPrefix(w.Text+"; "+a.Row.Answer, "; ")
		}
	}
	return w, nil
}
