package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// adder is a backend of the Open Inference Protocol: it adds one to each value; a batch takes 5 ms.
type adder struct {
	*httptest.Server
	batches, samples atomic.Int64
	broken           atomic.Bool
}

func newAdder(t *testing.T, takes time.Duration) *adder {
	a := &adder{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.broken.Load() {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		var q struct {
			Inputs []struct {
				Shape []int64   `json:"shape"`
				Data  []float64 `json:"data"`
			} `json:"inputs"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Inputs) != 1 ||
			int64(len(q.Inputs[0].Data)) != q.Inputs[0].Shape[0]*q.Inputs[0].Shape[1] {
			http.Error(w, fmt.Sprint("bad body ", err), http.StatusBadRequest)
			return
		}
		a.batches.Add(1)
		a.samples.Add(q.Inputs[0].Shape[0])
		time.Sleep(takes)
		for i := range q.Inputs[0].Data {
			q.Inputs[0].Data[i]++
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"model_name": "add", "outputs": []any{map[string]any{
			"name": "y", "datatype": "FP64", "shape": q.Inputs[0].Shape, "data": q.Inputs[0].Data}}})
	}))
	t.Cleanup(a.Close)
	return a
}

func serve(t *testing.T, c *Config) (*Server, *httptest.Server) {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Clock: time.Now})
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h
}

func post(t *testing.T, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func sample(v int) string {
	return fmt.Sprintf(`{"id":"r%d","inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","data":[%d,%d]}]}`, v, v, v*2)
}

func takes(n int, ms float64) (list []float64) {
	for range n {
		list = append(list, ms)
	}
	return list
}

// TestBatches: requests that come together are computed together, and each gets its own answer.
func TestBatches(t *testing.T) {
	a := newAdder(t, 5*time.Millisecond)
	s, h := serve(t, &Config{Services: []Service{{Name: "add", LatencyMS: 2000, Batch: 16, TakesMS: takes(16, 5),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}}})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			status, body := post(t, h.URL+"/v2/models/add/infer", sample(i))
			want := fmt.Sprintf(`{"model_name":"add","id":"r%d","outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","data":[%d,%d]}]}`, i, i+1, 2*i+1)
			if status != 200 || body != want {
				t.Errorf("%d: %d %s, want %s", i, status, body, want)
			}
		})
	}
	wg.Wait()
	if n := a.batches.Load(); a.samples.Load() != 200 || n > 100 {
		t.Errorf("%d samples in %d batches", a.samples.Load(), n)
	}
	if c := served(s, "add"); c.Arrived != 200 || c.Answered != 200 || c.Waiting != 0 ||
		c.Batches != a.batches.Load() {
		t.Errorf("%+v", c)
	}
}

// TestKinds: requests of different shapes are not put together; each is right.
func TestKinds(t *testing.T) {
	a := newAdder(t, 2*time.Millisecond)
	_, h := serve(t, &Config{Services: []Service{{Name: "add", LatencyMS: 5000, Batch: 8, TakesMS: takes(8, 2),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}}})
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			n := 1 + i%3
			data := strings.TrimSuffix(strings.Repeat("1,", n), ",")
			status, body := post(t, h.URL+"/v2/models/add/infer",
				fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP64","data":[%s]}]}`, n, data))
			if want := "[" + strings.ReplaceAll(data, "1", "2") + "]"; status != 200 || !strings.Contains(body, want) {
				t.Errorf("%d %s, want %s", status, body, want)
			}
		})
	}
	wg.Wait()
}

