package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/tally"
)

const ms = time.Millisecond

// matrix is a service whose batches take 6 ms and a tenth for each request.
func matrix(rule string) service.Service {
	s := service.Service{Name: "matrix", Goal: service.Goal{Latency: 50 * ms, Percentile: 99},
		Replicas: service.Replicas{Max: 8}, Batching: service.Batching{Rule: rule, Delay: 2 * ms},
		Variants: []service.Variant{{Name: "v", Request: cluster.Request{GPUs: 1}}}}
	for _, b := range []int{1, 2, 4, 8, 16, 32} {
		s.Variants[0].Profile = append(s.Variants[0].Profile,
			service.Point{Share: cluster.Whole, Batch: b, Latency: 6*ms + time.Duration(b)*ms/10})
	}
	return s
}

func chat() service.Service {
	return service.Service{Name: "chat", Goal: service.Goal{TTFT: 500 * ms, TPOT: 50 * ms, Percentile: 99},
		Replicas: service.Replicas{Max: 8},
		Variants: []service.Variant{{Name: "8b", Request: cluster.Request{GPUs: 1}, Language: &service.Language{
			Model:     llm.Model{Params: 8.03e9, Weights: 16.06e9, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128},
			Precision: llm.BF16, Part: 0.9, Engine: llm.Engine{Tokens: 2048, Sequences: 256}}}}}
}

// inStages has a service's replicas compute in stages of a GPU each.
func inStages(s service.Service, stages int) service.Service {
	for i := range s.Variants {
		l := *s.Variants[i].Language
		l.Engine.Stages = stages
		s.Variants[i].Language, s.Variants[i].Request.GPUs = &l, stages
	}
	return s
}

var alone = Place{GPU: "H100-80GB", Slower: 1}

func add(t *testing.T, f *Fleet, svc int) int {
	t.Helper()
	id, err := f.Add(svc, 0, alone)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestAlone: a request that comes to an idle replica takes as long as a batch of one; two that come at once share one.
func TestAlone(t *testing.T) {
	s := []service.Service{matrix("")}
	for _, c := range []struct {
		rate float64
		want time.Duration
	}{{1, 6100 * time.Microsecond}} {
		f, err := New(s, requests.Draw(&requests.Arrivals{Rate: c.rate, For: 100 * time.Second}, 0))
		if err != nil {
			t.Fatal(err)
		}
		add(t, f, 0)
		if err := f.Advance(cluster.Never - 1); err != nil {
			t.Fatal(err)
		}
		got := f.Total(0)
		if p := got.Latency.Quantile(1); got.Answered != 99 || p < c.want || p > c.want*65/64 {
			t.Errorf("%d answered, at most %v", got.Answered, p)
		}
	}
}

// TestConservation: whatever happens to replicas, each request is answered, dropped, refused, lost or still there, and
// the same happens in one stretch as in many.
func TestConservation(t *testing.T) {
	for _, rule := range []string{"", "fixed", "clipper", "triton", "nexus"} {
		for seed := range uint64(20) {
			services := []service.Service{matrix(rule), inStages(chat(), 1+int(seed%3))}
			services[0].Batching.Waiting = 50
			load := func() requests.Stream {
				return requests.Merge(
					requests.Draw(&requests.Arrivals{Rate: 3000, CV: 2, For: 4 * time.Second, Seed: seed}, 0),
					requests.Draw(&requests.Arrivals{Rate: 40, CV: 1, For: 4 * time.Second, Seed: seed,
						Prompt: requests.Tokens{Median: 400, Sigma: 1}, Output: requests.Tokens{Median: 60, Sigma: 1}},
						1))
			}
			a, b := play(t, services, load(), seed, 1), play(t, services, load(), seed, 7)
			if a != b {
				t.Fatalf("%s, seed %d: in one stretch\n%s\nin several\n%s", rule, seed, a, b)
			}
		}
	}
}

// play adds, drains and removes replicas at random instants, and returns a text of all that was counted.
func play(t *testing.T, services []service.Service, load requests.Stream, seed uint64, stretches int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	f, err := New(services, load)
	if err != nil {
		t.Fatal(err)
	}
	var live []int
	now := cluster.Time(0)
	for range 40 {
		next := now.Add(time.Duration(1+r.IntN(200)) * ms)
		for k := range stretches {
			if err := f.Advance(now + (next-now)*cluster.Time(k+1)/cluster.Time(stretches)); err != nil {
				t.Fatal(err)
			}
		}
		now = next
		switch k := r.IntN(10); {
		case k < 5 && len(live) < 12:
			live = append(live, add(t, f, r.IntN(2)))
		case k < 8 && len(live) > 0:
			f.Drain(live[r.IntN(len(live))])
		case len(live) > 0:
			i := r.IntN(len(live))
			f.Remove(live[i])
			live = append(live[:i], live[i+1:]...)
		}
	}
	if err := f.Advance(cluster.Never - 1); err != nil {
		t.Fatal(err)
	}
	text := ""
	for svc := range services {
		c := f.Total(svc)
		left := int64(f.services[svc].queue.Len())
		for i := range f.replicas {
			if int(f.replicas[i].service) == svc && !f.Idle(i) {
				t.Errorf("replica %d is not idle at the end", i)
			}
		}
		if sum := c.Answered + c.Dropped + c.Refused + c.Failed + left; sum != c.Arrived || c.InTime > c.Answered {
			t.Fatalf("%s: %d of %d requests are accounted for: %+v, %d wait", services[svc].Name, sum, c.Arrived, c,
				left)
		}
		text += fmt.Sprintf(
			"%d arrived, %d answered, %d in time, %d dropped, %d refused, %d failed, %d wait; %v, %v, %v, %v\n",
			c.Arrived, c.Answered, c.InTime, c.Dropped, c.Refused, c.Failed, left, c.Busy, c.Latency.Quantile(0.5),
			c.TTFT.Quantile(0.9), c.ITL.Quantile(0.99))
	}
	return text
}

// TestTwin compares one replica with a program that plays it naively.
func TestTwin(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := []service.Service{matrix("fixed")}
		s[0].Batching.Max = 1 + r.IntN(32)
		s[0].Batching.Delay = time.Duration(r.IntN(20)) * ms
		a := requests.Arrivals{Rate: 50 + 3000*r.Float64(), CV: 1, For: 3 * time.Second, Seed: seed}
		f, err := New(s, requests.Draw(&a, 0))
		if err != nil {
			t.Fatal(err)
		}
		f.services[0].spec.Batching.Waiting = 1 << 30
		add(t, f, 0)
		if err := f.Advance(cluster.Never - 1); err != nil {
			t.Fatal(err)
		}
		var arrivals []cluster.Time
		stream := requests.Draw(&a, 0)
		for q := (requests.Request{}); stream.Next(&q) == nil; {
			arrivals = append(arrivals, q.At)
		}
		var want tally.Tally
		free := cluster.Time(0)
		for i := 0; i < len(arrivals); {
			// when the first has waited, or the batch is full, and the replica free
			due := arrivals[i].Add(s[0].Batching.Delay)
			if full := i + s[0].Batching.Max - 1; full < len(arrivals) {
				due = min(due, arrivals[full])
			}
			begin := max(free, due)
			n := 0
			for i+n < len(arrivals) && arrivals[i+n] <= begin && n < s[0].Batching.Max {
				n++
			}
			free = begin.Add(s[0].Variants[0].Profile.Takes(cluster.Whole, n))
			want.Batches++
			for k := range n {
				want.Answer(free.Sub(arrivals[i+k]), free.Sub(arrivals[i+k]) <= 50*ms)
			}
			i += n
		}
		got := f.Total(0)
		if got.Batches != want.Batches || got.InTime != want.InTime || got.Answered != want.Answered ||
			got.Latency.Quantile(0.9) != want.Latency.Quantile(0.9) {
			t.Fatalf("seed %d: %d batches, %d of %d in time; naively %d, %d of %d", seed, got.Batches, got.InTime,
				got.Answered,
				want.Batches, want.InTime, want.Answered)
		}
	}
}

