//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/load"
)

// steady is a stream of requests at a rate, evenly, for a time.
type steady struct {
	gap  time.Duration
	most int64
	next int64
}

func (s *steady) Next(r *requests.Request) error {
	if s.next >= s.most {
		return io.EOF
	}
	*r = requests.Request{At: cluster.Time(int64(s.gap) * s.next)}
	s.next++
	return nil
}

// sustained is the highest of ever finer rates at which a service answers its percentile of requests within a goal.
func (s *servingTest) sustained(b *testing.B, name string, goal time.Duration) (best float64) {
	const each = 4 * time.Second
	spec := service.Service{Name: name, Goal: service.Goal{Latency: goal, Percentile: 99},
		Variants: []service.Variant{{}}}
	keeps := func(rate float64) bool {
		counts, _, err := load.Play(b.Context(), load.Options{Gateway: s.url, Services: []service.Service{spec},
			Stream: &steady{gap: time.Duration(float64(time.Second) / rate), most: int64(rate * each.Seconds())},
			Now:    time.Now})
		if err != nil {
			b.Fatal(err)
		}
		return counts[0].Attainment() >= 0.99
	}
	rate := 25.0
	for keeps(rate) {
		best = rate
		rate *= 2
	}
	for step := best / 2; step > best/10; step /= 2 {
		if keeps(best + step) {
			best += step
		}
	}
	return best
}

// BenchmarkBatching: how many requests a second the example's model on the CPU answers within 100 ms (99 %), one at a
// time and in batches.
func BenchmarkBatching(b *testing.B) {
	const goal = 100 * time.Millisecond
	s := startServing(b, "1xH100-80GB")
	wd, err := os.Getwd()
	if err != nil {
		b.Fatal(err)
	}
	model := filepath.Join(wd, "..", "..", "examples", "serving", "matrix.py")
	for b.Loop() {
		rates := map[int]float64{}
		for _, most := range []int{1, 64} {
			name := fmt.Sprintf("batch%d", most)
			text := fmt.Sprintf(`
name: %s
latency: %v
replicas: {min: 1, max: 1}
scaling: static
batching: {max: %d}
variants:
  - {name: matrix, command: [/usr/bin/python3, %s], startup: 5s, profile: measure}
`, name, goal, most, model)
			path := filepath.Join(s.dir, name+".yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			s.must("service", "apply", path)
			s.answers(name, 1)
			rates[most] = s.sustained(b, name, goal)
			s.must("service", "delete", name)
			s.eventually("it is gone", func() bool {
				return strings.Contains(s.must("service", "list"), "no services")
			})
		}
		b.ReportMetric(rates[1], "alone/s")
		b.ReportMetric(rates[64], "batched/s")
		b.ReportMetric(rates[64]/rates[1], "times")
	}
}
