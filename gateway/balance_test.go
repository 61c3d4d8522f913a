package gateway

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestWeights: replicas get their parts of the requests, however slow they are, in turn or many at once.
func TestWeights(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 4))
		weights := []float64{9, 1}
		if seed == 2 {
			weights = []float64{5, 3, 2}
		}
		var list []Replica
		var counts []*atomic.Int64
		for i, w := range weights {
			b, n := plain(t, "x", time.Duration(r.IntN(3))*time.Millisecond)
			counts = append(counts, n)
			list = append(list, Replica{ID: fmt.Sprint(i), URL: b.URL, Weight: w / 10})
		}
		_, url := serveReal(t, &Config{Services: []Service{{Name: "app", Path: "app", Replicas: list}}}, Limits{})
		const each = 250
		var wg sync.WaitGroup
		for range 1 + int(seed)*3 {
			wg.Go(func() {
				for range each {
					status(t, url+"/app/x")
				}
			})
		}
		wg.Wait()
		total := float64(each * (1 + int(seed)*3))
		for i, n := range counts {
			if got, want := float64(n.Load())/total, weights[i]/10; math.Abs(got-want) > 0.02 {
				t.Errorf("seed %d: replica %d got %.3f of the requests, want %.2f", seed, i, got, want)
			}
		}
	}
}

// TestLeastLatency: without weights the fast replica gets more, and a slow one is tried again.
func TestLeastLatency(t *testing.T) {
	slow, nSlow := plain(t, "x", 20*time.Millisecond)
	fast, nFast := plain(t, "x", 2*time.Millisecond)
	_, url := serveReal(t, &Config{Services: []Service{{Name: "app", Path: "app", Replicas: []Replica{
		{ID: "1", URL: slow.URL, AtOnce: 4}, {ID: "2", URL: fast.URL, AtOnce: 4}}}}}, Limits{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 40 {
				status(t, url+"/app/x")
			}
		})
	}
	wg.Wait()
	if nFast.Load() < 3*nSlow.Load() || nSlow.Load() == 0 {
		t.Errorf("%d to the slow replica, %d to the fast one", nSlow.Load(), nFast.Load())
	}
	p := &pool{spec: Service{}, replicas: []*replica{{took: time.Second, last: time.Unix(0, 0)},
		{took: 10 * time.Millisecond, last: time.Unix(60, 0)}}}
	if p.pick(time.Unix(1, 0), nil) != p.replicas[1] || p.pick(time.Unix(60, 0), nil) != p.replicas[0] {
		t.Error("a replica that was slow a minute ago is not tried")
	}
}

// TestLimiter simulates a replica that computes 4 requests at once in 10 ms each, and lets others wait: the limit
// settles where its answers take at most twice as long, and the replica is always busy. One that takes all at once
// gets the most that it may.
func TestLimiter(t *testing.T) {
	settle := func(bound int, takes func(busy int) time.Duration) (lowest, highest int) {
		l := &limiter{}
		lowest = 1 << 30
		for i := range 20_000 {
			busy := l.at(bound)
			l.answered(takes(busy), busy, false)
			if i > 2000 {
				lowest, highest = min(lowest, l.at(bound)), max(highest, l.at(bound))
			}
		}
		return lowest, highest
	}
	low, high := settle(64, func(busy int) time.Duration {
		return 10 * time.Millisecond * time.Duration(max(4, busy)) / 4
	})
	if low < 4 || high > 24 {
		t.Errorf("the limit is between %d and %d", low, high)
	}
	if low, _ = settle(64, func(int) time.Duration { return 10 * time.Millisecond }); low != 64 {
		t.Errorf("a replica that is not congested gets %d at once", low)
	}
	l := &limiter{}
	for range 2000 {
		l.answered(10*time.Millisecond, l.at(64), true)
	}
	if l.at(64) != 1 {
		t.Errorf("a replica that says it has too much to do gets %d at once", l.at(64))
	}
	for i := range 4000 { // requests of another kind, which take 50 ms
		l.answered(50*time.Millisecond, l.at(64), false)
		if i == 3999 && l.at(64) != 64 {
			t.Errorf("slower requests get %d at once", l.at(64))
		}
	}
	if l.at(32) != 4 || l.at(1) != 1 {
		t.Error("a new bound does not begin again")
	}
}

// TestAdaptive: a server that congests is given fewer requests at once than may be, but as many as keep it busy. It
// computes two at once, in 4 ms of a clock that goes on only while the gateway waits for it.
func TestAdaptive(t *testing.T) {
	const clients, cores, hour = 80, 2, 3_600_000 // the last in milliseconds
	arrived := make(chan chan struct{}, clients)
	b := newHandler(t, func(_ http.ResponseWriter, r *http.Request) {
		computed := make(chan struct{})
		arrived <- computed
		select {
		case <-computed:
		case <-r.Context().Done():
		}
	})
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	s, url := serveAt(t, &Config{Services: []Service{{Name: "app", Path: "app", LatencyMS: hour,
		Replicas: []Replica{{ID: "1", URL: b.URL, AtOnce: clients}}}}},
		Options{Clock: func() time.Time { return time.Unix(0, now.Load()) },
			Limits: Limits{WriteStall: time.Hour, Idle: time.Hour}})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for !stop.Load() {
				status(t, url+"/app/x")
			}
		})
	}
	var queue []chan struct{}
	most := 0
	for i := range 600 {
		until(t, "the server has all that the gateway gives it", func() bool {
			for len(arrived) > 0 {
				queue = append(queue, <-arrived)
			}
			u := served(s, "app")
			return u.Each[0].Busy == len(queue) && u.Each[0].Busy+u.Waiting == clients
		})
		if len(queue) < cores {
			t.Fatalf("%d at once", len(queue))
		}
		if i >= 300 {
			most = max(most, len(queue))
		}
		now.Add(int64(4 * time.Millisecond))
		for range cores {
			close(queue[0])
			queue = queue[1:]
		}
	}
	if most > clients/2 {
		t.Errorf("%d at once: %+v", most, served(s, "app").Each)
	}
	stop.Store(true)
	for _, c := range queue {
		close(c)
	}
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	for {
		select {
		case c := <-arrived:
			close(c)
		case <-ended:
			return
		}
	}
}
