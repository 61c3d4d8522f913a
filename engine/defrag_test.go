package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// costing has a job lose so many seconds when it is stopped: half of them for a
// checkpoint, half for the restart.
func costing(s int) func(*cluster.Job) {
	return func(j *cluster.Job) {
		j.Checkpoint = cluster.Checkpoint{Cost: seconds(s) / 2, Restart: seconds(s) / 2}
	}
}

// pinned has a job not come back when it is stopped: it is not moved.
func pinned(j *cluster.Job) { j.NoRequeue = true }

func defragments(d engine.Defrag) func(*engine.Config) {
	return func(c *engine.Config) { c.Defrag = &d }
}

// both applies several changes.
func all[T any](list ...func(*T)) func(*T) {
	return func(x *T) {
		for _, f := range list {
			f(x)
		}
	}
}

var askAll = engine.Event{Type: engine.Defragment, Job: cluster.NoJob}

// fragmented is 3 nodes of 4 GPUs: n1 and n2 have two free each, n3 none. Jobs 0 (n1),
// 2 (n2), 4 and 5 (n3) hold two each, and run for ten hours. change is asked for each.
func fragmented(t *testing.T, cfg func(*engine.Config), change func(id int) func(*cluster.Job)) *hand {
	t.Helper()
	h := newHand(t, "3x4xT4", "fifo", cfg)
	var evs, begun []engine.Event
	for id := range 6 {
		evs = append(evs, submit(job(id, 2, 36000, change(id))))
		begun = append(begun, ev(engine.Started, id))
	}
	h.want(0, "start 0, start 1, start 2, start 3, start 4, start 5", evs...)
	h.want(1, "", begun...)
	h.want(2, "", stopped(1, engine.Completed), stopped(3, engine.Completed))
	return h
}

// plan looks for moves in a restored engine.
func (h *hand) plan(cfg engine.Config, id int) engine.Moves {
	h.t.Helper()
	snap := h.e.Snapshot()
	e, err := engine.Restore(cfg, &snap)
	if err != nil {
		h.t.Fatal(err)
	}
	list := e.LookForMoves(cluster.JobID(id))
	if len(list) != 1 {
		h.t.Fatalf("%d plans for job %d", len(list), id)
	}
	return list[0]
}

func movesText(m *engine.Moves) string {
	var list []string
	for i := range m.Moves {
		x := &m.Moves[i]
		list = append(list, fmt.Sprintf("%d %s>%s", x.Job, strings.Join(x.From, "+"), strings.Join(x.To, "+")))
	}
	return strings.Join(list, ", ")
}

// Worked examples: three nodes of four GPUs, two used on A, two
// on B, four on C; a gang of four waits, every job holds two and costs 20.
func TestDefragVectors(t *testing.T) {
	for _, c := range []struct {
		name   string
		pinned []int
		want   string
	}{
		{"all may move", nil, "0 n1>n2"},
		{"the job on B is pinned", []int{2}, "0 n1>n2"},
		{"the job on A is pinned", []int{0}, "2 n2>n1"},
		{"both are pinned", []int{0, 2}, "4 n3>n1, 5 n3>n2"},
		{"all are pinned", []int{0, 2, 4, 5}, ""},
		{"those on A and B, and one on C", []int{0, 2, 4}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			h := fragmented(t, func(c *engine.Config) {
				defragments(engine.Defrag{})(c)
				cfg = *c
			}, func(id int) func(*cluster.Job) {
				for _, p := range c.pinned {
					if p == id {
						return all(costing(20), pinned)
					}
				}
				return costing(20)
			})
			h.want(3, "", submit(job(6, 4, 600)))
			m := h.plan(cfg, 6)
			if got := movesText(&m); got != c.want || m.Worth != (c.want != "") {
				t.Fatalf("moves %q, worth it %v; want %q\n%+v", got, m.Worth, c.want, m)
			}
			if cost := time.Duration(len(m.Moves)) * 40 * time.Second; m.Cost != cost {
				t.Errorf("they cost %v; want %v", m.Cost, cost)
			}
		})
	}
}