// TestBadRequests: each mistake is answered clearly, and nothing waits for ever.
func TestBadRequests(t *testing.T) {
	a := newAdder(t, 0)
	_, h := serve(t, &Config{Services: []Service{{Name: "add", LatencyMS: 100, Batch: 4, TakesMS: takes(4, 1),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}, {Name: "none", LatencyMS: 50}}})
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"/v2/models/sub/infer", sample(1), `no model \"sub\"; there are add, none`, 404},
		{"/v2/models/add/infer", "{", "no inference request", 400},
		{"/v2/models/add/infer", `{"inputs":[]}`, "there are none", 400},
		{"/v2/models/add/infer", `{"inputs":[{"name":"x","shape":[0],"data":[]}]}`, "needs a shape", 400},
		{"/v2/models/add/infer", `{"inputs":[{"name":"x","shape":[9,1],"datatype":"FP64","data":[1,1,1,1,1,1,1,1,1]}]}`,
			"takes up to 4", 413},
		{"/v2/models/add/infer", `{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP64","data":[1]}]}`,
			"1 values in a shape of [1 3]", 400},
		{"/v2/models/add/infer", `{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP64","data":[{"a":1}]}]}`,
			"not an array of values", 400},
		{"/v2/models/none/infer", sample(1), "no replica answers", 503},
		{"/v1/chat/completions", `{"model":"gpt"}`, `no model \"gpt\"`, 404},
		{"/v1/chat/completions", `[]`, "no JSON object", 400},
		{"/elsewhere", "", "no service answers", 404},
	} {
		if status, body := post(t, h.URL+c.path, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, body, c.status, c.want)
		}
	}
}

// TestEarlyDrop: more than can be answered in time is refused in time, not answered late.
func TestEarlyDrop(t *testing.T) {
	a := newAdder(t, 20*time.Millisecond)
	s, h := serve(t, &Config{Services: []Service{{Name: "add", LatencyMS: 100, Batch: 2, TakesMS: takes(2, 20),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}}})
	var late, dropped atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 { // 100 samples a second can be computed
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 2 * time.Millisecond)
			began := time.Now()
			status, _ := post(t, h.URL+"/v2/models/add/infer", sample(i))
			if status == http.StatusTooManyRequests {
				dropped.Add(1)
			} else if time.Since(began) > 300*time.Millisecond {
				late.Add(1)
			}
		})
	}
	wg.Wait()
	c := served(s, "add")
	// if all were answered, most would be late; some are where the machine stands still for a while
	if dropped.Load() < 30 || late.Load() > 20 || c.Answered+c.Dropped != 100 || c.Dropped != dropped.Load() {
		t.Errorf("%d dropped, %d late: %+v", dropped.Load(), late.Load(), c)
	}
}

// TestStreams passes a stream on as it comes, by OpenAI's path and by a path of the service's own.
func TestStreams(t *testing.T) {
	read := make(chan bool)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d %s %d\n\n", i, r.URL.Path, len(body))
			w.(http.Flusher).Flush()
			if i == 0 {
				<-read
			}
			time.Sleep(50 * time.Millisecond)
		}
	}))
	defer backend.Close()
	s, h := serve(t, &Config{
		Services: []Service{{Name: "chat", Path: "/app", Replicas: []Replica{{ID: "1", URL: backend.URL}}}}})
	var first, whole time.Duration // the longest of both
	for path, want := range map[string]string{"/v1/chat/completions": "/v1/chat/completions", "/app/x/y": "/x/y"} {
		began := time.Now()
		resp, err := http.Post(h.URL+path, "application/json", strings.NewReader(`{"model":"chat"}`))
		if err != nil {
			t.Fatal(err)
		}
		begins := make([]byte, 200)
		n, err := resp.Body.Read(begins)
		if err != nil || n == 0 {
			t.Fatalf("the stream does not begin: %v", err)
		}
		first = max(first, time.Since(began))
		time.Sleep(4 * first)
		read <- true
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		text := string(begins[:n]) + string(rest)
		if whole = max(whole, time.Since(began)); err != nil || !strings.Contains(text, "data: 2 "+want+" 16") {
			t.Errorf("%s: %q %v", path, text, err)
		}
	}
	c := served(s, "chat")
	if c.Answered != 2 || c.TTFT.Total() != 2 || c.TPOT.Total() != 2 || c.TTFT.Quantile(1) > 2*first+time.Millisecond ||
		c.TPOT.Quantile(0.5) < 40*time.Millisecond || c.TPOT.Quantile(1) > whole*3/4 { // two after the first
		t.Errorf("%+v: first events after %v, of %v; then one each %v, of %v", c, c.TTFT.Quantile(1), first,
			c.TPOT.Quantile(1), whole)
	}
	s.state.Load().pools["chat"].answered(time.Hour, true, false)
	if c = served(s, "chat"); c.InTime != 3 {
		t.Errorf("%d of 3 in time, without a goal", c.InTime)
	}
}

