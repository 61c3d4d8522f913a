package forward

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The error of a predicted wait has a pattern: under a policy that lets later submissions pass,
// predictions are too early; where jobs state limits, too late. Quotes learns the error from the
// outcomes of earlier answers: of those most similar to the new one, it takes the ratios of the
// actual wait to the predicted one (conformal prediction, Vovk et al. 2005), at levels that follow
// how often intervals have held (Gibbs and Candès, 2021, "Adaptive conformal inference under
// distribution shift").

const (
	// Floor is added to waits before they are compared, so that seconds do not matter.
	Floor = time.Minute
	// ScoresKept is the number of scored answers that are remembered, scoresLike the number of
	// these that are compared with a new one, and scoresLeast the number below which they say
	// nothing.
	ScoresKept  = 512
	scoresLike  = 96
	scoresLeast = 24
	// openKept bounds the number of unscored answers; the oldest are dropped.
	openKept = 1024
	// tail is the part of starts that may be below an interval, and above it; step is the rate at
	// which its levels adapt.
	tail = 0.10
	step = 0.02
	// beyond is the distance (a logarithm) by which an end moves for each hundredth that its level
	// is outside the known answers; farthest is its maximum.
	beyond   = 0.07
	farthest = 0.30
	// WideAt is the ratio of an interval's ends from which on it is useless as a date.
	WideAt = 4
	// DateError bounds the median error of dates, relative to the actual wait. At least datesLeast
	// of the latest datesKept answers that could have been dates must support it: the share of good
	// ones must exceed one half by sure standard deviations (a one-sided 95 % test).
	DateError  = 0.25
	datesKept  = 96
	datesLeast = 24
	sure       = 1.645
)

// Asked describes a waiting job when its start is predicted.
type Asked struct {
	Job     cluster.JobID
	Now     cluster.Time
	Start   cluster.Time // the prediction; Never: none is in sight
	Waited  time.Duration
	Milli   cluster.Milli
	Tier    cluster.Tier
	Promise cluster.Time // a start that the engine has promised, if any
}

// Quote is a predicted start with its interval.
type Quote struct {
	Start     cluster.Time // the best single answer; Never: none
	Low, High cluster.Time // four of five starts lie between these; High Never: unknown
	Open      bool         // no date is given ("at the earliest Low"): too wide, or too few answers
}

// likeness holds the coordinates by which answers are compared.
type likeness [4]float64

func (a *likeness) distance(b *likeness) (d float64) {
	for i := range a {
		d += math.Abs(a[i] - b[i])
	}
	return d
}

// Said is the content of an answer, as logarithms of ratios to the predicted wait. It is kept until
// the job starts.
type Said struct {
	Low, High, Mid float64
	Bounded        bool // there is an interval
}

// score is an answer with its outcome.
type score struct {
	open
	ratio   float64 // log of the actual wait over the predicted one, both plus Floor
	started cluster.Time
	seq     int64
}

// open is an answer whose job has not started.
type open struct {
	asked    Asked
	like     likeness
	said     Said
	foreseen float64
}

// Quotes records the outcomes of answers. The zero value is empty. It belongs to one policy, and
// its state is its scores and open answers only: recalling these restores it.
type Quotes struct {
	scores  []score // the latest last
	open    []open  // the latest last
	below   float64 // levels of the interval's ends, as offsets from tail
	above   float64
	counted int64
}

func (a *Asked) wait() float64 {
	if a.Start == cluster.Never {
		return 0
	}
	return max(0, a.Start.Sub(a.Now).Seconds())
}

func (a *Asked) likeness() likeness {
	never := 0.0
	if a.Start == cluster.Never {
		never = 10
	}
	return likeness{math.Log(1 + a.wait()/Floor.Seconds()), 0.3 * math.Log2(1+float64(a.Milli)/1000),
		0.3 * math.Log(1+a.Waited.Seconds()/Floor.Seconds()), never + 3*float64(a.Tier)}
}

