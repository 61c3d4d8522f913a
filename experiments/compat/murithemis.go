package compat

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// MuriThemis is Muri's world under its Themis (Muri's simulator, section 9), which
// is no auction: at each look at the order a program gives every job a share of the
// time on its GPUs, and who ran least for its share goes first. So its rules are here,
// and no policy; the engine books who runs.
//
// As written in the last version of that simulator, it looks at each event, and in
// the program jobs' speed alone is a share of time. The published figures are not of
// these rules: their makespans have two decimals, so no iteration took 1.5 % longer,
// and the last job of one trace ends 144 s after its submission and its run time,
// which its stalls would exceed. If in rounds, the rules are what explains both and
// is still to be seen in the program: it looks every 360 s and not between, nobody
// stalls, and speeds are iterations per second, which it computes and does not use.
func MuriThemis(rounds bool) Profile {
	p := Muri()
	p.Name = "muri-themis"
	if rounds {
		p.Slower, p.Stall, p.Round = 1, nil, 360
	}
	p.sharing = &themisWorld{rounds: rounds}
	return p
}

// themisWorld is what the rules know.
type themisWorld struct {
	w       *World
	rounds  bool
	last    float64 // when they last looked
	gpus    float64
	planned map[cluster.JobID]bool
}

// themisJob is what they know of a job.
type themisJob struct {
	isolated float64 // what it has done, as time alone
	before   float64 // iterations left when they last looked
	pace     float64 // ... iterations per unit of time alone, then; 0: they have not looked yet
	share    float64 // of the time on its GPUs
	credit   float64 // seconds that its shares come to
	deficit  float64
	urge     float64 // by how much it is to come first
}

func (m *themisWorld) enter(*job) error { return nil }

func (m *themisWorld) ready(w *World, cfg *engine.Config) error {
	m.w, cfg.Policy = w, m
	for i := range cfg.Spec.Nodes {
		m.gpus += float64(cfg.Spec.Nodes[i].GPUs)
	}
	return nil
}

func (m *themisWorld) ran(*job)     {}
func (m *themisWorld) order([]*job) {}
func (m *themisWorld) ended(j *job) { delete(m.planned, j.entry.Job.ID) }

// settle checks that those run who are to.
func (m *themisWorld) settle(live []*job) error {
	for _, j := range live {
		if j.running != m.planned[j.entry.Job.ID] {
			return fmt.Errorf("compat: job %d runs: %t; planned: %t", j.entry.Job.ID, j.running, !j.running)
		}
	}
	return nil
}

// Name implements engine.Policy.
func (*themisWorld) Name() string { return "muri-themis" }

// Traits has it plan once at every instant.
func (*themisWorld) Traits() engine.Traits {
	return engine.Traits{Backfill: engine.Skip, Round: 1, Gated: true}
}

// Key implements engine.Policy.
func (*themisWorld) Key(engine.View, engine.JobView) engine.Key { return engine.Key{} }

// Plan has those run who come first and fit.
func (m *themisWorld) Plan(v engine.View, jobs []engine.JobView) engine.Plan {
	if !m.rounds || m.w.turn == m.w.now {
		m.look(m.w.live)
	}
	plan := engine.Plan{Targets: make([]engine.Target, len(jobs)), Next: v.Now() + 1}
	for i, j := range jobs {
		plan.Targets[i].Idle = !m.planned[j.Spec().ID]
	}
	return plan
}

// look orders the jobs, and chooses those that fit in this order.
func (m *themisWorld) look(live []*job) {
	m.divide(live)
	for _, j := range live {
		j.urge = float64(j.share * 1e9)
		if j.used > 0 {
			j.urge = j.share / j.used
		}
		j.deficit = j.credit - j.used
		j.credit += float64(j.share * (m.w.now - m.last))
	}
	m.last = m.w.now
	slices.SortStableFunc(live, func(a, b *job) int {
		return cmp.Or(cmp.Compare(b.urge, a.urge), cmp.Compare(b.deficit, a.deficit), cmp.Compare(b.share, a.share))
	})
	m.planned = map[cluster.JobID]bool{}
	free := m.gpus
	for _, j := range live {
		if j.gpus <= free {
			free -= j.gpus
			m.planned[j.entry.Job.ID] = true
		}
	}
	slices.SortStableFunc(live, func(a, b *job) int { return cmp.Compare(b.gpus, a.gpus) })
}

