package engine

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
)

// A blocked job is promised a start: EASY promises to the first one, conservative backfill to each. Where the run times
// of others are not known there is nothing to promise, and smaller jobs could pass it for ever. So after
// Config.HoldAfter the nodes on which it can start soonest are held for it.

// DefaultHoldAfter is what Config.HoldAfter is unless a configuration says otherwise. A hold idles
// at most what the job needs for as long as the jobs on those nodes run on; half an hour is about
// twice the median run of the jobs of public traces, so by then waiting has cost more.
const DefaultHoldAfter = 30 * time.Minute

// promise reserves the job its earliest start. If none is in sight, nothing is promised.
func (e *Engine) promise(j *job.State) {
	w, ok := e.resv.Earliest(j, false)
	if e.resv.HoldDue(j) && (!ok || reserve.OutOfSight(e.w.Now, w.At)) {
		if hold, found := e.resv.Hold(j); found {
			if e.mode == sched.Conservative && j.Promise != cluster.Never { // its record has the promise
				e.touch(j)
			}
			j.Promise, j.Plan = cluster.Never, nil
			e.resv.Add(hold)
			return
		}
	}
	if !ok {
		return
	}
	if e.mode == sched.Conservative && (w.At != j.Promise || !slices.Equal(w.Allocs, j.Plan)) {
		e.touch(j)
		j.Plan = append(j.Plan[:0], w.Allocs...)
	}
	j.Promise = w.At
	e.resv.Promise(w)
}

// tickAdvance begins and ends advance reservations.
func (e *Engine) tickAdvance() {
	ended, begun := e.resv.Tick()
	e.epoch += int64(ended)
	for _, a := range begun {
		e.epoch++
		e.fresh = true
		e.clear(a)
	}
}

// clear preempts outsiders from an advance reservation that begins. Where it has part of
// a node, as many jobs leave as it needs, those that lose least first.
func (e *Engine) clear(a *reserve.Advance) {
	for k := range a.Nodes() {
		for e.resv.Lacks(a, k) && e.dismiss(e.victims.LeastOn(a.Node(k), a.Inside)) {
		}
	}
}