// Quote predicts when a job will start, corrected by the outcomes of earlier answers.
func (q *Quotes) Quote(a *Asked) Quote {
	if a.Start == cluster.Never && len(q.scores) < scoresLeast {
		return Quote{Start: cluster.Never, Low: a.Now, High: cluster.Never, Open: true}
	}
	like := a.likeness()
	ratios := q.ratios(a, &like)
	foreseen := a.wait() + Floor.Seconds()
	at := func(ratio float64) cluster.Time {
		wait := max(0, min(math.Exp(ratio)*foreseen-Floor.Seconds(), cluster.MaxDuration.Seconds()/4))
		return a.Now.Add(time.Duration(wait * float64(time.Second)).Round(time.Second))
	}
	if len(ratios) < scoresLeast {
		return Quote{Start: max(a.Start, a.Now), Low: max(a.Now, a.Start), High: cluster.Never, Open: true}
	}
	v := q.said(ratios)
	return Quote{Start: at(v.Mid), Low: at(v.Low), High: at(v.High), Open: v.High-v.Low > q.dates(a.Now)}
}

// said computes the content of an answer.
func (q *Quotes) said(ratios []float64) (v Said) {
	if len(ratios) < scoresLeast {
		return v
	}
	v.Bounded = true
	v.Low, v.High = q.bounds(ratios)
	v.Mid = min(max(densest(ratios), v.Low), v.High)
	return v
}

// dates is the width of the widest interval that is given as a date: over the latest answers with
// intervals no wider, the median error is under DateError with confidence. Negative: none.
func (q *Quotes) dates(now cluster.Time) float64 {
	list := q.dated(now)
	slices.SortStableFunc(list, func(x, y outcome) int { return cmp.Compare(x.width, y.width) })
	widest, good := -1.0, 0.0
	spans := make([]span, 0, len(list))
	for i, p := range list {
		if p.good {
			good++
		}
		at, _ := slices.BinarySearchFunc(spans, p.span, func(x, y span) int { return cmp.Compare(x.known, y.known) })
		spans = slices.Insert(spans, at, p.span)
		if i+1 < len(list) && list[i+1].width == p.width || i+1 < datesLeast {
			continue
		}
		n := disjoint(spans)
		if share := good / float64(i+1); (share-0.5)*n-0.5 >= sure*math.Sqrt(n)/2 {
			widest = p.width
		}
	}
	return widest
}

// span is the time from an answer until its outcome is known.
type span struct{ asked, known cluster.Time }

// disjoint is the size of the largest set of spans (sorted by their ends) of which no two overlap:
// answers in one backlog err together, so only answers given after the previous outcome is known
// count as independent.
func disjoint(spans []span) (n float64) {
	var last cluster.Time
	for _, s := range spans {
		if n == 0 || s.asked >= last {
			n, last = n+1, s.known
		}
	}
	return n
}

// outcome is the result of an answer that could have been a date.
type outcome struct {
	span
	width float64
	good  bool // error below DateError
}

