package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestRetries: a request goes to a second replica if the first was not reached, or died before it answered and the
// request may be answered twice; once, and only if its body has been kept.
func TestRetries(t *testing.T) {
	silent, half := func(net.Conn) {}, says("HTTP/1.1 2")
	chat := `{"model":"app","n":1}`
	large := strings.Repeat("x", replayedBody+1)
	for _, c := range []struct {
		name, method, path, body, header string
		first                            func(net.Conn) // nil: nothing is there
		status                           int
		second                           int64 // requests to the second replica
	}{
		{"GET", "GET", "/app/x", "", "", silent, 200, 1},
		{"GET, half an answer", "GET", "/app/x", "", "", half, 502, 0},
		{"GET, unreachable", "GET", "/app/x", "", "", nil, 200, 1},
		{"PUT", "PUT", "/app/x", "body", "", silent, 200, 1},
		{"POST", "POST", "/app/x", "body", "", silent, 502, 0},
		{"POST, unreachable", "POST", "/app/x", "body", "", nil, 200, 1},
		{"POST, unreachable, body not kept", "POST", "/app/x", large, "", nil, 502, 0},
		{"POST with a key", "POST", "/app/x", "body", "Idempotency-Key", silent, 200, 1},
		{"POST to a model", "POST", "/v1/completions", chat, "", silent, 200, 1},
		{"POST to a model, half an answer", "POST", "/v1/completions", chat, "", half, 502, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := nowhere(t)
			if c.first != nil {
				first = newRaw(t, c.first).url
			}
			var length atomic.Int64
			second, n := plain(t, "second", 0)
			inner := second.Config.Handler
			second.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				length.Store(r.ContentLength)
				inner.ServeHTTP(w, r)
			})
			s, url := serveReal(t, &Config{Services: []Service{{Name: "app", Path: "app",
				Replicas: []Replica{{ID: "1", URL: first}, {ID: "2", URL: second.URL}}}}}, Limits{})
			r, err := http.NewRequest(c.method, url+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.header != "" {
				r.Header.Set(c.header, "1")
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.status || n.Load() != c.second {
				t.Errorf("%d, %d requests to the second replica; want %d, %d", resp.StatusCode, n.Load(), c.status,
					c.second)
			}
			if c.second > 0 && int(length.Load()) != len(c.body) {
				t.Errorf("%d bytes came to the second replica, want %d", length.Load(), len(c.body))
			}
			got := served(s, "app")
			if got.Arrived != 1 || got.Retried != c.second || got.Answered+got.Failed != 1 || got.Each[0].Failed != 1 ||
				got.Each[0].Busy != 0 || got.Each[1].Busy != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRetriesOnce: where all replicas die, two are asked.
func TestRetriesOnce(t *testing.T) {
	var list []Replica
	var backends []*raw
	for i := range 4 {
		b := newRaw(t, func(net.Conn) {})
		backends = append(backends, b)
		list = append(list, Replica{ID: fmt.Sprint(i), URL: b.url})
	}
	_, url := serveReal(t, &Config{Services: []Service{{Name: "app", Path: "app", Replicas: list}}}, Limits{})
	if status := status(t, url+"/app/x"); status != http.StatusBadGateway {
		t.Errorf("%d", status)
	}
	total := int64(0)
	for _, b := range backends {
		total += b.seen.Load()
	}
	if total != 2 {
		t.Errorf("%d attempts", total)
	}
}

// TestRetryInTime: a second replica that is busy is waited for, but not beyond the goal.
func TestRetryInTime(t *testing.T) {
	release := make(chan struct{})
	busy := newHandler(t, func(http.ResponseWriter, *http.Request) { <-release })
	dies := newRaw(t, func(net.Conn) { time.Sleep(100 * time.Millisecond) })
	s, url := serveReal(t, &Config{Services: []Service{{Name: "app", Path: "app", LatencyMS: 300, Replicas: []Replica{
		{ID: "1", URL: busy.URL, AtOnce: 1}, {ID: "2", URL: dies.url, AtOnce: 1}}}}}, Limits{})
	first := make(chan int)
	go func() { first <- status(t, url+"/app/x") }()
	until(t, "the first is busy", func() bool { return served(s, "app").Each[0].Busy == 1 })
	if status := status(t, url+"/app/x"); status != http.StatusBadGateway {
		t.Errorf("%d", status)
	}
	close(release)
	if status := <-first; status != 200 {
		t.Errorf("%d", status)
	}
	if c := served(s, "app"); c.Arrived != 2 || c.Answered != 1 || c.Dropped != 1 || c.Failed != 0 {
		t.Errorf("%+v", c)
	}
}

// TestBatchRetries: what was in the batch of a replica that died is computed by another, once more.
func TestBatchRetries(t *testing.T) {
	a := newAdder(t, 0)
	dies := newRaw(t, func(net.Conn) { time.Sleep(20 * time.Millisecond) })
	s, url := serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 5000, Batch: 8, TakesMS: takes(8, 20),
		Replicas: []Replica{{ID: "1", URL: dies.url}, {ID: "2", URL: a.URL}}}}}, Limits{})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			status, body := post(t, url+"/v2/models/add/infer", sample(i))
			if status != 200 || !strings.Contains(body, fmt.Sprintf(`"id":"r%d"`, i)) ||
				!strings.Contains(body, fmt.Sprintf("[%d,%d]", i+1, 2*i+1)) {
				t.Errorf("%d: %d %s", i, status, body)
			}
		})
	}
	wg.Wait()
	if c := served(s, "add"); c.Answered != 40 || c.Retried == 0 || dies.seen.Load() == 0 || c.Failed != 0 {
		t.Errorf("%+v", c)
	}
	alone := newRaw(t, func(net.Conn) {})
	_, url = serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 60_000, Batch: 8, TakesMS: takes(8, 20),
		Replicas: []Replica{{ID: "1", URL: alone.url}}}}}, Limits{})
	if status, body := post(t, url+"/v2/models/add/infer", sample(1)); status != 502 {
		t.Errorf("without another replica: %d %s", status, body)
	}
}

