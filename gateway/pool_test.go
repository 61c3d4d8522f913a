package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLongColdStart: what waited for the first replica for longer than its goal is still answered.
func TestLongColdStart(t *testing.T) {
	a := newAdder(t, 0)
	c := &Config{Services: []Service{{Name: "add", LatencyMS: 100, ColdMS: 5000, Batch: 4, TakesMS: takes(4, 1)}}}
	s, url := serveReal(t, c, Limits{})
	codes := make(chan int, 3)
	for i := range 3 {
		go func() {
			status, _ := post(t, url+"/v2/models/add/infer", sample(i))
			codes <- status
		}()
	}
	until(t, "all wait", func() bool { return served(s, "add").Waiting == 3 })
	time.Sleep(400 * time.Millisecond)
	c.Services[0].Replicas = []Replica{{ID: "1", URL: a.URL}}
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if status := <-codes; status != 200 {
			t.Errorf("%d", status)
		}
	}
	if u := served(s, "add"); u.Answered != 3 || u.InTime != 0 {
		t.Errorf("%+v", u)
	}
}

// TestTimers: the delay of a batch is kept, although a replica that failed is looked at again later.
func TestTimers(t *testing.T) {
	a, broken := newAdder(t, 0), newAdder(t, 0)
	broken.broken.Store(true)
	s, url := serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 5000, Batch: 64, Rule: "fixed",
		DelayMS: 20, TakesMS: takes(64, 1), Replicas: []Replica{{ID: "1", URL: broken.URL}, {ID: "2", URL: a.URL}}}}},
		Limits{})
	for i := 0; served(s, "add").Each[0].Failed < failuresToShut; i++ {
		if i > 100 {
			t.Fatal("the broken one is not tried")
		}
		post(t, url+"/v2/models/add/infer", sample(i))
	}
	for i := range 5 {
		began := time.Now()
		status, _ := post(t, url+"/v2/models/add/infer", sample(i))
		if status != 200 || time.Since(began) > shutFor-200*time.Millisecond {
			t.Errorf("%d after %v", status, time.Since(began))
		}
	}
}

// TestEarliest: of two instants at which the queue is to be looked at, the earlier one counts.
func TestEarliest(t *testing.T) {
	p := &pool{server: New(Options{Clock: time.Now})}
	now := time.Now()
	soon := now.Add(time.Hour)
	p.wakeAt(soon, now)
	p.wakeAt(soon.Add(time.Hour), now)
	if !p.due.Equal(soon) {
		t.Errorf("%v, want %v", p.due, soon)
	}
	p.wakeAt(now.Add(time.Minute), now)
	if !p.due.Equal(now.Add(time.Minute)) {
		t.Errorf("%v", p.due)
	}
	p.close()
}

// TestPatience: a request that can be answered only after its goal is dropped before it is given to a replica; one in
// a batch that has been sent is answered, even if it is late.
func TestPatience(t *testing.T) {
	b := newHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.URL.Query().Get("sleep"))
		time.Sleep(d)
	})
	c := one(b.URL)
	c.Services[0].LatencyMS = 3000
	s, url := serveReal(t, c, Limits{})
	status(t, url+"/app/x?sleep=1200ms")
	held := make(chan int)
	go func() { held <- status(t, url+"/app/x?sleep=4500ms") }()
	until(t, "the replica is busy", func() bool { return served(s, "app").Each[0].Busy == 1 })
	began := time.Now()
	if got := status(t, url+"/app/x"); got != 429 || time.Since(began) > 2900*time.Millisecond {
		t.Errorf("%d after %v", got, time.Since(began))
	}
	if got := <-held; got != 200 {
		t.Errorf("%d", got)
	}
	a := newAdder(t, 300*time.Millisecond)
	s, url = serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 100, Batch: 2, TakesMS: takes(2, 10),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}}}, Limits{})
	if got, text := post(t, url+"/v2/models/add/infer", sample(1)); got != 200 {
		t.Errorf("%d %s", got, text)
	}
	if u := served(s, "add"); u.Answered != 1 || u.InTime != 0 || u.Dropped != 0 {
		t.Errorf("%+v", u)
	}
}

