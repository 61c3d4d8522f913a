//go:build linux

package local

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// What a forecast says of a job: a start, none, or that it does not know; then
// the engine's estimate is told, as a rough one.
func TestForecastTells(t *testing.T) {
	at := func(s int64) cluster.Time { return cluster.Time(s * 1e9) }
	r := func(end forward.End, starts ...int64) *forward.Result {
		m := map[cluster.JobID]cluster.Time{}
		for i, s := range starts {
			m[cluster.JobID(i+1)] = at(s)
		}
		return &forward.Result{End: end, Starts: m}
	}
	f := &foresight.Forecast{Waiting: map[cluster.JobID]bool{1: true, 2: true, 3: true},
		Seen: forward.Outlook{r(forward.Idle, 100, 200), r(forward.Idle, 100, 150), r(forward.Idle, 100, 300)}}
	y := &engine.Why{Expected: at(500)}
	for _, c := range []struct {
		f                    *foresight.Forecast
		id                   int
		want, earliest, last int64 // 0: none
		rough                bool
	}{
		{f, 1, 100, 0, 0, false}, {f, 2, 200, 150, 300, false}, {f, 3, 0, 0, 0, false}, {f, 4, 500, 0, 0, true},
		{nil, 1, 500, 0, 0, true},
		{&foresight.Forecast{Waiting: f.Waiting, Seen: forward.Outlook{r(forward.StepsSpent, 100)}}, 3, 500, 0, 0,
			true}, {&foresight.Forecast{Waiting: f.Waiting}, 1, 500, 0, 0, true},
	} {
		v := show.Job{ID: c.id}
		foresight.SetWhen(&v, c.f, y, at(50))
		for i, p := range []*time.Time{v.Expected, v.Earliest, v.Latest} {
			want := []int64{c.want, c.earliest, c.last}[i]
			if (p != nil) != (want > 0) || p != nil && p.Unix() != want {
				t.Errorf("job %d, figure %d: %v, not %d", c.id, i, p, want)
			}
		}
		if v.Rough != c.rough {
			t.Errorf("job %d: rough %v", c.id, v.Rough)
		}
	}
	v := show.Job{ID: 1}
	if f.SetExpected(&v, at(120)); v.Expected.Unix() != 120 {
		t.Errorf("a start that should have been is expected at %v", v.Expected)
	}
}