// TestWrongOfBatch: a request that the replica refuses does not spoil the others of its batch.
func TestWrongOfBatch(t *testing.T) {
	a := newAdder(t, 5*time.Millisecond)
	inner := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || bytes.Contains(body, []byte("13")) {
			http.Error(w, "unlucky", http.StatusUnprocessableEntity)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	})
	_, url := serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 5000, Batch: 64, DelayMS: 50,
		Rule: "fixed", TakesMS: takes(64, 5), Replicas: []Replica{{ID: "1", URL: a.URL}}}}}, Limits{})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			v, want := i, 200
			if i == 5 {
				v, want = 13, 422
			}
			status, body := post(t, url+"/v2/models/add/infer", sample(v))
			if status != want || want == 422 && !strings.Contains(body, "unlucky") {
				t.Errorf("%d: %d %s", v, status, body)
			}
		})
	}
	wg.Wait()
}

// TestPriority: what waits is served by the priority of its key, and a full queue gives way to a higher one.
func TestPriority(t *testing.T) {
	var mu sync.Mutex
	var order []string
	hold := make(chan struct{})
	b := newHandler(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		order = append(order, r.URL.Path)
		mu.Unlock()
		<-hold
	})
	keys := []Key{{Name: "low", Hash: hashOf("low")}, {Name: "high", Hash: hashOf("high"), Priority: 5}}
	s, url := serveReal(t, &Config{Keys: keys, Services: []Service{{Name: "app", Path: "app", Waiting: 3,
		Replicas: []Replica{{ID: "1", URL: b.URL, AtOnce: 1}}}}}, Limits{})
	var wg sync.WaitGroup
	codes := map[string]int{}
	ask := func(key, path string) {
		wg.Go(func() {
			r, _ := http.NewRequest(http.MethodGet, url+"/app/"+path, nil)
			r.Header.Set("X-Api-Key", key)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			mu.Lock()
			codes[path] = resp.StatusCode
			mu.Unlock()
		})
	}
	waiting := func(n int) {
		until(t, fmt.Sprint(n, " wait"), func() bool {
			x := served(s, "app")
			return x.Waiting == n && x.Each[0].Busy == 1
		})
	}
	ask("low", "0")
	waiting(0)
	for i, key := range []string{"low", "high", "low"} {
		ask(key, fmt.Sprint(i+1))
		waiting(i + 1)
	}
	ask("high", "4") // in the place of the last of the low ones
	until(t, "one is refused", func() bool { return served(s, "app").Refused == 1 })
	ask("low", "5") // there is no room
	until(t, "another is refused", func() bool { return served(s, "app").Refused == 2 })
	close(hold)
	wg.Wait()
	if got := strings.Join(order, " "); got != "/0 /2 /4 /1" || codes["3"] != 429 || codes["5"] != 429 ||
		codes["4"] != 200 {
		t.Errorf("%s %v", got, codes)
	}
}

