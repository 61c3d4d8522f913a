package search

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// EventType is the kind of an event of a trial.
type EventType uint8

// The types of events.
const (
	Started  EventType = iota // towards a rung's budget; a new tuner also reports its predecessor's starts
	Reported                  // it reported its metric at a rung's budget
	Failed                    // its run towards a rung ended without a metric, or was stopped
	Left                      // a full-size run was stopped, because another was better; else it failed
)

// Event is an event of a trial.
type Event struct {
	Type   EventType
	Trial  int
	Rung   int
	Metric float64 // of Reported: lower is better; NaN or infinite: it diverged
	Fused  bool    // of Failed: the run was of a fused group, so the trial may not be at fault: it runs again, alone
	Target bool    // hydro: of the trial at full size; its rung is the last one
}

// DecisionType is the kind of a decision.
type DecisionType uint8

// The types of decisions.
const (
	Start DecisionType = iota
	Stop
)

// Decision is an action on trials.
type Decision struct {
	Type    DecisionType
	Trials  []int // one, or those of a fused group in ascending order
	Rung    int
	From    int64   // budget that they have used: they continue from their checkpoints; 0: they start
	Budget  int64   // step at which they end
	Marks   []int64 // steps at which their metric is needed
	Target  bool    // the full-size model of the trial, from scratch
	Bracket int
}

// state is the state of a trial at a rung.
type state uint8

const (
	open state = iota
	running
	reported
	failed
)

type cell struct {
	state  state
	member bool // successive halving: the trial reaches this rung
	leave  bool // stopping: others are better; of a full-size run: another trial was
	alone  bool // hydro: its group failed
	at     int  // its position in the rung's members
	metric float64
}

type bracket struct {
	Bracket
	fresh   int      // no trial before it is new
	ranked  [][]int  // by rung: trials that have finished it, the best first
	heard   []int    // by rung: how many of them reported a metric
	first   []int    // by rung, asha: all before it in ranked are promoted, or reported no number
	members [][]int  // by rung, successive halving: trials that reach it; nil: not known yet
	groups  [][]span // by rung, hydro: the fused groups of members
	opened  []int    // by rung: no member before it is still to be started
	fused   []int    // by rung: no group before it is still to be started
}

// Search is a search in progress.
type Search struct {
	m        Method
	brackets []bracket
	of       []int // a trial's bracket
	cells    [][]cell
	target   map[int]cell // full-size runs; looked up only
	aims     []int        // trials with such runs, in the order in which these began
	aimed    int          // trial whose full-size run was decided last; -1: none
	running  int          // running cells and full-size runs
	leaving  []int        // stopping: trials to be stopped, if they still run
	gone     []bool       // hydro: by trial: it will not run any further
	over     int          // number of trials that are gone
}

// New starts a search.
func New(m Method) (*Search, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	s := &Search{m: m, target: map[int]cell{}, aimed: -1}
	plan := m.Plan()
	if n := Total(plan); n > MaxTrials {
		return nil, fmt.Errorf("budget: %d trials follow from it; at most %d are possible", n, MaxTrials)
	}
	for i := range plan {
		n := len(plan[i].Rungs)
		b := bracket{Bracket: plan[i], fresh: plan[i].First, first: make([]int, n), heard: make([]int, n),
			opened: make([]int, n), fused: make([]int, n)}
		b.ranked, b.members, b.groups = make([][]int, n), make([][]int, n), make([][]span, n)
		s.brackets = append(s.brackets, b)
		for range b.Trials() {
			s.of = append(s.of, i)
			s.cells = append(s.cells, make([]cell, len(b.Rungs)))
		}
	}
	s.gone = make([]bool, len(s.cells))
	return s, nil
}

// Trials is how many configurations the search may try.
func (s *Search) Trials() int { return len(s.cells) }

// Brackets are the brackets with their rungs.
func (s *Search) Brackets() (list []Bracket) {
	for i := range s.brackets {
		list = append(list, s.brackets[i].Bracket)
	}
	return list
}

// Budget is the budget of a rung of a trial's bracket.
func (s *Search) Budget(trial, rung int) int64 { return s.brackets[s.of[trial]].Rungs[rung].Budget }

