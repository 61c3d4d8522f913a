package batch

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

const ms = time.Millisecond

func linear(first, each time.Duration) func(int) time.Duration {
	return func(n int) time.Duration { return first + time.Duration(n)*each }
}

func rule(t *testing.T, text string, s Setting) Rule {
	t.Helper()
	r, err := New(text, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// waiting is a queue of requests with these arrivals, in milliseconds.
func waiting(at ...int) *Queue {
	q := &Queue{}
	for _, a := range at {
		q.Push(Item{At: cluster.Time(a) * cluster.Time(ms)})
	}
	return q
}

func at(n int) cluster.Time { return cluster.Time(n) * cluster.Time(ms) }

// TestClipper: latency 2b+2 ms, goal 20 ms: the batch grows to 10, falls to 9, and oscillates between them.
func TestClipper(t *testing.T) {
	r := rule(t, "clipper", Setting{Max: 64, Goal: 20 * ms, Takes: linear(2*ms, 2*ms)})
	q := waiting(make([]int, 100)...)
	var sizes []int
	for range 14 {
		c := r.Next(q, 0)
		sizes = append(sizes, c.Send)
		r.Done(c.Send, 2*ms+time.Duration(c.Send)*2*ms)
	}
	want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 9, 10, 9, 10}
	for i := range want {
		if sizes[i] != want[i] {
			t.Fatalf("%v, want %v", sizes, want)
		}
	}
	for range 100 { // batches that are not full say nothing about larger ones
		r.Done(3, ms)
	}
	if c := r.Next(q, 0); c.Send != 9 {
		t.Errorf("%d after small batches, want 9", c.Send)
	}
}

// TestTriton: preferred sizes at once, else the delay of the oldest.
func TestTriton(t *testing.T) {
	r := rule(t, "triton", Setting{Max: 16, Preferred: []int{4, 8}, Delay: 5 * ms})
	for _, c := range []struct {
		q    *Queue
		now  int
		want Choice
	}{
		{waiting(0, 1, 2), 3, Choice{Again: at(5)}},
		{waiting(0, 1, 2), 5, Choice{Send: 3, Again: cluster.Never}},
		{waiting(0, 1, 2, 3), 3, Choice{Send: 4, Again: cluster.Never}},
		{waiting(0, 1, 2, 3, 3, 3), 3, Choice{Send: 4, Again: cluster.Never}},
		{waiting(make([]int, 30)...), 0, Choice{Send: 8, Again: cluster.Never}},
	} {
		if got := r.Next(c.q, at(c.now)); got != c.want {
			t.Errorf("%d waiting at %d ms: %+v, want %+v", c.q.Len(), c.now, got, c.want)
		}
	}
	plain := rule(t, "fixed", Setting{Max: 16, Delay: 5 * ms})
	if got := plain.Next(waiting(make([]int, 30)...), 0); got.Send != 16 {
		t.Errorf("a full batch: %+v", got)
	}
	if got := plain.Next(waiting(0, 4), at(4)); got != (Choice{Again: at(5)}) {
		t.Errorf("half a batch: %+v", got)
	}
}

// TestNexus: l(b) = 5+b ms, goal 100 ms: a batch of 45 can be waited for. Early drop begins with the first request that
// is in time with the window behind it.
func TestNexus(t *testing.T) {
	set := Setting{Max: 64, Goal: 100 * ms, Takes: linear(5*ms, ms)}
	if b := set.halved(); b != 45 {
		t.Errorf("planned batch %d, want 45", b)
	}
	r := rule(t, "nexus:batch=10", set)
	for _, c := range []struct {
		arrivals []int
		now      int
		want     Choice
	}{
		{[]int{0, 10, 20}, 30, Choice{Send: 3, Again: cluster.Never}},
		{[]int{0, 10, 20}, 93, Choice{Drop: 1, Send: 2, Again: cluster.Never}}, // 3 would take until 101
		{[]int{0, 10, 20}, 250, Choice{Drop: 3, Again: cluster.Never}},
	} {
		if got := r.Next(waiting(c.arrivals...), at(c.now)); got != c.want {
			t.Errorf("%v at %d: %+v, want %+v", c.arrivals, c.now, got, c.want)
		}
	}
}

// TestWindow: what is in time together, at once; under overload the front is dropped until batches are efficient.
func TestWindow(t *testing.T) {
	set := Setting{Max: 64, Goal: 100 * ms, Takes: linear(5*ms, ms)}
	r := rule(t, "", set)
	if got := r.Next(waiting(0, 1, 2), at(3)); got != (Choice{Send: 3, Again: cluster.Never}) {
		t.Errorf("three that wait: %+v", got)
	}
	if got := r.Next(waiting(0, 50), at(95)); got != (Choice{Drop: 1, Send: 1, Again: cluster.Never}) {
		t.Errorf("one that is late: %+v", got)
	}
	var long []int
	for i := range 200 {
		long = append(long, i/2) // the first 64 need 69 ms: those before 31 ms are late at 100
	}
	if got := r.Next(waiting(long...), at(100)); got.Send < 45 || got.Drop == 0 || long[got.Drop]+100 < 100+5+got.Send {
		t.Errorf("a queue that is too long: %+v", got)
	}
	for range 50 {
		r.Done(10, 30*ms) // twice as slow as expected
	}
	if got := r.Next(waiting(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), at(72)); got.Send > 9 {
		t.Errorf("a slow replica: %+v", got)
	}
}

// TestWindowRecovers: after a batch that took so long that every request looks late, one at a time is tried, until they
// are in time again.
func TestWindowRecovers(t *testing.T) {
	r := rule(t, "", Setting{Max: 8, Goal: 500 * ms, Takes: linear(20*ms, 0)})
	r.Done(1, 5000*ms)
	if got := r.Next(waiting(0, 0, 0, 0), at(0)); got != (Choice{Drop: 3, Send: 1, Again: cluster.Never}) {
		t.Errorf("when all look late: %+v", got)
	}
	for range 5 {
		r.Done(1, 20*ms)
	}
	if got := r.Next(waiting(0, 0, 0, 0), at(0)); got != (Choice{Send: 4, Again: cluster.Never}) {
		t.Errorf("when batches are fast again: %+v", got)
	}
}

// TestNever sends more than may be sent: random queues under each rule.
func TestChoices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, k := range List() {
		for range 2000 {
			set := Setting{Max: 1 + r.IntN(32), Delay: time.Duration(r.IntN(20)) * ms,
				Goal:  time.Duration(1+r.IntN(200)) * ms,
				Takes: linear(time.Duration(r.IntN(20))*ms, time.Duration(1+r.IntN(3))*ms), Preferred: []int{4, 8, 40}}
			x := rule(t, k.Name, set)
			now := 0
			q := &Queue{}
			for range 30 {
				for range r.IntN(20) {
					now += r.IntN(3)
					q.Push(Item{At: at(now)})
				}
				if q.Len() == 0 {
					continue
				}
				c := x.Next(q, at(now))
				switch {
				case c.Drop < 0 || c.Send < 0 || c.Drop+c.Send > q.Len() || c.Send > set.Max:
					t.Fatalf("%s: %+v of %d with %+v", k.Name, c, q.Len(), set)
				case c.Send == 0 && c.Drop == 0 && (c.Again <= at(now) || c.Again == cluster.Never):
					t.Fatalf("%s: %+v: it waits for nothing", k.Name, c)
				}
				drops := k.Name == "window" || k.Name == "nexus"
				if c.Drop > 0 && !drops {
					t.Fatalf("%s drops", k.Name)
				}
				if drops && c.Send > 0 && q.At(c.Drop).At.Add(set.Goal) < at(now).Add(set.Takes(c.Send)) {
					t.Fatalf("%s: %+v sends a request that is late", k.Name, c)
				}
				q.Pop(c.Drop + c.Send)
				now += int(set.Takes(max(1, c.Send)) / ms)
				if c.Send > 0 {
					x.Done(c.Send, set.Takes(c.Send))
				}
			}
		}
	}
}

// TestNames: unknown names and knobs are errors that say what there is.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{"best": `unknown batching rule "best"`,
		"clipper:speed=2": `unknown knob "speed"`,
		"clipper:step":    "not knob=value", "fixed:a=1": "has no knobs", "nexus:batch=-1": "want a number"} {
		if _, err := New(text, Setting{Max: 8, Takes: linear(1, 1)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestQueue compares the ring with a slice.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	q, naive, next := &Queue{}, []Item(nil), cluster.Time(0)
	for range 20_000 {
		switch {
		case r.IntN(3) > 0 || len(naive) == 0:
			next++
			q.Push(Item{At: next})
			naive = append(naive, Item{At: next})
		default:
			n := r.IntN(len(naive) + 1)
			q.Pop(n)
			naive = naive[n:]
		}
		if q.Len() != len(naive) || len(naive) > 0 &&
			(*q.At(0) != naive[0] || *q.At(len(naive) - 1) != naive[len(naive)-1]) {
			t.Fatalf("%d of %d", q.Len(), len(naive))
		}
	}
}
