package traffic

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/splitmix"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
)

// Crux puts jobs by GPU intensity: paths, priorities, and their compression to the classes that there are (Cao et al.,
// "Crux: GPU-Efficient Communication Scheduling for Deep Learning Training", SIGCOMM'24, section 4).
type Crux struct {
	clip    float64 // bounds the factor of a priority to 1/clip … clip
	factors map[[6]time.Duration]float64
}

// Published leaves factors as they are.
const Published = math.MaxFloat64

// NewCrux bounds the factors of priorities to 1/clip … clip; with 1 priorities are plain intensities.
func NewCrux(clip float64) *Crux { return &Crux{clip: clip, factors: map[[6]time.Duration]float64{}} }

// Name implements Policy.
func (c *Crux) Name() string { return "crux" }

// Treat implements Policy.
func (c *Crux) Treat(f Fabric, jobs []Job) []cluster.Treatment {
	ts := choosePaths(f, jobs)
	c.classes(f, jobs, loads(jobs, ts), ts)
	return ts
}

// classes sets the jobs' classes.
func (c *Crux) classes(f Fabric, jobs []Job, on [][]network.Bytes, ts []cluster.Treatment) {
	if f.Classes < 2 {
		return
	}
	for _, group := range network.Components(on) {
		some, load := pick(jobs, group), pick(on, group)
		in := intensities(f, some, load)
		for i, level := range compress(f.Classes, dag(c.priorities(f, some, load, in), in, load)) {
			ts[group[i]].Class = level + 1
		}
	}
}

// intensities are the GPU intensities: computing per iteration (here GPU-seconds) by the time that its traffic takes
// alone (section 4.1). A job without traffic has none.
func intensities(f Fabric, jobs []Job, on [][]network.Bytes) []float64 {
	list := make([]float64, len(jobs))
	for i := range jobs {
		if t := network.Alone(f, on[i]); t > 0 {
			list[i] = float64(jobs[i].GPUs) * float64(jobs[i].Compute) / float64(t)
		}
	}
	return list
}

// choosePaths lets the jobs choose in order of intensity; each of their parts takes the path that is least congested by
// what has been assigned (section 4.2).
func choosePaths(f Fabric, jobs []Job) []cluster.Treatment {
	ts := make([]cluster.Treatment, len(jobs))
	if len(jobs) > 0 && jobs[0].Demand.Real {
		return ts // nothing lets a job choose
	}
	for i := range jobs {
		ts[i].Path = make([]uint8, jobs[i].Demand.Choices()) // the first of each, for the intensity
	}
	first := intensities(f, jobs, loads(jobs, ts))
	order := upTo(len(jobs))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(first[b], first[a]) })
	var assigned []int64 // by link
	on := func(l network.LinkID) *int64 {
		if short := int(l) + 1 - len(assigned); short > 0 {
			assigned = append(assigned, make([]int64, short)...)
		}
		return &assigned[l]
	}
	for _, i := range order {
		choice := 0
		for p := range jobs[i].Demand.Parts {
			part := &jobs[i].Demand.Parts[p]
			best, least := 0, math.Inf(1)
			for k, path := range part.Paths {
				worst := 0.0
				for _, l := range path {
					worst = max(worst, float64(*on(l))/float64(f.Capacity(l)))
				}
				if worst < least {
					best, least = k, worst
				}
			}
			for _, l := range part.Paths[best] {
				*on(l) += part.Bytes
			}
			if len(part.Paths) > 1 {
				ts[i].Path[choice] = uint8(best)
				choice++
			}
		}
		if choice == 0 {
			ts[i].Path = nil
		}
	}
	return ts
}

// priorities are intensities times factors against the job with the most traffic (section 4.3).
func (c *Crux) priorities(f Fabric, jobs []Job, on [][]network.Bytes, intensity []float64) []float64 {
	p := slices.Clone(intensity)
	reference, most := 0, time.Duration(-1)
	for i := range jobs {
		if t := network.Alone(f, on[i]); t > most {
			reference, most = i, t
		}
	}
	r := loneOf(&jobs[reference], most)
	for i := range jobs {
		if i != reference {
			p[i] *= c.factor(r, loneOf(&jobs[i], network.Alone(f, on[i])))
		}
	}
	return p
}

// Priorities are the jobs' intensities and priorities on the paths that they choose.
func (c *Crux) Priorities(f Fabric, jobs []Job) (intensity, priority []float64) {
	on := loads(jobs, choosePaths(f, jobs))
	intensity = intensities(f, jobs, on)
	return intensity, c.priorities(f, jobs, on, intensity)
}

// lone is a job on a link of its own.
type lone struct{ compute, release, send time.Duration }

func loneOf(j *Job, send time.Duration) lone { return lone{j.Compute, j.Release, send} }

func (l lone) iteration() time.Duration { return max(l.compute, l.release+l.send) }

func (c *Crux) factor(r, j lone) float64 {
	if c.clip == 1 {
		return 1
	}
	key := [6]time.Duration{r.compute, r.release, r.send, j.compute, j.release, j.send}
	k, known := c.factors[key]
	if !known {
		// long, so that a transfer at its edge counts for little, and a whole number of the longer one's iterations
		window := 128 * max(r.iteration(), j.iteration())
		k = factor(r, j, window)
		c.factors[key] = k
	}
	return min(max(k, 1/c.clip), c.clip)
}

// factor is what transmission the job gains by going before the reference, against what the reference gains by going
// before the job.
func factor(r, j lone, window time.Duration) float64 {
	if r.send == 0 || j.send == 0 {
		return 1
	}
	a, b := pairOnLink(r, j, window)
	dr, dj := a[0]-b[0], b[1]-a[1]
	switch {
	case dr <= 0 && dj <= 0, dr < r.send && dj < j.send:
		return 1
	case dr <= 0:
		return Published
	}
	return max(0, float64(dj)) / float64(dr)
}

