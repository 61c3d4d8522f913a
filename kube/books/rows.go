package books

import (
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/show"
)

const (
	// Of so many jobs at the head of the line a copy says when they are expected
	// to start, and of so many that were not told yet why they wait; both take the
	// engine's time, so in a long line of fewer. muster why says it of any.
	lookAhead, lookAheadLong = look.AtOnce, 4
	lookWhy, lookWhyLong     = 20, 2
	longLine                 = 1000
)

// Sight copies what there is to see.
func (r *Room) Sight(s Scene) *look.Sight {
	l := r.records.Sight(s.Now, r.present(s))
	l.Queues, l.Links = s.Engine.QueueUse(), driver.Links(s.Engine)
	for _, g := range s.Gangs {
		if g.Book.Number == 0 || g.Book.Over && g.Asks() {
			r.Note(g, s)
		}
		if g.Phase >= gang.Waiting || !g.Book.Over && g.Asks() {
			l.Rows = append(l.Rows, r.Row(g, s))
		}
	}
	slices.SortFunc(l.Rows, func(a, b *look.Row) int { return b.Number - a.Number })
	r.seeLine(&l, s)
	r.seeNodes(&l, s)
	return &l
}

// Row is a gang as it is now.
func (r *Room) Row(g *gang.Gang, s Scene) *look.Row {
	row := g.Book.AsRow()
	row.Key, row.Name, row.Expected, row.End = g.Key, g.Name, cluster.Never, g.ExpectedEnd(s.Engine, s.Now)
	row.Reason = r.besides(g, g.Refused)
	row.Progress, row.Metrics, row.Steps, row.Samples = g.Last, g.Metrics, g.Pace.Steps, g.Pace.Sample
	row.User, _, _ = strings.Cut(g.Name, "/")
	if a := g.Answer(s.Engine); a != engine.DeadlineUnanswered {
		row.Promise, row.Answer = answers[a], a.String()
	}
	if row.Spec == nil {
		row.Spec = r.sketch(g)
	}
	switch g.Phase {
	case gang.Gathering:
		row.State = show.StatePending
	case gang.Waiting:
		row.State, row.Reason = show.StatePending, g.Told.Text()
	case gang.Starting, gang.Unwinding:
		if row.State = show.StateStarting; g.Waking {
			row.Reason = g.Told.Text()
		}
	case gang.Running:
		row.State, row.Reason = show.StateRunning, ""
	case gang.Stopping:
		row.State, row.Reason = show.StateStopping, "told to leave for others"
		if g.Relocation != nil {
			row.Reason = g.Relocation.Text()
		}
	case gang.Moving:
		row.State, row.Reason = show.StateStarting, g.Relocation.Text()
	}
	return row
}

// sketch is what is known of a gang that was never submitted.
func (r *Room) sketch(g *gang.Gang) *cluster.Job {
	j := &cluster.Job{Name: g.Name, Tier: cluster.Standard}
	if pods := g.Sorted(); len(pods) > 0 {
		first := pods[0].Obj
		j.User, j.Queue, j.Priority, j.Tasks = first.Namespace, r.QueueOf(g, first), gang.Priority(first),
			gang.TaskSets(pods)
	}
	return j
}

// seeLine says of those that wait where in the line they are, and of some why.
func (r *Room) seeLine(l *look.Sight, s Scene) {
	rows := make(map[int]*look.Row, len(l.Rows))
	for _, row := range l.Rows {
		rows[row.Number] = row
	}
	s.Engine.Look(l.At)
	ahead, why := lookAhead, lookWhy
	if len(l.Rows) > longLine {
		ahead, why = lookAheadLong, lookWhyLong
	}
	for i, w := range s.Engine.Line(ahead) {
		g := s.Jobs[w.Job]
		if g == nil || rows[g.Book.Number] == nil {
			continue
		}
		row := rows[g.Book.Number]
		row.Position, row.Expected = i+1, w.Expected
		if row.Reason == "" && g.Phase == gang.Waiting && why > 0 {
			why--
			row.Reason, _ = r.Why(g, s)
		}
	}
}

// seeNodes copies the nodes, and the gangs that hold them.
func (r *Room) seeNodes(l *look.Sight, s Scene) {
	list := s.Engine.Nodes()
	l.Nodes = make([]look.Node, len(list))
	left := s.Engine.FragmentationByNode()
	for i := range list {
		row := &l.Nodes[i]
		row.Node, row.Usable = list[i], left[i].Usable
		row.Reason = r.Nodes.ReasonOf(row.Name, s.Engine.IsGivenBack(row.Name))
		if n := r.Nodes.Node(row.Name); n.Object() != nil {
			row.Foreign, row.Memory = int(n.Foreign().GPUs), r.GPUs.Memory(n.Obj)
		}
	}
	for _, b := range s.Engine.Beliefs() {
		if g := s.Jobs[b.Job]; g != nil {
			for _, a := range b.Allocs {
				l.Nodes[a.Node].Holders = append(l.Nodes[a.Node].Holders,
					look.Holder{GPUs: a.GPUs, Share: a.Share, Number: g.Book.Number})
			}
		}
	}
	l.Nodes = slices.DeleteFunc(l.Nodes, func(n look.Node) bool {
		return n.State == cluster.Down && len(n.Holders) == 0
	})
}