// TestForms: a form below /v1 goes to the service that its model names, as it came.
func TestForms(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s|%s", r.Header.Get("Content-Type"), body)
	}))
	defer backend.Close()
	_, h := serve(t, &Config{Services: []Service{{Name: "ears", Replicas: []Replica{{ID: "1", URL: backend.URL}}}}})
	part := func(model string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n\x00\xff{}\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + model + "\r\n--b--\r\n"
	}
	const multi, encoded = "multipart/form-data; boundary=b", "application/x-www-form-urlencoded"
	for _, c := range []struct {
		kind, body string
		status     int
		want       string
	}{
		{multi, part("ears"), 200, multi + "|" + part("ears")},
		{multi, part("eyes"), 404, `no model \"eyes\"`},
		{multi, "--b\r\nContent-Disposition", 400, "the body is no form"},
		{multi, "--b--\r\n", 400, "names none; there are ears"},
		{encoded, "language=en&model=ears", 200, encoded + "|language=en&model=ears"},
		{encoded, "model=%zz", 400, "the body is no form"},
		{encoded, `{"model": "ears"}`, 200, encoded + `|{"model": "ears"}`},
	} {
		resp, err := http.Post(h.URL+"/v1/audio/transcriptions", c.kind, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%q: %d %q %v", c.body, resp.StatusCode, body, err)
		}
	}
}

