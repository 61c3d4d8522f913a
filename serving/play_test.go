package serving

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

func one(s Service, in ...Point) *Plan {
	p := &Plan{GPUs: 1}
	for i, pt := range in {
		p.Instances = append(p.Instances, Instance{Instance: cluster.Instance{Profile: "1g.10gb", Start: i}, Point: pt})
	}
	return p
}

// One process without batches is a queue with a recurrence for its waits (Lindley): the next request waits for
// what the last one waited and took, less the time between the two.
func TestPlayOneProcess(t *testing.T) {
	pt := Point{Compute: 1, Batch: 1, Processes: 1, Rate: 50, Latency: 20 * time.Millisecond}
	s := Service{Name: "s", Rate: 40, Latency: 50 * time.Millisecond, Points: []Point{pt}}
	const length = 100 * time.Second
	got := Play(one(s, pt), []Service{s}, Poisson, 7, length)[0]
	r := rand.New(rand.NewPCG(7, 0))
	gap := func() time.Duration { return time.Duration(float64(time.Second) / s.Rate * r.ExpFloat64()) }
	want, wait := Served{}, time.Duration(0)
	for at := gap(); at < length; {
		took := wait + pt.Latency
		want.Requests++
		if took > s.Latency {
			want.Late++
		}
		want.Worst = max(want.Worst, took)
		d := max(1, gap())
		at += d
		wait = max(0, wait+pt.Latency-d)
	}
	if got.Requests != want.Requests || got.Late != want.Late || got.Worst != want.Worst || got.Late == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Batches make a service faster; the time of unmeasured sizes is interpolated; above capacity requests are late.
func TestPlayBatches(t *testing.T) {
	one1 := Point{Compute: 1, Batch: 1, Processes: 1, Rate: 100, Latency: 10 * time.Millisecond}
	four := Point{Compute: 1, Batch: 4, Processes: 1, Rate: 160, Latency: 25 * time.Millisecond}
	s := Service{Name: "s", Rate: 150, Latency: 60 * time.Millisecond, Points: []Point{four, one1}}
	if got := Play(one(s, four), []Service{s}, Even, 1, 20*time.Second)[0]; got.Late != 0 ||
		got.Worst > 50*time.Millisecond || got.Requests < 2990 {
		t.Errorf("in batches of four: %+v", got)
	}
	if got := Play(one(s, one1), []Service{s}, Even, 1, 20*time.Second)[0]; got.Late*10 < got.Requests*9 {
		t.Errorf("150 requests a second where 100 can be taken: %+v", got)
	}
	if got := Play(one(s, one1, one1), []Service{s}, Even, 1, 20*time.Second)[0]; got.Late != 0 ||
		got.Worst != 10*time.Millisecond {
		t.Errorf("two instances take turns: %+v", got)
	}
	st := newQueueing(one(s, four), []Service{s}, 0).instances[0]
	for n, want := range map[int]time.Duration{1: 10 * time.Millisecond, 2: 15 * time.Millisecond,
		3: 20 * time.Millisecond, 4: 25 * time.Millisecond} {
		if got := st.takes(n); got != want {
			t.Errorf("a batch of %d takes %v, want %v", n, got, want)
		}
	}
}
