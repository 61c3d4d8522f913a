package control

import (
	"cmp"
	"net"
	"slices"
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
				return c.keys.tellFirst(c.opt.Gateway)
			}
		}
	}
	g := &gateway.Config{Services: []gateway.Service{}}
	c.keys.put(g)
	changed := c.wrote == nil || !c.keys.are(c.wrote)
	for _, name := range c.names() {
		s := c.services[name]
		if s.deleted {
			continue
		}
		if s.routes == nil {
			s.routes, changed = s.route(), true
			s.refused = (&gateway.Config{Services: c.split(s)}).Check()
		}
		if s.refused != nil {
			continue // the gateway would take over nothing of the others either
		}
		for _, one := range c.split(s) {
			k := len(g.Services)
			changed = changed || k >= len(c.wrote.Services) || c.wrote.Services[k].Name != one.Name ||
				!slices.Equal(c.wrote.Services[k].Replicas, one.Replicas)
			g.Services = append(g.Services, one)
		}
	}
	if !changed && len(g.Services) == len(c.wrote.Services) {
		return nil
	}
	if err := c.opt.Gateway.Write(g); err != nil {
		return err
	}
	c.wrote = g
	return nil
}

// route is a service as the gateway has it, but for its replicas.
func (s *running) route() *gateway.Service {
	g := &gateway.Service{Name: s.Name, Path: s.Path, LatencyMS: millis(s.Goal.Latency),
		TTFTMS: millis(s.Goal.TTFT), TPOTMS: millis(s.Goal.TPOT), Rule: rule(s),
		DelayMS: millis(s.Batching.Delay), Preferred: s.Batching.Preferred, Waiting: s.Batching.Waiting}
	cold := time.Duration(0)
	for i := range s.Variants {
		v := &s.Variants[i]
		cold = max(cold, v.Startup)
		if v.Language != nil {
			continue
		}
		g.Batch = max(g.Batch, s.MaxBatch(v))
	}
	slowed := s.slowed()
	for n := 1; n <= g.Batch; n++ { // as long as the slowest variant takes: what is promised must hold on each
		longest := time.Duration(0)
		for i := range s.Variants {
			v := &slowed.Variants[i]
			longest = max(longest, v.Profile.Takes(v.Share(), n))
		}
		g.TakesMS = append(g.TakesMS, millis(longest))
	}
	g.ColdMS = millis(max(startLeast, startFactor*cold))
	return g
}

// route is where a replica answers; ok: it does, or finishes what it has.
func route(r *replica) (x gateway.Replica, ok bool) {
	st := r.state()
	return gateway.Replica{ID: strconv.Itoa(r.ID), URL: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port)),
		Draining: st != Answers}, st == Answers || r.answers && (st == Leaves || st == Suspends)
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