// A plan that is carried out: the one that moves stops, none takes what it goes to,
// the gang starts when it has left, and so does it. A restored engine does the same.
func TestDefragMoves(t *testing.T) {
	var cfg engine.Config
	h := fragmented(t, func(c *engine.Config) {
		defragments(engine.Defrag{})(c)
		cfg = *c
	}, func(int) func(*cluster.Job) { return costing(20) })
	h.want(3, "", submit(job(6, 4, 600)))
	h.want(4, "preempt 0 for 6", askAll)
	if m := h.e.Moved(); len(m) != 1 || !m[0].Made || movesText(&m[0]) != "0 n1>n2" {
		t.Fatalf("%+v", m)
	}
	h.want(5, "", submit(job(7, 2, 600)), submit(job(8, 1, 600))) // where job 0 goes no other is
	for _, o := range h.andRestored(cfg) {
		o.want(10, "start 0, start 6", stopped(0, engine.Preempted))
		if r := o.e.Record(0).Allocs; len(r) != 1 || r[0].Node != 1 {
			t.Errorf("job 0 is on %+v, not on n2", r)
		}
		o.want(11, "", ev(engine.Started, 0), ev(engine.Started, 6))
		o.want(12, "start 7", stopped(4, engine.Completed))
	}
}

// A job in whose place another comes goes on until that has started where it is moved to, and is cancelled. If none
// comes in time, or one that needs something else, it is moved as others are.
func TestDefragReplaces(t *testing.T) {
	replaced := func(id int) func(*cluster.Job) {
		switch id {
		case 0:
			return all(costing(20), pinned)
		case 2:
			return all(costing(20), func(j *cluster.Job) { j.Replace = 30 * time.Second })
		}
		return costing(20)
	}
	inPlaceOf2 := func(j *cluster.Job) { j.Replaces, j.Replace = 2, 30*time.Second }
	for _, c := range []struct {
		name  string
		comes engine.Event
		then  string
		last  engine.Event
		want  string
	}{
		{"another comes", submit(job(7, 2, 36000, costing(20), inPlaceOf2)), "start 7",
			stopped(2, engine.WasCancelled), "start 6"},
		{"none comes", submit(job(7, 2, 36000, costing(20))), "", stopped(2, engine.Preempted),
			"start 2, start 6"},
		{"a smaller one comes", submit(job(7, 1, 36000, costing(20), inPlaceOf2)), "",
			stopped(2, engine.Preempted), "start 2, start 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			h := fragmented(t, func(c *engine.Config) {
				defragments(engine.Defrag{})(c)
				cfg = *c
			}, replaced)
			h.want(3, "", submit(job(6, 4, 600)))
			h.want(4, "preempt 2 for 6", askAll)
			if r := h.e.Record(2); r.How != engine.Replace {
				t.Fatalf("it is stopped by %s", r.How)
			}
			h.want(5, c.then, c.comes)
			if c.then != "" {
				if on := h.e.Record(7).Allocs; on[0].Node != 0 {
					t.Errorf("it is on %+v, not on n1", on)
				}
				h.want(6, "", ev(engine.Started, 7))
			}
			for _, o := range h.andRestored(cfg) {
				if c.then != "" {
					o.want(9, "preempt 2", ev(engine.Cancelled, 2))
				}
				o.want(10, c.want, c.last)
			}
		})
	}
}

// crumbled is 4 nodes of 4 GPUs, of each of which one is free: jobs 3i (two GPUs) and 3i+1
// (one) are on the node i+1. For job 12, which needs four, job 0 goes to where job 4 was.
func crumbled(t *testing.T, cfg *engine.Config, d engine.Defrag) *hand {
	t.Helper()
	h := newHand(t, "4x4xT4", "fifo", func(c *engine.Config) { defragments(d)(c); *cfg = *c })
	var evs, begun, over []engine.Event
	for id := range 12 {
		evs, begun = append(evs, submit(job(id, []int{2, 1, 1}[id%3], 36000, costing(20)))),
			append(begun, ev(engine.Started, id))
		if id%3 == 2 {
			over = append(over, stopped(id, engine.Completed))
		}
	}
	h.at(0, evs...)
	h.want(1, "", begun...)
	h.want(2, "", over...)
	h.want(3, "", submit(job(12, 4, 600)))
	return h
}

