//go:build linux

package local

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
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

// What a waiting job is told: at the earliest while nothing is known, at the latest where others run to their
// limits, and what became of earlier answers corrects it. Others are said to leave as the same look ahead has
// it.
func TestQuoted(t *testing.T) {
	at := func(s int64) cluster.Time { return cluster.Time(s * 1e9) }
	spec := &cluster.Job{ID: 1, Submit: at(10), Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	j := &job{Job: record.Job{ID: 1, Spec: spec,
		Info: &record.Info{Record: engine.JobRecord{Spec: spec, Facts: engine.JobFacts{FirstStart: cluster.Never}}}}}
	m := &Machine{}
	f := &foresight.Forecast{Waiting: map[cluster.JobID]bool{1: true},
		Seen: forward.Outlook{&forward.Result{Starts: map[cluster.JobID]cluster.Time{1: at(1000)},
			Limits: map[cluster.JobID]bool{},
			Leaves: map[cluster.JobID]forward.Leaving{7: {At: at(900), Reason: engine.TimedOut},
				8: {At: at(50), Reason: engine.Completed}}}}}
	told := func() show.Job {
		v := show.Job{ID: 1}
		f.SetExpected(&v, at(100))
		m.quoted(&v, j, f, at(100))
		return v
	}
	if v := told(); !v.AtEarliest || v.ByLimits || v.Latest != nil || !v.Expected.Equal(time.Unix(1000, 0)) {
		t.Errorf("nothing is known: %+v", v)
	}
	f.Seen[0].Limits[1] = true
	if v := told(); v.AtEarliest || !v.ByLimits {
		t.Errorf("it rests on a limit: %+v", v)
	}
	for i := range int64(60) { // it takes always half as long again; what became of an answer is known before the next
		now := at(100 + (i-60)*1400)
		a := forward.Asked{Job: cluster.JobID(100 + i), Now: now, Start: now + at(900), Milli: 1000}
		m.known.Quotes.Record(&a)
		m.known.Quotes.Started(a.Job, now+at(1380))
	}
	if v := told(); v.AtEarliest || v.ByLimits || !v.Scored || v.Earliest == nil ||
		!v.Expected.Equal(time.Unix(1480, 0)) {
		t.Errorf("earlier answers are known: %+v", v)
	}
	if ends := f.Ends(at(100)); len(ends) != 1 || ends[7] != (engine.ForeseenEnd{At: at(900), Limit: true}) {
		t.Errorf("ends %+v", ends)
	}
}

// A daemon that begins again knows as much as before: how long jobs run, what was submitted, and what became of
// its answers. So it says the same of a job that waits.
func TestKnowsAsMuchAgain(t *testing.T) {
	m := alive(t)
	if err := m.teach(t.Context()); err != nil { // what became of sixty answers, as a day of waiting would leave it
		t.Fatal(err)
	}
	for i := range 5 {
		until(t, m, submit(t, m, "true"), show.StateCompleted)
		if i == 2 {
			until(t, m, submit(t, m, "exit 1"), show.StateFailed)
		}
	}
	u := self(t)
	submit := func(m *Machine, id int) show.Job {
		t.Helper()
		w, err := m.Why(t.Context(), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.Job
	}
	long := &ask.Submission{Command: []string{"sleep", "1000"}, Dir: "/", Output: "/dev/null", GPUs: 2,
		Estimate: ask.Duration(time.Hour)}
	holder, err := m.Submit(t.Context(), u, long, "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, m, holder[0], show.StateRunning)
	var waiting []int
	for range 3 {
		ids, err := m.Submit(t.Context(), u, long, "")
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, ids[0])
	}
	for _, id := range waiting {
		v := submit(m, id)
		if !v.Scored {
			t.Fatalf("nothing is known of earlier answers: %+v", v)
		}
		if err := m.RecordPrediction(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(folder(t), "state")
	m.mu.Lock()
	err = os.CopyFS(dir, os.DirFS(m.opt.Dir))
	m.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	again := openMachine(t, func() Options {
		o := m.opt
		o.Dir = dir
		return o
	}())
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !reflect.DeepEqual(again.known.Runs.Clone(), m.known.Runs.Clone()) {
		t.Errorf("runs %+v, before %+v", again.known.Runs.Clone(), m.known.Runs.Clone())
	}
	now := m.clock.Now()
	if got, want := again.known.Recent.Arrivals(1000, now.Add(2*time.Hour)),
		m.known.Recent.Arrivals(1000, now.Add(2*time.Hour)); len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d submissions are expected, before %d", len(got), len(want))
	}
	if !reflect.DeepEqual(again.known.Quotes, m.known.Quotes) {
		t.Errorf("answers\n%+v, before\n%+v", again.known.Quotes, m.known.Quotes)
	}
	for i, id := range waiting {
		spec := m.jobs[cluster.JobID(id)].Spec
		a := foresight.PredictionOf(spec, now.Add(time.Duration(i+1)*time.Hour), now)
		if got, want := again.known.Quotes.Quote(&a), m.known.Quotes.Quote(&a); got != want ||
			want.High == cluster.Never {
			t.Errorf("job %d is told %+v, before %+v", id, got, want)
		}
	}
}

// teach stores answers about jobs that started since, and lets the machine know of them as if it had given them.
func (m *Machine) teach(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.next
	return m.store.Write(ctx, func(tx *store.Tx) error {
		for i := range 60 {
			id := first + cluster.JobID(i)
			at := cluster.Time(m.opt.Now().UnixNano()).Add(time.Duration(i-61) * 20 * time.Minute)
			a := forward.Asked{Job: id, Now: at, Start: at.Add(10 * time.Minute), Milli: 2000, Tier: cluster.Standard}
			row := m.known.Record(&a, m.opt.Rules.Policy)
			started := at.Add(time.Duration(8+i%5) * time.Minute)
			m.known.Quotes.Started(id, started)
			spec := &cluster.Job{ID: id, User: "u", Name: "n", Submit: at,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 2}}}}
			facts := engine.JobFacts{State: engine.Done, FirstStart: started, Ended: started}
			data, err := json.Marshal(
				&record.Info{State: show.StateFailed, Record: engine.JobRecord{Spec: spec, Facts: facts}})
			if err != nil {
				return err
			}
			m.known.Recent.Add(spec)
			if err := errors.Join(tx.PutAsked(row),
				tx.PutJob(&store.Job{ID: int(id), State: show.StateFailed, Submitted: int64(at),
					Started: int64(started), Ended: int64(started), Data: data,
					Submission: []byte("{}")})); err != nil {
				return err
			}
		}
		m.next += 60
		return nil
	})
}
