package scale

import (
	"time"

	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/tally"
)

// Replica is one replica of a service.
type Replica struct {
	Kind
	Answers bool
	Leaves  bool // it finishes what it has, and takes no more
	Moves   bool // it goes on until all that are wanted answer, of which it is none
	Stuck   bool // it waits for GPUs, and replicas of its service have done so for StuckAfter
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
	v.Ready, v.Coming, v.Have = make([]int, n), make([]int, n), nil
	for _, r := range have {
		if r.Leaves || r.Moves {
			continue
		}
		if r.Answers {
			v.Ready[r.Variant]++
		} else {
			v.Coming[r.Variant]++
		}
		v.Have = append(v.Have, r)
	}
}

// StuckAfter is how long replicas of a service wait for GPUs until one that they replace makes room.
const StuckAfter = 30 * time.Second

// Change says what makes the wanted replicas of those that there are, which are ordered by age, the oldest first: how
// many to add of each kind, and which leave, as indices of have. The newest leave, and those that do not answer yet
// before those that do. One that answers and is replaced by replicas of another kind (variant or share) stays until all
// that are wanted answer. Where one of them is stuck, one of the replaced makes room, unless it is the last that
// answers. Those that are moved leave once all that are wanted answer.
func Change(want []Want, have []Replica) (add []Want, leave []int) {
	answering, leaving, stuck := 0, false, false
	missing := 0 // wanted replicas that do not answer yet
	kinds := make([]Kind, 0, len(want))
	wanted := map[Kind]int{}
	for _, w := range want {
		if _, ok := wanted[w.Kind]; !ok {
			kinds = append(kinds, w.Kind)
		}
		wanted[w.Kind] += w.Replicas
		missing += w.Replicas
	}
	count, ready := map[Kind]int{}, map[Kind]int{}
	for _, r := range have {
		if r.Leaves || r.Moves {
			leaving = true
			continue
		}
		count[r.Kind]++
		if r.Answers {
			answering++
			ready[r.Kind]++
		}
		if _, ok := wanted[r.Kind]; !ok {
			wanted[r.Kind] = 0
			kinds = append(kinds, r.Kind)
		}
		stuck = stuck || r.Stuck && wanted[r.Kind] > 0
	}
	for _, k := range kinds {
		missing -= min(ready[k], wanted[k])
		if n := wanted[k] - count[k]; n > 0 {
			add = append(add, Want{k, n})
		}
	}
	for _, k := range kinds {
		over := count[k] - wanted[k]
		for _, answers := range []bool{false, true} {
			for i := len(have) - 1; i >= 0 && over > 0; i-- {
				if r := have[i]; r.Kind != k || r.Leaves || r.Moves || r.Answers != answers {
					continue
				}
				if answers && missing > 0 {
					if !stuck || leaving || answering <= 1 {
						break
					}
					leaving = true // one at a time
				}
				leave = append(leave, i)
				over--
			}
		}
	}
	for i, r := range have {
		if r.Moves && !r.Leaves && missing <= 0 {
			leave = append(leave, i)
		}
	}
	return add, leave
}
