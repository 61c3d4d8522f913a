package forward_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/internal/shared"
)

// play asks about n jobs, of which one waits at a time, and returns the share of starts inside the
// last half's intervals and the median error of its best single answers. drift is the factor by
// which a start is later than predicted.
func play(t *testing.T, n int, drift func(i int) float64) (inside, off float64) {
	t.Helper()
	var q forward.Quotes
	r := rand.New(rand.NewPCG(3, 4))
	now, in, asked := cluster.Time(0), 0, 0
	var errs []float64
	for i := range n {
		foreseen := time.Duration(10+r.IntN(600)) * time.Minute
		wait := time.Duration(float64(foreseen) * drift(i) * math.Exp(0.4*r.NormFloat64()))
		a := forward.Asked{Job: cluster.JobID(i), Now: now, Start: now.Add(foreseen), Milli: 1000}
		got := q.Quote(&a)
		q.Record(&a)
		if i >= n/2 {
			if asked++; got.Low <= now.Add(wait) && now.Add(wait) <= got.High {
				in++
			}
			errs = append(errs, math.Abs(got.Start.Sub(now.Add(wait)).Seconds())/wait.Seconds())
		}
		now = now.Add(wait)
		q.Started(a.Job, now)
	}
	less := 0
	for _, e := range errs {
		if e < 0.35 {
			less++
		}
	}
	return float64(in) / float64(asked), float64(less) / float64(len(errs))
}

// Whatever the predictions' error, and while it changes, four of five starts are inside the
// intervals, and the single answer is corrected for it.
func TestQuotesHold(t *testing.T) {
	for name, drift := range map[string]func(int) float64{
		"right":   func(int) float64 { return 1 },
		"early":   func(int) float64 { return 3.2 },
		"late":    func(int) float64 { return 0.2 },
		"changes": func(i int) float64 { return 1 + 3*math.Abs(math.Sin(float64(i)/400)) },
	} {
		if shared.Soak(name == "early" || name == "late", false) {
			continue // "changes" is both
		}
		inside, close := play(t, shared.Soak(2500, 4000), drift)
		if inside < 0.75 || inside > 0.85 {
			t.Errorf("%s: %.0f %% of the starts are inside", name, 100*inside)
		}
		if close < 0.5 {
			t.Errorf("%s: only %.0f %% of the answers are off by less than 35 %%", name, 100*close)
		}
	}
}

// With too few answers the only date is the earliest start; with enough there is one, unless the
// answers differ too much.
func TestQuotesOpen(t *testing.T) {
	var q forward.Quotes
	a := forward.Asked{Job: 1, Start: at(600), Milli: 1000}
	if got := q.Quote(&a); !got.Open || got.Low != at(600) || got.High != cluster.Never {
		t.Errorf("nothing is known: %+v", got)
	}
	none := forward.Asked{Job: 1, Now: at(5), Start: cluster.Never}
	if got := q.Quote(&none); !got.Open || got.Start != cluster.Never || got.Low != at(5) {
		t.Errorf("no start is in sight: %+v", got)
	}
	later := 0 // seconds between two answers
	teach := func(waits ...int) forward.Quote {
		q = forward.Quotes{}
		for i := range 100 {
			now := (i - 100) * later
			b := forward.Asked{Job: cluster.JobID(10 + i), Now: at(now), Start: at(now + 600), Milli: 1000}
			q.Record(&b)
			q.Started(b.Job, b.Now+at(waits[i%len(waits)]))
		}
		return q.Quote(&a)
	}
	if got := teach(1200); !got.Open || got.Start != at(1200) || got.Low != at(1200) || got.High != at(1200) {
		t.Errorf("a hundred answers in one backlog count as one: %+v", got)
	}
	later = 100
	if got := teach(1200); got.Open || got.Start != at(1200) || got.Low != at(1200) || got.High != at(1200) {
		t.Errorf("waits are always twice as long: %+v", got)
	}
	if got := teach(10, 50_000); !got.Open || got.Low != at(10) || got.High != at(50_000) {
		t.Errorf("the answers differ too much: %+v", got)
	}
	q.Record(&a)
	q.Gone(1)
	q.Started(1, at(1))
	if got := q.Quote(&a); got.Low != at(10) {
		t.Errorf("a cancelled job was scored: %+v", got)
	}
}

