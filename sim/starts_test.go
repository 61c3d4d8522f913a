package sim_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// line is n one-GPU jobs of one to ten minutes, one every five and a half minutes, so that a queue
// forms.
func line(n int, known bool) (list []trace.Entry) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range n {
		run := time.Duration(1+r.IntN(10)) * time.Minute
		e := trace.Entry{Run: run,
			Job: cluster.Job{ID: cluster.JobID(i), User: "u", Name: "n",
				Submit: cluster.Time(i) * cluster.Time(330*time.Second),
				Tier:   cluster.Standard, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}}
		if known {
			e.Job.Estimate = run
		}
		list = append(list, e)
	}
	return list
}

// With known run times every start is predicted exactly once enough earlier answers are scored;
// with unknown ones most starts are inside the intervals. Asking changes no decision.
func TestStarts(t *testing.T) {
	spec := shared.Must(cluster.ParseShort("1x1xT4"))
	n := shared.Soak(220, 400)
	for _, known := range []bool{true, false} {
		plain := sim.Run(context.Background(), spec, line(n, known), sim.Setup{Policy: "fifo", Placer: "best-fit"})
		s := &sim.Starts{Every: 2}
		out := sim.Run(context.Background(), spec, line(n, known),
			sim.Setup{Policy: "fifo", Placer: "best-fit", Starts: s})
		if out.Err != nil || out.Hash != plain.Hash {
			t.Fatalf("hash %x, %x without questions: %v", out.Hash, plain.Hash, out.Err)
		}
		v := s.Score(nil)
		if v.Answers < 100 || v.Answers+s.Unknown != s.Asked || v.Bounded == 0 || v.Bounded == v.Answers {
			t.Fatalf("%+v of %d, %d unknown", v, s.Asked, s.Unknown)
		}
		switch {
		case known && (v.Error != 0 || v.AheadErr != 0 || v.DatedErr != 0 || v.Within != 1 || v.Dated < v.Bounded-40):
			t.Errorf("run times are known: %+v", v)
		case !known && v.Dated > 20 && v.DatedErr > 0.3:
			t.Errorf("inaccurate dates were given: %+v", v)
		case !known && (v.Within < 0.7 || v.Within > 0.95):
			t.Errorf("run times are not known: %+v", v)
		}
		for i := range s.Answers {
			a := &s.Answers[i]
			if q := &a.Quote; q.High == cluster.Never && !q.Open ||
				q.High != cluster.Never && (q.Low > q.Start || q.Start > q.High || q.Low < a.At) {
				t.Fatalf("%+v", a)
			}
		}
	}
	if forward.Floor != time.Minute {
		t.Error("the documents say that errors are relative to a minute at least")
	}
}

// Later submissions change no earlier answer.
func TestStartsAhead(t *testing.T) {
	spec := shared.Must(cluster.ParseShort("1x1xT4"))
	answers := func(n int) map[cluster.JobID][]sim.Answer {
		s := &sim.Starts{Every: 2}
		if out := sim.Run(context.Background(), spec, line(400, false)[:n],
			sim.Setup{Policy: "fifo", Placer: "best-fit", Starts: s}); out.Err != nil {
			t.Fatal(out.Err)
		}
		by := map[cluster.JobID][]sim.Answer{}
		for _, a := range s.Answers {
			by[a.Job] = append(by[a.Job], a)
		}
		return by
	}
	all, some, compared := answers(260), answers(160), 0
	for id, list := range some {
		for i, a := range list {
			if b := all[id][i]; a.At != b.At || a.Ahead != b.Ahead || a.Quote != b.Quote {
				t.Fatalf("the answer to job %d is %+v, and %+v if others are submitted later", id, a, b)
			}
			compared++
		}
	}
	if compared < 60 {
		t.Errorf("only %d answers were compared", compared)
	}
}
