package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/journal"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/sim"
	"github.com/muster-gpu/muster/trace"
)

// daemon notes what a guard does.
type daemon struct {
	now   show.PolicyChoice
	since time.Time
	watch *show.PolicyWatch
	done  []string
	set   chan ask.PolicyRequest
}

func (d *daemon) Guarded() (show.PolicyChoice, time.Time, *show.PolicyWatch) {
	return d.now, d.since, d.watch
}

func (d *daemon) GuardChecked(_ context.Context, of *show.PolicyWatch, text string, over bool) error {
	if of != d.watch {
		return errors.New("another guard")
	}
	if over {
		text += ", over"
	}
	d.done = append(d.done, text)
	return nil
}

func (d *daemon) SetPolicy(_ context.Context, r *ask.PolicyRequest, by string) (show.PolicyChange, error) {
	d.done = append(d.done, by)
	d.set <- *r
	return show.PolicyChange{}, nil
}

// segments is a journal: what each segment holds, and when it began.
type segments struct {
	text  []string
	began []cluster.Time
}

func (s *segments) Segments(context.Context) ([]cluster.Time, error) { return s.began, nil }

func (s *segments) Write(_ context.Context, n int, w io.Writer) error {
	_, err := io.WriteString(w, s.text[n-1])
	return err
}

// at is an instant of the journal, so many minutes after its begin.
func at(minutes int) cluster.Time {
	return cluster.Time(time.Hour) + cluster.Time(minutes)*cluster.Time(time.Minute)
}

func wall(minutes int) time.Time { return time.Unix(0, int64(at(minutes))) }

// recorded is a segment on one GPU in which jobs that take so many minutes are submitted at the same instant and run
// one after the other.
func recorded(t *testing.T, first cluster.JobID, begin int, minutes ...int) string {
	t.Helper()
	var text bytes.Buffer
	h := journal.Header{Rules: config.Rules{Policy: "fifo", Placer: "pack", Spec: cluster.Spec{
		Nodes: []cluster.Node{{Name: "n", Model: "A30-24GB", GPUs: 1, CPU: 8, RAM: 8192}}}}}
	w, err := journal.NewWriter(&text, h)
	if err != nil {
		t.Fatal(err)
	}
	seq := int64(0)
	step := func(now cluster.Time, ev engine.Event) {
		seq++
		b := &engine.Batch{Seq: seq, Now: now, Events: []engine.Event{ev}}
		if err := w.Record(b, &engine.Decision{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range minutes {
		id := first + cluster.JobID(i)
		step(at(begin), engine.Event{Type: engine.Submitted, Job: id, Spec: &cluster.Job{ID: id, User: "ann",
			Submit: at(begin), Estimate: time.Duration(minutes[i]) * time.Minute,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, CPU: 1, RAM: 1}}}}})
	}
	for i, m := range minutes {
		id := first + cluster.JobID(i)
		step(at(begin), engine.Event{Type: engine.Started, Job: id})
		begin += m
		step(at(begin), engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Completed})
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// guarded is a guard of a policy that was set at minute 0, with the one before as its shadow. Since then a job of two
// hours came, and with it three of ten minutes: under srtf these end 110 minutes earlier, the long
// one half an hour later.
func guarded(t *testing.T, now, before string, bound float64) (*Guard, *daemon) {
	t.Helper()
	watch := &show.PolicyWatch{Against: show.PolicyChoice{Policy: before, Place: "pack"}, Until: wall(600),
		PolicyGuard: ask.PolicyGuard{Every: ask.Duration(time.Minute), Objective: "mean-jct", Bound: bound, Jobs: 4}}
	d := &daemon{now: show.PolicyChoice{Policy: now, Place: "pack"}, since: wall(0), watch: watch,
		set: make(chan ask.PolicyRequest, 1)}
	j := &segments{text: []string{"not read: it ended before the policy was set", recorded(t, 1, -30, 10),
		recorded(t, 9, 0, 120, 10, 10, 10)}, began: []cluster.Time{at(-90), at(-60), at(0) + 1}}
	prepare := func(wl *trace.Workload, spec *cluster.Spec) ([]trace.Entry, error) {
		return sim.Prepare(wl, spec, sim.Estimates{From: sim.Exact}, sim.PerNode), nil
	}
	return &Guard{Machine: d, Journal: j, Replay: Replay{Prepare: prepare},
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return wall(200) }}, d
}

// look has a guard look once, and returns what it did.
func look(t *testing.T, g *Guard, d *daemon, last bool) string {
	t.Helper()
	if err := g.look(t.Context(), d.now, d.since, d.watch, last); err != nil {
		t.Fatal(err)
	}
	if len(d.done) != 1 {
		t.Fatalf("it did %q", d.done)
	}
	return d.done[0]
}

// The policy before comes back where it would have done better than the bound says, and only there.
func TestGuard(t *testing.T) {
	g, d := guarded(t, "fifo", "srtf", 0.05)
	const worse = "mean-jct over 4 jobs would have been 61.1 % less under srtf than under fifo"
	if text := look(t, g, d, false); text != "the guard ("+worse+")" {
		t.Errorf("it did %q", text)
	}
	select {
	case r := <-d.set:
		if r.Policy != "srtf" || r.Place != "pack" || r.Backfill != "own" {
			t.Errorf("it asks for %+v", r)
		}
	default:
		t.Error("the policy stays")
	}
	g, d = guarded(t, "fifo", "srtf", 0.65)
	if text := look(t, g, d, true); text != worse+", over" {
		t.Errorf("within its bound it did %q", text)
	}
	g, d = guarded(t, "srtf", "fifo", 0.05)
	if text := look(t, g, d, false); !strings.Contains(text, " % more under fifo than under srtf") {
		t.Errorf("with the better policy in force it did %q", text)
	}
}

// Jobs from before the change do not count; with too few nothing is judged.
func TestGuardTooFew(t *testing.T) {
	for since, want := range map[int]string{0: "4 jobs", -40: "5 jobs", 1: "0 jobs"} {
		g, d := guarded(t, "fifo", "srtf", 0.05)
		d.since, d.watch.Jobs = wall(since), 20
		if text := look(t, g, d, false); text != want+" have been submitted and ended since; it is judged from 20 on" {
			t.Errorf("since minute %d: %q", since, text)
		}
	}
}

// What is wrong is reported, and the policy stays.
func TestGuardErrors(t *testing.T) {
	for want, harm := range map[string]func(*Guard, *daemon){
		"speed":     func(_ *Guard, d *daemon) { d.watch.Objective = "speed" },
		"segment 3": func(g *Guard, _ *daemon) { g.Journal.(*segments).text[2] = "{" },
		"nosuch":    func(_ *Guard, d *daemon) { d.watch.Against.Policy = "nosuch" },
		"sideways":  func(_ *Guard, d *daemon) { d.watch.Against.Backfill = "sideways" },
	} {
		g, d := guarded(t, "fifo", "srtf", 0.05)
		harm(g, d)
		err := g.look(t.Context(), d.now, d.since, d.watch, false)
		if err == nil || !strings.Contains(err.Error(), want) || len(d.done) != 0 {
			t.Errorf("%v, want %s; it did %q", err, want, d.done)
		}
	}
}

// It looks by itself once its time has come.
func TestGuardRuns(t *testing.T) {
	g, d := guarded(t, "fifo", "srtf", 0.05)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { g.Run(ctx); close(ended) }()
	select {
	case r := <-d.set:
		if r.Policy != "srtf" {
			t.Errorf("it asks for %+v", r)
		}
	case <-time.After(time.Minute):
		t.Error("it never looks")
	}
	cancel()
	<-ended
}
