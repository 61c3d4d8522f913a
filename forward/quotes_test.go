package forward_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/forward"
)

// play asks about n jobs, of which one waits at a time, and returns how many starts were inside the last half's intervals, and
// the median error of its best single answers. drift says by which factor a start is later than foreseen.
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
		q.Told(&a)
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

// Whatever a look ahead is off by, and also while that changes, four of five starts are inside the intervals, and the single
// answer is corrected by it.
func TestQuotesHold(t *testing.T) {
	for name, drift := range map[string]func(int) float64{
		"right":   func(int) float64 { return 1 },
		"early":   func(int) float64 { return 3.2 },
		"late":    func(int) float64 { return 0.2 },
		"changes": func(i int) float64 { return 1 + 3*math.Abs(math.Sin(float64(i)/400)) },
	} {
		inside, close := play(t, 4000, drift)
		if inside < 0.75 || inside > 0.85 {
			t.Errorf("%s: %.0f %% of the starts are inside", name, 100*inside)
		}
		if close < 0.5 {
			t.Errorf("%s: only %.0f %% of the answers are off by less than 35 %%", name, 100*close)
		}
	}
}

// Without enough answers there is no date but the earliest; with them there is, unless they differ too much.
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
	teach := func(waits ...int) forward.Quote {
		q = forward.Quotes{}
		for i := range 100 {
			b := forward.Asked{Job: cluster.JobID(10 + i), Start: at(600), Milli: 1000}
			q.Told(&b)
			q.Started(b.Job, at(waits[i%len(waits)]))
		}
		return q.Quote(&a)
	}
	if got := teach(1200); got.Open || got.Start != at(1200) || got.Low != at(1200) || got.High != at(1200) {
		t.Errorf("it takes always twice as long: %+v", got)
	}
	if got := teach(10, 50_000); !got.Open || got.Low != at(10) || got.High != at(50_000) {
		t.Errorf("nobody can say: %+v", got)
	}
	q.Told(&a)
	q.Gone(1)
	q.Started(1, at(1))
	if got := q.Quote(&a); got.Low != at(10) {
		t.Errorf("a job that was cancelled teaches: %+v", got)
	}
}

// A job is believed to take as long as those most like it did; a stated time counts as much as those of its user's did.
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
	want(job("ann", "train", 0, 0), 150, 0, 160)    // of those that took longer
	want(job("ann", "other", 0, 0), 0, 1000, 190)   // hers of that size
	want(job("bob", "other", 0, 2000), 0, 500, 500) // a quarter of his limits
	want(job("zoe", "other", 0, 2000), 0, 500, 500)
	want(job("eve", "other", 800, 0), 0, 500, 200)
}
