package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestChaos: replicas that fail in every way, clients that leave, and a configuration that changes all the time.
// Afterwards each request is counted once, and nothing is held.
func TestChaos(t *testing.T) {
	noGoroutineLeft(t)
	var replicas []Replica
	for i := range 4 {
		r := rand.New(rand.NewPCG(uint64(i), 9))
		var mu sync.Mutex
		b := newRaw(t, func(c net.Conn) {
			mu.Lock()
			does := r.IntN(6 + 6*i) // the last one is mostly well
			mu.Unlock()
			head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
			switch does {
			case 0:
			case 1:
				says(head + "Content-Length: 100\r\n\r\nabc")(c)
			case 2:
				says("\x00garbage")(c)
			case 3:
				says("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")(c)
			case 4:
				time.Sleep(80 * time.Millisecond)
			default:
				time.Sleep(2 * time.Millisecond)
				says(head + "Content-Length: 2\r\nConnection: close\r\n\r\n{}")(c)
			}
		})
		replicas = append(replicas, Replica{ID: fmt.Sprint(i), URL: b.url, AtOnce: 2})
	}
	config := func(r *rand.Rand) *Config {
		list := append([]Replica(nil), replicas...)
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:r.IntN(len(list)+1)]
		for i := range list {
			list[i].Weight, list[i].Draining = float64(r.IntN(3)), r.IntN(5) == 0
		}
		return &Config{Services: []Service{
			{Name: "app", Path: "app", LatencyMS: 150, Waiting: 5, ColdMS: 50, TimeoutMS: 50, StallMS: 50,
				Replicas: list},
			{Name: "m", LatencyMS: 150, Waiting: 5, ColdMS: 50, TimeoutMS: 50, Batch: 4, TakesMS: takes(4, 3),
				Replicas: list}}}
	}
	r := rand.New(rand.NewPCG(7, 9))
	s, url := serveReal(t, config(r), Limits{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 40}}
	for w := range 30 {
		wg.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(w), 10))
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(),
					time.Duration(1+chance.IntN(200))*time.Millisecond)
				method, path, body := "GET", "/app/x", ""
				switch chance.IntN(3) {
				case 0:
					method, path, body = "POST", "/v2/models/m/infer", sample(w)
				case 1:
					method, path, body = "POST", "/v1/completions", `{"model":"app"}`
				}
				req, _ := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
				if resp, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	for range 60 {
		time.Sleep(25 * time.Millisecond)
		if err := s.Update(config(r)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	client.CloseIdleConnections()
	for _, name := range []string{"app", "m"} {
		t.Cleanup(func() {
			if t.Failed() {
				c := served(s, name)
				t.Logf("%s: %d arrived; %d answered, %d dropped, %d refused, %d failed, %d left; %d wait", name, c.Arrived,
					c.Answered, c.Dropped, c.Refused, c.Failed, c.Left, c.Waiting)
			}
		})
		until(t, "all is counted: "+name, func() bool {
			c := served(s, name)
			for _, r := range c.Each {
				if r.Busy != 0 {
					return false
				}
			}
			return c.Waiting == 0 && c.Arrived == c.Answered+c.Dropped+c.Refused+c.Failed+c.Left
		})
		if c := served(s, name); c.Answered == 0 || c.Failed == 0 || c.Refused == 0 || c.Left == 0 || c.Retried == 0 {
			if name == "app" || c.Arrived == 0 {
				t.Errorf("too little happened: %+v", c)
			}
		}
	}
	p := s.state.Load().pools
	for name := range p {
		p[name].mu.Lock()
		if p[name].gone != 0 && len(p[name].calls) == 0 || len(p[name].retries) != 0 {
			t.Errorf("%s: %d gone of %d, %d retries", name, p[name].gone, len(p[name].calls), len(p[name].retries))
		}
		p[name].mu.Unlock()
	}
	if n := s.kept.Load(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}