// TestColdStart: requests to a service without a replica wait for the first, which is one cold start however many they
// are; the next one is when there is none again.
func TestColdStart(t *testing.T) {
	a := newAdder(t, 0)
	c := &Config{Services: []Service{{Name: "add", LatencyMS: 500, ColdMS: 5000, Batch: 4, TakesMS: takes(4, 1)}}}
	s, h := serve(t, c)
	for starts := 1; starts <= 2; starts++ {
		done := make(chan string)
		for i := range 2 {
			go func() {
				status, body := post(t, h.URL+"/v2/models/add/infer", sample(i))
				done <- fmt.Sprint(status, body)
			}()
		}
		for served(s, "add").Waiting < 2 {
			time.Sleep(time.Millisecond)
		}
		c.Services[0].Replicas = []Replica{{ID: fmt.Sprint(starts), URL: a.URL}}
		if err := s.Update(c); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := <-done; !strings.HasPrefix(got, "200") {
				t.Error(got)
			}
		}
		want := fmt.Sprintf(`muster_gateway_cold_starts_total{service="add"} %d`, starts)
		if text := scrape(s); !strings.Contains(text, want+"\n") {
			t.Errorf("%s is not in\n%s", want, text)
		}
		c.Services[0].Replicas = nil
		if err := s.Update(c); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBrokenReplica: a replica that fails is left alone; the other answers.
func TestBrokenReplica(t *testing.T) {
	good, bad := newAdder(t, 0), newAdder(t, 0)
	bad.broken.Store(true)
	_, h := serve(t, &Config{Services: []Service{{Name: "add", LatencyMS: 2000, Batch: 2, TakesMS: takes(2, 1),
		Replicas: []Replica{{ID: "1", URL: good.URL}, {ID: "2", URL: bad.URL}}}}})
	failed := 0
	for i := range 60 {
		if status, _ := post(t, h.URL+"/v2/models/add/infer", sample(i)); status != 200 {
			failed++
		}
	}
	if failed > failuresToShut+1 {
		t.Errorf("%d of 60 requests failed", failed)
	}
}

// TestKeys: which key may call what, and how often.
func TestKeys(t *testing.T) {
	a := newAdder(t, 0)
	hash := "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // of "secret"
	_, h := serve(t, &Config{
		Services: []Service{{Name: "add", Batch: 2, TakesMS: takes(2, 1), Replicas: []Replica{{ID: "1", URL: a.URL}}},
			{Name: "other"}},
		Keys: []Key{{Name: "ann", Hash: hash, Services: []string{"add"}, Rate: 0.001, Burst: 2}}})
	url := h.URL + "/v2/models/add/infer"
	for i, c := range []struct {
		url, key string
		status   int
	}{{url, "", 401}, {url, "wrong", 401}, {h.URL + "/v2/models/other/infer", "secret", 403}, {url, "secret", 200},
		{url, "secret", 200}, {url, "secret", 429}} {
		if status, body := post(t, c.url, sample(1), "Authorization", "Bearer "+c.key); status != c.status {
			t.Errorf("%d: %d %s, want %d", i, status, body, c.status)
		}
	}
}

// TestKeyRates: a key above its rate is told when to come again, before its body takes room; where keys are needed and
// there are none, nobody is let in, nor told which paths there are.
func TestKeyRates(t *testing.T) {
	b, _ := plain(t, "ok", 0)
	c := one(b.URL)
	c.Keys = []Key{{Name: "ann", Hash: hashOf("k"), Rate: 0.3, Burst: 1}, {Name: "bob", Hash: hashOf("b"), Rate: 1e-9}}
	s, url := serveReal(t, c, short)
	answer := func(path, header, key string) (int, string) {
		t.Helper()
		r, _ := http.NewRequest(http.MethodGet, url+path, nil)
		r.Header.Set(header, key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	for i, x := range []struct {
		path, header, key string
		status            int
		retry             string
	}{{"/app/", "Authorization", "bearer k", 200, ""}, {"/app/", "X-Api-Key", "k", 429, "4"},
		{"/app/", "X-Api-Key", "b", 200, ""}, {"/app/", "X-Api-Key", "b", 429, "3600"},
		{"/nowhere/", "X-Api-Key", "k", 404, ""}, {"/nowhere/", "X-Api-Key", "", 401, ""},
		{"/app/", "Authorization", "Bearer ", 401, ""}, {"/app/", "Authorization", "Basic k", 401, ""}} {
		if status, retry := answer(x.path, x.header, x.key); status != x.status || retry != x.retry {
			t.Errorf("%d: %d, after %q seconds", i, status, retry)
		}
	}
	conn := dial(t, url, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nContent-Length: 100\r\n\r\n")
	if text, _ := rest(t, conn); !strings.Contains(text, "429 Too Many Requests") {
		t.Errorf("with a body that does not come: %q", text)
	}
	c.Keys, c.NeedsKey = nil, true
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/app/", "/nowhere/", "/v1/models", "/v2/models/app", "/v1/completions"} {
		if status, _ := answer(path, "X-Api-Key", "k"); status != 401 {
			t.Errorf("%s: %d where there are no keys", path, status)
		}
	}
	c.NeedsKey = false
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	if status, _ := answer("/app/", "X-Api-Key", ""); status != 200 {
		t.Errorf("%d where no key is needed", status)
	}
}

func BenchmarkProxy(b *testing.B) {
	backend := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	defer backend.Close()
	s := New(Options{Clock: time.Now})
	if err := s.Update(&Config{
		Services: []Service{{Name: "x", Path: "x", Replicas: []Replica{{ID: "1", URL: backend.URL}}}}}); err != nil {
		b.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := http.Post(h.URL+"/x/", "text/plain", bytes.NewReader(nil))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

// served is what became of a service's requests.
func served(s *Server, name string) Served {
	for _, x := range s.Report().Services {
		if x.Name == name {
			return x
		}
	}
	return Served{}
}
