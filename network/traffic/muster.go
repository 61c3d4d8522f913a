package traffic

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// muster chooses paths as Crux does, and plays on the flow model what the others would do on them: for each group of
// jobs that share links it takes what computes most, and improves the classes by exchanging them while that helps. In
// small groups it plays the others' own choices of paths, too.
type muster struct {
	orders []*crux
	others []Policy
	known  flow.Cache
}

func newMuster() *muster {
	// the factors of Crux' priorities compare two jobs; among three and more an extreme one does harm, so they are
	// bounded here, and plain intensity (bound 1) is tried, too
	return &muster{orders: []*crux{newCrux(1), newCrux(2), newCrux(published)},
		others: []Policy{none{}, sincronia{}, cassini{}, ecmp{}}}
}

// A treatment must compute so much more than another one to replace it.
const worthwhile = 1.002

func (m *muster) Name() string { return "muster" }

func (m *muster) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	ts := choosePaths(f, jobs)
	on := loads(jobs, ts)
	for _, group := range Components(on) {
		best, value := m.onPaths(f, pick(jobs, group), pick(ts, group), pick(on, group))
		if len(group) <= mostExchanged && f.Classes > 1 {
			best = m.exchange(f, pick(jobs, group), best, value)
		}
		for k, i := range group {
			ts[i] = best[k]
		}
	}
	return m.otherPaths(f, jobs, ts, on)
}

// onPaths finds the classes and shifts of a group whose paths are chosen.
func (m *muster) onPaths(f Fabric, jobs []Job, paths []cluster.Treatment, on [][]network.Bytes) (
	best []cluster.Treatment, value float64) {
	classed := func(class func(i int) int) []cluster.Treatment {
		ts := slices.Clone(paths)
		for i := range ts {
			ts[i].Class = class(i)
		}
		return ts
	}
	best = slices.Clone(paths)
	value = m.value(f, jobs, best)
	try := func(ts []cluster.Treatment) {
		if v := m.value(f, jobs, ts); v > value*worthwhile {
			best, value = ts, v
		}
	}
	try(classed(func(i int) int { return min(jobs[i].Now.Class, f.Classes) }))
	if f.Classes > 1 {
		in := intensities(f, jobs, on)
		for _, c := range m.orders {
			level := compress(f.Classes, dag(c.priorities(f, jobs, on), in, on))
			try(classed(func(i int) int { return level[i] + 1 }))
		}
		order := sincroniaOrder(f, on)
		try(classed(func(i int) int { return class(slices.Index(order, i), f.Classes) }))
	}
	if len(jobs) <= mostShifted {
		ts := slices.Clone(paths)
		all := make([]int, len(jobs))
		for i := range all {
			all[i] = i
		}
		interleave(f, jobs, on, all, ts)
		try(ts)
	}
	return best, value
}

// mostShifted bounds the groups in which shifts are tried: with many jobs there is no common circle.
const mostShifted = 16

// otherPaths tries what the others do in small groups of jobs that share a link under any of the treatments.
func (m *muster) otherPaths(f Fabric, jobs []Job, ts []cluster.Treatment, on [][]network.Bytes) []cluster.Treatment {
	var all [][]cluster.Treatment
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
	for _, group := range Components(on) {
		if len(group) > mostExchanged {
			continue
		}
		some := pick(jobs, group)
		value := m.value(f, some, pick(ts, group))
		for _, other := range all {
			try := pick(other, group)
			if v := m.value(f, some, try); v > value*worthwhile {
				value = v
				for k, i := range group {
					ts[i] = try[k]
				}
			}
		}
	}
	return ts
}

// mostExchanged bounds the groups in which classes are exchanged: each round plays as many runs as there are pairs.
const mostExchanged = 8

// exchange moves jobs to other classes, one at a time and in pairs, while they compute more.
func (m *muster) exchange(f Fabric, jobs []Job, ts []cluster.Treatment, value float64) []cluster.Treatment {
	for better := true; better; {
		better = false
		for a := range jobs {
			for b := range jobs {
				try := slices.Clone(ts)
				if a == b {
					try[a].Class = 1 + try[a].Class%f.Classes
				} else {
					try[a].Class, try[b].Class = try[b].Class, try[a].Class
				}
				if v := m.value(f, jobs, try); v > value*worthwhile {
					ts, value, better = try, v, true
				}
			}
		}
	}
	return ts
}

// value is the GPU time that is not lost by waiting for others, per time: GPUs times speed, where a job alone on the
// network has the speed 1.
func (m *muster) value(f Fabric, jobs []Job, ts []cluster.Treatment) (sum float64) {
	list := make([]flow.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].As(&ts[i])
	}
	for i, t := range m.known.Steady(f, list) {
		alone := max(jobs[i].Compute, jobs[i].Release+network.Alone(f, list[i].On))
		sum += float64(jobs[i].GPUs) * float64(alone) / float64(max(t, time.Nanosecond))
	}
	return sum
}
