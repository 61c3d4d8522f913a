package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/gateway"
)

// parts is a service that a planner may divide: a batch of eight takes 8 ms on a GPU, 14 ms on a half, and so on.
func parts(name, scaling string) string {
	text := strings.NewReplacer("vision", name, "static", scaling).Replace(text("serve", 1, 4))
	return strings.Replace(text, "[{batch: 1, latency: 5ms}, {batch: 8, latency: 8ms}]", "[{batch: 1, latency: 5ms}, "+
		"{batch: 8, latency: 8ms}, {share: 0.5, batch: 1, latency: 8ms}, {share: 0.5, batch: 8, latency: 14ms}, "+
		"{share: 0.2, batch: 1, latency: 16ms}, {share: 0.2, batch: 8, latency: 30ms}]", 1)
}

// TestShares: a planner decides for its services together, muster for each alone where gpus is auto. As the rate of one
// rises its replica gets a larger share: the new one answers before the old one leaves, and the other service stays
// unless it shared cycles; another controller finds it again. What was not measured on parts of GPUs is refused.
func TestShares(t *testing.T) {
	for _, policy := range []string{"gpulet", "inss", "nexus"} {
		t.Run(policy, func(t *testing.T) { sharesChange(t, policy+":over=0.2,window=10s,hold=5s") })
	}
	t.Run("muster", func(t *testing.T) { sharesChange(t, "muster:window=10s\ngpus: auto") })
	w := newWorld(t, 4)
	spec := strings.Replace(text("serve", 1, 2), "static", "inss", 1)
	_, err := w.controller().Apply(context.Background(), &ask.ServiceFile{Text: spec}, Caller{User: "ann"})
	if err == nil || !strings.Contains(err.Error(), "scaling: inss plans parts of GPUs") {
		t.Errorf("measured on whole GPUs only: %v", err)
	}
}

func sum(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}

func sharesChange(t *testing.T, scaling string) {
	scaling, open := strings.CutSuffix(scaling, "\ngpus: auto")
	w := newWorld(t, 8)
	c := w.controller()
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision"}, {Name: "speech"}}}
	for _, name := range []string{"vision", "speech"} {
		spec := parts(name, scaling)
		if open {
			spec = strings.Replace(spec, "{name: a,", "{name: a, gpus: auto,", 1)
		}
		w.apply(c, spec)
	}
	if together := c.services["vision"].policy == c.services["speech"].policy; together == open {
		t.Fatalf("planned together: %t", together)
	}
	answering := func() (shares []int64) {
		if w.told == nil {
			return nil
		}
		for _, g := range w.told.Services {
			if g.Name != "vision" {
				continue
			}
			for _, r := range g.Replicas {
				var id int
				if _, err := fmt.Sscan(r.ID, &id); err != nil {
					t.Fatal(err)
				}
				if !r.Draining {
					shares = append(shares, int64(w.jobs[id].Share))
				}
			}
		}
		return shares
	}
	restarted := false
	load := func(d time.Duration, rate int64) {
		for range d / time.Second {
			for i := range w.said.Services {
				n := rate
				if w.said.Services[i].Name == "speech" {
					n = 60
				}
				w.said.Services[i].Arrived += n
				w.said.Services[i].Answered += n
				w.said.Services[i].InTime += n
			}
			before := answering()
			w.pass(c, time.Second)
			if now := answering(); len(before) > 0 && len(now) == 0 && !restarted {
				t.Fatalf("nothing answers, before it did: %v; %s", before, w.states(c, "vision"))
			}
		}
	}
	load(30*time.Second, 60)
	low := answering()
	if len(low) != 1 || low[0] > 500 {
		t.Fatalf("for 60 requests a second: %v", low)
	}
	speech := w.states(c, "speech")
	load(40*time.Second, 400)
	high := answering()
	if !open && len(high) != 1 || sum(high) <= low[0] {
		t.Errorf("for 400 requests a second: %v, for 60 %v", high, low)
	}
	c = w.controller()
	c = w.controller()
	restarted = true // it finds out first what answers
	load(2*time.Second, 400)
	restarted = false
	load(20*time.Second, 400)
	again := answering() // muster has lost by how much it was surprised, and holds less to spare
	if !open && fmt.Sprint(again) != fmt.Sprint(high) || sum(again) <= low[0] {
		t.Errorf("another controller: %v, before %v", again, high)
	}
	load(60*time.Second, 60)
	if again := answering(); fmt.Sprint(again) != fmt.Sprint(low) {
		t.Errorf("for 60 requests a second again: %v, at first %v", again, low)
	}
	if now := w.states(c, "speech"); now != speech && !strings.HasPrefix(scaling, "nexus") { // it shares cycles
		t.Errorf("the other service's replicas: %s, before %s", now, speech)
	}
}
