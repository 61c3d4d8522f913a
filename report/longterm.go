package report

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
)

// longTerm is the long-term GPU-time fairness of the tenant with the smallest one (shareOf); 0:
// there is only one tenant.
func (r *Run) longTerm() (least float64) {
	list := r.shareOf()
	if len(list) < 2 {
		return 0
	}
	for _, f := range list {
		if f > 0 && (least == 0 || f < least) {
			least = f
		}
	}
	return least
}

// shareOf is each tenant's long-term GPU-time fairness F_u = U_u / D_u (ASTRAEA, TPDS'22), in order
// of the tenants' first jobs: GPU time held over GPU time deserved, which is its demand at any
// time, but at most an equal part of the cluster. Below 1 it lost by sharing. GPUs count by their
// models' weights, requested ones by the mean weight of the models on which the job may run.
// Tenants are queues, or users if there is one queue. 0: it deserved nothing, or held nothing.
func (r *Run) shareOf() []float64 {
	type change struct {
		at    cluster.Time
		worth float64
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
		worth := rec.Held
		if len(r.Kinds) > 0 {
			worth = rec.Worth
		}
		held[k] += float64(worth) * 1e6 // milli-GPU x ns
		asks := float64(r.Jobs[i].GPUMilli()) * r.weight(r.Jobs[i])
		changes[k] = append(changes[k], change{rec.Submit, asks}, change{max(end, rec.Submit), -asks})
	}
	if len(held) == 0 { // all jobs were rejected
		return nil
	}
	part := float64(r.Capacity/cluster.Milli(len(held))) * r.weight(nil)
	for k, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return int(min(1, max(-1, a.at-b.at))) })
		deserved, demand := 0.0, 0.0
		for i, c := range list {
			if i > 0 {
				deserved += min(demand, part) * float64(c.at-list[i-1].at)
			}
			demand += c.worth
		}
		if deserved > 0 {
			held[k] /= deserved
		} else {
			held[k] = 0
		}
	}
	return held
}

// weight is the mean weight of the GPUs on which a job may run; nil: of all GPUs. It is 1 if no
// weights are stated, or no GPU suits it.
func (r *Run) weight(j *cluster.Job) float64 {
	sum, gpus := 0.0, 0
	for _, k := range r.Kinds {
		suits := j == nil || len(j.GPUTypes) == 0 ||
			slices.ContainsFunc(j.GPUTypes, func(want string) bool { return cluster.MatchModel(k.Model, want) })
		if suits {
			sum, gpus = sum+float64(k.Weight)*float64(k.GPUs), gpus+k.GPUs
		}
	}
	if gpus == 0 {
		return 1
	}
	return sum / float64(gpus) / float64(cluster.Whole)
}
