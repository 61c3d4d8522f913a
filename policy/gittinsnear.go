package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var gittinsNear = Info{
	Name:   "gittins",
	About:  "least expected GPU time per probability of ending first, judging by jobs submitted around the same time; preemptive",
	Source: "ours: the Gittins index (Gittins 1979) per GPU, of each job's own distribution: completed jobs of its size, by nearness in submission",
	Needs:  "how long earlier jobs ran: the cluster's own; users and job names, where there are any",
	Trials: []Trial{{}},
	Knobs: []Knob{
		{"near", "20", "number of most similar completed jobs that count (0 to 100)"},
		{"prior", "5", "weight of all completed jobs of its size together, in such jobs (0 to 100)"},
		{"quantum", "0.25", "the part of those that ran longer that ends in a quantum at least (0 to 1); 1: least expected remaining GPU time first"},
		{"base", "1m", "run time at which a job's index is first recomputed; then at twice that, and so on"},
		{"learn", "1h", "interval at which the history of completed jobs is read"},
	},
	New: newGittinsNear,
}

type gittinsNearPolicy struct {
	name        string
	near, prior int64
	quantum     int64 // in thousandths
	base, learn time.Duration
}

func newGittinsNear(k *Knobs) sched.Policy {
	p := &gittinsNearPolicy{
		name: k.label(), near: k.int("near", 0, 100), prior: k.int("prior", 0, 100),
		base: k.duration("base", time.Second), learn: k.learn(),
		quantum: int64(math.Round(k.float("quantum", 0, 1) * 1000)),
	}
	if p.near+p.prior == 0 {
		k.fail("near=0,prior=0: nothing is left to go by")
	}
	return p
}

func (p *gittinsNearPolicy) Name() string { return p.name }

func (p *gittinsNearPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip, Learns: p.learn, Alike: true}
}

// sizeLeast is the least number of completed jobs of one size from which it is predicted.
const sizeLeast = 20

// step is the interval of run time in which a job's index is constant.
func (p *gittinsNearPolicy) step(ran time.Duration) (from, to time.Duration) {
	to = p.base
	for ran >= to && to < cluster.MaxDuration/2 {
		from, to = to, 2*to
	}
	return from, to
}

// Key is the GPU time that the job costs per probability of ending; ties go to the earlier first
// start.
func (p *gittinsNearPolicy) Key(v sched.View, j sched.JobView) sched.Key {
	_, ran := j.Executed()
	from, _ := p.step(ran)
	return sched.Key{mulDiv(p.cost(v.Past(), j, from), j.Milli(), 1), int64(j.FirstStart())}
}

// NextChange is when the index is next recomputed.
func (p *gittinsNearPolicy) NextChange(v sched.View, j sched.JobView) cluster.Time {
	_, ran := j.Executed()
	_, to := p.step(ran)
	if ran >= to {
		return cluster.Never
	}
	return v.Now().Add(to - ran) // to the nanosecond, so that the result does not depend on when it is asked
}

// sample is a run time in excess of what a job has run, in milliseconds, with its weight.
type sample struct{ beyond, weight int64 }

// cost is the inverse of the Gittins index of a job that ran so long, in milliseconds (see
// costPerEnd). The samples are the jobs nearest to it and, as their prior, the sixteenths of all
// jobs of its size, each reduced by the time run.
func (p *gittinsNearPolicy) cost(past *sched.Past, j sched.JobView, ran time.Duration) int64 {
	like := past.Like(j.Milli(), sizeLeast)
	var runs [100]time.Duration
	var room [128]sample
	list := room[:0]
	add := func(r time.Duration, weight int64) {
		if r -= ran; r >= time.Millisecond && weight > 0 {
			list = append(list, sample{int64(r / time.Millisecond), weight})
		}
	}
	if len(like.Jobs) > 0 {
		for _, r := range like.Near(runs[:0], j.Spec(), int(p.near)) {
			add(r, int64(len(like.Runs)))
		}
		for _, r := range like.Runs {
			add(r, p.prior)
		}
	}
	if len(list) == 0 {
		return max(1, int64(ran/time.Millisecond)) // none ran longer: expect the same again
	}
	return costPerEnd(list, p.quantum)
}

// costPerEnd sorts the samples S and returns the least cost per end (the inverse of the Gittins
// index, max over d of P/E) over all quanta d in which at least that many thousandths of the
// samples end:
//
//	E/P, E = mean(min(S, d)), P = Pr[S <= d]
//
// in the unit of the samples, rounded down. The weights sum up to at most 12,000, and a sample is
// at most a hundred years: in milliseconds the sums stay below 2^56.
func costPerEnd(list []sample, thousandths int64) int64 {
	slices.SortFunc(list, func(a, b sample) int { return cmp.Compare(a.beyond, b.beyond) })
	all := int64(0)
	for _, s := range list {
		all += s.weight
	}
	least, ended, spent := int64(math.MaxInt64), int64(0), int64(0)
	for _, s := range list {
		ended += s.weight
		spent += s.weight * s.beyond
		if ended*1000 >= thousandths*all {
			least = min(least, (spent+s.beyond*(all-ended))/ended)
		}
	}
	return least
}
