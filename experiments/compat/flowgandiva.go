package compat

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// flowGandiva is Gandiva in ElasticFlow's simulator (section 7): jobs of one size share groups of
// whole nodes and take turns there; the number of nodes of a size follows its jobs' demand; the
// cluster is examined when jobs arrive, not when they end.
type flowGandiva struct {
	w        *FlowWorld
	free     int // number of free nodes
	sizes    []gandivaSize
	waiting  []int
	released bool
}

// gandivaSize is the groups of jobs of one size.
type gandivaSize struct {
	gpus, nodes, room int // per job; per group; jobs that run at once in a group
	groups            []*gandivaGroup
}

// gandivaGroup is jobs that take turns. util counts all that were ever put there.
type gandivaGroup struct {
	util int
	jobs []int
}

// gandivaSizes are the possible sizes, in the order in which they are examined.
var gandivaSizes = []int{1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 88, 128, 256}

func newFlowGandiva(w *FlowWorld) (*flowGandiva, error) {
	w.gangs()
	for i := range w.jobs {
		if j := &w.jobs[i]; !slices.Contains(gandivaSizes, j.gpus) {
			return nil, fmt.Errorf("compat: job %s: %d GPUs; these rules know %v", j.spec.Name, j.gpus, gandivaSizes)
		}
	}
	f := &flowGandiva{w: w, free: w.total / slotNode}
	for _, g := range gandivaSizes {
		k := (g + slotNode - 1) / slotNode
		f.sizes = append(f.sizes, gandivaSize{gpus: g, nodes: k, room: slotNode * k / g})
	}
	return f, nil
}

// next brings jobs up to the next event or, after the last arrival, to the next minute.
func (f *flowGandiva) next() bool {
	w := f.w
	switch {
	case w.begin():
	case len(w.known) == 0:
		return false
	default:
		w.span = slot
		w.now += slot
	}
	f.execute()
	for _, i := range f.come() {
		w.known = append(w.known, i)
		w.arrive(i)
	}
	return true
}

// come lists the jobs that arrive in this event.
func (f *flowGandiva) come() []int {
	if l := f.w.events; len(l) > 0 && l[0].at == f.w.now {
		return l[0].come
	}
	return nil
}

// execute runs the jobs whose turn it is, and advances the turns.
func (f *flowGandiva) execute() {
	w := f.w
	f.released = false
	for s := range f.sizes {
		size := &f.sizes[s]
		for _, g := range slices.Clone(size.groups) {
			c := min(len(g.jobs), size.room)
			for _, i := range g.jobs[:c] {
				j := &w.jobs[i]
				j.left -= float64(max(0, w.span-j.lost))
				if j.lost = 0; j.left <= 0 {
					w.finish(i, w.now+int(j.left))
				}
			}
			if w.now%slot == 0 && len(g.jobs) > c {
				g.jobs = append(slices.Clone(g.jobs[c:]), g.jobs[:c]...)
			}
			g.jobs = slices.DeleteFunc(g.jobs, func(i int) bool { return w.jobs[i].over })
			if len(g.jobs) == 0 {
				size.groups = slices.DeleteFunc(size.groups, func(o *gandivaGroup) bool { return o == g })
				f.free += size.nodes
				f.released = true
			}
		}
	}
	for _, i := range w.known {
		if j := &w.jobs[i]; j.waited {
			j.lost = 0
		}
	}
}

// decide places arrivals, and waiting jobs if nodes became free, and sets the sizes' nodes until
// the next event.
func (f *flowGandiva) decide() {
	w := f.w
	for _, i := range f.come() {
		if !f.place(i) {
			f.waiting, w.jobs[i].waited = append(f.waiting, i), true
		}
	}
	for k := 0; f.released && k < len(f.waiting); k++ { // as there, the job behind one that leaves the list is skipped
		if i := f.waiting[k]; f.place(i) {
			f.waiting = slices.Delete(f.waiting, k, k+1)
		}
	}
	f.adjust()
	for _, i := range w.known {
		w.jobs[i].want = 0
	}
	for s := range f.sizes {
		for _, g := range f.sizes[s].groups {
			for _, i := range g.jobs[:min(len(g.jobs), f.sizes[s].room)] {
				w.jobs[i].want = w.jobs[i].gpus
			}
		}
	}
}

