package forward

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// What a look ahead says of a wait is off in ways that repeat themselves: under a policy that lets later submissions pass, it
// is too early; where jobs state limits, too late. Quotes learn from what became of earlier answers between when and when a
// job starts: of the answers that were most like this one, the ratio of the real wait to the one foreseen (conformal
// prediction, Vovk et al. 2005), at levels that follow how often intervals have held (Gibbs and Candès, 2021, "Adaptive
// conformal inference under distribution shift").

const (
	// Floor is added to waits before they are compared: seconds are all the same.
	Floor = time.Minute
	// ScoresKept, scoresLike and scoresLeast are how many answers are remembered, how many of these are compared with a new
	// one, and how few say nothing.
	ScoresKept  = 512
	scoresLike  = 96
	scoresLeast = 24
	// openKept bounds how many answers wait for their jobs to start; the oldest are dropped.
	openKept = 1024
	// tail is the part of starts that may be below an interval, and above it; step is how fast its levels follow.
	tail = 0.10
	step = 0.02
	// beyond is by how much, as a logarithm, an end moves for each hundredth that its level is outside the known answers, and
	// farthest the most that it is.
	beyond   = 0.07
	farthest = 0.30
	// WideAt is the ratio of an interval's ends from which on it is of no use as a date.
	WideAt = 4
	// DateError is what the median error of dates is to be under, relative to the real wait. Of the latest datesKept answers
	// that could have been dates, datesLeast and more must say so, and sure is how many standard deviations more than half of
	// them must have been as good: nineteen of twenty times that is no luck.
	DateError  = 0.25
	datesKept  = 96
	datesLeast = 24
	sure       = 1.645
)

// Asked is what is known of a waiting job when its start is foreseen.
type Asked struct {
	Job     cluster.JobID
	Now     cluster.Time
	Start   cluster.Time // as foreseen; Never: none is in sight
	Waited  time.Duration
	Milli   cluster.Milli
	Tier    cluster.Tier
	Promise cluster.Time // a start that the engine has promised, if any
}

// Quote is when a job is expected to start.
type Quote struct {
	Start     cluster.Time // the best single answer; Never: there is none
	Low, High cluster.Time // four of five start between these; High Never: nobody knows
	Open      bool         // too wide, or from too few answers, for a date: "at the earliest Low"
}

// likeness is what makes two answers alike, as coordinates.
type likeness [4]float64

func (a *likeness) distance(b *likeness) (d float64) {
	for i := range a {
		d += math.Abs(a[i] - b[i])
	}
	return d
}

// Said is what an answer said, as logarithms of ratios to the wait foreseen. It is kept until the job starts.
type Said struct {
	Low, High, Mid float64
	Bounded        bool // an interval
}

// score is an answer, and what became of it.
type score struct {
	open
	ratio   float64 // log of the real wait over the one foreseen, both with Floor
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

// Quotes remember what became of answers. The zero value knows nothing. It is the memory of one policy, and nothing but its
// scores and open answers counts: who recalls these knows as much.
type Quotes struct {
	scores  []score // the latest last
	open    []open  // the latest last
	below   float64 // levels of the ends of intervals, as offsets from tail
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

// Quote says when a job will start, as earlier answers turned out.
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

// said is what an answer says.
func (q *Quotes) said(ratios []float64) (v Said) {
	if len(ratios) < scoresLeast {
		return v
	}
	v.Bounded = true
	v.Low, v.High = q.bounds(ratios)
	v.Mid = min(max(densest(ratios), v.Low), v.High)
	return v
}

// dates is the width of the widest interval that is given as a date: of the latest answers with an interval no wider, the
// median error is surely under DateError. Negative: none is.
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

// span is the time from an answer until it is known whether it was good.
type span struct{ asked, known cluster.Time }

// disjoint counts the spans, sorted by their ends, of which no two overlap, as many as can be: answers given in one
// backlog are wrong together, so that only those given after the outcome of one is known say something of their own.
func disjoint(spans []span) (n float64) {
	var last cluster.Time
	for _, s := range spans {
		if n == 0 || s.asked >= last {
			n, last = n+1, s.known
		}
	}
	return n
}

// outcome is what became of an answer that could have been a date.
type outcome struct {
	span
	width float64
	good  bool // off by less than DateError
}

// dated lists the latest answers of which it is known whether they would have been good dates, in the order in which that
// became known. Of a job that still waits it is once its date has passed by too much: else, in a backlog, only those that
// start soon would count.
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

// outcome is what becomes of an answer if its job starts at an instant; false: it could not have been a date.
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

// bounds are the ends of an interval. A level outside the known answers, because too many starts were beyond them all, is
// as much farther out.
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

// densest is the middle of the shortest range that holds half of the ratios: what is off by the least factor from half of them.
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

// ratios are those of the answers that are most like this one, sorted. Jobs that still wait, and longer than foreseen, count
// with the least that can become of them: else, while a backlog grows, only those that start soon would be known.
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

// Told remembers an answer until its job starts. It returns what to Recall it by.
func (q *Quotes) Told(a *Asked) Said {
	like := a.likeness()
	said := q.said(q.ratios(a, &like))
	q.Recall(a, said)
	return said
}

// Recall remembers an answer that was given earlier.
func (q *Quotes) Recall(a *Asked, said Said) {
	q.open = append(q.open, open{asked: *a, like: a.likeness(), said: said, foreseen: a.wait() + Floor.Seconds()})
	if len(q.open) > openKept {
		q.open = slices.Delete(q.open, 0, 1)
	}
}

// Started says that a job started.
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
	q.scores = append(q.scores, score{open: *o, started: at, seq: q.counted, ratio: math.Log((at.Sub(o.asked.Now).Seconds() + Floor.Seconds()) / o.foreseen)})
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

// follow moves a level: outward after a miss, inward otherwise, so that in the long run as many are missed as may be.
func follow(level float64, missed bool) float64 {
	if missed {
		return max(level-step*(1-tail), -farthest)
	}
	return min(level+step*tail, tail)
}

// Gone says that a job is not going to start.
func (q *Quotes) Gone(id cluster.JobID) {
	q.open = slices.DeleteFunc(q.open, func(o open) bool { return o.asked.Job == id })
}