// A chain: job 0 leaves n1 for n2, where job 4 was, which goes to n3; job 1 goes to n4. Everybody
// is told at once, and job 0 starts when job 4 has left, however early it has left itself.
func TestDefragChain(t *testing.T) {
	var cfg engine.Config
	h := crumbled(t, &cfg, engine.Defrag{})
	if m := h.plan(cfg, 12); movesText(&m) != "0 n1>n2, 1 n1>n3, 4 n2>n4" ||
		!slices.Equal(m.Moves[0].After, []cluster.JobID{4}) || m.Moves[0].Wait != seconds(10) ||
		m.Cost != 80*time.Second || len(m.Moves[2].After) > 0 {
		t.Fatalf("%+v", m)
	}
	short := cfg
	short.Defrag = &engine.Defrag{Chain: 1}
	if m := h.plan(short, 12); len(m.Moves) > 0 {
		t.Fatalf("a job that is being moved has moves made for it: %+v", m)
	}
	h.want(4, "preempt 0 for 12, preempt 1 for 12, preempt 4 for 12", askAll)
	if text := h.e.Moved()[0].String(); !strings.Contains(text, "job 0 (2 GPUs) from n1 to n2, after job 4, ") {
		t.Error(text)
	}
	h.want(5, "", stopped(0, engine.Preempted))
	for _, o := range h.andRestored(cfg) {
		o.want(6, "start 1, start 12", stopped(1, engine.Preempted))
		for _, p := range o.andRestored(cfg) {
			p.want(7, "start 4, start 0", stopped(4, engine.Preempted))
			for id, node := range map[int]int32{0: 1, 1: 2, 4: 3, 12: 0} {
				if r := p.e.Record(cluster.JobID(id)).Allocs; len(r) != 1 || r[0].Node != node {
					t.Errorf("job %d is on %+v", id, r)
				}
			}
		}
	}
}

// What a job does not compute while it waits for another is part of what its move costs.
func TestDefragChainWait(t *testing.T) {
	var cfg engine.Config
	h := crumbled(t, &cfg, engine.Defrag{})
	// of those of one GPU: they take longer to leave
	slow := engine.Event{Type: engine.Progress, Switch: engine.SwitchCost{Save: seconds(30)}}
	var evs []engine.Event
	for _, id := range []cluster.JobID{1, 4, 7, 10} {
		slow.Job = id
		evs = append(evs, slow)
	}
	h.want(4, "", evs...)
	m := h.plan(cfg, 12)
	if len(m.Moves) != 3 || m.Moves[0].Stop != seconds(10) || m.Moves[0].Wait != seconds(30) ||
		m.Moves[0].Cost != 2*seconds(30+10) {
		t.Fatalf("%+v", m)
	}
}

// What may come between in a chain: none is lost, one that has no place waits in line, and one that
// waits for another that fails to write its checkpoint waits until it is gone.
func TestDefragChainInterrupted(t *testing.T) {
	for _, c := range []struct {
		name  string
		first engine.Event
		last  engine.Event
		want  string // at 10
	}{
		{"no checkpoint", engine.Event{}, stopped(4, engine.Failed), "start 0"},
		{"the one that makes room is cancelled", ev(engine.Cancelled, 4), stopped(4, engine.WasCancelled), "start 0"},
		{"it ends", engine.Event{}, stopped(4, engine.Completed), "start 0"},
		{"the one that waits is cancelled", ev(engine.Cancelled, 0), stopped(4, engine.Preempted), "start 4"},
		{"the gang is cancelled", ev(engine.Cancelled, 12), stopped(4, engine.Preempted), "start 4, start 0"},
		{"where the last goes is lost", engine.Event{Type: engine.NodeDown, Node: "n4"}, stopped(4, engine.Preempted),
			"start 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			h := crumbled(t, &cfg, engine.Defrag{})
			h.want(4, "preempt 0 for 12, preempt 1 for 12, preempt 4 for 12", askAll)
			h.want(5, "start 1, start 12", stopped(0, engine.Preempted), stopped(1, engine.Preempted))
			h.at(6, c.first)
			for _, o := range h.andRestored(cfg) {
				o.want(10, c.want, c.last)
			}
		})
	}
}

