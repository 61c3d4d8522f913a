package quota

import "github.com/muster-gpu/muster/cluster"

// Volcano's proportion and capacity plugins and DRF. Source: volcano
// pkg/scheduler/plugins/{proportion,capacity,drf}; DRF: Ghodsi et al., NSDI 2011. Vectors are
// indexed by resource, consistently across arguments, each resource in its own unit.

// VolcanoQueue is a queue of the proportion plugin, for one resource.
type VolcanoQueue struct {
	Weight     int64
	Guarantee  Milli
	Capability Milli // cluster.Unlimited: none
	Request    Milli
}

// Proportion is the proportion plugin's loop: every round divides the remaining amount among the
// unmet queues by weight, bounded by capability and request and raised to the guarantee. Rounds are
// exact up to a fraction; the shares are rounded down to unit (not below what the loop fixed, a
// request, a capability or a guarantee) and the rest is handed out by largest remainder.
//
// It differs from Waterfill in two ways: what a guarantee gave beyond the weight is not compensated
// later, and a guarantee stays with its queue even if it is not requested. The shares sum up to at
// most total, plus what guarantees added at the end (Volcano does not take that from queues that
// are met).
func Proportion(total, unit Milli, queues []VolcanoQueue) []Milli {
	p := newProportion(total, queues)
	// Every round meets a queue or shrinks the remaining amount; a negative one (guarantees took
	// more than their weight) shrinks geometrically.
	for range maxRounds {
		if !p.round() {
			break
		}
	}
	return p.rounded(total, max(1, unit))
}

const (
	// fine is the fraction of a milli-GPU in the loop's amounts: 20 bits, which leaves 43 for
	// milli-GPU.
	fine      = 1 << 20
	maxRounds = 1000
)

type proportion struct {
	queues    []VolcanoQueue
	most      []int64 // min(real capability, request), in fine units
	deserved  []int64 // in fine units
	met       []bool
	remaining int64
}

func newProportion(total Milli, queues []VolcanoQueue) *proportion {
	p := &proportion{queues: queues, remaining: max(0, total) * fine,
		most: make([]int64, len(queues)), deserved: make([]int64, len(queues)), met: make([]bool, len(queues))}
	var guaranteed Milli
	for i := range queues {
		guaranteed += queues[i].Guarantee
	}
	for i := range queues {
		q := &queues[i]
		// The real capability leaves room for the others' guarantees.
		most := max(0, total-(guaranteed-q.Guarantee))
		if q.Capability != cluster.Unlimited {
			most = min(most, q.Capability)
		}
		p.most[i] = min(most, q.Request) * fine
	}
	return p
}

// round is one pass of the loop; false: it was the last.
func (p *proportion) round() bool {
	var weights int64
	for i := range p.queues {
		if !p.met[i] {
			weights += p.queues[i].Weight
		}
	}
	if weights == 0 {
		return false
	}
	before, changed := p.remaining, int64(0)
	for i := range p.queues {
		q := &p.queues[i]
		if p.met[i] {
			continue
		}
		d := p.deserved[i] + portion(before, q.Weight, weights)
		d = max(min(d, p.most[i]), q.Guarantee*fine)
		if q.Request*fine <= d || d == p.deserved[i] {
			p.met[i] = true
		}
		changed += d - p.deserved[i]
		p.deserved[i] = d
	}
	p.remaining -= changed
	return p.remaining != 0 && p.remaining != before
}

// portion returns amount × weight / weights, rounded towards zero.
func portion(amount, weight, weights int64) int64 {
	if amount < 0 {
		return -portion(-amount, weight, weights)
	}
	q, _ := mulDiv(amount, weight, weights)
	return q
}

// rounded turns the loop's amounts into multiples of unit.
func (p *proportion) rounded(total, unit Milli) []Milli {
	share, rem := make([]Milli, len(p.queues)), make([]int64, len(p.queues))
	claims := make([]Claim, len(p.queues))
	var sum int64
	for i, d := range p.deserved {
		sum += d
		share[i], rem[i] = d/fine, d%fine
		claims[i] = Claim{Weight: p.queues[i].Weight, Floor: p.queues[i].Guarantee,
			Cap: max(p.queues[i].Guarantee, p.most[i]/fine)}
	}
	// Only what the loop handed out is handed out again; the fraction lost to its rounding (below
	// one milli-GPU per queue) counts as handed out.
	given := min(total, (sum+int64(len(p.queues))*fine-1)/fine)
	if sum > total*fine {
		given = 0 // guarantees went beyond the total: each queue keeps its share
	}
	roundDown(given, claims, unit, share, rem)
	return share
}

