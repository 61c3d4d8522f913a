package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var hesrpt = Info{
	Name: "hesrpt",
	About: "elastic jobs share the GPUs by a closed formula: the shorter a job, the larger its part, the more so the better jobs scale; " +
		"p=0: equal parts",
	Source: "heSRPT: Berg, Vesilo and Harchol-Balter (Performance Evaluation 2020), for mean flow time; p=0 is EQUI",
	Needs:  "elastic jobs (min..max tasks), run times (progress corrects them), else all count as equally long",
	Trials: []Trial{{Given: Elastic | Estimates | Short}, {Knobs: "p=0", Given: Elastic | Short}},
	Knobs: []Knob{
		{"p", "0.5", "how jobs scale: k times the GPUs make them k^p times as fast (0 to 0.99)"},
		{"round", "0s", "plan at multiples of this only, so that jobs are resized less often; 0s: whenever a job comes or ends"},
	},
	New: func(k *Knobs) sched.Policy {
		return &planner{name: k.label(), plan: hesrptPlan(1 / (1 - k.float("p", 0, 0.99))),
			traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: k.round(), Anywhere: true}}
	},
}

// hesrptPlan gives each job its part as far as its bounds allow, then what is left, one step each
// in turn, to those that can grow: in both cases the shortest first.
func hesrptPlan(bend float64) func(v sched.View, jobs []sched.JobView) sched.Plan {
	return func(v sched.View, jobs []sched.JobView) sched.Plan {
		list := claims(v, jobs)
		free := keep(list, totalGPUs(v))
		line := shortestFirst(list)
		slices.SortStableFunc(line, func(a, b *claim) int { return cmp.Compare(a.j.Spec().Tier, b.j.Spec().Tier) })
		most := make([]float64, len(line))
		for i, c := range line {
			most[i] = float64(c.j.GPUs(c.most))
		}
		for i, part := range hesrptParts(most, float64(free), bend) {
			c := line[i]
			n := c.least
			for n < c.most && float64(c.j.GPUs(n+1)) <= part+1e-6 {
				n++
			}
			for n > c.least && c.j.GPUs(n) > free {
				n--
			}
			if g := c.j.GPUs(n); g <= free {
				c.tasks = n
				free -= g
			}
		}
		for grown := true; grown; {
			grown = false
			for _, c := range line {
				if n, g := c.next(); n > 0 && g > 0 && g <= free {
					c.tasks, grown = n, true
					free -= g
				}
			}
		}
		return elasticPlan(v, list, cluster.Never)
	}
}

// hesrptParts divides GPUs among jobs, the shortest first: of m jobs, the i longest have (i/m)^bend of
// the GPUs together (bend = 1/(1-p)). A job whose part would be more than its most gets that, and the
// others divide the rest in the same way.
func hesrptParts(most []float64, gpus, bend float64) []float64 {
	parts := make([]float64, len(most))
	open := make([]int, len(most))
	for i := range open {
		open[i] = i
	}
	for {
		m := float64(len(open))
		for k, i := range open {
			longer := m - float64(k) // this job and the longer ones
			parts[i] = gpus * (math.Pow(longer/m, bend) - math.Pow((longer-1)/m, bend))
		}
		rest := open[:0]
		for _, i := range open {
			if parts[i] < most[i] {
				rest = append(rest, i)
				continue
			}
			parts[i] = most[i]
			gpus -= most[i]
		}
		if len(rest) == int(m) {
			return parts
		}
		open = rest
	}
}
