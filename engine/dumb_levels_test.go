package engine_test

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The policies of levels, as the twin knows them: with these knobs.
const (
	twoLevels = "tiresias-l:promote=1.5,thresholds=60"
	byIndex   = "tiresias-g:learn=3m,promote=1.5,steps=4,thresholds=60"
	byPace    = "e-las:beta=2,learn=3m,promote=1.5,thresholds=60"
	byRest    = "e-las:T0=1m,beta=2,index=remaining,promote=1.5,thresholds=60"
)

var ofLevels = []string{twoLevels, byIndex, byPace, byRest}

// executed is the service and the time on devices since the last promotion.
func (d *dumb) executed(j *dumbJob) (service int64, ran time.Duration) {
	d.accrue(j)
	return j.service() - j.servedBefore, j.ran - j.ranBefore
}

// levelKey orders by level, which ends at 60 GPU-seconds. Inside it comes first
// which started first, to the microsecond where one takes from another; or whose
// Gittins index is highest.
func (d *dumb) levelKey(j *dumbJob) [2]int64 {
	const level, end = math.MaxInt64 / 4, 60_000_000
	key, counts := [2]int64{min(int64(j.firstStart)/1000, level-1), int64(j.firstStart)}, int64(0)
	switch counts, _ = d.executed(j); d.policy {
	case byIndex:
		key = [2]int64{level - 1 - d.gittins(counts, end)}
	case byPace, byRest:
		counts = d.weighted(j, counts)
	}
	if counts >= end {
		key[0] += level
	}
	return key
}

// gittins is the index of a job with so much service: looked at in quarters of
// its level, of which the last is as long as the longest sample.
func (d *dumb) gittins(a, end int64) int64 {
	low, quantum := int64(0), end
	if a >= end {
		low, quantum = end, 0
		for _, s := range d.known {
			quantum = max(quantum, s.served)
		}
	}
	part := max(1, quantum/4)
	a = low + (a-low)/part*part
	ends, sum := big.NewInt(0), big.NewInt(0)
	for _, s := range d.known {
		if s.served > a {
			sum.Add(sum, big.NewInt(min(s.served-a, quantum)))
		}
		if s.served > a && s.served <= a+quantum {
			ends.Add(ends, big.NewInt(1<<57))
		}
	}
	if sum.Sign() == 0 {
		return 0
	}
	return ends.Div(ends, sum).Int64()
}

// weighted is E-LAS: service times the run time that progress lets expect, or
// what remains of it, over the median of known ones or a minute; twice the
// service where nothing is done, unless that was lost with a stop: it counts as next to nothing.
func (d *dumb) weighted(j *dumbJob, service int64) int64 {
	lost := j.done == 0 && (!j.inBooks() || j.started != j.firstStart)
	if j.Estimate == 0 || j.done == 0 && !lost {
		return 2 * service
	}
	done := max(1, min(j.done, j.Estimate-j.Estimate/100))
	unit, weighs := time.Hour, j.Estimate
	if len(d.known) > 0 {
		slices.SortFunc(d.known, func(a, b earlier) int { return cmp.Compare(a.ran, b.ran) })
		unit = max(1, d.known[(len(d.known)-1)/2].ran)
	}
	if d.policy == byRest {
		unit, weighs = time.Minute, j.Estimate-done
	}
	x := big.NewInt(int64(j.ran))
	x.Div(x.Mul(x, big.NewInt(int64(weighs))), big.NewInt(int64(done)))
	x.Div(x.Mul(x, big.NewInt(service)), big.NewInt(int64(unit)))
	if !x.IsInt64() {
		return math.MaxInt64
	}
	return x.Int64()
}

// earlier is a job that completed.
type earlier struct {
	served     int64
	ran        time.Duration
	user, name string
	milli      int64
}

// predict is the mean run time of jobs that completed: of the same user, name
// and size, else user and name, else name, else user, else of all. No two names
// are alike here.
func (d *dumb) predict(j *cluster.Job) time.Duration {
	for _, like := range []func(o earlier) bool{
		func(o earlier) bool { return o.user == j.User && o.name == j.Name && o.milli == j.GPUMilli() },
		func(o earlier) bool { return o.user == j.User && o.name == j.Name },
		func(o earlier) bool { return o.name == j.Name },
		func(o earlier) bool { return o.user == j.User },
		func(earlier) bool { return true },
	} {
		sum, n := time.Duration(0), time.Duration(0)
		for _, o := range d.completed {
			if like(o) {
				sum, n = sum+o.ran/time.Millisecond, n+1
			}
		}
		if n > 0 {
			return sum / n * time.Millisecond
		}
	}
	return 0
}

// learn: every three minutes, or at the first step after that, what completed
// until then is known to a policy that learns.
func (d *dumb) learn() {
	if d.policy != byIndex && d.policy != byPace {
		return
	}
	if at := d.now / cluster.Time(3*time.Minute); at != d.learned {
		d.learned, d.known = at, slices.Clone(d.completed)
		d.refresh()
	}
}

// refresh notes again how running jobs stand.
func (d *dumb) refresh() {
	for _, j := range d.jobs {
		if j.inBooks() {
			j.refreshed = d.first(j)
		}
	}
}

// promote takes a job back to the first level if it has waited one and a half
// times as long as it ran: since it last stopped, or was promoted; unless it got no further.
func (d *dumb) promote(j *dumbJob) {
	if _, ran := d.executed(j); slices.Contains(ofLevels, d.policy) && ran > 0 && j.done > j.doneBefore &&
		int64(d.now-max(j.since, j.promotion))*2 >= int64(ran)*3 {
		j.servedBefore, j.ranBefore, j.doneBefore, j.promotion = j.service(), j.ran, j.done, d.now
	}
}

// promoted is what a job was promoted with: nothing, as long as it was not.
type promoted struct {
	since        cluster.Time // when it was submitted or last stopped
	promotion    cluster.Time
	servedBefore int64
	ranBefore    time.Duration
	doneBefore   time.Duration
}
