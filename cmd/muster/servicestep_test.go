//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/load"
	"github.com/muster-gpu/muster/serving/tally"
)

// sends sends requests at a rate, evenly, however long the answers take, until it is ended, which returns what became
// of them.
func (s *servingTest) sends(name string, goal time.Duration, rate float64) (end func() tally.Tally) {
	spec := service.Service{Name: name, Goal: service.Goal{Latency: goal}, Variants: []service.Variant{{}}}
	ctx, cancel := context.WithCancel(s.t.Context())
	type result struct {
		counts []tally.Tally
		err    error
	}
	done := make(chan result, 1)
	go func() {
		counts, _, err := load.Play(ctx, load.Options{Gateway: s.url, Services: []service.Service{spec},
			Stream: &steady{gap: time.Duration(float64(time.Second) / rate), most: math.MaxInt64}, Now: time.Now})
		done <- result{counts, err}
	}()
	return func() tally.Tally {
		s.t.Helper()
		cancel()
		r := <-done
		if r.err != nil {
			s.t.Fatal(r.err)
		}
		return r.counts[0]
	}
}

// TestServiceVariants: of two models with different accuracy the accurate one answers while the budget pays for as many
// requests as there are; beyond that, the other one. Both are as accurate as the file says.
func TestServiceVariants(t *testing.T) {
	t.Parallel()
	s := startServing(t, "4xH100-80GB")
	s.applyExample("variants.yaml", "matrix.py, ", "matrix.py, --numpy, ", `"4096"`, `"2048"`)
	file, err := config.LoadServices(filepath.Join("..", "..", "examples", "serving", "variants.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	stated := map[string]float64{}
	for _, v := range file[0].Variants {
		stated[v.Name] = v.Accuracy
	}
	accuracy := regexp.MustCompile(`accuracy (0\.[0-9]+)`)
	answers := func(variant string) {
		t.Helper()
		s.eventually("only "+variant+" answers", func() bool {
			v := s.show("vision")
			return len(v.Replicas) == 1 && v.Replicas[0].Variant == variant && v.Answers == 1
		})
		says := accuracy.FindStringSubmatch(s.must("service", "logs", "vision"))
		if says == nil {
			t.Fatal(s.must("service", "logs", "vision"))
		}
		if is, err := strconv.ParseFloat(says[1], 64); err != nil || math.Abs(is-stated[variant]) > 0.05 {
			t.Errorf("%s: accuracy %s, stated: %v", variant, says[1], stated[variant])
		}
	}
	answers("wide")
	for _, c := range []struct {
		rate    float64
		variant string
	}{{1, "wide"}, {100, "narrow"}, {1, "wide"}} {
		end := s.sends("vision", 200*time.Millisecond, c.rate)
		s.eventually(fmt.Sprintf("%v requests a second come", c.rate), func() bool {
			rate := s.show("vision").Rate // of the last minute
			return rate > 0 && (c.rate < 10 || rate > 5)
		})
		answers(c.variant)
		s.eventually(c.variant+" answers requests", func() bool {
			status, _ := s.ask("vision")
			return status == http.StatusOK
		})
		if got := end(); got.Answered == 0 {
			t.Errorf("%v requests a second: %+v", c.rate, got)
		}
	}
}
