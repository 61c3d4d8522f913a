package quota

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

// kai is a top-level queue without a limit that wants everything; in GPUs.
func kai(deserved, request Milli, weight int64, more ...func(*KaiQueue)) KaiQueue {
	q := KaiQueue{Parent: -1, Deserved: deserved * gpu, Limit: cluster.Unlimited, Request: request * gpu,
		Weight: weight}
	if deserved < 0 {
		q.Deserved = cluster.Unlimited
	}
	for _, f := range more {
		f(&q)
	}
	return q
}

func usage(billionths int64) func(*KaiQueue) { return func(q *KaiQueue) { q.Usage = billionths } }
func prio(n int64) func(*KaiQueue)           { return func(q *KaiQueue) { q.Priority = n } }
func created(n int64) func(*KaiQueue)        { return func(q *KaiQueue) { q.Created = n } }
func under(p int) func(*KaiQueue)            { return func(q *KaiQueue) { q.Parent = p } }
func most(n Milli) func(*KaiQueue)           { return func(q *KaiQueue) { q.Limit = n * gpu } }

func TestKaiFairShare(t *testing.T) {
	for _, c := range []struct {
		name   string
		total  Milli
		unit   Milli
		k      int64
		queues []KaiQueue
		want   []Milli // milli-GPU
	}{
		// KAI, Tests 1: the last unit goes to the older queue.
		{"1, Q1 older", 10, 1000, 0, []KaiQueue{kai(2, 10, 1), kai(2, 10, 3, created(1))}, []Milli{4000, 6000}},
		{"1, Q2 older", 10, 1000, 0, []KaiQueue{kai(2, 10, 1, created(1)), kai(2, 10, 3)}, []Milli{3000, 7000}},
		// KAI, Tests 2: usage.
		{"2, k=1", 1000, 1, 1000, []KaiQueue{kai(0, 1000, 1, usage(4e8)), kai(0, 1000, 1)}, []Milli{375_000, 625_000}},
		{"2, k=2", 600, 1, 2000, []KaiQueue{kai(0, 600, 1, usage(6e8)), kai(0, 600, 1)}, []Milli{100_000, 500_000}},
		{"2, k large", 10, 1000, 1e6, []KaiQueue{kai(0, 10, 1, usage(6e8)), kai(0, 10, 1)}, []Milli{0, 10_000}},
		{"2, k=0", 10, 1000, 0, []KaiQueue{kai(0, 10, 1, usage(6e8)), kai(0, 10, 1)}, []Milli{5000, 5000}},
		{"all used too much", 3, 1000, 1e6, []KaiQueue{kai(0, 9, 1, usage(9e8)), kai(0, 9, 1, usage(9e8))},
			[]Milli{2000, 1000}},
		{"usage does not touch the quota", 10, 1000, 1e6, []KaiQueue{kai(4, 10, 1, usage(9e8)), kai(0, 10, 1)},
			[]Milli{4000, 6000}},
		{"priority first", 10, 1000, 0, []KaiQueue{kai(1, 10, 9), kai(1, 7, 1, prio(1))}, []Milli{3000, 7000}},
		{"satisfied: another round", 10, 1000, 0, []KaiQueue{kai(0, 1, 1), kai(0, 10, 1), kai(0, 10, 2)},
			[]Milli{1000, 3000, 6000}},
		{"another round by weight", 12, 1000, 0, []KaiQueue{kai(0, 1, 4), kai(0, 12, 1), kai(0, 12, 3)},
			[]Milli{1000, 3000, 8000}},
		{"limit", 10, 1000, 0, []KaiQueue{kai(0, 10, 1, most(2)), kai(0, 10, 1)}, []Milli{2000, 8000}},
		{"unlimited quota", 10, 1000, 0, []KaiQueue{kai(-1, 7, 1), kai(0, 10, 1)}, []Milli{7000, 3000}},
		{"no weight, no over-quota", 10, 1000, 0, []KaiQueue{kai(2, 10, 0), kai(0, 3, 1)}, []Milli{2000, 3000}},
		{"tree", 10, 1000, 0,
			[]KaiQueue{kai(4, 0, 1), kai(4, 0, 1), kai(1, 9, 1, under(0)), kai(3, 9, 1, under(0)),
				kai(0, 2, 1, under(1))},
			[]Milli{8000, 2000, 3000, 5000, 2000}},
		{"half a GPU is left", 2, 1000, 0,
			[]KaiQueue{kai(0, 2, 1, func(q *KaiQueue) { q.Request = 500 }), kai(0, 2, 1)}, []Milli{500, 1500}},
	} {
		if got := KaiFairShare(c.total*gpu, c.unit, c.k, c.queues); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// KAI, Invariants.
func TestKaiInvariants(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		total := rapid.Int64Range(0, 40).Draw(r, "total") * gpu
		k := rapid.Int64Range(0, 5000).Draw(r, "k")
		queue := rapid.Custom(func(r *rapid.T) KaiQueue {
			return kai(rapid.Int64Range(-1, 10).Draw(r, "deserved"), rapid.Int64Range(0, 30).Draw(r, "request"),
				rapid.Int64Range(0, 4).Draw(r, "weight"), prio(rapid.Int64Range(0, 1).Draw(r, "priority")),
				usage(rapid.Int64Range(0, 1e9).Draw(r, "usage")), most(rapid.Int64Range(0, 30).Draw(r, "limit")))
		})
		queues := rapid.SliceOfN(queue, 1, 6).Draw(r, "queues")
		got := KaiFairShare(total, gpu, k, queues)
		for i := range queues {
			queues[i].Usage = 0
		}
		var sum, quota, wanted Milli
		for i := range queues {
			q := &queues[i]
			deserved := q.Deserved
			if deserved == cluster.Unlimited {
				deserved = total
			}
			sum += got[i]
			quota += min(deserved, q.requestable())
			if q.Weight > 0 {
				wanted += q.requestable()
			} else {
				wanted += min(deserved, q.requestable())
			}
			if got[i] > q.requestable() || got[i] < min(deserved, q.requestable()) {
				r.Fatalf("queue %d: %d is not between quota and request of %+v", i, got[i], q)
			}
		}
		if sum > max(total, quota) {
			r.Fatalf("%v sums up to %d of %d", got, sum, total)
		}
		if quota <= total && sum != min(total, wanted) {
			r.Fatalf("%v sums up to %d, wanted are %d of %d", got, sum, wanted, total)
		}
	})
}

