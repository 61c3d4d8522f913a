package search

import (
	"fmt"
	"slices"
)

// span is a fused group: members from (inclusive) to (exclusive).
type span struct{ from, to int }

// FuseSize is how many trials fit into one process: floor((M - m1)/(m2 - m1)), where M is a GPU's memory, m1
// what one trial takes of it and m2 what two fused ones take, all in the same unit. It is one less than what
// would just fit, as in Hydro's published code. At least 1.
func FuseSize(memory, one, two int64) (int, error) {
	switch {
	case one < 1 || one > memory:
		return 0, fmt.Errorf("one trial takes %d of the %d of a GPU", one, memory)
	case two <= one:
		return 0, fmt.Errorf("two fused trials take %d, which is not more than one takes (%d)", two, one)
	}
	return int(max(1, (memory-one)/(two-one))), nil
}

// Even divides n into as few groups of at most this size as possible, as equal as possible, the larger first: 20
// by 7 is 7, 7, 6.
func Even(n, most int) (sizes []int) {
	if n < 1 {
		return nil
	}
	k := (n + most - 1) / most
	for i := range k {
		size := n / k
		if i < n%k {
			size++
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// Narrow is a width of the model divided by the scale: 512 by 8 is 64.
func Narrow(width int64, scale int) (int64, error) {
	if width < 1 || width%int64(scale) != 0 {
		return 0, fmt.Errorf("%d cannot be divided by %d", width, scale)
	}
	return width / int64(scale), nil
}

// fuse divides members into groups that fit into one process each: by group of shapes, then by number. The
// larger groups of a shape come first.
func (s *Search) fuse(members []int) ([]int, []span) {
	shape := func(t int) int {
		if s.m.Group == nil {
			return 0
		}
		return s.m.Group(t)
	}
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b int) int {
		if g, h := shape(a), shape(b); g != h {
			return g - h
		}
		return a - b
	})
	groups := []span{}
	for from := 0; from < len(members); {
		g, to := shape(members[from]), from
		for to < len(members) && shape(members[to]) == g {
			to++
		}
		most := 1
		if g < len(s.m.Fusion) {
			most = max(1, s.m.Fusion[g])
		}
		for _, n := range Even(to-from, most) {
			groups = append(groups, span{from, from + n})
			from += n
		}
	}
	// larger groups get GPUs first
	slices.SortStableFunc(groups, func(a, b span) int { return (b.to - b.from) - (a.to - a.from) })
	return members, groups
}

// candidate is the trial to train at full size now: the best so far, once enough trials are over; -1: none.
func (s *Search) candidate() int {
	if s.m.Name != Hydro || s.m.Scale <= 1 {
		return -1
	}
	b := &s.brackets[0]
	for k := range b.Rungs { // entering a rung determines which trials are over
		s.enter(b, k)
	}
	if s.over*1000 < len(s.cells)*s.m.Eager {
		return -1
	}
	// the last rung that all its trials have finished: the first to finish a rung need not be its best
	for k := len(b.Rungs) - 1; k >= 0; k-- {
		if len(b.members[k]) == 0 || len(b.ranked[k]) < len(b.members[k]) {
			continue
		}
		if t := b.ranked[k][0]; s.good(t, k) {
			return t
		}
	}
	return -1
}

// settle counts a trial among those that are over, or no longer does.
func (s *Search) settle(b *bracket, trial int) {
	if is := s.isOver(b, trial); is != s.gone[trial] {
		if s.gone[trial] = is; is {
			s.over++
		} else {
			s.over--
		}
	}
}

// isOver reports whether a trial will not run any further.
func (s *Search) isOver(b *bracket, trial int) bool {
	for k := range s.cells[trial] {
		switch c := &s.cells[trial][k]; c.state {
		case failed:
			return true
		case open:
			return b.members[k] != nil && !c.member
		case running:
			return false
		case reported:
		}
	}
	return true
}

// nextTarget starts the full-size run of the best trial so far.
func (s *Search) nextTarget() (Decision, bool) {
	t := s.candidate()
	if t < 0 || s.target[t].state != open {
		return Decision{}, false
	}
	k := len(s.cells[t]) - 1
	d := Decision{Type: Start, Trials: []int{t}, Rung: k, Budget: s.m.Max, Target: true}
	d.Marks = []int64{d.Budget}
	return d, true
}

// tellTarget handles an event of a full-size run.
func (s *Search) tellTarget(ev Event) {
	c, known := s.target[ev.Trial]
	s.hear(&c, ev)
	if ev.Type == Started {
		if !known {
			s.aims = append(s.aims, ev.Trial)
		}
		s.aimed, c.leave = ev.Trial, false
	}
	s.target[ev.Trial] = c
	s.noteOvertaken()
}

// noteOvertaken records that another trial has become better than the one at full size: if that run is stopped,
// it is not by a person. This is done with each event, so that a tuner that replays the past knows it as well.
func (s *Search) noteOvertaken() {
	if s.aimed < 0 || s.target[s.aimed].state != running {
		return
	}
	if t := s.candidate(); t >= 0 && t != s.aimed {
		c := s.target[s.aimed]
		c.leave = true
		s.target[s.aimed] = c
	}
}

// overtaken stops a full-size run when another trial has become the best.
func (s *Search) overtaken() []Decision {
	t := s.candidate()
	if t < 0 || s.aimed < 0 || s.aimed == t || s.target[s.aimed].state != running {
		return nil
	}
	c := s.target[s.aimed]
	s.set(&c, open) // it may become the best again
	s.target[s.aimed] = c
	return []Decision{{Type: Stop, Trials: []int{s.aimed}, Rung: len(s.cells[s.aimed]) - 1, Target: true}}
}