// TestKilled: a replica that is killed under load, and one that comes in its place, cost no request that may be
// answered twice, whether it was with the replica or waited.
func TestKilled(t *testing.T) {
	noGoroutineLeft(t)
	backend := func() *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(5 * time.Millisecond)
			if strings.HasSuffix(r.URL.Path, "/infer") {
				_, _ = io.WriteString(w, `{"outputs":[]}`)
			}
		}))
	}
	stays, dies, next := backend(), backend(), backend()
	defer stays.Close()
	defer next.Close()
	both := func(url string) *Config {
		list := []Replica{{ID: "1", URL: stays.URL, AtOnce: 4}, {ID: "2", URL: url, AtOnce: 4}}
		return &Config{Services: []Service{{Name: "app", Path: "app", LatencyMS: 5000, Replicas: list},
			{Name: "m", LatencyMS: 5000, Batch: 4, TakesMS: takes(4, 5), Replicas: list}}}
	}
	s, url := serveReal(t, both(dies.URL), Limits{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for w := range 16 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := 0
				if w%2 == 0 {
					got = status(t, url+"/app/x")
				} else {
					got, _ = post(t, url+"/v2/models/m/infer", sample(w))
				}
				if got != 200 {
					t.Errorf("%d", got)
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	_ = dies.Listener.Close()
	dies.CloseClientConnections()
	time.Sleep(200 * time.Millisecond)
	if err := s.Update(both(next.URL)); err != nil {
		t.Error(err)
	}
	time.Sleep(200 * time.Millisecond)
	close(stop)
	wg.Wait()
	dies.Close()
	if u := served(s, "app"); u.Retried == 0 || u.Each[1].Answered == 0 {
		t.Errorf("%+v", u)
	}
}

// TestLeftBatchDies: a request whose client left, and whose replica died after it was late, is counted once.
func TestLeftBatchDies(t *testing.T) {
	asked, die := make(chan struct{}, 1), make(chan struct{})
	first := newRaw(t, func(net.Conn) {
		asked <- struct{}{}
		<-die
	})
	s, url := serveReal(t, &Config{Services: []Service{{Name: "add", LatencyMS: 50, Batch: 4, TakesMS: takes(4, 1),
		Replicas: []Replica{{ID: "1", URL: first.url}}}}}, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/v2/models/add/infer", strings.NewReader(sample(1)))
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-asked
	cancel()
	<-gone
	until(t, "it has left", func() bool { return served(s, "add").Left == 1 })
	time.Sleep(60 * time.Millisecond) // now it is late as well
	c := &Config{Services: []Service{{Name: "add", LatencyMS: 50, Batch: 4, TakesMS: takes(4, 1),
		Replicas: []Replica{{ID: "1", URL: first.url}, {ID: "2", URL: nowhere(t)}}}}}
	if err := s.Update(c); err != nil {
		t.Fatal(err)
	}
	close(die)
	until(t, "the replica is idle", func() bool { return served(s, "add").Each[0].Busy == 0 })
	if u := served(s, "add"); u.Arrived != 1 || u.Left != 1 || u.Dropped+u.Failed+u.Refused+u.Retried != 0 {
		t.Errorf("%d arrived, %d left, %d dropped, %d failed, %d retried", u.Arrived, u.Left, u.Dropped, u.Failed,
			u.Retried)
	}
}
