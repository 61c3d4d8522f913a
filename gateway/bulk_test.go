package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestBulkBatches: bulk requests are answered, in batches of their own, and are not in the service's tally; those that
// come while they wait go first.
func TestBulkBatches(t *testing.T) {
	a := newAdder(t, 100*time.Millisecond)
	s, h := serve(t, &Config{Services: []Service{{Name: "add", LatencyMS: 4000, Batch: 4, TakesMS: takes(4, 100),
		Replicas: []Replica{{ID: "1", URL: a.URL}}}}})
	var bulk, others sync.WaitGroup
	var left atomic.Int64
	left.Store(40)
	for i := range 40 {
		bulk.Go(func() {
			defer left.Add(-1)
			if status, body := post(t, h.URL+"/v2/models/add/infer", sample(i), BulkHeader,
				fmt.Sprint("left=40;by=", time.Now().Add(100*time.Second).Unix())); status != http.StatusOK {
				t.Errorf("bulk: %d %s", status, body)
			}
		})
	}
	for served(s, "add").Bulk == nil {
		time.Sleep(time.Millisecond)
	}
	if n := served(s, "add").Bulk.Needed; n < 0.3 || n > 0.5 {
		t.Errorf("%g requests a second are needed for 40 in 100 s", n)
	}
	for i := range 4 { // the bulk takes a second at least
		others.Go(func() {
			if status, body := post(t, h.URL+"/v2/models/add/infer", sample(i)); status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	others.Wait()
	if left.Load() == 0 {
		t.Error("all of the bulk was answered before the others")
	}
	bulk.Wait()
	c := served(s, "add")
	if c.Arrived != 4 || c.Answered != 4 || c.Bulk.Answered != 40 || c.Bulk.Failed != 0 || c.Bulk.Waiting != 0 ||
		c.Batches > 4 || a.batches.Load() < 11 || a.samples.Load() != 44 {
		t.Errorf("%+v, %+v; %d batches, %d samples", c, c.Bulk, a.batches.Load(), a.samples.Load())
	}
	status, body := post(t, h.URL+"/v2/models/add/infer", sample(1), BulkHeader, "yes")
	if status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
}

// TestBulkFromNothing: bulk requests wait for a first replica, which is needed as long as they do; once they have their
// answers nothing is.
func TestBulkFromNothing(t *testing.T) {
	a := newAdder(t, 0)
	cfg := &Config{Services: []Service{{Name: "add", LatencyMS: 4000, Batch: 4, ColdMS: 60_000,
		TakesMS: takes(4, 20)}}}
	s, h := serve(t, cfg)
	var bulk sync.WaitGroup
	says := fmt.Sprint("left=3;by=", time.Now().Add(100*time.Second).Unix())
	for i := range 3 {
		bulk.Go(func() {
			status, body := post(t, h.URL+"/v2/models/add/infer", sample(i), BulkHeader, says)
			if status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	for b := served(s, "add").Bulk; b == nil || b.Waiting < 3; b = served(s, "add").Bulk {
		time.Sleep(time.Millisecond)
	}
	p := s.state.Load().pools["add"]
	p.mu.Lock()
	later := p.bulk.report(s.clock().Add(2 * needFor))
	p.mu.Unlock()
	if later.Needed == 0 {
		t.Error("nothing is needed for requests that wait")
	}
	cfg.Services[0].Replicas = []Replica{{ID: "1", URL: a.URL}}
	if err := s.Update(cfg); err != nil {
		t.Fatal(err)
	}
	bulk.Wait()
	if b := served(s, "add").Bulk; b.Answered != 3 || b.Needed != 0 {
		t.Errorf("%+v", b)
	}
}

// TestBulkYields: bulk requests that are passed on hold at most half of a replica, and end at once when it is needed.
func TestBulkYields(t *testing.T) {
	var now, most atomic.Int64
	release := make(chan struct{})
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer b.Close()
	s, h := serve(t, &Config{Services: []Service{{Name: "app", Path: "app",
		Replicas: []Replica{{ID: "1", URL: b.URL, AtOnce: 4}}}}})
	var all sync.WaitGroup
	statuses := make(chan int, 10)
	for range 3 {
		all.Go(func() {
			status, _ := post(t, h.URL+"/app/x", "{}", BulkHeader, "left=3")
			statuses <- status
		})
	}
	for now.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if most.Load() != 2 {
		t.Fatalf("%d bulk requests hold a replica that answers 4 at once", most.Load())
	}
	for range 4 {
		all.Go(func() {
			if status, body := post(t, h.URL+"/app/x", "{}"); status != http.StatusOK {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	for range 2 {
		if status := <-statuses; status != http.StatusServiceUnavailable {
			t.Errorf("a bulk request that had to yield was answered with %d", status)
		}
	}
	close(release)
	all.Wait()
	if status := <-statuses; status != http.StatusOK {
		t.Errorf("the bulk request that waited was answered with %d", status)
	}
	if c := served(s, "app"); c.Answered != 4 || c.Bulk.Answered != 1 || c.Bulk.Failed != 0 || c.Each[0].Failed != 0 {
		t.Errorf("%+v, %+v", c, c.Bulk)
	}
}
