package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// slice has a job ask for a MIG instance, share for a part of a GPU in thousandths.
func slice(profile string) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Tasks[0].Request.Profile = profile }
}

func share(milli int64) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Tasks[0].Request.Share = milli }
}

// shares has a job ask for parts of several GPUs of a node, in thousandths of each.
func shares(gpus int, milli int64) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Tasks[0].Request.GPUs, j.Tasks[0].Request.Share = gpus, milli }
}

// stay submits jobs of ten hours, starts them, and ends all but some.
func (h *hand) stay(jobs []func(*cluster.Job), keep ...int) {
	h.t.Helper()
	var first, begun, over []engine.Event
	for id, f := range jobs {
		first, begun = append(first, submit(job(id, 1, 36000, costing(20), f))), append(begun, ev(engine.Started, id))
		if !slices.Contains(keep, id) {
			over = append(over, stopped(id, engine.Completed))
		}
	}
	h.at(0, first...)
	for id := range jobs {
		if s := h.e.Record(cluster.JobID(id)).State; s != engine.Starting {
			h.t.Fatalf("job %d is %v", id, s)
		}
	}
	h.want(1, "", begun...)
	h.want(2, "", over...)
}

func many(n int, f func(*cluster.Job)) (list []func(*cluster.Job)) {
	for range n {
		list = append(list, f)
	}
	return list
}

// A job that is in the way by where it lies is moved, and no other: to another start of the same
// GPU, to another GPU, one behind the other; for a slice, for a whole GPU, for a share.
func TestDefragParts(t *testing.T) {
	whole := func(*cluster.Job) {}
	gang := func(n int, f func(*cluster.Job)) func(*cluster.Job) {
		return func(j *cluster.Job) { f(j); j.Tasks[0].Count = n }
	}
	g1, g2, g3 := slice("1g"), slice("2g"), slice("3g")
	for _, c := range []struct {
		name, spec string
		jobs       []func(*cluster.Job)
		keep       []int
		wants      func(*cluster.Job)
		want       string
		part       string        // of the first move
		cost       time.Duration // 20 seconds of the parts of a GPU that move
	}{
		// seven 1g go to 6, 5, 4 ... 0
		{"another start of its GPU", "1x1xH100-80GB", many(7, g1), []int{6}, slice("4g"), "6 n1:0@0>n1:0@6",
			"a 1g.10gb slice", 20 * 142 * time.Millisecond},
		{"only who is in the way", "1x1xH100-80GB", many(7, g1), []int{0, 1, 6}, slice("4g"), "6 n1:0@0>n1:0@4",
			"a 1g.10gb slice", 20 * 142 * time.Millisecond},
		{"another GPU", "1x2xH100-80GB", many(14, g1), []int{0, 7}, slice("7g"), "0 n1:0@6>n1:1@5", "a 1g.10gb slice",
			20 * 142 * time.Millisecond},
		{"a whole GPU", "2x1xH100-80GB", many(14, g1), []int{0, 7, 8}, whole, "0 n1:0@6>n2:0@4", "a 1g.10gb slice",
			20 * 142 * time.Millisecond},
		{"two 3g in halves of two GPUs", "1x2xH100-80GB", many(4, g3), []int{0, 2}, whole, "0 n1:0@4>n1:1@0",
			"a 3g.40gb slice", 20 * 428 * time.Millisecond},
		{"the cheaper of two", "1x1xH100-80GB", append(many(2, g2), many(3, g1)...), []int{0, 3}, g3, "3 n1:0@1>n1:0@6",
			"", 20 * 142 * time.Millisecond},
		{"no room elsewhere", "1x1xH100-80GB", many(7, g1), []int{0, 1, 2, 3}, slice("4g"), "", "", 0},
		{"shares for a whole GPU", "1x2xT4", many(8, share(250)), []int{0, 1, 4}, whole, "4 n1:1>n1:0", "0.25 of a GPU",
			20 * 250 * time.Millisecond},
		{"a share for a larger one", "1x2xT4", many(8, share(250)), []int{0, 1, 4, 5}, share(750), "0 n1:0>n1:1",
			"0.25 of a GPU", 20 * 250 * time.Millisecond},
		// they count for their part of the GPU: six are less than one move of the four
		{"six slices for a whole GPU", "1x2xH100-80GB",
			append(many(7, g1), func(j *cluster.Job) { pinned(j); g1(j) }), []int{0, 1, 2, 3, 4, 5, 7}, whole,
			"0 n1:0@6>n1:1@5, 1 n1:0@5>n1:1@4, 2 n1:0@4>n1:1@3, 3 n1:0@3>n1:1@2, 4 n1:0@2>n1:1@1, 5 n1:0@1>n1:1@0",
			"a 1g.10gb slice", 6 * 20 * 142 * time.Millisecond},
		{"a gang of slices", "2x1xH100-80GB", many(14, g1), []int{6, 13}, gang(2, slice("4g")),
			"6 n1:0@0>n1:0@6, 13 n2:0@0>n1:0@5", "a 1g.10gb slice", 2 * 20 * 142 * time.Millisecond},
		{"a gang of shares", "3x1xT4", many(12, share(250)), []int{0, 1, 2, 4, 5, 8}, gang(3, share(500)),
			"0 n1:0>n3:0", "0.25 of a GPU", 20 * 250 * time.Millisecond},
		{"a share for a slice", "1x2xH100-80GB", many(8, share(250)), []int{0, 1, 4}, slice("7g"), "4 n1:1>n1:0",
			"0.25 of a GPU", 20 * 250 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			h := newHand(t, c.spec, "fifo", func(x *engine.Config) { defragments(engine.Defrag{})(x); cfg = *x })
			h.stay(c.jobs, c.keep...)
			h.want(3, "", submit(job(100, 1, 600, c.wants)))
			m := h.plan(cfg, 100)
			if got := movesText(&m); got != c.want || m.Worth != (c.want != "") || m.Cost != c.cost {
				t.Fatalf("moves %q, worth it %v, cost %v (%s); want %q, %v", got, m.Worth, m.Cost, m.Text, c.want,
					c.cost)
			}
			if c.want == "" {
				return
			}
			if c.part != "" && (m.Moves[0].Part != c.part || !strings.Contains(m.String(), "("+c.part+") from ")) {
				t.Errorf("%q: %s", m.Moves[0].Part, m.String())
			}
			var movers []int
			var gone []engine.Event
			for i := range m.Moves {
				movers = append(movers, int(m.Moves[i].Job))
				gone = append(gone, stopped(movers[i], engine.Preempted))
			}
			before := map[int]engine.Alloc{}
			for _, id := range c.keep {
				before[id] = h.e.Record(cluster.JobID(id)).Allocs[0]
			}
			if got := h.at(4, askAll); strings.Count(got, "preempt") != len(movers) || !h.e.Moved()[0].Made {
				t.Fatalf("%s: %+v", got, h.e.Moved())
			}
			for _, o := range h.andRestored(cfg) {
				o.at(5, gone...)
				for _, id := range append([]int{100}, c.keep...) {
					r := o.e.Record(cluster.JobID(id))
					if r.State != engine.Starting && r.State != engine.Running {
						t.Errorf("job %d is %v", id, r.State)
					}
					if a, was := before[id]; was && !slices.Contains(movers, id) && r.Allocs[0] != a {
						t.Errorf("job %d had %+v and has %+v", id, a, r.Allocs[0])
					}
				}
				if err := o.e.CheckInvariants(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
