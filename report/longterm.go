package report

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// longTerm is the long-term GPU-time fairness of the tenant that had the least of its
// share (ASTRAEA, TPDS'22): GPU time held over GPU time deserved, which is what it asked
// for at any time, but not more than an equal part of the cluster. Below 1 it lost by
// sharing. Tenants are queues, or users where there is one queue. 0: there is one
// tenant only.
func (r *Run) longTerm() (least float64) {
	type change struct {
		at    cluster.Time
		milli cluster.Milli
	}
	names := map[string]int{}
	var held []float64
	var changes [][]change
	for i := range r.Records {
		rec := &r.Records[i]
		if rec.Outcome == Rejected {
			continue
		}
		name := r.Jobs[i].User
		if len(r.Queues) > 1 {
			name = r.Queues[rec.Queue]
		}
		k, ok := names[name]
		if !ok {
			k = len(held)
			names[name], held, changes = k, append(held, 0), append(changes, nil)
		}
		end := r.Last
		if rec.Outcome != Unfinished {
			end = min(rec.End, r.Last)
		}
		held[k] += float64(rec.Held) * 1e6 // milli-GPU x ns
		milli := r.Jobs[i].GPUMilli()
		changes[k] = append(changes[k], change{rec.Submit, milli}, change{max(end, rec.Submit), -milli})
	}
	if len(held) < 2 {
		return 0
	}
	part := r.Capacity / cluster.Milli(len(held))
	for k, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return int(min(1, max(-1, a.at-b.at))) })
		deserved, demand := 0.0, cluster.Milli(0)
		for i, c := range list {
			if i > 0 {
				deserved += float64(min(demand, part)) * float64(c.at-list[i-1].at)
			}
			demand += c.milli
		}
		if deserved > 0 && (least == 0 || held[k]/deserved < least) {
			least = held[k] / deserved
		}
	}
	return least
}
