package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/api"
)

// reading is a sidecar and the folder of its job's progress file.
func reading(t *testing.T) (r *podReporter, file string, log *bytes.Buffer) {
	t.Helper()
	file, log = filepath.Join(t.TempDir(), "progress"), &bytes.Buffer{}
	r, err := (&reportFlags{file: file, to: "https://localhost", every: time.Second}).reporter(
		slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return r, file, log
}

func puts(t *testing.T, file, text string, flags int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|flags, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What is in the file arrives, whatever happens to the file.
func TestReportReads(t *testing.T) {
	r, file, log := reading(t)
	want := func(what string, step float64, lines, metrics int) {
		t.Helper()
		r.read(false)
		if r.lines.Last.Step != step || r.lines.Count != lines || len(r.kept()) != metrics {
			t.Errorf("%s: step %v after %d lines with %d metrics, not %v, %d, %d", what, r.lines.Last.Step,
				r.lines.Count, len(r.kept()), step, lines, metrics)
		}
	}
	want("missing", 0, 0, 0)
	puts(t, file, "{\"step\": 1, \"metric\": {\"loss\": 2}}\nhello\n{\"step\"", os.O_APPEND)
	want("half a line", 1, 1, 1)
	puts(t, file, ": 2}\n", os.O_APPEND)
	want("the other half", 2, 2, 1)
	puts(t, file, "{\"step\": 1}\n", os.O_TRUNC)
	want("truncated", 1, 3, 0)
	puts(t, file, "{\"step\": 5}\n{\"step\": 6}\n", os.O_TRUNC)
	want("truncated and longer", 6, 5, 0)
	puts(t, file, "{\"step\": 3}\n{\"step\": 4}\n", os.O_TRUNC)
	want("truncated and as long", 4, 7, 0)
	puts(t, file+".new", "{\"step\": 3}\n{\"step\": 4}\n{\"step\": 9}\n", os.O_TRUNC)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	want("replaced", 9, 10, 0)
	puts(t, file, strings.Repeat("x", 2*readMost+17), os.O_APPEND)
	want("in a line that is too long", 9, 10, 0)
	puts(t, file, strings.Repeat("{\"step\": 1}", 9)+"\n{\"step\": 10}\n{\"step\": 11}", os.O_APPEND)
	want("after it", 10, 11, 0)
	if r.read(true); r.lines.Last.Step != 11 {
		t.Errorf("at the end, step %v: a last line without its end does not count", r.lines.Last.Step)
	}
	if log.Len() > 0 {
		t.Errorf("it complains of files that are fine: %s", log)
	}
}

// Why a file cannot be read is said, once.
func TestReportReadsNoSuch(t *testing.T) {
	for name, c := range map[string]struct {
		make func(file string) error
		want string
	}{
		"link":   {func(file string) error { return os.Symlink("/dev/null", file) }, "symbolic link"},
		"folder": {func(file string) error { return os.Mkdir(file, 0o700) }, "no regular file"},
		"pipe":   {func(file string) error { return syscall.Mkfifo(file, 0o600) }, "no regular file"},
	} {
		r, file, log := reading(t)
		if err := c.make(file); err != nil {
			t.Fatal(err)
		}
		r.read(false)
		r.read(false)
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, c.want) ||
			!strings.Contains(text, file) {
			t.Errorf("%s: %q, not one line with %q", name, text, c.want)
		}
	}
}

// What makes no sense is left out and said once; all else is reported.
func TestReportMends(t *testing.T) {
	r, file, log := reading(t)
	puts(t, file, `{"step": 4, "steps": 10, "epoch": 2, "samples_per_s": 7, "checkpoint": "/4"}
{"step": 5, "steps": -1, "epoch": -1, "samples_per_s": -3}
{"step": 6, "epoch": -2, "checkpoint": "`+strings.Repeat("x", 5000)+`"}
{"step": -1, "metric": {"loss": 0.5}, "checkpoint": "/never"}
`, 0)
	r.read(false)
	text, err := r.body()
	if err != nil {
		t.Fatal(err)
	}
	var rep api.Report
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}
	if err := rep.Check(); err != nil {
		t.Error(err)
	}
	if p := (api.Progress{Step: 6, Epoch: 2, SamplesPerSec: 7, Checkpoint: "/4"}); rep.Progress != p ||
		rep.SavedAt == nil || *rep.SavedAt != 4 || rep.Lines != 4 {
		t.Errorf("%s: not %+v", text, p)
	}
	if len(rep.Metrics) != 1 || rep.Metrics[0].Step != 6 || rep.Metrics[0].Of["loss"] == nil {
		t.Errorf("metrics %+v", rep.Metrics)
	}
	for _, f := range []string{"step", "steps", "epoch", "samples_per_s", "checkpoint"} {
		if n := strings.Count(log.String(), " field="+f+" "); n != 1 {
			t.Errorf("%s is said %d times: %s", f, n, log)
		}
	}
}

