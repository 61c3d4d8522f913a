package traffic

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
)

// sincronia orders jobs as coflows: what each transmits in an iteration is one coflow, of weight 1, and the order
// becomes classes (Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows", SIGCOMM'18, algorithm 1 and
// section 4.2).
type sincronia struct{}

func (sincronia) Name() string { return "sincronia" }

func (sincronia) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	ts := make([]cluster.Treatment, len(jobs))
	orderCoflows(f, loads(jobs, ts), ts)
	return ts
}

// orderCoflows sets the jobs' classes.
func orderCoflows(f Fabric, on [][]network.Bytes, ts []cluster.Treatment) {
	for _, group := range network.Components(on) {
		for at, i := range sincroniaOrder(f, pick(on, group)) {
			ts[group[i]].Class = class(at, f.Classes)
		}
	}
}

// class gives the first of an order the first class, and so on; the last class takes the rest. 0: there are none.
func class(at, classes int) int {
	if classes < 2 {
		return 0
	}
	return min(at+1, classes)
}

func sincroniaOrder(f Fabric, on [][]network.Bytes) []int {
	var links []network.LinkID
	for _, list := range on {
		for _, b := range list {
			links = append(links, b.Link)
		}
	}
	slices.Sort(links)
	links = slices.Compact(links)
	load, weights := make([][]moved, len(links)), make([]float64, len(on))
	for i, list := range on {
		weights[i] = 1
		for _, b := range list {
			l, _ := slices.BinarySearch(links, b.Link)
			load[l] = append(load[l], moved{i, float64(b.Bytes) / float64(f.Capacity(b.Link))})
		}
	}
	return bssi(load, weights)
}

// BSSI orders coflows by bottleneck, select, scale and iterate (Sincronia, algorithm 1): load[port][coflow] is what a
// coflow moves through a port, in the same unit of time at all ports. Ties go to the lowest port and the lowest coflow,
// so equal coflows come out in reverse. It returns the coflows, first to be served first.
func BSSI(load [][]float64, weights []float64) []int {
	list := make([][]moved, len(load))
	for p := range load {
		for c, d := range load[p] {
			if d > 0 {
				list[p] = append(list[p], moved{c, d})
			}
		}
	}
	return bssi(list, weights)
}

// moved is what a coflow moves through a port, more than nothing.
type moved struct {
	coflow int
	load   float64
}

// bssi is BSSI of what moves something through each port, by coflow.
func bssi(load [][]moved, weights []float64) []int {
	w := slices.Clone(weights)
	order := make([]int, len(w))
	placed := make([]bool, len(w))
	sums := make([]float64, len(load))
	ports := make([][]int, len(w)) // through which a coflow moves something
	for p := range load {
		for _, m := range load[p] {
			ports[m.coflow] = append(ports[m.coflow], p)
			sums[p] += m.load
		}
	}
	for k := len(w) - 1; k >= 0; k-- {
		port := 0
		for p := range load {
			if sums[p] > sums[port] {
				port = p
			}
		}
		last := moved{coflow: -1}
		if len(load) > 0 {
			for _, m := range load[port] {
				if !placed[m.coflow] && (last.coflow < 0 || w[m.coflow]/m.load < w[last.coflow]/last.load) {
					last = m
				}
			}
		}
		if last.coflow < 0 { // nothing is left to move
			last.coflow = slices.Index(placed, false)
		}
		placed[last.coflow], order[k] = true, last.coflow
		if last.load > 0 {
			for _, m := range load[port] {
				if !placed[m.coflow] {
					w[m.coflow] -= (w[last.coflow] * m.load) / last.load
				}
			}
		}
		for _, p := range ports[last.coflow] {
			sums[p] = 0
			for _, m := range load[p] {
				if !placed[m.coflow] {
					sums[p] += m.load
				}
			}
		}
	}
	return order
}