// pairOnLink is the seconds on the link that two jobs get in a window, with the first one and then with the second one
// served first.
func pairOnLink(r, j lone, window time.Duration) (rFirst, jFirst [2]time.Duration) {
	job := func(l lone, class int) flow.Job {
		return flow.Job{Compute: l.compute, Release: l.release, On: []network.Bytes{{Link: 0, Bytes: int64(l.send)}},
			Class: class}
	}
	sent := func(a, b int) [2]time.Duration {
		res := flow.Run(oneLink{}, []flow.Job{job(r, a), job(j, b)}, window)
		return [2]time.Duration{res[0].Sent, res[1].Sent}
	}
	return sent(1, 2), sent(2, 1)
}

// oneLink carries a byte per nanosecond.
type oneLink struct{}

func (oneLink) Capacity(network.LinkID) int64 { return 1e9 }

// edges is a graph of jobs: an edge from each to those that share a link with it and go after it.
type edges struct {
	nodes int
	to    [][]int
	cost  [][]float64 // of each edge
}

func dag(priority, intensity []float64, on [][]network.Bytes) *edges {
	share := meetings(on)
	g := &edges{nodes: len(on), to: make([][]int, len(on)), cost: make([][]float64, len(on))}
	for a := range on {
		for b := range on {
			before := priority[a] > priority[b] || priority[a] == priority[b] && a < b
			if a != b && before && share[a][b] {
				g.to[a] = append(g.to[a], b)
				g.cost[a] = append(g.cost[a], intensity[a])
			}
		}
	}
	return g
}

// meetings are which jobs share a link with which.
func meetings(on [][]network.Bytes) [][]bool {
	share := make([][]bool, len(on))
	var users [][]int // by link
	for i, list := range on {
		share[i] = make([]bool, len(on))
		for _, b := range list {
			if short := int(b.Link) + 1 - len(users); short > 0 {
				users = append(users, make([][]int, short)...)
			}
			for _, k := range users[b.Link] {
				share[i][k], share[k][i] = true, true
			}
			users[b.Link] = append(users[b.Link], i)
		}
	}
	return share
}

// meet reports whether two lists, sorted by link, have a link in common.
func meet(a, b []network.Bytes) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].Link == b[0].Link:
			return true
		case a[0].Link < b[0].Link:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}

// orders is how many random topological orders compression tries (section 4.4: m = 10).
const orders = 10

// compress assigns levels, 0 first, so that no edge goes upward and the edges within a level weigh as little as
// possible (section 4.4, algorithm 1).
func compress(levels int, g *edges) []int {
	if levels < 2 {
		return make([]int, g.nodes)
	}
	var best []int
	most := -1.0
	r := splitmix.NewSource(1)
	for range orders {
		order := g.randomOrder(r)
		cut, level := g.cut(order, levels)
		if cut > most {
			best, most = level, cut
		}
	}
	return best
}

// randomOrder is a topological order: Kahn's algorithm, which takes any of those that are ready.
func (g *edges) randomOrder(r *splitmix.Source) (order []int) {
	before := make([]int, g.nodes)
	for _, to := range g.to {
		for _, b := range to {
			before[b]++
		}
	}
	var ready []int
	for i, n := range before {
		if n == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		k := r.Int(len(ready))
		a := ready[k]
		ready = slices.Delete(ready, k, k+1)
		order = append(order, a)
		for _, b := range g.to[a] {
			if before[b]--; before[b] == 0 {
				ready = append(ready, b)
			}
		}
	}
	return order
}

// cut divides an order into at most so many segments that the edges between them weigh most: f(i, k) is the most for
// the first i in k segments.
func (g *edges) cut(order []int, levels int) (float64, []int) {
	n := g.nodes
	place := make([]int, n)
	for i, a := range order {
		place[a] = i
	}
	// within[j][i] is the weight of the edges from the first j to the first i, so that those from the first j to the
	// ones from j to i are within[j][i] - within[j][j]
	within := make([][]float64, n+1)
	within[0] = make([]float64, n+1)
	for j := 1; j <= n; j++ {
		row := slices.Clone(within[j-1])
		own := make([]float64, n+1)
		for k, b := range g.to[order[j-1]] {
			own[place[b]+1] += g.cost[order[j-1]][k]
		}
		sum := 0.0
		for i := range own {
			sum += own[i]
			row[i] += sum
		}
		within[j] = row
	}
	best := make([][]float64, levels+1)
	from := make([][]int, levels+1)
	for k := range best {
		best[k], from[k] = make([]float64, n+1), make([]int, n+1)
		for i := range best[k] {
			if k == 0 && i > 0 {
				best[k][i] = math.Inf(-1)
			}
		}
	}
	for k := 1; k <= levels; k++ {
		for i := 0; i <= n; i++ {
			best[k][i], from[k][i] = math.Inf(-1), 0
			for j := 0; j <= i; j++ {
				if v := best[k-1][j] + (within[j][i] - within[j][j]); v > best[k][i] {
					best[k][i], from[k][i] = v, j
				}
			}
		}
	}
	level := make([]int, n)
	for k, i := levels, n; k > 0; k-- {
		for at := from[k][i]; at < i; at++ {
			level[order[at]] = k - 1
		}
		i = from[k][i]
	}
	used := slices.Compact(slices.Sorted(slices.Values(level)))
	for i := range level { // levels that are left empty are not skipped
		level[i], _ = slices.BinarySearch(used, level[i])
	}
	return best[levels][n], level
}
