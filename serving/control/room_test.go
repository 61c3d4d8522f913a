package control

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/gateway"
)

// TestNoRoom: where there are no GPUs for more replicas of the variant whose requests cost least, another one does the
// rest, which why says. When it is tried again, what answers stays.
func TestNoRoom(t *testing.T) {
	w := newWorld(t, 8)
	w.most = map[string]int{"a": 1}
	w.said = &gateway.Report{Services: []gateway.Served{{Name: "vision"}}}
	c := w.controller()
	spec := strings.Replace(text("serve", 1, 8), "static", "muster:window=5s", 1)
	spec = strings.Replace(spec, "{name: a,", "{name: a, cost: 1,", 1) + strings.Replace(
		spec[strings.Index(spec, "  - "):], "name: a,", "name: b, cost: 2,", 1)
	w.apply(c, spec)
	answering := func() map[string]int {
		n := map[string]int{}
		for _, r := range c.replicas {
			if r.state() == Answers {
				n[r.Variant]++
			}
		}
		return n
	}
	load := func(d time.Duration, rate int64) {
		t.Helper()
		for range d / time.Second {
			x := &w.said.Services[0]
			x.Arrived, x.Answered, x.InTime = x.Arrived+rate, x.Answered+rate, x.InTime+rate
			before := answering()
			w.pass(c, time.Second)
			if now := answering(); rate > 100 && now["a"]+now["b"] < min(4, before["a"]+before["b"]) {
				t.Fatalf("%v answer, before %v", now, before)
			}
		}
	}
	load(60*time.Second, 100)
	if n := answering(); n["a"] != 1 || n["b"] != 0 {
		t.Fatalf("the cheapest does it: %v", n)
	}
	load(60*time.Second, 3000)
	if n := answering(); n["a"] != 1 || n["b"] < 2 {
		s, _ := c.Service("vision")
		t.Fatalf("%v answer: %q", n, s.Why)
	}
	if s, _ := c.Service("vision"); !strings.Contains(strings.Join(s.Why, "\n"),
		"no GPUs were found for more replicas of a (1 have some)") {
		t.Errorf("why: %q", s.Why)
	}
	load(10*time.Minute, 3000)
	tried := 0
	for _, j := range w.jobs {
		if j.Variant == "a" && j.Submitted.After(w.now.Add(-9*time.Minute)) {
			tried++
		}
	}
	if tried == 0 || tried > 20 {
		t.Errorf("in nine minutes %d replicas of the cheapest were submitted", tried)
	}
}
