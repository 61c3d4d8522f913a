package trace

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// The next writer continues a log, even after a partial line, and the log reads as a workload
// ordered by submission, with times from the first submission on.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	const first = cluster.Time(1_800_000_000 * int64(time.Second))
	ended := func(name string, after, run time.Duration) *Entry {
		return &Entry{Run: run,
			Job: cluster.Job{Name: name, Queue: "q", Tier: cluster.BestEffort, Submit: first.Add(after),
				Deadline: first.Add(after + time.Hour),
				Tasks:    []cluster.TaskSet{{Count: 2, Request: cluster.Request{GPUs: 4}}}}}
	}
	open := func() *Log {
		t.Helper()
		l, err := OpenLog(path, "prod")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	try := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	n1, n2 := cluster.Node{Name: "n1", Model: "T4-16GB", GPUs: 4}, cluster.Node{Name: "n2", Model: "T4-16GB", GPUs: 8}
	l := open()
	try(l.Cluster([]cluster.Node{n1}, nil), l.Add(ended("second", time.Minute, 5*time.Second)), l.Close())
	text, err := os.ReadFile(path)
	try(err, os.WriteFile(path, append(text, `{"job":{"name":"ha`...), 0o600))
	if wl, err := Open(path, Options{}); err != nil || len(wl.Jobs) != 1 || len(wl.Notes) != 1 ||
		!strings.Contains(wl.Notes[0], "line 3, the last one, was not written to its end") {
		t.Fatalf("torn at its end: %v %+v", err, wl)
	}
	n1.GPUs = 8
	l = open()
	try(l.Cluster([]cluster.Node{n1, n2}, []cluster.Queue{{Name: "q", Limit: -1, Lend: -1}}),
		l.Add(ended("first", 0, 90*time.Second)), l.Close())
	wl, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(wl.Jobs) != 2 || wl.Jobs[0].Job.Name != "first" || wl.Jobs[1].Job.Submit != cluster.Time(time.Minute) ||
		wl.Jobs[1].Job.ID != 1 || wl.Jobs[0].Job.Deadline != cluster.Time(time.Hour) ||
		wl.Jobs[1].Run != 5*time.Second || wl.Jobs[0].Job.Tier != cluster.BestEffort || wl.Epoch != 1_800_000_000 {
		t.Errorf("%+v", wl)
	}
	if !reflect.DeepEqual(wl.Nodes, []cluster.Node{n1, n2}) || len(wl.Queues) != 1 || len(wl.Notes) != 0 {
		t.Errorf("%v %v %v", wl.Nodes, wl.Queues, wl.Notes)
	}
}

// A failed write on a full volume leaves nothing behind that damages later lines.
func TestLogFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	l, err := OpenLog(path, "prod")
	if err != nil {
		t.Fatal(err)
	}
	real := l.f
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	job := &Entry{Run: time.Second,
		Job: cluster.Job{Name: "one", Submit: 1_800_000_000_000_000_000,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}}
	l.f = full
	if l.Cluster(nil, nil) == nil || l.Add(job) == nil {
		t.Error("what was not written counts as written")
	}
	l.f = real
	if l.Add(job) == nil {
		t.Error("a job is written before a header")
	}
	write := func(torn bool) {
		t.Helper()
		if torn { // half of a line was written, and the rest did not fit
			if _, err := real.WriteString(`{"job":{"na`); err != nil {
				t.Fatal(err)
			}
			l.f = full
			if l.Add(job) == nil {
				t.Error("it fits")
			}
			l.f = real
		}
		if err := l.Add(job); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Cluster(nil, nil); err != nil {
		t.Fatal(err)
	}
	write(false)
	write(true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if wl, err := Open(path, Options{}); err != nil || len(wl.Jobs) != 2 {
		t.Errorf("%v %+v", err, wl)
	}
	if l, err = OpenLog(path, "prod"); err != nil {
		t.Errorf("it cannot be gone on with: %v", err)
	} else {
		_ = l.Close()
	}
}

// A file that is not a log is not changed, and errors within a log name their line.
func TestLogBad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	header := `{"muster_trace":1,"log":true,"name":"p"}` + "\n"
	for _, c := range []struct{ text, open, read string }{
		{"something else\n", "no history", ""},
		{`{"muster_trace":1,"name":"a trace"}` + "\n", "no history", ""},
		{header + "{\"job\":\n" + header, "", ":2"},
		{header + `{"muster_trace":1,"name":"p"}` + "\n", "", "header in the middle"},
		{header + `{"muster_trace":1,"log":true,"name":"p","nodes":[{"name":"","gpus":1}]}` + "\n", "",
			"must have a name"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLog(path, "p")
		if (err != nil) != (c.open != "") || err != nil && !strings.Contains(err.Error(), c.open) {
			t.Errorf("%q opens with %v", c.text, err)
		}
		if err == nil {
			_ = l.Close()
		}
		if _, err := Open(path, Options{}); c.read != "" && (err == nil || !strings.Contains(err.Error(), c.read)) {
			t.Errorf("%q reads with %v", c.text, err)
		}
		if text, _ := os.ReadFile(path); string(text) != c.text {
			t.Errorf("it is now %q", text)
		}
	}
}
