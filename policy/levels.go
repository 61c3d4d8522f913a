package policy

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

// levels are the queues of a multi-level order: the service at which each but the last ends, in
// milli-GPU-milliseconds, ascending.
type levels []int64

// maxLevels bounds the levels: a level and the order within it share one number.
const maxLevels = 31

// gpuSecond is a GPU-second in milli-GPU-milliseconds.
const gpuSecond = 1_000_000

// levels reads GPU-seconds separated by slashes.
func (k *Knobs) levels(name string) (l levels) {
	last := int64(0)
	for f := range strings.SplitSeq(k.text(name), "/") {
		s, err := strconv.ParseFloat(f, 64)
		end := int64(s * gpuSecond)
		if err != nil || !(s > 0) || s > 1e12 || end <= last || len(l) == maxLevels-1 {
			k.fail("%s=%q: want increasing GPU-seconds separated by /, at most %d", name, k.text(name), maxLevels-1)
			return nil
		}
		l = append(l, end)
		last = end
	}
	return l
}

// of is the level at that service.
func (l levels) of(service int64) int {
	for i, end := range l {
		if service < end {
			return i
		}
	}
	return len(l)
}

// end is the service at which the level ends; MaxInt64: never.
func (l levels) end(service int64) int64 {
	if i := l.of(service); i < len(l) {
		return l[i]
	}
	return math.MaxInt64
}

// until is the instant at which a running job with that service will have received the service to.
func until(j sched.JobView, served, to int64) cluster.Time {
	if to == math.MaxInt64 {
		return cluster.Never
	}
	return j.Until(to - served)
}

// promotion is Tiresias' PROMOTEKNOB: a job that has run since its last promotion returns to the
// first level when it has waited as long as it ran, times the knob; in thousandths. 0: never.
type promotion int64

var promoteKnob = Knob{"promote", "0",
	"take a job back to the first level when it has waited this many times as long as it ran, and has got further since the last time; 0: never"}

func (k *Knobs) promotion() promotion {
	s := k.float("promote", 0, 1e6)
	if s > 0 && s < 0.001 {
		k.fail("promote=%q: want 0 (never), or a factor between 0.001 and 1000000", k.text("promote"))
	}
	return promotion(math.Round(s * 1000))
}

// PromoteAt is when wait >= knob * exec (Tiresias, NSDI'19).
func (p promotion) PromoteAt(_ sched.View, j sched.JobView) cluster.Time {
	_, ran := j.Executed()
	if p == 0 || ran <= 0 {
		return cluster.Never
	}
	wait := time.Duration(mulDiv(int64(ran), int64(p), 1000))
	if wait >= cluster.MaxDuration {
		return cluster.Never
	}
	if int64(wait)*1000 != int64(ran)*int64(p) { // rounded down: not quite that long
		wait++
	}
	return j.WaitsSince().Add(wait)
}
