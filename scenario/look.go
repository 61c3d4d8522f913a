package scenario

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/report"
)

// lookCmd examines a variant of the last run at an instant: explain says why a job waits, moves
// lists moves that would let it start, show lists what nodes or queues hold.
type lookCmd struct {
	choice
	run     *runCmd
	what    string // job, moves, nodes or queues
	job     string
	compact engine.Compact // moves: whose purpose is to empty nodes
	at      cluster.Time
	set     bool // at= was given
}

// choice selects variants by policy, placer, backfill and traffic policy.
type choice struct{ policy, place, backfill, traffic string }

var choiceNames = []string{"policy", "place", "backfill", "traffic"}

func (c *choice) put(key, value string) bool {
	switch key {
	case "policy":
		c.policy = value
	case "place":
		c.place = value
	case "backfill":
		c.backfill = value
	case "traffic":
		c.traffic = value
	default:
		return false
	}
	return true
}

// check reports a choice that no variant of the run meets.
func (c *choice) check(r *runCmd) error {
	for _, x := range []struct {
		what, have string
		list       []string
	}{{"policy", c.policy, r.policies}, {"place", c.place, r.places}, {"backfill", c.backfill, r.backfills},
		{"traffic", c.traffic, r.traffic}} {
		if x.have != "" && !within(x.list, x.have) {
			return cluster.Unknown(x.what+" of this run", x.have, x.list)
		}
	}
	return nil
}

func (c *choice) meets(v *variant) bool {
	return (c.policy == "" || c.policy == v.policy) && (c.place == "" || c.place == v.place) &&
		(c.backfill == "" || c.backfill == v.backfill) && (c.traffic == "" || c.traffic == v.traffic)
}

var lookKeys = []key[lookCmd]{
	text("policy", func(l *lookCmd) *string { return &l.policy }),
	text("place", func(l *lookCmd) *string { return &l.place }),
	text("backfill", func(l *lookCmd) *string { return &l.backfill }),
	text("traffic", func(l *lookCmd) *string { return &l.traffic }),
	text("job", func(l *lookCmd) *string { return &l.job }),
	{name: "at", set: func(l *lookCmd, v string) (err error) {
		l.set = true
		l.at, err = parseTime(v)
		return err
	}},
}

// moveKeys are the keys of moves.
var moveKeys = append(slices.Clone(lookKeys),
	key[lookCmd]{name: "compact", set: func(l *lookCmd, v string) (err error) {
		l.compact, err = engine.ParseCompact(v)
		return err
	}})

func (p *parser) explain(args []string) error {
	l := &lookCmd{what: "job"}
	if err := apply(l, lookKeys, args); err != nil {
		return err
	}
	if l.job == "" {
		return errors.New("say which job: explain job=big at=30m")
	}
	return p.addQuestion(l)
}

func (p *parser) moves(args []string) error {
	l := &lookCmd{what: "moves"}
	if err := apply(l, moveKeys, args); err != nil {
		return err
	}
	if (l.job == "") == (l.compact == engine.NoCompact) {
		return errors.New("name a job, or the purpose of emptying nodes: moves job=big at=30m, moves compact=nodes at=30m")
	}
	return p.addQuestion(l)
}

func (p *parser) show(args []string) error {
	what := []string{"nodes", "queues"}
	if len(args) == 0 || !within(what, args[0]) {
		return cluster.Unknown("thing to show", strings.Join(args, " "), what)
	}
	l := &lookCmd{what: args[0]}
	if err := apply(l, lookKeys, args[1:]); err != nil {
		return err
	}
	if l.job != "" {
		return errors.New("show takes no job; explain does")
	}
	return p.addQuestion(l)
}