// dated lists the latest answers that could have been dates and whose outcome is known, in the
// order in which it became known. A job that still waits has an outcome once its date has passed by
// too much: otherwise, in a backlog, only the jobs that start soon would count.
func (q *Quotes) dated(now cluster.Time) (list []outcome) {
	for i := range q.scores {
		if o, ok := q.scores[i].outcome(q.scores[i].started); ok {
			list = append(list, o)
		}
	}
	for i := range q.open {
		if o, ok := q.open[i].outcome(cluster.Never); ok && o.known <= now {
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(x, y outcome) int { return cmp.Compare(x.known, y.known) })
	return list[max(0, len(list)-datesKept):]
}

// outcome is the result of an answer if its job starts at an instant; false: it could not have been
// a date.
func (o *open) outcome(started cluster.Time) (v outcome, ok bool) {
	v.width, v.asked = o.said.High-o.said.Low, o.asked.Now
	if !o.said.Bounded || v.width > math.Log(WideAt) {
		return v, false
	}
	wait := max(0, min(math.Exp(o.said.Mid)*o.foreseen-Floor.Seconds(), cluster.MaxDuration.Seconds()/4))
	late := max(wait/(1-DateError), min(wait+DateError*Floor.Seconds(), Floor.Seconds()))
	if v.known = o.asked.Now.Add(time.Duration(late * float64(time.Second))); v.known <= started {
		return v, true
	}
	waited := started.Sub(o.asked.Now).Seconds()
	v.known, v.good = started, math.Abs(wait-waited) < DateError*max(Floor.Seconds(), waited)
	return v, true
}

// bounds returns the ends of an interval. A level that lies outside the known answers, because too
// many starts fell beyond them, is extrapolated.
func (q *Quotes) bounds(ratios []float64) (low, high float64) {
	n, last := float64(len(ratios)), len(ratios)-1
	if level := tail + q.below; level >= 0 {
		low = ratios[min(max(int(math.Floor(level*(n+1)))-1, 0), last)]
	} else {
		low = ratios[0] + level*100*beyond
	}
	if level := tail + q.above; level >= 0 {
		high = ratios[min(max(int(math.Ceil((1-level)*(n+1)))-1, 0), last)]
	} else {
		high = ratios[last] - level*100*beyond
	}
	return low, high
}

// densest is the middle of the shortest range that holds half of the ratios, that is, the value off
// by the smallest factor from half of them.
func densest(ratios []float64) float64 {
	half := len(ratios)/2 + 1
	best := 0
	for i := 0; i+half <= len(ratios); i++ {
		if ratios[i+half-1]-ratios[i] < ratios[best+half-1]-ratios[best] {
			best = i
		}
	}
	return (ratios[best] + ratios[best+half-1]) / 2
}

// ratios returns those of the most similar answers, sorted. Jobs that have waited longer than
// predicted and still wait count with the smallest ratio that is still possible: otherwise, while a
// backlog grows, only jobs that start soon would be known.
func (q *Quotes) ratios(a *Asked, like *likeness) []float64 {
	type near struct {
		d, ratio float64
		seq      int64
	}
	list := make([]near, 0, len(q.scores)+len(q.open))
	for i := range q.scores {
		s := &q.scores[i]
		list = append(list, near{s.like.distance(like) + 0.5*float64(q.counted-s.seq)/ScoresKept, s.ratio, s.seq})
	}
	for i := range q.open {
		o := &q.open[i]
		least := math.Log((a.Now.Sub(o.asked.Now).Seconds() + Floor.Seconds()) / o.foreseen)
		if o.asked.Job != a.Job && least > 0 {
			list = append(list, near{o.like.distance(like), least, math.MaxInt64})
		}
	}
	slices.SortStableFunc(list, func(x, y near) int { return cmp.Or(cmp.Compare(x.d, y.d), cmp.Compare(y.seq, x.seq)) })
	list = list[:min(len(list), scoresLike)]
	ratios := make([]float64, len(list))
	for i := range list {
		ratios[i] = list[i].ratio
	}
	slices.Sort(ratios)
	return ratios
}

// Record keeps an answer until its job starts. It returns what Recall needs to restore it.
func (q *Quotes) Record(a *Asked) Said {
	like := a.likeness()
	said := q.said(q.ratios(a, &like))
	q.Recall(a, said)
	return said
}

// Recall restores an answer that was given earlier.
func (q *Quotes) Recall(a *Asked, said Said) {
	q.open = append(q.open, open{asked: *a, like: a.likeness(), said: said, foreseen: a.wait() + Floor.Seconds()})
	if len(q.open) > openKept {
		q.open = slices.Delete(q.open, 0, 1)
	}
}

// Started records that a job started.
func (q *Quotes) Started(id cluster.JobID, at cluster.Time) {
	q.open = slices.DeleteFunc(q.open, func(o open) bool {
		if o.asked.Job != id {
			return false
		}
		q.learn(&o, at)
		return true
	})
}

func (q *Quotes) learn(o *open, at cluster.Time) {
	q.counted++
	q.scores = append(q.scores,
		score{open: *o, started: at, seq: q.counted,
			ratio: math.Log((at.Sub(o.asked.Now).Seconds() + Floor.Seconds()) / o.foreseen)})
	if len(q.scores) > ScoresKept {
		q.scores = slices.Delete(q.scores, 0, 1)
	}
	q.below, q.above = 0, 0
	for i := range q.scores {
		if s := &q.scores[i]; s.said.Bounded {
			q.below = follow(q.below, s.ratio < s.said.Low)
			q.above = follow(q.above, s.ratio > s.said.High)
		}
	}
}

// follow moves a level: outward after a miss, inward otherwise, so that in the long run the share
// of misses is tail.
func follow(level float64, missed bool) float64 {
	if missed {
		return max(level-step*(1-tail), -farthest)
	}
	return min(level+step*tail, tail)
}

// Gone records that a job is not going to start.
func (q *Quotes) Gone(id cluster.JobID) {
	q.open = slices.DeleteFunc(q.open, func(o open) bool { return o.asked.Job == id })
}