// What may come between: the gang is cancelled, the job that moves is, its place is
// lost, it ends by itself. None is lost, and nothing stays booked.
func TestDefragInterrupted(t *testing.T) {
	for _, c := range []struct {
		name  string
		first engine.Event
		then  string // at 5
		last  engine.Event
		want  string // at 10
	}{
		{"the gang is cancelled", ev(engine.Cancelled, 6), "", stopped(0, engine.Preempted), "start 0"},
		{"the mover is cancelled", ev(engine.Cancelled, 0), "", stopped(0, engine.WasCancelled), "start 6"},
		{"the destination is lost", engine.Event{Type: engine.NodeDown, Node: "n2"}, "preempt 2",
			stopped(0, engine.Preempted), "start 6"},
		{"the destination is drained", engine.Event{Type: engine.NodeDrained, Node: "n2"}, "",
			stopped(0, engine.Preempted), "start 6"},
		{"one of its GPUs is bad", engine.Event{Type: engine.GPUBad, Node: "n2", GPUs: 0b1100}, "",
			stopped(0, engine.Preempted), "start 6"},
		{"the mover is held", engine.Event{Type: engine.Held, Job: 0}, "", stopped(0, engine.Preempted), "start 6"},
		{"the mover ends", engine.Event{}, "", stopped(0, engine.Completed), "start 6"},
		{"its node is lost", engine.Event{Type: engine.NodeDown, Node: "n1"}, "", stopped(0, engine.NodeLost),
			"start 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			h := fragmented(t, func(c *engine.Config) {
				defragments(engine.Defrag{})(c)
				cfg = *c
			}, func(int) func(*cluster.Job) { return costing(20) })
			h.want(3, "", submit(job(6, 4, 600)))
			h.want(4, "preempt 0 for 6", askAll)
			h.want(5, c.then, c.first)
			for _, o := range h.andRestored(cfg) {
				o.want(10, c.want, c.last)
			}
		})
	}
}

// No job moves that may not: it has not run for its minimum run time, it was moved twice
// within the hour, it is of a higher tier, it does not come back, it is no gain.
func TestDefragMayNot(t *testing.T) {
	long := func(int) func(*cluster.Job) { return costing(20) }
	for _, c := range []struct {
		name   string
		cfg    func(*engine.Config)
		change func(int) func(*cluster.Job)
		gang   cluster.Job
		text   string
	}{
		{"minimum run time", func(c *engine.Config) {
			c.MinRuntime = time.Hour
		}, long, job(6, 4, 600), "4 jobs within the minimum run time"},
		{"a lower tier", nil, long, job(6, 4, 600, tier(cluster.BestEffort)), "no running job may be moved"},
		{"no requeue", nil, func(int) func(*cluster.Job) {
			return pinned
		}, job(6, 4, 600), "no running job may be moved"},
		{"too little is free", nil, long,
			job(6, 4, 600, func(j *cluster.Job) { j.Tasks[0].Count = 2 }), "needs 8 GPUs, 4 suitable ones are free"},
		{"its cost", nil, func(int) func(*cluster.Job) { return costing(250_000) }, job(6, 4, 600), "not worth it"},
		{"all at once", func(c *engine.Config) {
			c.Defrag.Moves = -1
		}, long, job(6, 4, 600), "no more are moved at once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			change := func(x *engine.Config) {
				x.Defrag = &engine.Defrag{Auto: true}
				if c.cfg != nil {
					c.cfg(x)
				}
				cfg = *x
			}
			h := fragmented(t, change, c.change)
			h.want(3, "", submit(c.gang))
			h.want(4, "", askAll)
			if m := h.plan(cfg, 6); m.Worth || !strings.Contains(m.Text, c.text) {
				t.Errorf("%+v", m)
			}
		})
	}
}

// A job is moved twice within an hour, and not a third time.
func TestDefragBudget(t *testing.T) {
	h := newHand(t, "2x2xT4", "fifo", defragments(engine.Defrag{}))
	next := 1
	// round has job 0 share a node with one that ends, and a pinned one alone on the other.
	round := func(at int, actions string) {
		t.Helper()
		a, b, c, gang := next, next+1, next+2, next+3
		next += 4
		first := []engine.Event{submit(job(a, 1, 100)), submit(job(b, 1, 36000, pinned)), submit(job(c, 1, 100))}
		if at == 0 {
			first = append([]engine.Event{submit(job(0, 1, 36000, costing(2)))}, first...)
		}
		h.at(at, first...)
		h.want(at+1, "", ev(engine.Started, 0), ev(engine.Started, a), ev(engine.Started, b), ev(engine.Started, c))
		h.want(at+2, "", stopped(a, engine.Completed), stopped(c, engine.Completed))
		h.want(at+3, "", submit(job(gang, 2, 100)))
		h.want(at+4, strings.ReplaceAll(actions, "G", strconv.Itoa(gang)), askAll)
		if actions == "" {
			return
		}
		h.want(at+5, fmt.Sprintf("start 0, start %d", gang), stopped(0, engine.Preempted))
		h.want(at+6, "", ev(engine.Started, 0), ev(engine.Started, gang))
		h.want(at+7, "", stopped(b, engine.Completed), stopped(gang, engine.Completed))
	}
	round(0, "preempt 0 for G")
	round(10, "preempt 0 for G")
	round(20, "")
	h.want(3700, "preempt 0 for 12", askAll)
}

