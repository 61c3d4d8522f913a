package traffic

import (
	"encoding/binary"
	"slices"

	"github.com/muster-gpu/muster/network"
)

// Compatibility is how well a job would share links with those that run, if it were somewhere (Rajasekaran et al.,
// "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI'24, section 4).
type Compatibility struct {
	// Links has a score for each link that it would share: 1 if jobs ask no more of it than it carries, less by the
	// part that they ask beyond (equation 3): with the shifts that are best for this link, or, where no policy shifts
	// jobs, on average over all of them.
	Links []float64
	// Loop: the job would close a loop in the affinity graph, so that a shift for each job need not exist.
	Loop bool
}

// Company is jobs that run, to rate beside them where another could.
type Company struct {
	f     Fabric
	jobs  []Job
	on    [][]network.Bytes
	users map[network.LinkID][]int // looked up only
	root  []int                    // of each job, one of those with which it is connected in the affinity graph
	known *Scores
}

// Scores remembers how well jobs share a link. The zero value is empty.
type Scores struct {
	Shifted bool // jobs are shifted in time
	known   map[string]float64
}

// shifter is a policy that shifts jobs in time, so that they transmit in turn.
type shifter interface{ shifts() }

// Shifts reports whether a policy shifts jobs in time.
func Shifts(p Policy) bool {
	_, yes := p.(shifter)
	return yes
}

// mostScores bounds what is remembered; then all is forgotten.
const mostScores = 1 << 15

// NewCompany describes jobs that run and what each puts on links.
func NewCompany(f Fabric, jobs []Job, on [][]network.Bytes, known *Scores) *Company {
	c := &Company{f: f, jobs: jobs, on: on, users: map[network.LinkID][]int{}, root: upTo(len(jobs)), known: known}
	var shared []network.LinkID
	for i, list := range on {
		for _, b := range list {
			if c.users[b.Link] = append(c.users[b.Link], i); len(c.users[b.Link]) == 2 {
				shared = append(shared, b.Link)
			}
		}
	}
	for _, l := range shared {
		if !known.Shifted {
			break // there are no shifts that could contradict each other
		}
		if users := c.users[l]; exceeds(c.f.Capacity(l), c.rings(l, users)) {
			for _, i := range users[1:] {
				c.root[c.find(i)] = c.find(users[0])
			}
		}
	}
	return c
}

func (c *Company) find(i int) int {
	for c.root[i] != i {
		c.root[i] = c.root[c.root[i]]
		i = c.root[i]
	}
	return i
}

// Uses reports whether a job transmits on a link, in either direction.
func (c *Company) Uses(l network.LinkID) bool { return len(c.users[l]) > 0 || len(c.users[l^1]) > 0 }

// rings are what jobs ask of a link.
func (c *Company) rings(l network.LinkID, users []int) []Ring {
	rings := make([]Ring, len(users))
	for n, i := range users {
		rings[n] = ringOf(c.f, &c.jobs[i], c.on[i])
		for _, b := range c.on[i] {
			if b.Link == l {
				rings[n] = rings[n].with(b.Bytes)
			}
		}
	}
	return rings
}

// Rate rates a place of a further job, of which is known what it would transmit there. Of links that it would share
// with the same jobs the busiest counts: what fits on it fits on the others.
func (c *Company) Rate(j *Job, on []network.Bytes) (r Compatibility) {
	near := []Job{*j}
	loads := [][]network.Bytes{on}
	var who []int // in the company, of near without the first
	at := map[int]bool{}
	for _, b := range on {
		for _, i := range c.users[b.Link] {
			if !at[i] {
				at[i] = true
				near, loads, who = append(near, c.jobs[i]), append(loads, c.on[i]), append(who, i)
			}
		}
	}
	if len(who) == 0 {
		return r
	}
	own := ringOf(c.f, j, on)
	var joined []int // roots
	for _, l := range contended(c.f, loads, upTo(len(near))) {
		if l.jobs[0] != 0 {
			continue
		}
		rings := []Ring{own.with(l.bytes[0])}
		for n, k := range l.jobs[1:] {
			rings = append(rings, ringOf(c.f, &near[k], loads[k]).with(l.bytes[n+1]))
		}
		if !exceeds(c.f.Capacity(l.link), rings) {
			r.Links = append(r.Links, 1)
			continue
		}
		var here []int
		for _, k := range l.jobs[1:] {
			root := c.find(who[k-1])
			if !slices.Contains(here, root) {
				here = append(here, root)
			} else if !exceeds(c.f.Capacity(l.link), rings[1:]) { // the link was not in the graph before
				r.Loop = true
			}
			r.Loop = r.Loop || slices.Contains(joined, root)
		}
		joined = append(joined, here...)
		r.Links = append(r.Links, c.known.of(c.f.Capacity(l.link), rings))
	}
	return r
}

// of rates jobs on a link.
func (s *Scores) of(capacity int64, rings []Ring) float64 {
	key := binary.AppendVarint(nil, capacity)
	for i := range rings {
		r := &rings[i]
		for _, v := range []int64{int64(r.Iteration), int64(r.From), int64(r.To), r.Rate} {
			key = binary.AppendVarint(key, v)
		}
	}
	v, known := s.known[string(key)]
	if !known {
		v = drifting(capacity, rings)
		if s.Shifted {
			if circle := unified(capacity, rings); circle != nil {
				_, v = circle.Best()
			}
		}
		if s.known == nil || len(s.known) >= mostScores {
			s.known = map[string]float64{}
		}
		s.known[string(key)] = v
	}
	return v
}

// unified is a circle of jobs whose iterations are evened out; nil: shifts could not be held.
func unified(capacity int64, rings []Ring) *Circle {
	evenOut(rings)
	return NewCircle(capacity, rings, 0)
}

// mostDrifting bounds the jobs on a link of which all combinations are weighed.
const mostDrifting = 12

// drifting is the mean score of jobs that are at any time anywhere in their iterations.
func drifting(capacity int64, rings []Ring) float64 {
	sums, parts := []int64{-capacity}, []float64{1}
	for i := range rings[:min(len(rings), mostDrifting)] {
		r := &rings[i]
		duty := float64(r.To-r.From) / float64(max(1, r.Iteration, r.To-r.From))
		for k := range len(sums) {
			sums, parts = append(sums, sums[k]+r.Rate), append(parts, parts[k]*duty)
			parts[k] *= 1 - duty
		}
	}
	over := 0.0
	for k, sum := range sums {
		over += parts[k] * float64(max(0, sum))
	}
	return 1 - over/float64(capacity)
}
