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

// BenchmarkStep: how long after a step in load a service is in time again, and the part of the requests that were late
// until then, with the example's model on the CPU: from 0.3 to 1.2 times what one replica sustains.
func BenchmarkStep(b *testing.B) {
	const goal = 200 * time.Millisecond
	wd, err := os.Getwd()
	if err != nil {
		b.Fatal(err)
	}
	model := filepath.Join(wd, "..", "..", "examples", "serving", "matrix.py")
	one := 0.0 // requests a second that a replica sustains
	for _, policy := range []string{"muster", "hpa:window=30s"} {
		b.Run(policy, func(b *testing.B) {
			s := startServing(b, "4xH100-80GB")
			apply := func(scaling string) {
				text := fmt.Sprintf("name: vision\nlatency: %v\npercentile: 95\nreplicas: {min: 1, max: 2}\n"+
					"batching: {max: 1}\nscaling: %s\nvariants:\n"+
					"  - {name: matrix, command: [/usr/bin/python3, %s], startup: 4s, profile: measure}\n", goal, scaling, model)
				path := filepath.Join(s.dir, "vision.yaml")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					b.Fatal(err)
				}
				s.must("service", "apply", path)
			}
			for b.Loop() {
				apply("static:replicas=1")
				s.answers("vision", 1)
				if one == 0 {
					if one = s.sustained(b, "vision", goal); one == 0 {
						b.Fatal("the machine is too busy: a replica does not sustain 25 requests a second")
					}
				}
				f := s.sends("vision", 0.3*one)
				apply(policy)
				time.Sleep(20 * time.Second)
				s.answers("vision", 1)
				step := f.at(1.2 * one)
				began := time.Now()
				s.eventually("another is wanted", func() bool { return s.show("vision").Wanted > 1 })
				b.ReportMetric(time.Since(began).Seconds(), "s-until-wanted")
				s.answers("vision", 2)
				b.ReportMetric(time.Since(began).Seconds(), "s-until-it-answers")
				time.Sleep(30*time.Second - time.Since(began))
				all := f.end()[step:]
				from := 0 // from here to the end the goal is met
				for n := inTime(all, goal); n*100 < 95*(len(all)-from); from++ {
					n -= inTime(all[from:from+1], goal)
				}
				b.ReportMetric(all[min(from, len(all)-1)].due.Sub(began).Seconds(), "s-until-in-time")
				b.ReportMetric(float64(len(all)-inTime(all, goal)), "late")
				b.ReportMetric(float64(len(all)), "requests")
				b.ReportMetric(one, "sustained/s")
				s.must("service", "delete", "vision")
				s.eventually("it is gone", func() bool {
					return strings.Contains(s.must("service", "list"), "no services")
				})
			}
		})
	}
}