// Step processes events, in order, and returns the decisions when free more runs may be started: first the
// stops, then the starts. A fused group is one run.
func (s *Search) Step(events []Event, free int) ([]Decision, error) {
	for _, ev := range events {
		if err := s.tell(ev); err != nil {
			return nil, err
		}
	}
	list := s.leavers()
	for free > 0 {
		d, ok := s.next()
		if !ok {
			break
		}
		list = append(list, d)
		free--
		for _, t := range d.Trials {
			if err := s.tell(Event{Type: Started, Trial: t, Rung: d.Rung, Target: d.Target}); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

func (s *Search) tell(ev Event) error {
	if ev.Trial < 0 || ev.Trial >= len(s.cells) {
		return fmt.Errorf("trial %d: the search has trials 0 to %d", ev.Trial, len(s.cells)-1)
	}
	if ev.Rung < 0 || ev.Rung >= len(s.cells[ev.Trial]) {
		return fmt.Errorf("trial %d, rung %d: it has rungs 0 to %d", ev.Trial, ev.Rung, len(s.cells[ev.Trial])-1)
	}
	if ev.Target {
		s.tellTarget(ev)
		return nil
	}
	b := &s.brackets[s.of[ev.Trial]]
	if s.m.Stopping && s.late(ev) {
		return nil
	}
	c := &s.cells[ev.Trial][ev.Rung]
	was := c.state
	s.hear(c, ev)
	if c.state == open && c.member {
		b.opened[ev.Rung] = min(b.opened[ev.Rung], c.at)
	}
	if was < reported && c.state >= reported {
		s.rank(b, ev.Trial, ev.Rung)
		s.through(b, ev.Trial, ev.Rung)
	}
	if s.m.Name == Hydro {
		s.settle(b, ev.Trial)
		s.noteOvertaken()
	}
	return nil
}

// hear records an event. The first one counts: a repeated report, or the end of a run after its report, changes
// nothing.
func (s *Search) hear(c *cell, ev Event) {
	switch {
	case c.state >= reported:
	case ev.Type == Started:
		s.set(c, running)
	case ev.Type == Left && (c.leave || c.state == open):
		s.set(c, open)
	case ev.Type == Failed && ev.Fused && !c.alone:
		s.set(c, open)
		c.alone = true
	case ev.Type == Reported:
		s.set(c, reported)
		if c.metric = ev.Metric; math.IsNaN(ev.Metric) {
			c.metric = math.Inf(1)
		}
	default:
		s.set(c, failed)
		c.metric = math.Inf(1)
	}
}

// set changes the state of a trial at a rung, and keeps the count of running runs.
func (s *Search) set(c *cell, to state) {
	if c.state == running {
		s.running--
	}
	if c.state = to; to == running {
		s.running++
	}
}

// rank inserts a trial that has finished a rung into the rung's order.
func (s *Search) rank(b *bracket, trial, rung int) {
	list := b.ranked[rung]
	i, _ := slices.BinarySearchFunc(list, trial, func(a, t int) int { return s.compare(a, t, rung) })
	b.ranked[rung] = slices.Insert(list, i, trial)
	b.first[rung] = min(b.first[rung], i)
	if s.cells[trial][rung].state == reported {
		b.heard[rung]++
	}
}

// compare orders trials by their metric at a rung, then by number.
func (s *Search) compare(a, b, rung int) int {
	return cmp.Or(cmp.Compare(s.cells[a][rung].metric, s.cells[b][rung].metric), cmp.Compare(a, b))
}

// good reports whether a trial reported a number at a rung.
func (s *Search) good(trial, rung int) bool {
	c := &s.cells[trial][rung]
	return c.state == reported && !math.IsInf(c.metric, 1)
}

// next decides what to start when one more run is possible.
func (s *Search) next() (Decision, bool) {
	if d, ok := s.nextTarget(); ok {
		return d, true
	}
	for i := range s.brackets {
		b := &s.brackets[i]
		var d Decision
		ok := false
		switch {
		case s.m.Stopping:
			if d, ok = s.nextNew(b); ok {
				top := len(b.Rungs) - 1
				d.Budget, d.Marks = b.Rungs[top].Budget, nil
				for _, r := range b.Rungs {
					d.Marks = append(d.Marks, r.Budget)
				}
			}
		case s.m.Name == ASHA:
			if d, ok = s.nextPromoted(b); !ok {
				d, ok = s.nextNew(b)
			}
		default:
			d, ok = s.nextHalving(b)
		}
		if ok {
			d.Bracket = i
			return d, true
		}
	}
	return Decision{}, false
}

// start is the decision to start trials of a bracket towards a rung.
func (b *bracket) start(rung int, trials ...int) Decision {
	d := Decision{Type: Start, Trials: trials, Rung: rung, Budget: b.Rungs[rung].Budget}
	if rung > 0 {
		d.From = b.Rungs[rung-1].Budget
	}
	d.Marks = []int64{d.Budget}
	return d
}

// nextNew starts another configuration.
func (s *Search) nextNew(b *bracket) (Decision, bool) {
	for ; b.fresh < b.First+b.Trials(); b.fresh++ {
		if s.cells[b.fresh][0].state == open {
			return b.start(0, b.fresh), true
		}
	}
	return Decision{}, false
}

// nextPromoted is asha's promotion: from the last rung but one down, the best trial that is among the first
// floor(finished/eta) of its rung and not promoted yet.
func (s *Search) nextPromoted(b *bracket) (Decision, bool) {
	for k := len(b.Rungs) - 2; k >= 0; k-- {
		for n := len(b.ranked[k]) / int(s.m.Eta); b.first[k] < n; b.first[k]++ {
			if t := b.ranked[k][b.first[k]]; s.good(t, k) && s.cells[t][k+1].state == open {
				return b.start(k+1, t), true
			}
		}
	}
	return Decision{}, false
}

// nextHalving starts a trial that reached a rung and has not started there; a rung begins when all trials have
// finished the one below.
func (s *Search) nextHalving(b *bracket) (Decision, bool) {
	for k := range b.Rungs {
		if !s.enter(b, k) {
			break
		}
		for ; b.fused[k] < len(b.groups[k]); b.fused[k]++ {
			g := b.groups[k][b.fused[k]]
			members := b.members[k][g.from:g.to:g.to]
			if c := &s.cells[members[0]][k]; c.state == open && !c.alone && g.to > g.from+1 {
				return b.start(k, members...), true
			}
		}
		for ; b.opened[k] < len(b.members[k]); b.opened[k]++ {
			if t := b.members[k][b.opened[k]]; s.cells[t][k].state == open {
				return b.start(k, t), true
			}
		}
	}
	return Decision{}, false
}

// enter determines the trials of a rung, if all have finished the one below.
func (s *Search) enter(b *bracket, k int) bool {
	switch {
	case b.members[k] != nil:
		return len(b.members[k]) > 0
	case k == 0:
		b.members[0] = make([]int, b.Trials())
		for i := range b.members[0] {
			b.members[0][i] = b.First + i
		}
	case b.members[k-1] == nil || len(b.ranked[k-1]) < len(b.members[k-1]):
		return false
	default:
		b.members[k] = []int{}
		for _, t := range b.ranked[k-1] {
			if len(b.members[k]) < b.Rungs[k].Trials && s.good(t, k-1) {
				b.members[k] = append(b.members[k], t)
			}
		}
	}
	if s.m.Name == Hydro {
		b.members[k], b.groups[k] = s.fuse(b.members[k])
	}
	for i, t := range b.members[k] {
		c := &s.cells[t][k]
		c.member, c.at = true, i
	}
	if s.m.Name == Hydro && k > 0 {
		for _, t := range b.ranked[k-1] {
			s.settle(b, t)
		}
	}
	return len(b.members[k]) > 0
}

// Done reports whether nothing runs and nothing is left to start.
func (s *Search) Done() bool {
	if s.running > 0 {
		return false
	}
	_, more := s.next()
	return !more
}

// Result is the result of a search.
type Result struct {
	Trial  int
	Rung   int
	Budget int64
	Metric float64
	Target bool // of the full-size model
}

// Best is the best trial so far: by its last report, then the one with more budget, then the first. If full-size
// runs reported numbers, it is the best of those. False: none reported a number.
func (s *Search) Best() (Result, bool) {
	best, found := Result{}, false
	for _, t := range s.aims {
		c := s.target[t]
		if c.state != reported || math.IsInf(c.metric, 1) {
			continue
		}
		if !found || c.metric < best.Metric || c.metric == best.Metric && t < best.Trial {
			best, found = Result{t, len(s.cells[t]) - 1, s.m.Max, c.metric, true}, true
		}
	}
	if found {
		return best, true
	}
	for t := range s.cells {
		for k := len(s.cells[t]) - 1; k >= 0; k-- {
			if !s.good(t, k) {
				continue
			}
			r := Result{Trial: t, Rung: k, Budget: s.Budget(t, k), Metric: s.cells[t][k].metric}
			if !found || r.Metric < best.Metric || r.Metric == best.Metric && r.Budget > best.Budget {
				best, found = r, true
			}
			break
		}
	}
	return best, found
}
