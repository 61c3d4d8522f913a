package gateway

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestSingleRequests: of a replica that computes one request after the other, each counts as a batch of one that took
// as long as it kept the replica, without the time in which the replica computed those before it.
func TestSingleRequests(t *testing.T) {
	const each, number = 20 * time.Millisecond, 6
	var turn sync.Mutex
	b := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		turn.Lock()
		defer turn.Unlock()
		time.Sleep(each)
		_, _ = io.WriteString(w, "{}")
	})
	s, h := serve(t, &Config{Services: []Service{{Name: "one", LatencyMS: 60_000, Batch: 1, TakesMS: takes(1, 20),
		Replicas: []Replica{{ID: "1", URL: b.URL}}}}})
	began := time.Now()
	var wg sync.WaitGroup
	for range number {
		wg.Go(func() { post(t, h.URL+"/v2/models/one/infer", "{}") })
	}
	wg.Wait()
	most := time.Since(began)
	got := served(s, "one").Each[0].Sizes
	if len(got) != 1 || got[0].Requests != 1 || got[0].Batches != number || got[0].Took < number*each ||
		got[0].Took > most {
		t.Errorf("%+v; all together took %v", got, most)
	}
}