// TestMixed: other requests of the protocol wait among those for batches; none goes into a batch, and none of several
// samples makes one too large.
func TestMixed(t *testing.T) {
	a := newAdder(t, time.Millisecond)
	inner := a.Config.Handler
	var largest atomic.Int64
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "metadata")
			return
		}
		before := a.samples.Load()
		inner.ServeHTTP(w, r)
		largest.Store(max(largest.Load(), a.samples.Load()-before))
	})
	s, url := serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 20_000, Batch: 8, TakesMS: takes(8, 1),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}}}, Limits{})
	var wg sync.WaitGroup
	for i := range 120 {
		wg.Go(func() {
			if i%3 == 0 {
				if got := status(t, url+"/v2/models/add"); got != 200 {
					t.Errorf("%d", got)
				}
				return
			}
			n := 1 + i%4
			data := strings.TrimSuffix(strings.Repeat("[1],", n), ",")
			got, text := post(t, url+"/v2/models/add/infer",
				fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d,1],"datatype":"FP64","data":[%s]}]}`, n, data))
			want := "[" + strings.TrimSuffix(strings.Repeat("2,", n), ",") + "]"
			if got != 200 || !strings.Contains(text, want) {
				t.Errorf("%d %s", got, text)
			}
		})
	}
	wg.Wait()
	u := served(s, "add")
	samples := int64(0)
	for _, x := range u.Sizes {
		samples += int64(x.Requests) * x.Batches
	}
	if largest.Load() > 8 || u.Answered != 120 || samples != a.samples.Load() {
		t.Errorf("a batch of %d samples, %d samples counted: %+v", largest.Load(), samples, u)
	}
}

// TestWholeRequests: parameters and outputs that are asked for reach the replica, nested data does as well; requests
// that differ in them are not put together.
func TestWholeRequests(t *testing.T) {
	var mu sync.Mutex
	var bodies []inferRequest
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		var q inferRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		mu.Lock()
		bodies = append(bodies, q)
		mu.Unlock()
		x := q.Inputs[0]
		_ = json.NewEncoder(w).Encode(inferResponse{Outputs: []tensor{{Name: "y", Shape: x.Shape, Datatype: x.Datatype,
			Data: x.Data}}})
	})
	_, url := serveReal(t, &Config{Services: []Service{{Name: "m", LatencyMS: 5000, Batch: 8, Rule: "fixed",
		DelayMS: 100, TakesMS: takes(8, 1), Replicas: []Replica{{ID: "1", URL: b.URL, AtOnce: 8}}}}}, Limits{})
	form := `{"parameters":{"k":%d},"outputs":[{"name":"y"}],"inputs":[{"name":"x","parameters":{"p":1},"shape":[1,2],` +
		`"datatype":"BYTES","data":[["a,\"]%d", "b"]]}]}`
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			status, text := post(t, url+"/v2/models/m/infer", fmt.Sprintf(form, i%2, i))
			if status != 200 || !strings.Contains(text, fmt.Sprintf(`["a,\"]%d","b"]`, i)) {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	wg.Wait()
	for _, q := range bodies {
		if x := q.Inputs[0]; string(x.Parameters) != `{"p":1}` || string(q.Outputs) != `[{"name":"y"}]` ||
			!strings.Contains(string(q.Parameters), "k") {
			t.Errorf("%s %s %s", q.Parameters, q.Outputs, x.Parameters)
		}
	}
	if len(bodies) < 2 {
		t.Error("requests with other parameters are in one batch")
	}
}

// TestUpdates: what a rule has learnt stays while nothing that concerns it changes; a service that is gone ends what
// waits for it.
func TestUpdates(t *testing.T) {
	hang := newRaw(t, hangs)
	c := one(hang.url)
	c.Services[0].Batch, c.Services[0].TakesMS, c.Services[0].Rule = 4, takes(4, 1), "clipper"
	s, url := serveReal(t, c, Limits{})
	rule := func() any { return s.state.Load().pools["app"].replicas[0].rule }
	first := rule()
	c.Services[0].Waiting, c.Keys = 7, nil
	if err := s.Update(c); err != nil || rule() != first {
		t.Errorf("the rule is another: %v", err)
	}
	c.Services[0].LatencyMS = 900
	if err := s.Update(c); err != nil || rule() == first {
		t.Errorf("the rule has a former goal: %v", err)
	}
	dial(t, url, "GET /app/x HTTP/1.1\r\nHost: x\r\n\r\n")
	until(t, "the replica is busy", func() bool { return served(s, "app").Each[0].Busy == 1 })
	code := make(chan int)
	go func() { code <- status(t, url+"/app/x") }()
	until(t, "one waits", func() bool { return served(s, "app").Waiting == 1 })
	if err := s.Update(&Config{}); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 404 {
		t.Errorf("%d", got)
	}
	c.Services[0].Replicas[0].URL = "nowhere"
	if err := s.Update(c); err == nil || len(s.state.Load().pools) != 0 {
		t.Errorf("a wrong configuration is taken over: %v", err)
	}
}

// TestVisible: with keys, nothing is said of services that a caller may not use, and no body is read without a key.
func TestVisible(t *testing.T) {
	b, _ := plain(t, "ok", 0)
	c := one(b.URL)
	c.Services = append(c.Services, Service{Name: "secret"})
	c.Keys = []Key{{Name: "ann", Hash: hashOf("k"), Services: []string{"app"}}}
	_, url := serveReal(t, c, short)
	conn := dial(t, url, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
	if text, _ := rest(t, conn); !strings.Contains(text, "401 Unauthorized") {
		t.Errorf("%q", text)
	}
	resp, err := http.Get(url + "/v1/models")
	if err != nil || resp.StatusCode != 401 {
		t.Errorf("%v %v", resp, err)
	}
	resp.Body.Close()
	r, _ := http.NewRequest(http.MethodGet, url+"/v1/models", nil)
	r.Header.Set("Authorization", "Bearer k")
	resp, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	_, unknown := post(t, url+"/v1/completions", `{"model":"x"}`, "X-Api-Key", "k")
	if strings.Contains(string(text)+unknown, "secret") || !strings.Contains(string(text), `"id":"app"`) ||
		!strings.Contains(unknown, `{"error":{"code":404,"message":"no model`) {
		t.Errorf("%s\n%s", text, unknown)
	}
}

