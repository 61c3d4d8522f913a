//go:build linux

package main

import (
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/muster-gpu/muster/config"
)

// sender is a load that is sent evenly, however long the answers take.
type sender struct {
	*servingTest
	name  string
	all   sync.WaitGroup
	stop  chan struct{}
	mu    sync.Mutex
	gap   time.Duration
	due   time.Time // of the next request
	asked []asked
}

// asked is a request and what became of it.
type asked struct {
	due      time.Time
	took     time.Duration // from when it was due to its answer
	answered bool
}

// sends sends requests at a rate, each second, until it is ended.
func (s *servingTest) sends(name string, rate float64) *sender {
	f := &sender{servingTest: s, name: name, stop: make(chan struct{})}
	f.at(rate)
	f.all.Go(func() {
		for {
			f.mu.Lock()
			wait := time.Until(f.due)
			f.mu.Unlock()
			select {
			case <-f.stop:
				return
			case <-time.After(min(wait, 10*time.Millisecond)):
			}
			if wait <= 0 {
				f.send()
			}
		}
	})
	return f
}

// at changes the rate, and returns how many requests were sent before.
func (f *sender) at(rate float64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gap, f.due = time.Duration(float64(time.Second)/rate), time.Now()
	return len(f.asked)
}

func (f *sender) send() {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, due := len(f.asked), f.due
	f.asked = append(f.asked, asked{due: due})
	f.due = due.Add(f.gap)
	f.all.Go(func() {
		status, _ := f.ask(f.name)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked[i].took, f.asked[i].answered = time.Since(due), status == http.StatusOK
	})
}

func (f *sender) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// end ends it, and returns what became of all requests.
func (f *sender) end() []asked {
	close(f.stop)
	f.all.Wait()
	return f.asked
}

// inTime counts requests that were answered within a goal.
func inTime(list []asked, goal time.Duration) (n int) {
	for _, r := range list {
		if r.answered && r.took <= goal {
			n++
		}
	}
	return n
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
		f := s.sends("vision", c.rate)
		s.eventually(fmt.Sprintf("%v requests a second come", c.rate), func() bool {
			rate := s.show("vision").Rate // of the last minute
			return rate > 0 && (c.rate < 10 || rate > 5)
		})
		answers(c.variant)
		s.eventually(c.variant+" answers requests", func() bool {
			status, _ := s.ask("vision")
			return status == http.StatusOK
		})
		if got := f.end(); inTime(got, patience) == 0 {
			t.Errorf("of %d requests, %v a second, none was answered", len(got), c.rate)
		}
	}
}

// TestServiceStep: four times as many requests are met by another replica as soon as it has started, and what waited
// meanwhile is answered or refused: as many requests later as the surplus then needs for it, they are in time again.
// The GPUs are played, so that replicas sustain four requests a second each, however busy the machine is.
func TestServiceStep(t *testing.T) {
	t.Parallel()
	const goal = 2 * time.Second
	for _, policy := range []string{"muster:window=10s", "hpa:window=10s"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := startServing(t, "4xH100-80GB")
			more := "percentile: 90\nreplicas: {min: 1, max: 4}\nbatching: {max: 1}\nscaling: " + policy
			s.applyChanged("vision", more, "{batch: 1, latency: 250ms}", `["/usr/bin/python3",`,
				fmt.Sprintf(`["/usr/bin/python3",%q,%q,"serve",`, playedGPU(t), s.dir), "latency: 5s", "latency: 2s",
				"startup: 5s", "startup: 2s")
			s.eventually("it answers", func() bool { status, _ := s.ask("vision"); return status == http.StatusOK })
			f := s.sends("vision", 1.5)
			s.eventually("one replica is enough for few requests", func() bool {
				v := s.show("vision")
				return f.sent() > 20 && v.Answers == 1 && len(v.Replicas) == 1
			})
			step := f.at(6)
			s.eventually("another is wanted", func() bool { return s.show("vision").Wanted > 1 })
			decided := f.sent()
			s.eventually("it answers", func() bool { return s.show("vision").Answers > 1 })
			// At most as much waits as one replica answers within the goal (8); two answer 2 a second more than come.
			const drained, after = 24, 60
			from := f.sent() + drained
			s.eventually("further requests are sent", func() bool { return f.sent() >= from+after })
			all := f.end()
			if n := inTime(all[from:from+after], goal); n < after*9/10 {
				t.Errorf("%d of %d requests are in time, %d after the step", n, after, from-step)
			}
			if most := 6 * 20; decided-step > most {
				t.Errorf("%d requests came until another replica was wanted, more than %d", decided-step, most)
			}
			t.Logf("after the step: another replica was wanted %d requests later and answered %d later, %d of these "+
				"were in time", decided-step, from-drained-step, inTime(all[step:from-drained], goal))
		})
	}
}
