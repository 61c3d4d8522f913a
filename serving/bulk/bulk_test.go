package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"r%d","method":"POST","url":"/v1/completions","body":{"model":"m","n":%d}}`+"\n",
			i, i)
	}
	return b.String()
}

// TestResume: a file that is interrupted again and again, in the middle of a line too, has each request answered once.
func TestResume(t *testing.T) {
	var mu sync.Mutex
	answered := map[int]int{}
	var stop context.CancelFunc
	left := 7 // answers until the next interruption
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var q struct{ N int }
		if err := json.Unmarshal(body, &q); err != nil ||
			!strings.HasPrefix(r.Header.Get(gateway.BulkHeader), "left=") {
			t.Errorf("%s %v, %v", body, r.Header, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			left = 7
			stop()
			return
		}
		answered[q.N]++
		fmt.Fprintf(w, `{"of":%d}`, q.N)
	}))
	defer h.Close()
	in := write(t, lines(50))
	out := filepath.Join(filepath.Dir(in), "out.jsonl")
	runs, done := 0, 0
	for ; done < 50 && runs < 50; runs++ {
		var ctx context.Context
		mu.Lock()
		ctx, stop = context.WithCancel(t.Context())
		mu.Unlock()
		var err error
		done, _, err = Run(ctx, Options{In: in, Out: out, Gateway: h.URL, AtOnce: 3, Now: time.Now})
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		stop()
		// as if it was killed while it wrote
		if data, err := os.ReadFile(out); err == nil && len(data) > 20 && runs%2 == 0 {
			if err := os.WriteFile(out, data[:len(data)-9], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			continue // cut off above
		}
		var a Answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if seen[a.ID] {
			t.Errorf("%s has two answers", a.ID)
		}
		seen[a.ID] = true
		if want := fmt.Sprintf(`{"of":%s}`, strings.TrimPrefix(a.ID, "r")); a.Error != nil ||
			string(a.Response.Body) != want {
			t.Errorf("%s: %s, not %s", a.ID, line, want)
		}
	}
	if len(seen) < 49 || done != 50 || runs < 5 { // the last line may have been cut off above
		t.Errorf("%d answers after %d runs, %d counted", len(seen), runs, done)
	}
}

// TestPutOff: what the gateway puts off is asked again; what a replica fails is given up after some tries; what is
// wrong is an answer.
func TestPutOff(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		asked[string(body)]++
		switch n := asked[string(body)]; {
		case strings.Contains(string(body), `"n":0`) && n < 3:
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.Contains(string(body), `"n":1`):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.Contains(string(body), `"n":2`):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, "no JSON")
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer h.Close()
	in := write(t, lines(3))
	out := filepath.Join(filepath.Dir(in), "out.jsonl")
	done, failed, err := Run(t.Context(), Options{In: in, Out: out, Gateway: h.URL, AtOnce: 3, Now: time.Now})
	data, _ := os.ReadFile(out)
	if err != nil || done != 3 || failed != 1 ||
		!strings.Contains(string(data), `"status_code":400,"body":"no JSON"`) ||
		!strings.Contains(string(data), "500 Internal Server Error: , 5 times") {
		t.Errorf("%d answers, %d failed, %v:\n%s", done, failed, err, data)
	}
}

// TestWrongFiles: errors name the line, and nothing is sent.
func TestWrongFiles(t *testing.T) {
	good := lines(2)
	for text, want := range map[string]string{
		good + "nonsense\n":                      "in.jsonl:3: ",
		good + good:                              `in.jsonl:3: custom_id: "r0" is that of line 1, too`,
		good + `{"custom_id":"x","url":"/v1/x"}`: "in.jsonl:3: body",
		good + `{"custom_id":"x","url":"http://e","body":{}}`:             "in.jsonl:3: url",
		good + `{"custom_id":"x","method":"GET","url":"/v1/x","body":{}}`: "in.jsonl:3: method",
		`{"url":"/v1/x","body":{}}`:                                       "in.jsonl:1: custom_id",
	} {
		if _, err := Check(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
	in := write(t, good)
	other := write(t, "something else\n")
	_, _, err := Run(t.Context(), Options{In: in, Out: other, Gateway: "http://127.0.0.1:1", AtOnce: 1, Now: time.Now})
	if text, _ := os.ReadFile(other); err == nil || string(text) != "something else\n" {
		t.Errorf("another file was taken for answers: %v", err)
	}
}

// A service that the gateway does not have yet is asked again; a model's own "not found" is its answer.
func TestUnknownYet(t *testing.T) {
	asked := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 {
			w.Header().Set(gateway.UnknownHeader, "true")
		}
		if asked < 4 {
			http.Error(w, `{"error":"not found"}`, http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	defer h.Close()
	in := write(t, lines(2))
	out := filepath.Join(filepath.Dir(in), "out.jsonl")
	if _, _, err := Run(t.Context(), Options{In: in, Out: out, Gateway: h.URL, AtOnce: 1, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), `"status_code":404`) != 1 || strings.Count(string(text), `"status_code":200`) != 1 {
		t.Errorf("%s", text)
	}
}
