package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	sharedfiles "github.com/muster-gpu/muster/internal/shared"
)

// shared returns the path of a recorded trace beside the repository, or skips.
func shared(t testing.TB, name string) string {
	t.Helper()
	return sharedfiles.Path(t, "traces/"+name)
}

// readText reads a trace from a string; the name appears in messages.
func readText(t testing.TB, name, text string, o Options) (*Workload, error) {
	t.Helper()
	return Read(name, strings.NewReader(text), o)
}

// openShared opens a recorded trace and checks its invariants.
func openShared(t testing.TB, name string, o Options) *Workload {
	t.Helper()
	wl, err := Open(shared(t, name), o)
	if err != nil {
		t.Fatal(err)
	}
	checkWorkload(t, wl)
	return wl
}

// openSample opens one of our own samples in testdata.
func openSample(t testing.TB, name string, o Options) *Workload {
	t.Helper()
	wl, err := Open(filepath.Join("testdata", name), o)
	if err != nil {
		t.Fatal(err)
	}
	checkWorkload(t, wl)
	return wl
}

// checkWorkload checks the invariants of every accepted workload.
func checkWorkload(t testing.TB, wl *Workload) {
	t.Helper()
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		if e.Job.ID != cluster.JobID(i) {
			t.Fatalf("job %d has id %d", i, e.Job.ID)
		}
		if i > 0 && e.Job.Submit < wl.Jobs[i-1].Job.Submit {
			t.Fatalf("job %d is submitted before job %d", i, i-1)
		}
		if reason := checkEntry(e); reason != "" {
			t.Fatalf("job %d: %s", i, reason)
		}
		if e.Job.Estimate != 0 && e.Job.Estimate == e.Run && wl.Format != "muster" && wl.Format != "synth" {
			t.Fatalf("job %d: the true run time leaks into the estimate", i)
		}
	}
}

// checkRoundTrip writes the workload as JSON lines and reads it back.
func checkRoundTrip(t testing.TB, wl *Workload) {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteJSONL(&buf, wl); err != nil {
		t.Fatal(err)
	}
	text := buf.String()
	back, err := Read("back.jsonl", &buf, Options{})
	if err != nil {
		t.Fatalf("%v in\n%.2000s", err, text)
	}
	if !reflect.DeepEqual(wl, back) {
		for i := range wl.Jobs {
			if i < len(back.Jobs) && !reflect.DeepEqual(wl.Jobs[i], back.Jobs[i]) {
				t.Fatalf("job %d came back differently:\n%+v\n%+v", i, wl.Jobs[i], back.Jobs[i])
			}
		}
		wl.Jobs, back.Jobs = nil, nil
		t.Fatalf("came back differently:\n%+v\n%+v", wl, back)
	}
}

// companions are options that name our own small companion files.
func companions(format string) Options {
	return Options{Format: format,
		Throughputs: filepath.Join("testdata", "aux", "gavel_throughputs.json"),
		Profiles:    filepath.Join("testdata", "aux", "pollux")}
}

// fuzzFormat fuzzes one format: no panic, and accepted input satisfies the invariants, also with
// SkipBad, where malformed rows must be counted.
func fuzzFormat(f *testing.F, format string, seeds ...string) {
	f.Helper()
	samples, err := filepath.Glob(filepath.Join("testdata", format+"*"))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range samples {
		if st, err := os.Stat(s); err == nil && st.IsDir() {
			continue
		}
		text, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := companions(format)
		strict, errStrict := readText(t, "f", text, o)
		o.SkipBad = true
		wl, err := readText(t, "f", text, o)
		if err != nil {
			if errStrict == nil {
				t.Fatalf("skipping bad rows made a good file bad: %v", err)
			}
			return
		}
		if errStrict != nil && wl.BadAll == 0 {
			t.Fatalf("an error without SkipBad (%v), but no bad row counted with it", errStrict)
		}
		if errStrict == nil && !reflect.DeepEqual(wl, strict) {
			t.Fatal("SkipBad changes a good file")
		}
		checkWorkload(t, wl)
		checkRoundTrip(t, wl)
	})
}

// badRow is a malformed input with the expected part of its message.
type badRow struct{ name, text, want string }

// checkBad reads malformed inputs in a format: an error with the wanted text, and with SkipBad a
// count. If the wanted line is "" (a file error), it remains an error.
func checkBad(t *testing.T, format string, rows []badRow) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			o := companions(format)
			_, err := readText(t, "x", r.text, o)
			if err == nil || !strings.Contains(err.Error(), r.want) {
				t.Fatalf("error %q, want %q in it", err, r.want)
			}
			o.SkipBad = true
			wl, err := readText(t, "x", r.text, o)
			if err == nil && (wl.BadAll != 1 || len(wl.Bad) != 1 || !strings.Contains(wl.Bad[0].Error(), r.want)) {
				t.Fatalf("with SkipBad: %d bad rows %v, want one with %q", wl.BadAll, wl.Bad, r.want)
			}
		})
	}
}

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// gpuHours sums the GPU time of all jobs.
func gpuHours(wl *Workload) float64 {
	var sum float64
	for i := range wl.Jobs {
		sum += wl.Jobs[i].GPUTime()
	}
	return sum / 3600
}