// Dominant returns DRF's dominant share, the largest of used/total over the resources (the first of
// equals). A resource with a total of 0 does not count.
func Dominant(used, total []int64) Ratio {
	best := Ratio{0, 1}
	for r := range used {
		if total[r] > 0 {
			if s := (Ratio{used[r], total[r]}); s.Cmp(best) > 0 {
				best = s
			}
		}
	}
	return best
}

// DRFPreempts reports whether DRF lets a task of a job that would then use preemptorAfter preempt a
// task of a job that is left with victimAfter: the preemptor's dominant share must not be larger.
// (Volcano treats shares within 1e-6 as equal; integers need no such margin.)
func DRFPreempts(preemptorAfter, victimAfter, total []int64) bool {
	return Dominant(preemptorAfter, total).Cmp(Dominant(victimAfter, total)) <= 0
}

// DRFUser is a user in ProgressiveFilling.
type DRFUser struct {
	Task   []int64 // what one task needs
	Weight int64   // any scale, positive
	Tasks  int     // number of tasks; negative: unlimited
}

// ProgressiveFilling is DRF's reference algorithm: the user with the smallest dominant share over
// its weight starts its next task (ties by index), until no user's next task fits. It returns the
// number of tasks started.
func ProgressiveFilling(total []int64, users []DRFUser) []int {
	started := make([]int, len(users))
	full := make([]bool, len(users))
	used := make([]int64, len(total))
	share := make([]Ratio, len(users))
	for i := range share {
		share[i] = Ratio{0, 1}
	}
	for {
		next := -1
		for i := range users {
			if !full[i] && (next < 0 || cmpWeighted(share[i], users[i].Weight, share[next], users[next].Weight) < 0) {
				next = i
			}
		}
		if next < 0 {
			return started
		}
		u := &users[next]
		full[next] = started[next] == u.Tasks || !fits(u.Task, used, total)
		if full[next] {
			continue
		}
		started[next]++
		mine := make([]int64, len(total))
		for r := range total {
			used[r] += u.Task[r]
			mine[r] = u.Task[r] * int64(started[next])
		}
		share[next] = Dominant(mine, total)
	}
}

// cmpWeighted compares a/v with b/w.
func cmpWeighted(a Ratio, v int64, b Ratio, w int64) int {
	return cmpWide(product(a.Num, b.Den), wide{0, uint64(w)}, product(b.Num, a.Den), wide{0, uint64(v)})
}

// fits reports whether a task that needs anything still fits.
func fits(task, used, total []int64) bool {
	needs := false
	for r := range task {
		if used[r]+task[r] > total[r] {
			return false
		}
		needs = needs || task[r] > 0
	}
	return needs
}

// CapacityQueue is a queue's state in the capacity plugin.
type CapacityQueue struct{ Allocated, Deserved, Guarantee []int64 }

// CapacityVictim reports whether a task may be reclaimed: its queue is above deserved in a
// dimension that both the task and the reclaimer use, and stays at or above its guarantee without
// the task. The former is checked before the task is removed, so a large task may take the queue
// below deserved.
func CapacityVictim(q CapacityQueue, task, reclaimer []int64) bool {
	above := false
	for r := range task {
		if task[r] > 0 && q.Allocated[r]-task[r] < q.Guarantee[r] {
			return false
		}
		above = above || task[r] > 0 && reclaimer[r] > 0 && q.Allocated[r] > q.Deserved[r]
	}
	return above
}

// CapacityVictims goes through the tasks in order and takes every victim, subtracting each before
// the next is checked. It returns their indices.
func CapacityVictims(q CapacityQueue, tasks [][]int64, reclaimer []int64) []int {
	left := append([]int64(nil), q.Allocated...)
	var victims []int
	for i, task := range tasks {
		if !CapacityVictim(CapacityQueue{left, q.Deserved, q.Guarantee}, task, reclaimer) {
			continue
		}
		victims = append(victims, i)
		for r := range task {
			left[r] -= task[r]
		}
	}
	return victims
}

// CapacityReclaims reports whether a queue may reclaim for a request: it stays within its deserved
// amounts (real capability where that is less).
func CapacityReclaims(q CapacityQueue, request []int64) bool {
	for r := range request {
		if request[r] > 0 && q.Allocated[r]+request[r] > q.Deserved[r] {
			return false
		}
	}
	return true
}
