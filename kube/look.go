package kube

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

// What people see of the cluster is copied on the loop (look.Desk).
const (
	// Of so many jobs at the head of the line a copy says when they are expected
	// to start, and of so many that were not told yet why they wait; both take the
	// engine's time, so in a long line of fewer. muster why says it of any.
	lookAhead, lookAheadLong = look.AtOnce, 4
	lookWhy, lookWhyLong     = 20, 2
	longLine                 = 1000
)

var (
	// ErrNotLeading is returned where this scheduler does not schedule.
	ErrNotLeading = look.ErrNotLeading
	// ErrNoJob is returned for a number that no gang has.
	ErrNoJob = look.ErrNoJob
)

// see copies what there is to see; it runs on the loop.
func (d *Driver) see() *look.Sight {
	now := d.clock()
	d.sample(now)
	d.records.Count(now)
	sight := d.records.Sight(now, d.present(now))
	l := &sight
	l.Queues, l.Links = d.eng.QueueUse(), driver.Links(d.eng)
	for _, g := range d.gangs {
		if g.Book.Number == 0 || g.Book.Over && g.Asks() {
			d.note(g, now)
		}
		if g.Phase >= gang.Waiting || !g.Book.Over && g.Asks() {
			l.Rows = append(l.Rows, d.rowOf(g))
		}
	}
	slices.SortFunc(l.Rows, func(a, b *look.Row) int { return b.Number - a.Number })
	d.seeLine(l)
	d.seeNodes(l)
	return l
}

// rowOf is a gang as it is now.
func (d *Driver) rowOf(g *gang.Gang) *look.Row {
	r := g.Book.AsRow()
	r.Key, r.Name, r.Expected, r.End = g.Key, g.Name, cluster.Never, g.ExpectedEnd(d.eng, d.now)
	r.Reason = d.besides(g, g.Refused)
	r.Progress, r.Metrics, r.Steps, r.Samples = g.Last, g.Metrics, g.Pace.Steps, g.Pace.Sample
	r.User, _, _ = strings.Cut(g.Name, "/")
	if a := g.Answer(d.eng); a != engine.DeadlineUnanswered {
		r.Promise, r.Answer = answers[a], a.String()
	}
	if r.Spec == nil {
		r.Spec = d.sketch(g)
	}
	switch g.Phase {
	case gang.Gathering:
		r.State = show.StatePending
	case gang.Waiting:
		r.State, r.Reason = show.StatePending, g.Told.Text()
	case gang.Starting, gang.Unwinding:
		if r.State = show.StateStarting; g.Waking {
			r.Reason = g.Told.Text()
		}
	case gang.Running:
		r.State, r.Reason = show.StateRunning, ""
	case gang.Stopping:
		r.State, r.Reason = show.StateStopping, "told to leave for others"
		if g.Relocation != nil {
			r.Reason = g.Relocation.Text()
		}
	case gang.Moving:
		r.State, r.Reason = show.StateStarting, g.Relocation.Text()
	}
	return r
}

// sketch is what is known of a gang that was never submitted.
func (d *Driver) sketch(g *gang.Gang) *cluster.Job {
	j := &cluster.Job{Name: g.Name, Tier: cluster.Standard}
	if pods := g.Sorted(); len(pods) > 0 {
		first := pods[0].Obj
		j.User, j.Queue, j.Priority, j.Tasks = first.Namespace, d.reader.QueueOf(g, first), gang.Priority(first),
			gang.TaskSets(pods)
	}
	return j
}

// seeLine says of those that wait where in the line they are, and of some why.
func (d *Driver) seeLine(l *look.Sight) {
	rows := make(map[int]*look.Row, len(l.Rows))
	for _, r := range l.Rows {
		rows[r.Number] = r
	}
	d.eng.Look(l.At)
	ahead, why := lookAhead, lookWhy
	if len(l.Rows) > longLine {
		ahead, why = lookAheadLong, lookWhyLong
	}
	for i, w := range d.eng.Line(ahead) {
		g := d.byID[w.Job]
		if g == nil || rows[g.Book.Number] == nil {
			continue
		}
		r := rows[g.Book.Number]
		r.Position, r.Expected = i+1, w.Expected
		if r.Reason == "" && g.Phase == gang.Waiting && why > 0 {
			why--
			r.Reason, _ = d.why(g, l.At)
		}
	}
}

// seeNodes copies the nodes, and the gangs that hold them.
func (d *Driver) seeNodes(l *look.Sight) {
	list := d.eng.Nodes()
	l.Nodes = make([]look.Node, len(list))
	left := d.eng.FragmentationByNode()
	for i := range list {
		s := &l.Nodes[i]
		s.Node, s.Usable = list[i], left[i].Usable
		s.Reason = d.nodes.ReasonOf(s.Name, d.eng.IsGivenBack(s.Name))
		if n := d.nodes.Node(s.Name); n.Object() != nil {
			s.Foreign, s.Memory = int(n.Foreign().GPUs), d.gpus.Memory(n.Obj)
		}
	}
	for _, b := range d.eng.Beliefs() {
		if g := d.byID[b.Job]; g != nil {
			for _, a := range b.Allocs {
				l.Nodes[a.Node].Holders = append(l.Nodes[a.Node].Holders,
					look.Holder{GPUs: a.GPUs, Share: a.Share, Number: g.Book.Number})
			}
		}
	}
	l.Nodes = slices.DeleteFunc(l.Nodes, func(s look.Node) bool {
		return s.State == cluster.Down && len(s.Holders) == 0
	})
}

// find finds a gang that is not over, by number; it runs on the loop.
func (d *Driver) find(number int) *gang.Gang {
	for _, g := range d.gangs {
		if g.Book.Number == number && (g.Phase >= gang.Waiting || !g.Book.Over) {
			return g
		}
	}
	return nil
}
