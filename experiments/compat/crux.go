package compat

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/splitmix"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
	"github.com/muster-gpu/muster/network/traffic"
)

// CruxCase is a small case on which Crux' parts can be compared with the best of all choices, as in section 6.2 of its
// paper; the paper's own cases are not published.
type CruxCase struct {
	Paths    []traffic.Job // on three leaves and two or three spines
	Spines   int
	OneLink  []traffic.Job // the same jobs, all on one link
	Classes  int
	Classify []traffic.Job // on one or two of three links
}

// Unit carries a byte per nanosecond on each link.
type Unit struct{}

// Capacity is that of any link.
func (Unit) Capacity(network.LinkID) int64 { return 1e9 }

type draws struct{ *splitmix.Source }

// job draws computing and transmission of 1 to 8 seconds, of which computing overlaps by half or not, on 1 to 32 GPUs.
func (d draws) job() traffic.Job {
	c, m := time.Duration(1+d.Int(8))*time.Second, int64(1+d.Int(8))*1e9
	j := traffic.Job{Compute: c, Release: c / 2}
	if d.Int(2) == 1 {
		j.Release = c
	}
	j.GPUs = 1 << d.Int(6)
	j.Demand.Parts = []network.Part{{Bytes: m}}
	return j
}

// NewCruxCase draws a case.
func NewCruxCase(number int) *CruxCase {
	d := draws{splitmix.NewSource(1000 + uint64(number))}
	d.Int(1)
	c := &CruxCase{Spines: 2 + d.Int(2)}
	for i := range 3 + d.Int(3) {
		from := d.Int(3)
		to := (from + 1 + d.Int(2)) % 3
		j := d.job()
		j.ID = cluster.JobID(i)
		bytes := j.Demand.Parts[0].Bytes
		var paths []network.Path
		for s := range c.Spines {
			paths = append(paths, network.Path{network.LinkID(2 * (from*c.Spines + s)),
				network.LinkID(2*(to*c.Spines+s) + 1)})
		}
		j.Demand = network.Demand{Parts: []network.Part{{Bytes: bytes, Paths: paths}}}
		c.Paths = append(c.Paths, j)
		j.Demand = network.Demand{Parts: []network.Part{{Bytes: bytes, Paths: []network.Path{{0}}}}}
		c.OneLink = append(c.OneLink, j)
	}
	c.Classes = 2 + d.Int(2)
	for range 4 + d.Int(3) {
		j := d.job()
		first := d.Int(3)
		path := network.Path{network.LinkID(first)}
		if d.Int(2) == 1 {
			path = append(path, network.LinkID((first+1+d.Int(2))%3))
		}
		j.Demand.Parts[0].Paths = []network.Path{path}
		c.Classify = append(c.Classify, j)
	}
	return c
}

// CruxWindow is the time for which cases are played.
const CruxWindow = 240 * time.Second

// Computed is the GPU-seconds that jobs compute in the window under treatments.
func Computed(jobs []traffic.Job, ts []cluster.Treatment) (sum float64) {
	list := make([]flow.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].As(&ts[i])
	}
	for i, r := range flow.Run(Unit{}, list, CruxWindow) {
		sum += float64(jobs[i].GPUs) * r.Computed.Seconds()
	}
	return sum
}

// Best plays all choices that a function visits, and is the most of GPU-seconds and their mean.
func Best(jobs []traffic.Job, visit func(try func([]cluster.Treatment))) (most, mean float64) {
	n := 0.0
	visit(func(ts []cluster.Treatment) {
		v := Computed(jobs, ts)
		most, mean, n = max(most, v), mean+v, n+1
	})
	return most, mean / n
}

// EveryMap visits all maps of jobs to so many values.
func EveryMap(jobs, values int, visit func(at []int)) {
	at := make([]int, jobs)
	for {
		visit(at)
		i := jobs - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < values {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// EveryOrder visits all orders, as the place of each job.
func EveryOrder(jobs int, visit func(place []int)) {
	EveryMap(jobs, jobs, func(at []int) {
		seen := 0
		for _, v := range at {
			seen |= 1 << v
		}
		if seen == 1<<jobs-1 {
			visit(at)
		}
	})
}

// Classed are treatments with a class each, the first of which is 0.
func Classed(classes []int) []cluster.Treatment {
	ts := make([]cluster.Treatment, len(classes))
	for i, c := range classes {
		ts[i].Class = c + 1
	}
	return ts
}

// ByKey are the places of jobs in descending order of a key.
func ByKey(key []float64) []int {
	order := make([]int, len(key))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key[b], key[a]) })
	place := make([]int, len(key))
	for at, i := range order {
		place[i] = at
	}
	return place
}

// GainsWindow is long, so that a transfer at its end counts for little.
const GainsWindow = time.Hour

// Gains are the seconds of transmission that each of two jobs on one link gains in a window by going first.
func Gains(a, b *traffic.Job, window time.Duration) (first, second float64) {
	list := []flow.Job{a.As(&cluster.Treatment{Class: 1}), b.As(&cluster.Treatment{Class: 2})}
	ab := flow.Run(Unit{}, list, window)
	list[0].Class, list[1].Class = 2, 1
	ba := flow.Run(Unit{}, list, window)
	return (ab[0].Sent - ba[0].Sent).Seconds(), (ba[1].Sent - ab[1].Sent).Seconds()
}

// PrioritiesIn are priorities of jobs on one link whose factors are what is gained in the window of the cases, however
// little: what a transfer is cut off at its end counts.
func PrioritiesIn(jobs []traffic.Job, intensity []float64) []float64 {
	reference := 0
	for i := range jobs {
		if jobs[i].Demand.Parts[0].Bytes > jobs[reference].Demand.Parts[0].Bytes {
			reference = i
		}
	}
	priority := slices.Clone(intensity)
	for i := range jobs {
		if i == reference {
			continue
		}
		switch dr, dj := Gains(&jobs[reference], &jobs[i], CruxWindow); {
		case dr > 0:
			priority[i] *= max(0, dj) / dr
		case dj > 0:
			priority[i] *= traffic.Published
		}
	}
	return priority
}

// ByPairs are the places of jobs on one link by how many others each should precede, where a pair is compared by what
// it gains times intensity, as Crux compares each job with its reference.
func ByPairs(jobs []traffic.Job, intensity []float64) []int {
	wins := make([]float64, len(jobs))
	for i := range jobs {
		for k := i + 1; k < len(jobs); k++ {
			a, b := Gains(&jobs[i], &jobs[k], GainsWindow)
			switch a, b = a*intensity[i], b*intensity[k]; {
			case math.Abs(a-b) < 1e-9:
				wins[i], wins[k] = wins[i]+.5, wins[k]+.5
			case a > b:
				wins[i]++
			default:
				wins[k]++
			}
		}
	}
	for i := range wins { // ties go to the higher intensity
		wins[i] += intensity[i] / 1e6
	}
	return ByKey(wins)
}
