package kube

import (
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
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
		if g.book.Number == 0 || g.book.Over && g.asks() {
			d.note(g, now)
		}
		if g.phase >= waiting || !g.book.Over && g.asks() {
			l.Rows = append(l.Rows, d.rowOf(g))
		}
	}
	slices.SortFunc(l.Rows, func(a, b *look.Row) int { return b.Number - a.Number })
	d.seeLine(l)
	d.seeNodes(l)
	return l
}

// rowOf is a gang as it is now.
func (d *Driver) rowOf(g *gang) *look.Row {
	r := g.book.AsRow()
	r.Key, r.Name, r.Expected, r.End = g.key, g.name, cluster.Never, g.expectedEnd(d.eng, d.now)
	r.Reason = d.besides(g, g.refused)
	r.Progress, r.Metrics, r.Steps, r.Samples = g.Last, g.Metrics, g.Pace.Steps, g.Pace.Sample
	r.User, _, _ = strings.Cut(g.name, "/")
	if a := g.answer(d.eng); a != engine.DeadlineUnanswered {
		r.Promise, r.Answer = answers[a], a.String()
	}
	if r.Spec == nil {
		r.Spec = d.sketch(g)
	}
	switch g.phase {
	case gathering:
		r.State = show.StatePending
	case waiting:
		r.State, r.Reason = show.StatePending, g.told.Text()
	case starting, unwinding:
		if r.State = show.StateStarting; g.waking {
			r.Reason = g.told.Text()
		}
	case running:
		r.State, r.Reason = show.StateRunning, ""
	case stopping:
		r.State, r.Reason = show.StateStopping, "told to leave for others"
		if g.relocation != nil {
			r.Reason = g.relocation.Text()
		}
	case moving:
		r.State, r.Reason = show.StateStarting, g.relocation.Text()
	}
	return r
}

// sketch is what is known of a gang that was never submitted.
func (d *Driver) sketch(g *gang) *cluster.Job {
	j := &cluster.Job{Name: g.name, Tier: cluster.Standard}
	if pods := g.sorted(); len(pods) > 0 {
		j.User, j.Queue, j.Priority, j.Tasks = pods[0].Obj.Namespace, d.queueOf(g, pods[0].Obj), priority(pods[0].Obj),
			taskSets(pods)
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
		if g == nil || rows[g.book.Number] == nil {
			continue
		}
		r := rows[g.book.Number]
		r.Position, r.Expected = i+1, w.Expected
		if r.Reason == "" && g.phase == waiting && why > 0 {
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
					look.Holder{GPUs: a.GPUs, Share: a.Share, Number: g.book.Number})
			}
		}
	}
	l.Nodes = slices.DeleteFunc(l.Nodes, func(s look.Node) bool {
		return s.State == cluster.Down && len(s.Holders) == 0
	})
}

// find finds a gang that is not over, by number; it runs on the loop.
func (d *Driver) find(number int) *gang {
	for _, g := range d.gangs {
		if g.book.Number == number && (g.phase >= waiting || !g.book.Over) {
			return g
		}
	}
	return nil
}