// Metrics that do not fit into a report lose the oldest.
func TestReportFits(t *testing.T) {
	r, file, _ := reading(t)
	r.most = 64 << 10
	text, line := &strings.Builder{}, 0
	for trial := range api.MaxTrials {
		for k := range api.MaxMetrics {
			line++
			name := fmt.Sprintf("%02d", k) + strings.Repeat("<", api.MaxMetric-2) // each takes six bytes
			fmt.Fprintf(text, "{\"step\": %d, \"trial\": %d, \"metric\": {%q: 0.12345678901234}}\n", line, trial, name)
		}
	}
	puts(t, file, text.String(), 0)
	r.read(false)
	body, err := r.body()
	if err != nil || len(body) > r.most || len(body) < r.most*3/4 {
		t.Fatalf("%d bytes, where %d are the most: %v", len(body), r.most, err)
	}
	var rep api.Report
	if err := json.Unmarshal(body, &rep); err != nil {
		t.Fatal(err)
	}
	steps := map[float64]bool{}
	for _, m := range rep.Metrics {
		steps[m.Step] = true
	}
	for i := range len(rep.Metrics) {
		if !steps[float64(line-i)] {
			t.Fatalf("of %d metrics, that of line %d is left out, which is not the oldest", len(rep.Metrics), line-i)
		}
	}
}

// At the pod's end the sidecar asks again only where another answer may come.
func TestReportEnds(t *testing.T) {
	for _, c := range []struct {
		code, asked int
		sent        bool
	}{{204, 1, true}, {401, 1, false}, {404, 1, false}, {413, 1, true}, {422, 1, true}, {429, 3, true}, {500, 1, false},
		{503, 3, true}, {0, 3, true}} {
		r, file, _ := reading(t)
		asked := 0
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			switch asked++; {
			case asked == 3:
				w.WriteHeader(http.StatusNoContent)
			case c.code == 0:
				panic(http.ErrAbortHandler) // the connection breaks
			default:
				w.WriteHeader(c.code)
			}
		}))
		s.StartTLS()
		dir := filepath.Dir(file)
		r.ca, r.token, r.to = filepath.Join(dir, "ca"), filepath.Join(dir, "token"), s.URL
		puts(t, r.ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), 0)
		puts(t, r.token, "x", 0)
		puts(t, file, "{\"step\": 1}\n", 0)
		tick := make(chan time.Time, 9)
		for range cap(tick) {
			tick <- time.Time{}
		}
		if err := r.end(t.Context(), tick); err != nil || asked != c.asked || (r.sent == 1) != c.sent ||
			len(tick) != cap(tick)-c.asked+1 {
			t.Errorf("%d: asked %d times, %d lines sent, %d ticks are left: %v", c.code, asked, r.sent, len(tick), err)
		}
		s.Close()
	}
	for _, ca := range []string{"", "missing"} { // nothing vouches for the scheduler; there is no token either
		r, file, _ := reading(t)
		r.ca, r.token = ca, "missing"
		puts(t, file, "{\"step\": 1}\n", 0)
		tick := make(chan time.Time, 1)
		tick <- time.Time{}
		if err := r.end(t.Context(), tick); err != nil || len(tick) != 1 {
			t.Errorf("with --ca %q it waits: %v", ca, err)
		}
	}
}