// A date is given only while earlier possible dates were good: an interval may be narrow but not
// the remaining wait. An answer that is sure to be wrong counts before its job starts.
func TestQuotesDate(t *testing.T) {
	var q forward.Quotes
	now, id := cluster.Time(0), cluster.JobID(0)
	ask := func(factor float64) forward.Quote {
		id++
		a := forward.Asked{Job: id, Now: now, Start: now.Add(time.Hour), Milli: 1000}
		got := q.Quote(&a)
		q.Record(&a)
		now = now.Add(time.Duration(factor * float64(time.Hour)))
		q.Started(id, now)
		return got
	}
	for i := range 24 + 24 { // the first half until there are intervals, the second half until there is a record
		if got := ask(1); !got.Open || (got.High == cluster.Never) != (i < 24) {
			t.Fatalf("answer %d: %+v", i, got)
		}
	}
	if got := ask(1); got.Open || got.Start.Sub(now) != 0 {
		t.Errorf("all that could have been dates were right: %+v", got)
	}
	dated := 0
	// A third sooner, a third later, by a factor of 1.6: inside an interval of factor four, but off
	// by more than a quarter.
	for i := range 400 {
		if got := ask([]float64{1, 1.6, 0.625}[i%3]); i > 100 && !got.Open {
			dated++
		} else if i > 200 && got.High.Sub(now) > 4*got.Low.Sub(now)+10*time.Hour {
			t.Fatalf("the interval is wide: %+v", got)
		}
	}
	if dated > 0 {
		t.Errorf("%d dates were given of which two of three are off by more than a quarter", dated)
	}
	for range 200 {
		ask(1)
	}
	if got := ask(1); got.Open {
		t.Errorf("the latest were right again: %+v", got)
	}
	for i := range 60 { // these jobs are told that they start within an hour, and do not
		q.Record(&forward.Asked{Job: 10_000 + cluster.JobID(i), Now: now, Start: now.Add(time.Hour), Milli: 1000})
	}
	a := forward.Asked{Job: 1, Now: now.Add(59 * time.Minute), Start: now.Add(119 * time.Minute), Milli: 1000}
	if got := q.Quote(&a); got.Open {
		t.Errorf("they may still be good: %+v", got)
	}
	a.Now, a.Start = now.Add(82*time.Minute), now.Add(142*time.Minute)
	if got := q.Quote(&a); !got.Open {
		t.Errorf("an hour was predicted, and after 82 minutes none has started: %+v", got)
	}
}

// Restoring the answers one by one restores the whole state.
func TestQuotesRecall(t *testing.T) {
	var q, again forward.Quotes
	r := rand.New(rand.NewPCG(7, 8))
	type answer struct {
		asked   forward.Asked
		said    forward.Said
		started cluster.Time
	}
	var list []answer
	now := cluster.Time(0)
	for i := range 1500 {
		a := forward.Asked{Job: cluster.JobID(i), Now: now, Start: now.Add(time.Duration(1+r.IntN(90)) * time.Minute),
			Milli: cluster.Milli(1000 * (1 + r.IntN(4)))}
		list = append(list, answer{asked: a, said: q.Record(&a)})
		now = now.Add(time.Duration(r.IntN(600)) * time.Second)
		for k := max(0, i-20); k <= i; k++ {
			if o := &list[k]; o.started == 0 && r.IntN(8) == 0 {
				o.started = now
				q.Started(o.asked.Job, now)
			}
		}
	}
	started := slices.DeleteFunc(slices.Clone(list), func(a answer) bool { return a.started == 0 })
	slices.SortStableFunc(started, func(a, b answer) int {
		return cmp.Or(cmp.Compare(a.started, b.started), cmp.Compare(a.asked.Job, b.asked.Job))
	})
	for _, a := range started[len(started)-forward.ScoresKept:] {
		again.Recall(&a.asked, a.said)
		again.Started(a.asked.Job, a.started)
	}
	for _, a := range list {
		if a.started == 0 {
			again.Recall(&a.asked, a.said)
		}
	}
	dated := 0
	for i := range 60 {
		a := forward.Asked{Job: 5000, Now: now, Start: now.Add(time.Duration(5*i) * time.Minute), Milli: 2000}
		want, got := q.Quote(&a), again.Quote(&a)
		if got != want {
			t.Fatalf("a start in %d minutes: %+v, before %+v", 5*i, got, want)
		}
		if !want.Open || want.High != cluster.Never {
			dated++
		}
	}
	if dated == 0 {
		t.Error("no answer rests on what is known")
	}
}

// A job is expected to take as long as the most similar ones; a stated time counts as far as those
// of its user held.
func TestRuns(t *testing.T) {
	job := func(user, name string, estimate, limit int) *cluster.Job {
		return &cluster.Job{User: user, Name: name, Estimate: at(estimate).Sub(0), Limit: at(limit).Sub(0),
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	}
	var r forward.Runs
	want := func(j *cluster.Job, done, perMille, seconds int) {
		t.Helper()
		if got := r.Work(j, at(done).Sub(0), perMille); got != at(seconds).Sub(0) {
			t.Errorf("%s's %s of which %d s are done takes %v, not %d s", j.User, j.Name, done, got, seconds)
		}
	}
	want(job("ann", "train", 0, 0), 0, 500, 0)
	want(job("ann", "train", 0, 100), 0, 500, 0) // it ends at its limit
	want(job("ann", "train", 80, 100), 0, 500, 80)
	want(job("ann", "train", 80, 100), 90, 500, 150)
	for i := range 10 {
		r.Add(job("ann", "train", 0, 0), at(100+10*i).Sub(0))
		r.Add(job("bob", "eval", 0, 1000), at(250).Sub(0))
		r.Add(job("eve", "test", 400, 0), at(100).Sub(0))
	}
	want(job("ann", "train", 0, 0), 0, 500, 150)
	want(job("ann", "train", 0, 0), 0, 100, 110)
	want(job("ann", "train", 0, 0), 150, 0, 160)    // of the runs that took longer
	want(job("ann", "other", 0, 0), 0, 1000, 190)   // her jobs of that size
	want(job("bob", "other", 0, 2000), 0, 500, 500) // a quarter of his limits
	want(job("zoe", "other", 0, 2000), 0, 500, 500)
	want(job("eve", "other", 800, 0), 0, 500, 200)
}