// With Auto, moves are made at multiples of the period, and not in between.
func TestDefragAuto(t *testing.T) {
	h := fragmented(t, defragments(engine.Defrag{Auto: true}), func(int) func(*cluster.Job) { return costing(20) })
	h.want(3, "", submit(job(6, 4, 600)))
	if h.d.WakeAt != cluster.Time(5*time.Minute) {
		t.Fatalf("wakes at %v", h.d.WakeAt)
	}
	h.want(200, "", engine.Event{})
	h.want(300, "preempt 0 for 6", engine.Event{})
}

// A gang of two tasks of a node each: two nodes are cleared, of one rack where it must
// be in one; and of the two islands of a node the one whose job costs less.
func TestDefragBlocks(t *testing.T) {
	cost := []int{40, 0, 20, 0, 30, 0, 20}
	for _, c := range []struct {
		name   string
		gang   func(*cluster.Job)
		want   string
		moves  int
		island bool
	}{
		{"anywhere", func(j *cluster.Job) { j.Tasks[0].Count = 2 }, "2 n2>n1, 6 n4>n3", 4, false},
		{"two at most", func(j *cluster.Job) { j.Tasks[0].Count = 2 }, "", 1, false},
		{"in one rack", func(j *cluster.Job) {
			j.Tasks[0].Count, j.Topology = 2, cluster.Topology{Level: cluster.LevelRack, Required: true}
		}, "4 n3>n1, 6 n4>n2", 4, false},
		{"an island", func(j *cluster.Job) {
			j.Tasks[0].Request.GPUs, j.Topology = 2, cluster.Topology{Level: cluster.LevelNVLink, Required: true}
		}, "2 n1:2>n1:1", 4, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cfg engine.Config
			spec, gpus := "4x4xT4", 2
			if c.island {
				spec, gpus = "1x4xT4", 1
			}
			h := newHand(t, spec, "fifo", func(x *engine.Config) {
				x.Defrag = &engine.Defrag{Moves: c.moves}
				for i := range x.Spec.Nodes {
					x.Spec.Nodes[i].Rack = []string{"r1", "r1", "r2", "r2"}[i]
					if c.island {
						x.Spec.Nodes[i].Islands = 2
					}
				}
				cfg = *x
			})
			var first, begun, over []engine.Event
			for id := range 2 * len(cfg.Spec.Nodes) * 2 / gpus {
				if c.island && id > 3 || id > 7 {
					break
				}
				first, begun = append(first, submit(job(id, gpus, 36000, costing(cost[min(id, 6)])))),
					append(begun, ev(engine.Started, id))
				if id%2 == 1 {
					over = append(over, stopped(id, engine.Completed))
				}
			}
			h.at(0, first...)
			h.want(1, "", begun...)
			h.want(2, "", over...)
			h.want(3, "", submit(job(10, 4, 600, c.gang)))
			m := h.plan(cfg, 10)
			if got := movesText(&m); got != c.want {
				t.Fatalf("moves %q; want %q\n%+v", got, c.want, m)
			}
		})
	}
}

// An elastic job is moved at the size that it has. For an empty node it is not: it would
// grow back onto it.
func TestDefragElastic(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x4xT4", "fifo", func(c *engine.Config) { defragments(engine.Defrag{})(c); cfg = *c })
	grows := func(j *cluster.Job) {
		j.Tasks[0].Count, j.Elastic = 2, cluster.Elastic{Min: 1, Max: 2}
		j.Checkpoint = cluster.Checkpoint{Cost: seconds(10), Restart: seconds(10)}
	}
	h.want(0, "start 0, start 1, start 2, start 3", submit(job(0, 1, 36000, grows)), submit(job(1, 2, 36000)),
		submit(job(2, 2, 36000, pinned)), submit(job(3, 2, 36000)))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2), ev(engine.Started, 3))
	h.want(2, "", stopped(1, engine.Completed), stopped(3, engine.Completed))
	h.want(3, "", engine.Event{Type: engine.Defragment, Job: cluster.NoJob, Compact: engine.EmptyNodes})
	h.want(4, "", submit(job(4, 4, 600)))
	h.want(5, "preempt 0 for 4", askAll)
	for _, o := range h.andRestored(cfg) {
		o.want(6, "start 0, start 4", stopped(0, engine.Preempted))
		if r := o.e.Record(0); r.Tasks != 2 || len(r.Allocs) != 1 || r.Allocs[0].Node != 1 {
			t.Errorf("job 0 has %d tasks on %+v", r.Tasks, r.Allocs)
		}
	}
}