// TestConfig: each mistake of a file is said.
func TestConfig(t *testing.T) {
	x := hashOf("x")
	for text, want := range map[string]string{
		`{"services":[{"name":""}]}`:                                           "name: must be there",
		`{"services":[{"name":"a"},{"name":"a"}]}`:                             "is there twice",
		`{"services":[{"name":"a","path":"v1"}]}`:                              "neither v1 nor v2",
		`{"services":[{"name":"a","path":"x/y"}]}`:                             "is one element",
		`{"services":[{"name":"a","path":"x"},{"name":"b","path":"/x/"}]}`:     "of one service only",
		`{"services":[{"name":"a","path":"/"}]}`:                               "must not be the root",
		`{"services":[{"name":"a","latency_ms":-1}]}`:                          "from 0 to a week",
		`{"services":[{"name":"a","timeout_ms":1e12}]}`:                        "from 0 to a week",
		`{"services":[{"name":"a","batch":4,"takes_ms":[1]}]}`:                 "1 values for batches of up to 4",
		`{"services":[{"name":"a","batch":5000}]}`:                             "from 0 to 4096",
		`{"services":[{"name":"a","rule":"best"}]}`:                            `unknown batching rule "best"`,
		`{"services":[{"name":"a","replicas":[{"id":"1","url":"http:///"}]}]}`: "is not an address",
		`{"services":[{"name":"a","replicas":[{"url":"http://x"}]}]}`:          "ids differ",
		`{"services":[],"keys":[{"name":"k","hash":"abc"}]}`:                   "64 hexadecimal digits",
		`{"services":[],"keys":[{"hash":"` + x + `"},{"hash":"` + x + `"}]}`:   "another has the same",
		`{"services":[],"keys":[{"hash":"` + hashOf("") + `"}]}`:               "which every caller has",
		`{"services":[],"keys":[{"hash":"` + strings.ToUpper(x) + `"}]}`:       "64 hexadecimal digits",
		`{"services":[{"name":"a","colour":1}]}`:                               "unknown field",
		`{"services":`:                                                         "unexpected EOF",
	} {
		path := filepath.Join(t.TempDir(), RoutesFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzFlatten(f *testing.F) {
	for _, s := range []string{`[1,2]`, `[[1,"a]"],[null]]`, `["\\\"",[]]`, `[{"a":1}]`, `[[]]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !json.Valid([]byte(s)) || s == "" || s[0] != '[' {
			return
		}
		flat, n := flatten([]byte(s))
		if n < 0 {
			return
		}
		var got []any
		if err := json.Unmarshal(flat, &got); err != nil || int64(len(got)) != n {
			t.Errorf("%s becomes %s, %d values: %v", s, flat, n, err)
		}
		for _, v := range got {
			if _, nested := v.([]any); nested {
				t.Errorf("%s becomes %s", s, flat)
			}
		}
	})
}