func (s *gandivaSize) sort() {
	slices.SortStableFunc(s.groups, func(a, b *gandivaGroup) int { return cmp.Compare(a.util, b.util) })
}

// join adds a job to a group.
func (s *gandivaSize) join(g *gandivaGroup, i int) {
	g.util++
	g.jobs = append(g.jobs, i)
	s.sort()
}

// turn moves the first group to the end.
func (s *gandivaSize) turn() *gandivaGroup {
	g := s.groups[0]
	s.groups = append(slices.Delete(s.groups, 0, 1), g)
	return g
}

// place finds a group for a job: one with room for more than this job, otherwise free nodes,
// otherwise the first group, where it takes turns.
func (f *flowGandiva) place(i int) bool {
	s := &f.sizes[slices.Index(gandivaSizes, f.w.jobs[i].gpus)]
	if len(s.groups) > 0 {
		if g := s.turn(); g.util+1 < s.room {
			s.join(g, i)
			return true
		}
	}
	switch {
	case f.free >= s.nodes:
		f.free -= s.nodes
		g := &gandivaGroup{}
		s.groups = append(s.groups, g)
		s.join(g, i)
	case len(s.groups) > 0:
		s.join(s.turn(), i)
	default:
		return false
	}
	return true
}

// adjust sets the sizes' nodes by their jobs' demand.
func (f *flowGandiva) adjust() {
	asked, held, total := make([]int, len(f.sizes)), make([]int, len(f.sizes)), 0
	for k := range f.sizes {
		s := &f.sizes[k]
		for _, g := range s.groups {
			asked[k] += s.gpus * len(g.jobs)
			held[k] += slotNode * s.nodes
		}
		total += asked[k]
	}
	for k := range f.sizes {
		if asked[k] == 0 {
			continue
		}
		s := &f.sizes[k]
		part := int(math.Floor(float64(asked[k]) / float64(total) * float64(f.w.total)))
		switch more := min(part, asked[k]) - held[k]; {
		case more > 0:
			f.grow(s, ceilDiv(more, s.gpus))
		case more < 0:
			f.shrink(s, min(ceilDiv(-more, s.gpus), len(s.groups)-1))
		}
	}
}

// grow adds groups to a size if there are enough nodes.
func (f *flowGandiva) grow(s *gandivaSize, n int) {
	ok := false
	for range n {
		if ok = f.free >= s.nodes; ok {
			f.free -= s.nodes
			s.groups = append(s.groups, &gandivaGroup{})
		}
	}
	if ok && s.nodes == 1 {
		return
	}
	var all []int
	for _, g := range s.groups {
		all = append(all, g.jobs...)
		g.util, g.jobs = 0, nil
	}
	for _, i := range all {
		s.join(s.groups[0], i)
	}
}

// shrink removes groups from a size; their jobs join the others.
func (f *flowGandiva) shrink(s *gandivaSize, n int) {
	gone := slices.Clone(s.groups[:n])
	s.groups = slices.Delete(s.groups, 0, n)
	f.free += n * s.nodes
	for _, g := range gone {
		for _, i := range g.jobs {
			s.join(s.groups[0], i)
		}
	}
}

// settle computes the next events; while jobs arrive, all jobs restart at each event.
func (f *flowGandiva) settle() error {
	w := f.w
	if len(w.events) > 0 && w.events[0].at == w.now {
		w.events = w.events[1:]
	}
	if len(w.events) > 0 {
		restart := w.restarts()
		for s := range f.sizes {
			for _, g := range f.sizes[s].groups {
				for _, i := range g.jobs {
					w.jobs[i].lost = slotStart(w.total, w.jobs[i].gpus, restart)
				}
			}
		}
		w.events.gather(w.now)
	}
	return w.carried()
}
