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
	load, weights := make([][]float64, len(links)), make([]float64, len(on))
	for l := range links {
		load[l] = make([]float64, len(on))
	}
	for i, list := range on {
		weights[i] = 1
		for _, b := range list {
			l, _ := slices.BinarySearch(links, b.Link)
			load[l][i] = float64(b.Bytes) / float64(f.Capacity(b.Link))
		}
	}
	return BSSI(load, weights)
}

// BSSI orders coflows by bottleneck, select, scale and iterate (Sincronia, algorithm 1): load[port][coflow] is what a
// coflow moves through a port, in the same unit of time at all ports. Ties go to the lowest port and the lowest coflow,
// so equal coflows come out in reverse. It returns the coflows, first to be served first.
func BSSI(load [][]float64, weights []float64) []int {
	w := slices.Clone(weights)
	order := make([]int, len(w))
	placed := make([]bool, len(w))
	sums := make([]float64, len(load))
	on, ports := make([][]int, len(load)), make([][]int, len(w)) // what moves something through what
	for p := range load {
		for c, d := range load[p] {
			if d > 0 {
				on[p], ports[c] = append(on[p], c), append(ports[c], p)
				sums[p] += d
			}
		}
	}
	for k := len(w) - 1; k >= 0; k-- {
		port, last := 0, -1
		for p := range load {
			if sums[p] > sums[port] {
				port = p
			}
		}
		if len(load) > 0 {
			for _, c := range on[port] {
				if !placed[c] && (last < 0 || w[c]/load[port][c] < w[last]/load[port][last]) {
					last = c
				}
			}
		}
		if last < 0 { // nothing is left to move
			last = slices.Index(placed, false)
		}
		placed[last], order[k] = true, last
		if len(load) > 0 && load[port][last] > 0 {
			for _, c := range on[port] {
				if !placed[c] {
					w[c] -= (w[last] * load[port][c]) / load[port][last]
				}
			}
		}
		for _, p := range ports[last] {
			sums[p] = 0
			for _, c := range on[p] {
				if !placed[c] {
					sums[p] += load[p][c]
				}
			}
		}
	}
	return order
}