func (p *parser) addQuestion(l *lookCmd) error {
	if l.run = p.last; l.run == nil {
		return errors.New("there is no run above it")
	}
	if !l.set {
		return errors.New("say when: at=30m")
	}
	if err := l.check(l.run); err != nil {
		return err
	}
	n := 0
	for i := range l.run.variants {
		if l.meets(&l.run.variants[i]) {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("the run has %d matching variants; choose one with %s=", n, strings.Join(choiceNames, "=, "))
	}
	if l.job != "" {
		jobs, err := l.run.set.lookup(l.job)
		if err == nil && len(jobs) != 1 {
			err = fmt.Errorf("%q is %d jobs; choose one such as %s", l.job, len(jobs), l.run.set.names[jobs[0]])
		}
		if err != nil {
			return err
		}
	}
	out := p.block()
	if out == nil {
		return errors.New("---- and the expected output must follow")
	}
	p.cmds = append(p.cmds, command{line: p.line, look: l, out: out})
	return nil
}

func (l *lookCmd) render(all []*played) ([]string, error) {
	for _, p := range all {
		if !l.meets(&p.variant) {
			continue
		}
		switch l.what {
		case "nodes":
			return p.nodesAt(l.at), nil
		case "queues":
			return p.queuesAt(l.at), nil
		}
		e, err := p.at(l.at)
		if err != nil {
			return nil, err
		}
		if l.compact != engine.NoCompact {
			return p.movesLines(e.LookForEmptying(l.compact)), nil
		}
		jobs, err := p.set.lookup(l.job)
		if err != nil {
			return nil, err
		}
		if l.what == "moves" {
			return p.movesLines(e.LookForMoves(p.ids[jobs[0]])), nil
		}
		return whyLines(l.job, e.Why(p.ids[jobs[0]])), nil
	}
	return nil, errors.New("no such variant was run")
}

// movesLines describes moves: a line for each, then their total cost and saving.
func (p *played) movesLines(list []engine.Moves) (out []string) {
	name := func(id cluster.JobID) string { return p.set.names[slices.Index(p.ids, id)] }
	for i := range list {
		m := &list[i]
		for k := range m.Moves {
			x := &m.Moves[k]
			out = append(out, fmt.Sprintf(
				"move %s (%s) from %s to %s: costs %s of GPU time (checkpoint %s, restart %s, lost %s)", name(x.Job),
				x.Has(),
				strings.Join(x.From, ","), strings.Join(x.To, ","), human(x.Cost), human(x.Stop), human(x.Restart),
				human(x.Lost)))
		}
		if m.Empties != "" {
			out = append(out, fmt.Sprintf("%s is empty then: gains %s, costs %s", m.Empties, human(m.Benefit),
				human(m.Cost)))
		} else if len(m.Moves) > 0 {
			without := "unknown"
			if m.Without != cluster.Never {
				without = clock(m.Without)
			}
			out = append(out, fmt.Sprintf(
				"%s starts on %s at %s instead of %s: saves %s x %g GPUs x weight %g = %s, costs %s", name(m.Job),
				strings.Join(m.On, ","),
				clock(m.Start), without, human(m.Saved), float64(m.Milli)/1000, float64(m.Weight)/1000,
				human(m.Benefit), human(m.Cost)))
		}
		if m.Text != "" {
			out = append(out, m.Text)
		}
	}
	return out
}

func whyLines(name string, y engine.Why) []string {
	head := name + ": " + y.State
	if y.State == "pending" {
		head += " for " + human(y.Waiting.Round(time.Millisecond))
		if y.Ahead >= 0 {
			head += fmt.Sprintf(", %d ahead", y.Ahead)
		}
	}
	out := []string{head}
	for _, b := range y.Blockers {
		out = append(out, "blocked: "+b)
	}
	for _, h := range y.Holders {
		out = append(out, "held by: "+h)
	}
	if y.Text != "" {
		out = append(out, y.Text)
	}
	if y.State == "pending" {
		when := "unknown"
		if y.Expected != cluster.Never {
			if when = clock(y.Expected); y.Rough {
				when = "about " + when
			}
		}
		out = append(out, "expected start: "+when)
	}
	return out
}

// heldAt returns what a job holds at an instant; nil: nothing. A start at that instant counts, an
// end at that instant does not.
func (s *story) heldAt(t cluster.Time) *stay {
	for k := len(s.stays) - 1; k >= 0; k-- {
		if st := &s.stays[k]; st.from <= t && t < st.to {
			return st
		}
	}
	return nil
}

// nodesAt lists the jobs' holdings on each node.
func (p *played) nodesAt(t cluster.Time) []string {
	var out []string
	for n := range p.set.spec.Nodes {
		var jobs []string
		var used uint64
		for i := range p.set.jobs {
			st := p.stories[p.ids[i]].heldAt(t)
			if st == nil {
				continue
			}
			var mine []engine.Alloc
			for k := range st.allocs {
				if a := st.allocs[k]; int(a.Node) == n {
					mine = append(mine, a)
					used |= a.GPUs
				}
			}
			if mine != nil {
				what := strings.ReplaceAll(p.where(mine), p.set.nodeName(int32(n))+":", "")
				jobs = append(jobs, p.set.names[i]+" "+what)
			}
		}
		out = append(out, p.set.spec.Nodes[n].Name+": "+p.set.nodeLine(n, jobs, used, t))
	}
	return out
}

// nodeLine describes the jobs on a node and what is left of it.
func (s *setup) nodeLine(n int, jobs []string, used uint64, t cluster.Time) string {
	node := s.spec.Nodes[n]
	drained := node.State == cluster.Draining
	for i := range s.events {
		if ev := &s.events[i].event; s.events[i].at <= t && ev.Node == node.Name {
			down := node.State == cluster.Down
			switch {
			case ev.Type == engine.NodeDown:
				down = true
			case ev.Type == engine.NodeUp:
				down = false
			case ev.Type == engine.NodeDrained:
				drained = !ev.Undo
			case ev.Undo:
				node.Bad &^= ev.GPUs
			default:
				node.Bad |= ev.GPUs
			}
			switch {
			case down:
				node.State = cluster.Down
			case drained:
				node.State = cluster.Draining
			default:
				node.State = cluster.Up
			}
		}
	}
	f := jobs
	if node.State != cluster.Up {
		f = append([]string{node.State.String()}, f...)
	} else if free := (uint64(1)<<node.GPUs - 1) &^ used &^ node.Bad; free != 0 {
		f = append(f, fmt.Sprintf("%d free", bits.OnesCount64(free)))
	}
	if node.Bad != 0 {
		f = append(f, fmt.Sprintf("%d bad", bits.OnesCount64(node.Bad)))
	}
	if f == nil {
		return "nothing"
	}
	return strings.Join(f, ", ")
}

// queuesAt lists what each queue holds, including the queues below it.
func (p *played) queuesAt(t cluster.Time) []string {
	var out []string
	for i := range p.run.Queues { // queues named by jobs if none is described
		if len(p.set.spec.Queues) == 0 {
			out = append(out, p.queueLine(&cluster.Queue{Name: p.run.Queues[i], Limit: cluster.Unlimited}, t))
		}
	}
	for i := range p.set.spec.Queues {
		out = append(out, p.queueLine(&p.set.spec.Queues[i], t))
	}
	return out
}

func (p *played) queueLine(q *cluster.Queue, t cluster.Time) string {
	used, running, pending := cluster.Milli(0), 0, 0
	for i := range p.set.jobs {
		j := &p.set.jobs[i].entry.Job
		rec := &p.run.Records[p.ids[i]]
		if !p.set.inQueue(j.Queue, q.Name) || j.Submit > t || rec.End <= t || rec.Outcome == report.Rejected {
			continue
		}
		if st := p.stories[p.ids[i]].heldAt(t); st != nil {
			used += milli(st.allocs)
			running++
		} else {
			pending++
		}
	}
	line := fmt.Sprintf("%s: used %s", q.Name, gpus(used))
	if q.Guarantee > 0 {
		line += " of " + gpus(q.Guarantee) + " guaranteed"
	}
	if q.Limit != cluster.Unlimited {
		line += ", limit " + gpus(q.Limit)
	}
	return line + fmt.Sprintf("; %d running, %d pending", running, pending)
}

// inQueue reports whether a queue is another or below it.
func (s *setup) inQueue(queue, top string) bool {
	if queue == "" {
		queue = "default"
		if len(s.spec.Queues) == 1 {
			queue = s.spec.Queues[0].Name
		}
	}
	for range len(s.spec.Queues) + 1 {
		if queue == top {
			return true
		}
		for i := range s.spec.Queues {
			if s.spec.Queues[i].Name == queue {
				queue = s.spec.Queues[i].Parent
				break
			}
		}
	}
	return false
}

func milli(allocs []engine.Alloc) cluster.Milli {
	var m cluster.Milli
	for i := range allocs {
		m += allocs[i].Milli()
	}
	return m
}

func gpus(m cluster.Milli) string { return fmt.Sprintf("%g", float64(m)/1000) }
