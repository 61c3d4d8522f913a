package control

import (
	"cmp"
	"net"
	"reflect"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/serving/scale"
)

// tell writes where replicas answer, if that has changed. What a former controller wrote stays until it is known which
// of the replicas that run answer.
func (c *Controller) tell() error {
	if c.wrote == nil {
		for _, r := range c.replicas {
			if r.State == Starts && !r.answers && r.fails == 0 {
				return nil
			}
		}
	}
	g := &gateway.Config{Services: []gateway.Service{}}
	for _, name := range c.names() {
		if s := c.services[name]; !s.deleted {
			g.Services = append(g.Services, c.routes(s))
		}
	}
	if c.wrote != nil && reflect.DeepEqual(c.wrote, g) {
		return nil
	}
	if err := c.opt.Gateway.Write(g); err != nil {
		return err
	}
	c.wrote = g
	return nil
}

// routes are a service as the gateway has it.
func (c *Controller) routes(s *running) gateway.Service {
	g := gateway.Service{Name: s.Name, Path: s.Path, LatencyMS: millis(s.Goal.Latency), Rule: rule(s),
		DelayMS: millis(s.Batching.Delay), Preferred: s.Batching.Preferred, Waiting: s.Batching.Waiting,
		Replicas: []gateway.Replica{}}
	cold := time.Duration(0)
	for i := range s.Variants {
		v := &s.Variants[i]
		cold = max(cold, v.Startup)
		if v.Language != nil {
			continue
		}
		g.Batch = max(g.Batch, s.MaxBatch(v))
	}
	for n := 1; n <= g.Batch; n++ { // as long as the slowest variant takes: what is promised must hold on each
		longest := time.Duration(0)
		for i := range s.Variants {
			longest = max(longest, s.Variants[i].Profile.Takes(s.Variants[i].Share(), n))
		}
		g.TakesMS = append(g.TakesMS, millis(longest))
	}
	g.ColdMS = millis(max(startLeast, startFactor*cold))
	for _, r := range c.of(s) {
		if st := r.state(); st != Answers && !(st == Leaves && r.answers) && !(st == Suspends && r.answers) {
			continue
		}
		g.Replicas = append(g.Replicas, gateway.Replica{ID: strconv.Itoa(r.ID),
			URL:      "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port)),
			Draining: r.state() != Answers})
	}
	return g
}

// rule is the batching rule of a service: its own, or the one that goes with its scaling policy.
func rule(s *running) string {
	own := ""
	if b, ok := s.policy.(scale.Batcher); ok {
		own = b.Batching()
	}
	return cmp.Or(s.Batching.Rule, own)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