func TestKaiReclaim(t *testing.T) {
	state := func(allocated, deserved, fair Milli) KaiState {
		return KaiState{Allocated: allocated, Deserved: deserved, FairShare: fair, Limit: cluster.Unlimited}
	}
	path := []KaiState{state(2, 3, 5), state(6, 8, 9)}
	if !KaiCanReclaim(path, 3, false) || KaiCanReclaim(path, 4, false) {
		t.Error("up to the fair share")
	}
	path[0].NonPreemptible, path[1].NonPreemptible = 2, 6
	if !KaiCanReclaim(path, 1, true) || KaiCanReclaim(path, 2, true) {
		t.Error("non-preemptible up to the quota")
	}
	if !KaiVictimByFairShare(state(6, 3, 5)) || KaiVictimByFairShare(state(5, 3, 5)) {
		t.Error("fair-share strategy")
	}
	if !KaiVictimByQuota(state(4, 3, 5), state(1, 3, 3), 2) || KaiVictimByQuota(state(4, 3, 5), state(1, 3, 9), 3) ||
		KaiVictimByQuota(state(3, 3, 5), state(1, 3, 3), 2) {
		t.Error("quota strategy")
	}
	if !KaiSaturationAllows(state(5, 5, 5), state(1, 5, 5), 1000) ||
		KaiSaturationAllows(state(6, 5, 5), state(6, 5, 5), 1000) ||
		!KaiSaturationAllows(state(6, 5, 5), state(7, 5, 5), 1000) ||
		KaiSaturationAllows(state(6, 5, 5), state(7, 5, 5), 2000) {
		t.Error("saturation")
	}
	if (KaiState{Allocated: 1}).Saturation().Cmp(state(100, 1, 1).Saturation()) <= 0 {
		t.Error("a queue without a share comes last")
	}
}
