package journal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
)

// record runs a small history and returns its journal.
func record(t testing.TB) []byte {
	t.Helper()
	spec := shared.Must(cluster.ParseShort("1x4xT4"))
	h := Header{Rules: config.Rules{Spec: *spec, Policy: "las:base=1h", Placer: "best-fit", Backfill: "easy"}}
	e, err := h.NewEngine()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := NewWriter(&buf, h)
	if err != nil {
		t.Fatal(err)
	}
	job := func(id cluster.JobID, gpus int) engine.Event {
		return engine.Event{Type: engine.Submitted, Job: id,
			Spec: &cluster.Job{ID: id, Name: "j", Tier: cluster.Standard,
				Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}, Estimate: time.Hour}}
	}
	for i, evs := range [][]engine.Event{
		{job(0, 3), job(1, 2)}, {{Type: engine.Started, Job: 0}}, {job(2, 1)},
		{{Type: engine.Stopped, Job: 0, Reason: engine.Completed, Done: time.Hour}}, {{Type: engine.Cancelled, Job: 2}},
	} {
		b := engine.Batch{Seq: int64(i), Now: cluster.Time(i) * cluster.Time(time.Minute), Events: evs}
		d := e.Step(b)
		if err := w.Record(&b, &d); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestReplay(t *testing.T) {
	data := record(t)
	r, err := NewReader("j", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, steps, err := Replay(r, cluster.Never); err != nil || steps != 5 {
		t.Fatalf("%d steps, %v", steps, err)
	}
	r, _ = NewReader("j", bytes.NewReader(data))
	e, steps, err := Replay(r, cluster.Time(2*time.Minute))
	if err != nil || steps != 3 {
		t.Fatalf("until 2m: %d steps, %v", steps, err)
	}
	if y := e.Why(1); y.State != "pending" || len(y.Blockers) == 0 ||
		!strings.Contains(y.Blockers[0], "needs 2 GPUs on one node; best n1 has 0") {
		t.Errorf("why: %+v", y)
	}
}

// A journal whose hash was changed, or that is damaged, is found out.
func TestDamage(t *testing.T) {
	data := string(record(t))
	lines := strings.SplitAfter(data, "\n")
	for name, c := range map[string]struct{ text, want string }{
		"hash": {lines[0] + strings.Replace(lines[1], `"hash":"`, `"hash":"0`, 1)[:len(lines[1])-3] + "\"}\n",
			"decides differently"},
		"truncated": {data[:len(data)-20], "step 5"},
		"version":   {strings.Replace(data, Version, "other/v9", 1), `version "other/v9"`},
		"empty":     {"", "not a journal"},
		"backwards": {lines[0] + lines[1] + lines[2] + lines[1], "time runs backwards"},
		"policy":    {strings.Replace(data, `"las:base=1h"`, `"lass"`, 1), `did you mean "las"`},
		"no job":    {lines[0] + `{"seq":0,"now":0,"events":[{"type":"submitted"}],"hash":"0"}`, "no valid job"},
		"event":     {lines[0] + `{"seq":0,"now":0,"events":[{"type":"exploded"}],"hash":"0"}`, "unknown event"},
	} {
		r, err := NewReader("j", strings.NewReader(c.text))
		if err == nil {
			_, _, err = Replay(r, cluster.Never)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ... %s", name, err, c.want)
		}
	}
}

func TestReaderEnds(t *testing.T) {
	r, err := NewReader("j", bytes.NewReader(record(t)))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}
