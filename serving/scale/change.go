package scale

import (
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/tally"
)

// Replica is one replica of a service.
type Replica struct {
	Variant int
	Answers bool
	Leaves  bool // it finishes what it has, and takes no more
}

// See takes over what became of the period's requests.
func (v *View) See(t *tally.Tally) {
	g := &v.Service.Goal
	v.Arrived, v.Busy, v.Latency = t.Arrived, t.Busy, t.Latency.Quantile(g.Percentile/100)
	v.Missed, v.Easy = float64(t.Missed()), easy(t, g)
	if t.Answered > 0 {
		v.Prompt, v.Output = float64(t.Prompts)/float64(t.Answered), float64(t.Outputs)/float64(t.Answered)
	}
}

// easy reports whether the goal's percentile of a period was at most 0.8 of what is promised.
func easy(t *tally.Tally, g *service.Goal) bool {
	const part = 0.8
	met := func(h *tally.Histogram, promised time.Duration) bool {
		return promised == 0 || float64(h.Quantile(g.Percentile/100)) <= part*float64(promised)
	}
	return met(&t.Latency, g.Latency) && met(&t.TTFT, g.TTFT) && met(&t.TPOT, g.TPOT)
}

// Count takes over which replicas there are.
func (v *View) Count(have []Replica) {
	n := len(v.Service.Variants)
	v.Ready, v.Coming = make([]int, n), make([]int, n)
	for _, r := range have {
		switch {
		case r.Leaves:
		case r.Answers:
			v.Ready[r.Variant]++
		default:
			v.Coming[r.Variant]++
		}
	}
}

// Change says what makes the wanted number of each variant of the replicas that there are, which are ordered by age,
// the oldest first: how many to add of each variant, and which leave, as indices of have. The newest leave, and those
// that do not answer yet before those that do.
func Change(want []int, have []Replica) (add, leave []int) {
	add = make([]int, len(want))
	for variant, n := range want {
		count := 0
		for _, r := range have {
			if r.Variant == variant && !r.Leaves {
				count++
			}
		}
		add[variant] = max(0, n-count)
		for _, answers := range []bool{false, true} {
			for i := len(have) - 1; i >= 0 && count > n; i-- {
				if r := have[i]; r.Variant == variant && !r.Leaves && r.Answers == answers {
					leave = append(leave, i)
					count--
				}
			}
		}
	}
	return add, leave
}
