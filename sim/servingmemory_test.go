package sim

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/llm"
	"github.com/muster-gpu/muster/serving/scale"
)

// weighed is a stream that notes what is alive on the heap when its last request has been read.
type weighed struct {
	requests.Stream
	n    int
	live uint64 // bytes
}

func (w *weighed) Next(r *requests.Request) error {
	err := w.Stream.Next(r)
	if err != nil {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.live = m.HeapAlloc
		return err
	}
	w.n++
	return nil
}

// TestServingMemory: what a replay holds does not depend on how many requests come, drawn or recorded, for a model that
// computes batches and for a language model: ten times as many take no more.
func TestServingMemory(t *testing.T) {
	images := vision(2, 2)
	images.Variants[0].Startup = time.Second
	chat := images
	chat.Goal = service.Goal{TTFT: time.Second, TPOT: 50 * time.Millisecond, Percentile: 95}
	chat.Variants = []service.Variant{{Name: "8b", Request: cluster.Request{GPUs: 1}, Startup: time.Second,
		Language: &service.Language{Precision: llm.BF16, Part: 0.9,
			Model:  llm.Model{Params: 8.03e9, Weights: 16.06e9, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128},
			Engine: llm.Engine{Tokens: 2048, Sequences: 256}}}}
	drawn := func(n int, rate float64, tokens float64) requests.Stream {
		return requests.Draw(&requests.Arrivals{Rate: rate, CV: 1, For: time.Duration(float64(n) / rate * 1e9),
			Prompt: requests.Tokens{Median: tokens}, Output: requests.Tokens{Median: tokens / 4}}, 0)
	}
	for _, c := range []struct {
		name    string
		service service.Service
		few     int
		stream  func(n int) requests.Stream
	}{
		{"drawn", images, 40_000, func(n int) requests.Stream { return drawn(n, 2000, 0) }},
		{"recorded", images, 40_000, func(n int) requests.Stream {
			f, err := requests.Open(recorded(t, n, 2000), requests.Options{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}},
		{"of a language model", chat, 5_000, func(n int) requests.Stream { return drawn(n, 20, 200) }},
	} {
		var live [2]uint64
		for i, n := range []int{c.few, 10 * c.few} {
			w := &weighed{Stream: c.stream(n)}
			p, err := scale.New("static")
			if err != nil {
				t.Fatal(err)
			}
			sv := &Serving{Services: []service.Service{c.service}, Scaling: []scale.Policy{p}, Stream: w}
			spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "n1", Model: "H100-80GB", GPUs: 2}}}
			out := Run(context.Background(), spec, nil,
				Setup{Policy: "fifo", Placer: "best-fit", World: Options{Serving: sv}})
			got := &sv.Served[0]
			if out.Err != nil || got.Arrived != int64(w.n) || got.Attainment() < 0.9 ||
				w.n < n*95/100 || w.n > n*105/100 {
				t.Fatalf("%s: %d requests, %d of %d arrived, %.3f in time, %v", c.name, n, got.Arrived, w.n,
					got.Attainment(), out.Err)
			}
			live[i] = w.live
		}
		t.Logf("%s: %d KB with %d requests, %d KB with ten times as many", c.name, live[0]>>10, c.few, live[1]>>10)
		if live[1] > live[0]+256<<10 { // eight bytes for each request are 360 KB or more
			t.Errorf("%s: %d KB are alive with %d requests, %d KB with ten times as many", c.name, live[0]>>10, c.few,
				live[1]>>10)
		}
	}
}

// recorded writes a file of requests at an even rate.
func recorded(t *testing.T, n int, rate float64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "arrival_s")
	for i := range n {
		fmt.Fprintf(w, "%.4f\n", float64(i)/rate)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServingFull: under hpa:metric=kv, requests that fill the memory for keys and values need more replicas, and the
// same number of short ones does not.
func TestServingFull(t *testing.T) {
	chat := vision(1, 4)
	chat.Goal = service.Goal{TTFT: 10 * time.Second, Percentile: 90}
	chat.Variants = []service.Variant{{Name: "small", Request: cluster.Request{GPUs: 1}, Startup: time.Second,
		Language: &service.Language{Precision: llm.BF16, Part: 0.9,
			Model:  llm.Model{Params: 0.49e9, Weights: 0.99e9, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64},
			Engine: llm.Engine{Tokens: 2048, Sequences: 256, Blocks: 2000}}}}
	for _, tokens := range []float64{200, 8000} {
		load := &requests.Arrivals{Rate: 1, CV: 1, For: 10 * time.Minute, Prompt: requests.Tokens{Median: tokens},
			Output: requests.Tokens{Median: 500}}
		sv, _ := serve(t, chat, "hpa:metric=kv", load, nil)
		if got := sv.Served[0].Peak; (got > 1) != (tokens > 1000) {
			t.Errorf("prompts of %g tokens: %d replicas", tokens, got)
		}
	}
}
