package policy

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine/sched"
)

var gandivaFair = Info{
	Name: "gandiva-fair",
	About: "GPUs of several models: users have equal parts of each model; a user that gains little from fast GPUs trades them for more slow " +
		"ones; rounds give their jobs these parts",
	Source: "Gandiva-fair (EuroSys'20), reconstructed; its rounds are those of Gavel (OSDI'20)",
	Needs:  "users, speeds per GPU model; checkpoints: jobs take turns",
	Trials: []Trial{{Given: Speeds | Tenants | Short}},
	Knobs: []Knob{
		{"round", "6m", "jobs take turns at multiples of this"},
		{"reset", "32m", "the service of jobs is counted from zero again when jobs come or go, at most once per this time"},
		{"trade", "true", "false: users keep their equal parts of each model"},
	},
	New: newGandivaFair,
}

func newGandivaFair(k *Knobs) sched.Policy {
	g := &gavelPolicy{name: k.label(), objective: "tickets", aware: true, round: k.turns(),
		reset: k.duration("reset", 0)}
	if k.bool("trade") {
		g.objective = "trade"
	}
	return g
}

// holder is a user: its GPUs of each kind, how many GPUs it can use, and the mean speed of its jobs
// per GPU of each kind (0: none can run there).
type holder struct {
	jobs   []int
	demand float64
	parts  []float64
	speed  []float64
}

func (h *holder) total() (sum float64) {
	for _, p := range h.parts {
		sum += p
	}
	return sum
}

// fairParts divides the GPUs among users, not jobs: all jobs of a user have equal parts of what the
// user has.
func (q *gavelProgram) fairParts() []float64 {
	k, users, index := len(q.kinds), []holder(nil), map[int]int{}
	for i, job := range q.jobs {
		u, known := index[job.j.User()]
		if !known {
			u = len(users)
			index[job.j.User()] = u
			users = append(users, holder{parts: make([]float64, k), speed: make([]float64, k)})
		}
		h := &users[u]
		h.jobs = append(h.jobs, i)
		h.demand += q.problem.GPUs[i]
		for j := range k {
			h.speed[j] += q.problem.GPUs[i] * q.speed[i*k+j]
		}
	}
	for u := range users {
		for j := range k {
			users[u].speed[j] /= users[u].demand
		}
	}
	divide(users, q.problem.Capacity)
	if q.objective == "trade" {
		trade(users, k)
	}
	x := zeros(&q.room.parts, len(q.speed))
	for u := range users {
		q.spread(&users[u], x)
	}
	return x
}

// spread gives a user's jobs equal parts of its GPUs of each kind.
func (q *gavelProgram) spread(h *holder, x []float64) {
	k := len(q.kinds)
	for j := range k {
		usable := 0.0
		for _, i := range h.jobs {
			if q.speed[i*k+j] > 0 {
				usable += q.problem.GPUs[i]
			}
		}
		for _, i := range h.jobs {
			if q.speed[i*k+j] > 0 {
				x[i*k+j] = h.parts[j] / usable
			}
		}
	}
	for _, i := range h.jobs {
		sum := 0.0
		for _, v := range x[i*k : i*k+k] {
			sum += v
		}
		for j := i * k; j < i*k+k; j++ {
			x[j] /= max(1, sum)
		}
	}
}

// divide gives each user the same number of GPUs of each kind that it can use, but no more than it
// can use in all; the rest goes to the other users in the same way. Each round leaves nothing, or
// satisfies a user.
func divide(users []holder, capacity []float64) {
	left := slices.Clone(capacity)
	for range len(users) + 1 {
		wants, given := make([]float64, len(left)), 0.0
		for u := range users {
			for j := range left {
				if h := &users[u]; h.speed[j] > 0 && h.total() < h.demand-tiny {
					wants[j]++
				}
			}
		}
		offer := make([]float64, len(left))
		for j := range left {
			offer[j] = left[j] / max(1, wants[j])
		}
		for u := range users {
			h, sum := &users[u], 0.0
			room := h.demand - h.total()
			for j := range offer {
				if h.speed[j] > 0 {
					sum += offer[j]
				}
			}
			if room < tiny || sum < tiny {
				continue
			}
			for j := range offer {
				if h.speed[j] > 0 {
					part := offer[j] * min(1, room/sum)
					h.parts[j] += part
					left[j] -= part
					given += part
				}
			}
		}
		if given < tiny {
			return
		}
	}
}

// tiny is the part of a GPU that is treated as zero.
const tiny = 1e-9

// trade lets users exchange GPUs, for each pair of kinds: the user that gains most by the faster
// kind buys it from the user that gains least, at a price in slower GPUs that is the second highest
// gain. So the seller is no worse off, and the buyer is better off.
func trade(users []holder, kinds int) {
	for a := range kinds {
		for b := range kinds {
			if a != b {
				exchange(users, a, b)
			}
		}
	}
}

// exchange is a market of kind a in terms of kind b. Each trade uses up what one of the two users
// has, or all that the seller can use.
func exchange(users []holder, a, b int) {
	var market []*holder
	for u := range users {
		if h := &users[u]; h.speed[a] > 0 && h.speed[b] > 0 {
			market = append(market, h)
		}
	}
	slices.SortStableFunc(market, func(x, y *holder) int {
		return cmp.Compare(y.speed[a]/y.speed[b], x.speed[a]/x.speed[b])
	})
	for len(market) > 1 {
		buyer, seller := market[0], market[len(market)-1]
		price := market[1].speed[a] / market[1].speed[b]
		if price < 1 || buyer.speed[a]/buyer.speed[b] <= price*(1+tiny) {
			return // buying the slower kind is selling the faster one in another market
		}
		amount := min(seller.parts[a], buyer.parts[b]/price)
		if price > 1+tiny {
			amount = min(amount, max(0, seller.demand-seller.total())/(price-1))
		}
		buyer.parts[a], buyer.parts[b] = buyer.parts[a]+amount, buyer.parts[b]-amount*price
		seller.parts[a], seller.parts[b] = seller.parts[a]-amount, seller.parts[b]+amount*price
		if buyer.parts[b] < tiny {
			market = market[1:]
		} else {
			market = market[:len(market)-1]
		}
	}
}
