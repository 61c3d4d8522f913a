package compat

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
)

// MuriThemis is Muri's world under its Themis (Muri's simulator, section 9), which is not an
// auction: each time, a program gives every job a share of the time on its GPUs, and the job that
// ran least for its share goes first. So its rules are here and not a policy; the engine books the
// running jobs.
//
// In the last version of that simulator the rules run at each event, and in the program a job's
// speed alone is a share of time. The published figures do not follow these rules: their makespans
// have two decimals, so no iteration took 1.5 % longer, and the last job of one trace ends 144 s
// after its submission plus its run time, which its stalls would exceed. With rounds, the rules are
// those that explain both and of which the program still has traces: they run every 360 s and not
// in between, jobs do not stall, and speeds are iterations per second, which the program computes
// and does not use.
func MuriThemis(rounds bool) Profile {
	p := Muri()
	p.Name = "muri-themis"
	if rounds {
		p.Slower, p.Stall, p.Round = 1, nil, 360
	}
	p.sharing = &themisWorld{rounds: rounds}
	return p
}

// themisWorld is the rules' state.
type themisWorld struct {
	w       *World
	rounds  bool
	last    float64 // when they last ran
	gpus    float64
	planned map[cluster.JobID]bool
}

// themisJob is a job's state.
type themisJob struct {
	isolated float64 // completed work, as time alone
	before   float64 // iterations left at the last run of the rules
	pace     float64 // ... iterations per unit of time alone, then; 0: the rules have not run yet
	share    float64 // share of the time on its GPUs
	credit   float64 // seconds that its shares add up to
	deficit  float64
	urge     float64 // the largest goes first
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

// settle checks that exactly the selected jobs run.
func (m *themisWorld) settle(live []*job) error {
	for _, j := range live {
		if j.running != m.planned[j.entry.Job.ID] {
			return fmt.Errorf("compat: job %d runs: %t; planned: %t", j.entry.Job.ID, j.running, !j.running)
		}
	}
	return nil
}

// Name implements sched.Policy.
func (*themisWorld) Name() string { return "muri-themis" }

// Traits makes it plan once at every instant.
func (*themisWorld) Traits() sched.Traits {
	return sched.Traits{Backfill: engine.Skip, Round: 1, Gated: true}
}

// Key implements sched.Policy.
func (*themisWorld) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }

// Plan runs the first jobs in the order that fit.
func (m *themisWorld) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	if !m.rounds || m.w.turn == m.w.now {
		m.look(m.w.live)
	}
	plan := sched.Plan{Targets: make([]engine.Target, len(jobs)), Next: v.Now() + 1}
	for i, j := range jobs {
		plan.Targets[i].Idle = !m.planned[j.Spec().ID]
	}
	return plan
}

// look orders the jobs, and selects those that fit in this order.
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

// divide sets the shares of all jobs.
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
		claims[i] = claim{gpus: j.gpus, age: m.w.now - j.submit, work: float64(j.left * j.step),
			alone: j.isolated + j.left/pace}
	}
	for i, x := range fairShares(claims, m.gpus) {
		live[i].share = x
	}
}

// claim is a job of the program: its number of GPUs, its age, its remaining time if it always runs,
// and its total time alone in its part of the cluster.
type claim struct {
	gpus, age, work, alone float64
}

// least is the share with which a job takes value times as long as alone.
func (c *claim) least(value float64) float64 { return c.work / (float64(value*c.alone) - c.age) }

// fairShares is the program: shares x of time, at most 1 each, within the total number of GPUs,
// that minimize the largest (age + work/x) / alone. Where the GPUs are the bound, all jobs have
// this value, and the shares are unique. Where a job is the bound, which takes that long even if it
// always runs, the others' shares are open between what they need for the value and 1, and the
// published ones are those at which an interior-point method happened to stop. Such a method
// follows the central path, whose end is the point farthest from all bounds: so centre is used.
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

// bisect is the smallest number in an interval for which a monotone condition holds, which holds
// for its end, to the precision of a double.
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

// pathWeight is the weight of the distance from the smallest share in the central path of the cone
// program: 1 for the value's bound, 1/2 for the second-order cone of 1/x, whose additional variable
// is eliminated. That of x >= 0 cancels out.
const pathWeight = 1.5

// centre moves shares from the smallest ones to the feasible point that maximises the sum over the
// jobs of pathWeight log(x - least) + log(1 - x), plus the logarithm of the remaining GPU time: for
// each job with g from its smallest share to 1 and u above it, pathWeight/u - 1/(g-u) is its GPUs
// over the remaining GPU time.
func centre(claims []claim, shares []float64, gpus float64) {
	const bound = 1e-9 // distance from 1: a job that is the bound has no freedom
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
