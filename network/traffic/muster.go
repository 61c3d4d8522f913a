package traffic

import (
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network/flow"
)

// muster plays what the others would do on the flow model, takes for each group of jobs that share links what
// computes most, and improves the classes by exchanging them while that helps.
type muster struct {
	others []Policy
	known  flow.Cache
}

func newMuster() *muster {
	// the factors of Crux' priorities compare two jobs; among three and more an extreme one does harm, so they are
	// bounded here, and plain intensity (bound 1) is tried, too
	return &muster{others: []Policy{none{}, newCrux(1), newCrux(2), newCrux(published), sincronia{}, cassini{}, ecmp{}}}
}

// A treatment must compute so much more than a lesser one to be worth it, and than the present one to replace it.
const worthwhile = 1.002

func (m *muster) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	ts := make([]cluster.Treatment, len(jobs))
	var all [][]cluster.Treatment
	for _, p := range m.others {
		all = append(all, p.Treat(f, jobs))
	}
	// jobs that share a link under any of the treatments are decided together
	on := loads(jobs, ts)
	for _, other := range all {
		for i := range jobs {
			on[i] = append(on[i], jobs[i].Demand.On(&other[i])...)
		}
	}
	for _, group := range Components(on) {
		some := pick(jobs, group)
		best := make([]cluster.Treatment, len(group))
		for i := range some {
			best[i] = some[i].Now
		}
		value := m.value(f, some, best)
		for k, other := range all {
			try := pick(other, group)
			if v := m.value(f, some, try); v > value*worthwhile || k == 0 && v*worthwhile >= value {
				best, value = try, v
			}
		}
		if len(group) <= mostExchanged && f.Classes > 1 {
			best = m.exchange(f, some, best, value)
		}
		for k, i := range group {
			ts[i] = best[k]
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
				try := append([]cluster.Treatment(nil), ts...)
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

// value is the GPU time spent computing, per time: what all of the jobs would have alone is at most their GPUs.
func (m *muster) value(f Fabric, jobs []Job, ts []cluster.Treatment) (sum float64) {
	list := make([]flow.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].As(&ts[i])
	}
	for i, t := range m.known.Steady(f, list) {
		sum += float64(jobs[i].GPUs) * float64(jobs[i].Compute) / float64(max(t, time.Nanosecond))
	}
	return sum
}