// A replica in stages takes a batch whenever its first stage is free: with one batch at a time it would compute a part
// of the time. Requests that went back to the queue for lack of memory are counted.
func TestStages(t *testing.T) {
	for stages := 1; stages <= 3; stages++ {
		s := []service.Service{inStages(chat(), stages)}
		l := s[0].Variants[0].Language
		l.Engine.Blocks, l.Engine.Sequences = 60, 64
		f, err := New(s, requests.Draw(&requests.Arrivals{Rate: 40, CV: 1, For: 5 * time.Second,
			Prompt: requests.Tokens{Median: 100}, Output: requests.Tokens{Median: 150}}, 0))
		if err != nil {
			t.Fatal(err)
		}
		x := f.replicas[add(t, f, 0)].language.instance
		for f.Next() != cluster.Never {
			if err := f.Advance(f.Next()); err != nil {
				t.Fatal(err)
			}
		}
		c, all := f.Total(0), f.now.Sub(0)
		if c.Answered != c.Arrived || c.Busy < all*3/4 || c.Busy > all || !f.Idle(0) {
			t.Errorf("%d stages computed for %v of %v; %d of %d requests were answered", stages, c.Busy, all, c.Answered,
				c.Arrived)
		}
		if c.Preemptions == 0 || c.Preemptions != x.Preemptions {
			t.Errorf("%d preemptions are counted of %d", c.Preemptions, x.Preemptions)
		}
	}
}

func BenchmarkBatches(b *testing.B) {
	services := []service.Service{matrix("")}
	f, err := New(services, requests.Draw(&requests.Arrivals{Rate: 10_000, CV: 1, For: 1 << 60}, 0))
	if err != nil {
		b.Fatal(err)
	}
	for range 8 {
		if _, err := f.Add(0, 0, alone); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	if err := f.Advance(cluster.Time(b.N) * cluster.Time(time.Second) / 10_000); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkLanguage(b *testing.B) {
	services := []service.Service{chat()}
	f, err := New(services, requests.Draw(&requests.Arrivals{Rate: 100, CV: 1, For: 1 << 60,
		Prompt: requests.Tokens{Median: 700, Sigma: 1}, Output: requests.Tokens{Median: 150, Sigma: 0.8}}, 0))
	if err != nil {
		b.Fatal(err)
	}
	for range 8 {
		if _, err := f.Add(0, 0, alone); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	if err := f.Advance(cluster.Time(b.N) * cluster.Time(time.Second) / 100); err != nil {
		b.Fatal(err)
	}
}