// How long a job takes: as its progress says; else what its user stated, as far as such statements were worth
// something; else as its like did that ran for longer, in each draw another of them. Of one that a
// person froze nothing is known.
func TestExpectations(t *testing.T) {
	spec := &cluster.Job{ID: 1, User: "ann", Name: "train", Estimate: 6 * time.Minute,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	m := &Machine{jobs: map[cluster.JobID]*job{
		1: {Job: record.Job{ID: 1, Spec: spec, Info: &record.Info{Record: engine.JobRecord{Spec: spec}}}}}}
	for i := range 11 {
		m.known.Runs.Add(foresight.Stated(spec, 0), time.Duration(i+1)*time.Minute)
	}
	rec := &engine.JobRecord{Spec: spec}
	work := func(x *foresight.Expectations, draw int, done, want time.Duration) bool {
		t.Helper()
		guessed := false
		d := x.Work(draw, &guessed)(rec, done)
		if want > 0 && d != want {
			t.Errorf("in draw %d, with %v done: %v, not %v", draw, done, d, want)
		}
		return guessed
	}
	if work(m.expectations(), 0, 0, 6*time.Minute); work(m.expectations(), 0, 7*time.Minute, 8*time.Minute) {
		t.Error("what is stated is guessed")
	}
	j := m.jobs[1]
	j.Info.Guessed = true
	x := m.expectations()
	m.known.Runs.Add(foresight.Stated(spec, 0), time.Hour) // it has its own copy
	if !work(x, 0, 0, 6*time.Minute) {
		t.Error("what earlier runs suggest is not guessed")
	}
	work(x, 0, 9*time.Minute, 11*time.Minute)
	differ := map[time.Duration]bool{}
	for draw := range forward.Draws {
		guessed := false
		differ[x.Work(draw, &guessed)(rec, 0)] = true
	}
	if len(differ) < 3 {
		t.Errorf("the draws give only %v", differ)
	}
	j.Info.Pace.Rate = 1
	work(m.expectations(), 3, 0, 6*time.Minute) // as its progress says
	j.Info.Frozen = true
	work(m.expectations(), 0, 0, 0)
	guessed := false
	if d := m.expectations().Work(0, &guessed)(rec, 0); d != 0 {
		t.Errorf("a frozen job takes %v", d)
	}
	for range 10 { // what ann states is three times too much
		m.known.Runs.Add(&cluster.Job{User: "ann", Name: "x", Estimate: 6 * time.Minute, Tasks: spec.Tasks},
			2*time.Minute)
	}
	*j = job{Job: record.Job{ID: 1, Spec: spec, Info: &record.Info{Record: engine.JobRecord{Spec: spec}}}}
	guessed = false
	if d := m.expectations().Work(0, &guessed)(rec, 0); d.Round(time.Second) != 2*time.Minute {
		t.Errorf("ann's statements are three times too long, hers of six minutes takes %v", d)
	}
}

// What is expected to be submitted is what was so a day ago, with the estimate that it would get.
func TestExpectedSubmissions(t *testing.T) {
	m := &Machine{}
	for i := range 3 {
		j := &cluster.Job{ID: cluster.JobID(i), User: "ann", Name: "train",
			Submit: cluster.Time(i) * cluster.Time(time.Hour),
			Tasks:  []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
		m.known.Recent.Add(j)
		m.known.Runs.Add(j, time.Duration(i+1)*time.Minute)
	}
	x := m.expectations()
	list := x.Arrivals(100, cluster.Time(3*time.Hour))
	if len(list) < 3 || list[0].ID != 100 || list[1].Submit != cluster.Time(4*time.Hour) ||
		list[1].Estimate != 2*time.Minute || x.Stated[101] == nil || x.Stated[101].Estimate != 0 {
		t.Errorf("%d jobs are expected, the first two %+v", len(list), list[:min(2, len(list))])
	}
}

// A list tells of each waiting job when it will start, also of those beyond the
// ones that it explains; so do the overview and the answer what would become of
// another submission.
func TestListForetells(t *testing.T) {
	m := alive(t)
	u := self(t)
	submit := func(s *ask.Submission) *ask.Submission {
		s.Command, s.Dir, s.Output = []string{"sleep", "1000"}, "/", "/dev/null"
		return s
	}
	const n = mostExplained + 10
	for range n + 1 {
		if _, err := m.Submit(t.Context(), u,
			submit(&ask.Submission{GPUs: len(m.gpus.List), Estimate: ask.Duration(time.Minute)}), ""); err != nil {
			t.Fatal(err)
		}
	}
	f := m.makeForecast() // what a list waits for, if the machine is not too slow
	f.Took = time.Hour
	m.outlook.Set(f)
	list, err := m.Jobs(t.Context(), store.Filter{States: []string{show.StatePending}})
	if err != nil || len(list) != n {
		t.Fatalf("%d jobs wait (%v)", len(list), err)
	}
	for i := range list {
		if v := &list[i]; v.Expected == nil || v.Rough || i > 0 && !v.Expected.Before(*list[i-1].Expected) {
			t.Errorf("job %d is expected to start at %v (rough: %v)", v.ID, v.Expected, v.Rough)
		}
	}
	o := m.Overview()
	if len(o.Waiting) != promised || o.Waiting[0].Expected == nil || !o.Waiting[0].Expected.Equal(*list[n-1].Expected) {
		t.Errorf("the overview tells of %d jobs, of the first %v", len(o.Waiting), o.Waiting)
	}
	v, err := m.Test(u, submit(&ask.Submission{GPUs: 1, After: []ask.After{{Type: "afterany", Job: list[0].ID}}}))
	if err != nil || v.Expected == nil || v.Rough || v.Expected.Before(list[0].Expected.Add(30*time.Second)) {
		t.Errorf("a job after the last one would start at %v, that is not a minute after %v (%v)", v.Expected,
			list[0].Expected, err)
	}
}