// divide gives every job its share.
func (m *themisWorld) divide(live []*job) {
	claims := make([]claim, len(live))
	for i, j := range live {
		pace := math.Ceil(m.gpus/float64(len(live))) / j.gpus
		pace /= max(pace, 1)
		if m.rounds {
			pace /= j.step
		}
		if j.pace > 0 {
			j.isolated += (j.before - j.left) / j.pace
		}
		j.before, j.pace = j.left, pace
		claims[i] = claim{gpus: j.gpus, age: m.w.now - j.submit, work: float64(j.left * j.step), alone: j.isolated + j.left/pace}
	}
	for i, x := range fairShares(claims, m.gpus) {
		live[i].share = x
	}
}

// claim is what the program knows of a job: how many GPUs it takes, for how long it
// has been there, how long it still runs if it always does, and how long it takes in
// all alone in its part of the cluster.
type claim struct {
	gpus, age, work, alone float64
}

// least is the share with which a job takes value times as long as alone.
func (c *claim) least(value float64) float64 { return c.work / (float64(value*c.alone) - c.age) }

// fairShares is the program: shares x of time, at most 1 each, on so many GPUs in all,
// that make the greatest (age + work/x) / alone as small as can be. Where the GPUs bound
// it, all jobs come to this value, and the shares are unique. Where a job bounds it that
// takes so long even if it always runs, the others' shares are open between what they
// need for the value and 1, and the published ones are those at which an interior-point
// method happened to stop. Such a method follows the central path, whose end is the
// point that keeps away from all bounds: so centre is used.
func fairShares(claims []claim, gpus float64) []float64 {
	value := 0.0
	for i := range claims {
		value = max(value, (claims[i].age+claims[i].work)/claims[i].alone)
	}
	need := func(value float64) float64 {
		sum := 0.0
		for i := range claims {
			sum += float64(claims[i].gpus * claims[i].least(value))
		}
		return sum
	}
	open := need(value) <= gpus
	if !open {
		most := 2 * value
		for need(most) > gpus {
			value, most = most, 2*most
		}
		value = bisect(value, most, func(v float64) bool { return need(v) <= gpus })
	}
	shares := make([]float64, len(claims))
	for i := range claims {
		shares[i] = min(1, claims[i].least(value))
	}
	if open {
		centre(claims, shares, gpus)
	}
	return shares
}

// bisect is the least number between two for which something holds, which holds for
// the second, to the precision of a double.
func bisect(from, to float64, holds func(float64) bool) float64 {
	for to-from > 1e-15*to {
		mid := (from + to) / 2
		if mid <= from || mid >= to {
			break
		}
		if holds(mid) {
			to = mid
		} else {
			from = mid
		}
	}
	return to
}

// pathWeight is how much the distance from the least share weighs in the central path
// of the cone program that the published one becomes: 1 for the value's bound, 1/2 for
// the second-order cone of 1/x, whose further variable is eliminated. That of x >= 0
// falls out.
const pathWeight = 1.5

// centre moves shares from the least to the point of those allowed that maximises
// the sum of pathWeight log(x - least) + log(1 - x) over the jobs, and of the logarithm
// of the GPU time left: for each job with g from its least share to 1 and u above it,
// pathWeight/u - 1/(g-u) is its GPUs over the GPU time left.
func centre(claims []claim, shares []float64, gpus float64) {
	const bound = 1e-9 // from 1: a job that bounds the value has no choice
	above := func(i int, left float64) float64 {
		g, l := 1-shares[i], claims[i].gpus/left
		b := pathWeight + 1 + float64(l*g)
		return 2 * pathWeight * g / (b + math.Sqrt(float64(b*b)-float64(4*l*pathWeight*g)))
	}
	rest := gpus
	for i := range shares {
		rest -= float64(claims[i].gpus * shares[i])
	}
	left := bisect(0, rest, func(left float64) bool {
		sum := left
		for i := range shares {
			if 1-shares[i] > bound {
				sum += float64(claims[i].gpus * above(i, left))
			}
		}
		return sum >= rest
	})
	for i := range shares {
		if 1-shares[i] > bound {
			shares[i] += above(i, left)
		}
	}
}
