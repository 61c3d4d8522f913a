package traffic

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// muster chooses paths as Crux does, and plays on the flow model what the others would do on them: for each group of
// jobs that share links it takes what is best, and improves the classes by exchanging them while that helps. In small
// groups it plays the others' own choices of paths, too.
//
// What is best has two measures: computing, which Crux maximises, and speed. One can be bought with the other, so a
// treatment is worth the smaller of both, each as a part of the most that any of the others reaches: with 1 or more it
// is at least as good as each of them by either.
type muster struct {
	orders []*Crux
	others []Policy
	known  flow.Cache
}

func newMuster() *muster {
	// the factors of Crux' priorities compare two jobs; among three and more an extreme one does harm, so they are
	// bounded here, and plain intensity (bound 1) is tried, too
	return &muster{orders: []*Crux{NewCrux(1), NewCrux(2), NewCrux(Published)},
		others: []Policy{none{}, sincronia{}, cassini{}, ecmp{}}}
}

// A treatment must be worth so much more than another one to replace it.
const worthwhile = 1.002

func (m *muster) Name() string { return "muster" }

func (m *muster) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	ts := choosePaths(f, jobs)
	on := loads(jobs, ts)
	alone := make([]time.Duration, len(jobs)) // whatever the treatment, so that longer paths count as loss
	for i := range jobs {
		alone[i] = max(1, loneOf(&jobs[i], network.Alone(f, on[i])).iteration())
	}
	for _, group := range network.Components(on) {
		g := m.group(f, pick(jobs, group), pick(alone, group))
		g.take(m.onPaths(f, g.jobs, pick(ts, group), pick(on, group)), ts, group)
	}
	return m.otherPaths(f, jobs, alone, ts, on)
}

// onPaths lists treatments of a group whose paths are chosen: its classes as they are, and as the others would have
// them.
func (m *muster) onPaths(f Fabric, jobs []Job, paths []cluster.Treatment, on [][]network.Bytes) (
	list [][]cluster.Treatment) {
	classed := func(class func(i int) int) {
		ts := slices.Clone(paths)
		for i := range ts {
			ts[i].Class = class(i)
		}
		list = append(list, ts)
	}
	classed(func(i int) int { return min(jobs[i].Now.Class, f.Classes) })
	list = append(list, paths)
	if f.Classes > 1 {
		in := intensities(f, jobs, on)
		for _, c := range m.orders {
			level := compress(f.Classes, dag(c.priorities(f, jobs, on, in), in, on))
			classed(func(i int) int { return level[i] + 1 })
		}
		order := sincroniaOrder(f, on)
		classed(func(i int) int { return class(slices.Index(order, i), f.Classes) })
	}
	if len(jobs) <= mostShifted {
		ts := slices.Clone(paths)
		interleave(f, jobs, on, upTo(len(jobs)), ts)
		list = append(list, ts)
	}
	return list
}

// mostShifted bounds the groups in which shifts are tried: with many jobs there is no common circle.
const mostShifted = 16

// otherPaths tries what the others do in small groups of jobs that share a link under any of the treatments.
func (m *muster) otherPaths(f Fabric, jobs []Job, alone []time.Duration, ts []cluster.Treatment,
	on [][]network.Bytes) []cluster.Treatment {
	all := [][]cluster.Treatment{ts}
	for i := range on {
		on[i] = slices.Clone(on[i])
	}
	for _, p := range m.others {
		other := p.Treat(f, jobs)
		all = append(all, other)
		for i := range jobs {
			on[i] = append(on[i], jobs[i].Demand.On(&other[i])...)
		}
	}
	for _, group := range network.Components(on) {
		if len(group) > mostExchanged {
			continue
		}
		var list [][]cluster.Treatment
		for _, other := range all {
			list = append(list, pick(other, group))
		}
		g := m.group(f, pick(jobs, group), pick(alone, group))
		g.take(list, ts, group)
	}
	return ts
}

// group is jobs that share links.
type group struct {
	m     *muster
	f     Fabric
	jobs  []Job
	alone []time.Duration
	most  worth // of the treatments that were tried
}

func (m *muster) group(f Fabric, jobs []Job, alone []time.Duration) *group {
	return &group{m: m, f: f, jobs: jobs, alone: alone}
}

// take sets the best of some treatments of a group, improved where the group is small.
func (g *group) take(list [][]cluster.Treatment, ts []cluster.Treatment, at []int) {
	for _, try := range list {
		w := g.worth(try)
		g.most = worth{max(g.most.computing, w.computing), max(g.most.speed, w.speed)}
	}
	best, value := list[0], g.value(list[0])
	for _, try := range list[1:] {
		if v := g.value(try); v > value*worthwhile {
			best, value = try, v
		}
	}
	if len(at) <= mostExchanged && g.f.Classes > 1 {
		best = g.exchange(best, value)
	}
	for k, i := range at {
		ts[i] = best[k]
	}
}

// mostExchanged bounds the groups in which classes are exchanged: each round plays as many runs as there are pairs.
const mostExchanged = 8

// exchange moves jobs to other classes, one at a time and in pairs, while that is worth more.
func (g *group) exchange(ts []cluster.Treatment, value float64) []cluster.Treatment {
	for better := true; better; {
		better = false
		for a := range g.jobs {
			for b := range g.jobs {
				try := slices.Clone(ts)
				if a == b {
					try[a].Class = 1 + try[a].Class%g.f.Classes
				} else {
					try[a].Class, try[b].Class = try[b].Class, try[a].Class
				}
				if v := g.value(try); v > value*worthwhile {
					ts, value, better = try, v, true
				}
			}
		}
	}
	return ts
}

// worth is what a group gets done in a second: GPU-seconds of computing, and GPUs times speed, where a job alone on the
// paths that Crux chooses has the speed 1. None is counted as faster: what a job gained by several paths would
// pay for others that wait.
type worth struct{ computing, speed float64 }

func (g *group) worth(ts []cluster.Treatment) (w worth) {
	list := make([]flow.Job, len(g.jobs))
	for i := range g.jobs {
		list[i] = g.jobs[i].As(&ts[i])
	}
	for i, t := range g.m.known.Steady(g.f, list) {
		perSecond := float64(g.jobs[i].GPUs) / float64(max(t, g.alone[i]))
		w.computing += perSecond * float64(g.jobs[i].Compute)
		w.speed += perSecond * float64(g.alone[i])
	}
	return w
}

// value is the smaller of both measures against the most; among equals the larger one counts a little.
func (g *group) value(ts []cluster.Treatment) float64 {
	w := g.worth(ts)
	a, b := 1.0, w.speed/g.most.speed
	if g.most.computing > 0 {
		a = w.computing / g.most.computing
	}
	return min(a, b) + max(a, b)/10
}
