package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
)

// hand drives an engine step by step, by hand: nothing is answered unless the
// test answers it. Times are seconds.
type hand struct {
	t   *testing.T
	e   *engine.Engine
	now int
	d   engine.Decision
}

// andRestored is the engine as it is, and one that is restored from what it knows:
// the same has to become of both.
func (h *hand) andRestored(cfg engine.Config) []*hand {
	h.t.Helper()
	snap := h.e.Snapshot()
	back, err := engine.Restore(cfg, &snap)
	if err != nil {
		h.t.Fatal(err)
	}
	return []*hand{{t: h.t, e: h.e, now: h.now}, {t: h.t, e: back, now: h.now}}
}

func newHand(t *testing.T, spec string, pol string, change func(*engine.Config)) *hand {
	t.Helper()
	s, err := cluster.ParseShort(spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Spec: *s}
	if cfg.Policy, err = policy.New(pol); err != nil {
		t.Fatal(err)
	}
	if cfg.Placer, err = place.New("best-fit"); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &hand{t: t, e: e}
}

// at steps the engine and returns its actions: "start 0", "preempt 1 for 2",
// "resize 3", "reject 4".
func (h *hand) at(now int, evs ...engine.Event) string {
	h.t.Helper()
	h.now = now
	h.d = h.e.Step(engine.Batch{Now: cluster.Time(seconds(now)), Events: evs})
	var out []string
	for i := range h.d.Actions {
		a := &h.d.Actions[i]
		s := fmt.Sprintf("%s %d", a.Type, a.Job)
		if a.Type == engine.Preempt && a.For != cluster.NoJob {
			s += fmt.Sprintf(" for %d", a.For)
		}
		out = append(out, s)
	}
	if err := h.e.CheckInvariants(); err != nil {
		h.t.Fatalf("at %ds, after %v: %v", now, out, err)
	}
	return strings.Join(out, ", ")
}

// want steps the engine and compares its actions.
func (h *hand) want(now int, actions string, evs ...engine.Event) {
	h.t.Helper()
	if got := h.at(now, evs...); got != actions {
		h.t.Fatalf("at %ds: got %q, want %q", now, got, actions)
	}
}

func submit(j cluster.Job) engine.Event {
	return engine.Event{Type: engine.Submitted, Job: j.ID, Spec: &j}
}

// job asks for one task of so many GPUs for so many seconds.
func job(id, gpus, run int, change ...func(*cluster.Job)) cluster.Job {
	j := cluster.Job{ID: cluster.JobID(id), User: "u", Tier: cluster.Standard, Estimate: seconds(run),
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}
	for _, f := range change {
		f(&j)
	}
	return j
}

func ev(typ engine.EventType, id int) engine.Event {
	return engine.Event{Type: typ, Job: cluster.JobID(id)}
}

func stopped(id int, why engine.StopReason) engine.Event {
	return engine.Event{Type: engine.Stopped, Job: cluster.JobID(id), Reason: why}
}

func tier(t cluster.Tier) func(*cluster.Job) { return func(j *cluster.Job) { j.Tier = t } }
func inQueue(name string) func(*cluster.Job) { return func(j *cluster.Job) { j.Queue = name } }
func elastic(min, max int) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Elastic = cluster.Elastic{Min: min, Max: max} }
}
func backfill(m engine.Backfill) func(*engine.Config) {
	return func(c *engine.Config) { c.Backfill = &m }
}
func queue(name string, guarantee, limit int64) cluster.Queue {
	return cluster.Queue{Name: name, Guarantee: guarantee, Limit: limit, Lend: cluster.Unlimited}
}

// A node that joins later counts for quotas, too.
func TestNewNodeCountsForQuota(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Spec.Queues = []cluster.Queue{queue("a", 1000, -1)} })
	h.want(0, "start 0", submit(job(0, 2, 100, inQueue("a"))))
	n := cluster.Node{Name: "more", Model: "T4-16GB", GPUs: 2}
	h.want(1, "", engine.Event{Type: engine.NodeUp, Node: "more", Spare: &n})
	h.want(2, "start 1", submit(job(1, 2, 100, inQueue("a"))))
}

// A queue tree with fewer lanes than before.
func TestQueuesShrink(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		c.Spec.Queues = []cluster.Queue{queue("a", 1000, -1), queue("b", 0, -1), queue("c", 0, -1)}
	})
	h.want(0, "start 0", submit(job(0, 2, 100, inQueue("a"))))
	h.want(1, "", submit(job(1, 2, 100, inQueue("a"))), submit(job(2, 2, 100, inQueue("b"))),
		submit(job(3, 2, 100, inQueue("c"))))
	h.want(2, "reject 2, reject 3",
		engine.Event{Type: engine.QueueChanged, Queues: []cluster.Queue{queue("a", 1000, -1)}})
	h.want(3, "start 1", stopped(0, engine.Completed))
}

// A job that is rejected because its queue is gone wakes one that waits for
// its end; that one is in line once, not twice.
func TestQueueGoneWakesDependent(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		c.Spec.Queues = []cluster.Queue{queue("a", 1000, -1), queue("b", 0, -1)}
	})
	h.want(0, "start 0", submit(job(0, 2, 100, inQueue("a"))))
	h.want(1, "", submit(job(1, 2, 100, inQueue("b"))), submit(job(2, 2, 100, inQueue("a"), func(j *cluster.Job) {
		j.After = []cluster.Dependency{{Type: cluster.AfterAny, Job: 1}}
	})))
	h.want(2, "reject 1", engine.Event{Type: engine.QueueChanged, Queues: []cluster.Queue{queue("a", 1000, -1)}})
	h.want(3, "start 2", stopped(0, engine.Completed))
}

// One queue's limit says nothing about jobs of the same shape in another.
func TestLimitIsNotTheShapes(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) {
		c.Spec.Queues = []cluster.Queue{queue("a", 0, 1000), queue("b", 0, -1)}
	})
	h.want(0, "reject 0, start 1", submit(job(0, 2, 100, inQueue("a"))), submit(job(1, 2, 100, inQueue("b"))))
	h.want(1, "reject 2, start 3", submit(job(2, 2, 100, inQueue("a"))), submit(job(3, 2, 100, inQueue("b"))))
}

// Elements of one array may have different caps: after an update, for example.
func TestArrayCapLowered(t *testing.T) {
	cap := func(n int) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Array = &cluster.Array{ID: 0, Index: int(j.ID), Cap: n} }
	}
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 1, 100, cap(2))), submit(job(1, 1, 100, cap(2))),
		submit(job(2, 1, 100, cap(2))))
	low := job(2, 1, 100, cap(1))
	h.want(1, "", engine.Event{Type: engine.Updated, Job: 2, Spec: &low})
	h.want(2, "", stopped(0, engine.Completed))
	h.want(3, "start 2", stopped(1, engine.Completed))
}

// The job that blocks the queue is cancelled or held: those behind it go on.
func TestHeadGoesAway(t *testing.T) {
	for _, mode := range []engine.Backfill{engine.Strict, engine.EASY, engine.Conservative} {
		h := newHand(t, "1x4xT4", "fifo", backfill(mode))
		h.want(0, "start 0", submit(job(0, 2, 100)))
		h.want(1, "", submit(job(1, 4, 100)), submit(job(2, 2, 1000)))
		h.want(2, "start 2", ev(engine.Cancelled, 1))
		h = newHand(t, "1x4xT4", "fifo", backfill(mode))
		h.want(0, "start 0", submit(job(0, 2, 100)))
		h.want(1, "", submit(job(1, 4, 100)), submit(job(2, 2, 1000)))
		h.want(2, "start 2", ev(engine.Held, 1))
	}
}

// A cancelled job does not come back because its node is lost while it stops.
func TestCancelledStaysCancelled(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0", submit(job(0, 2, 100)))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "preempt 0", ev(engine.Cancelled, 0))
	h.want(3, "", stopped(0, engine.NodeLost))
	if s := h.e.StateOf(0); s != engine.Done {
		t.Fatalf("the cancelled job is %s", s)
	}
}

// A start that is called off by a preemption is no failed launch.
func TestPreemptedStartIsNoFailure(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Launches = 1 })
	h.want(0, "start 0", submit(job(0, 2, 100, tier(cluster.BestEffort))))
	h.want(1, "preempt 0 for 1", submit(job(1, 2, 100)))
	h.want(2, "start 1", ev(engine.StartFailed, 0))
	if s := h.e.StateOf(0); s != engine.Pending {
		t.Fatalf("the job is %s", s)
	}
}

// A placement that is taken back does not cost the job its starvation bound;
// a job that is held is not starving.
func TestStarvation(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Starvation = seconds(100) })
	h.want(0, "start 0", submit(job(0, 2, 1000, tier(cluster.BestEffort))))
	h.want(1, "preempt 0 for 1", submit(job(1, 2, 1000)))                 // 1 is placed, 0 has not left
	h.want(2, "", engine.Event{Type: engine.GPUBad, Node: "n1", GPUs: 1}) // 1 loses its place
	h.want(3, "", stopped(0, engine.Preempted))
	if got := h.d.WakeAt; got != cluster.Time(seconds(101)) {
		t.Fatalf("the engine wants to wake at %v, not when job 1 has waited 100s", got)
	}
}

func TestHeldIsNotStarving(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Starvation = seconds(100) })
	h.want(0, "start 0", submit(job(0, 2, 1000)), submit(job(1, 2, 1000, func(j *cluster.Job) { j.Hold = true })))
	h.want(200, "", submit(job(2, 2, 10, func(j *cluster.Job) { j.Priority = 1 })))
	h.want(201, "", engine.Event{Type: engine.Held, Job: 1, Undo: true})
	h.want(202, "start 2", stopped(0, engine.Completed))
}

// A job that is stopped and started again at one instant still changes its
// level of service in time.
func TestLevelAfterRestart(t *testing.T) {
	h := newHand(t, "1x2xT4", "las:base=1m", nil)
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(0, "start 0", ev(engine.StartFailed, 0))
	h.want(0, "", ev(engine.Started, 0), submit(job(1, 2, 1000)))
	if h.d.WakeAt != cluster.Time(seconds(30)) { // two GPUs: a minute of service in 30 s
		t.Fatalf("wakes at %v", h.d.WakeAt)
	}
	h.want(30, "preempt 0 for 1")
}

// A start that did not happen by no fault of the job is not counted: only the third that was one ends it.
func TestExcusedStart(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", nil)
	excused := engine.Event{Type: engine.StartFailed, Job: 0, Undo: true}
	h.want(0, "start 0", submit(job(0, 2, 1000, func(j *cluster.Job) { j.NoRequeue = true })))
	for at := 1; at < 10; at++ {
		h.want(at, "start 0", excused)
	}
	h.want(10, "start 0", ev(engine.StartFailed, 0))
	h.want(11, "start 0", excused)
	h.want(12, "start 0", ev(engine.StartFailed, 0))
	h.want(13, "start 1", ev(engine.StartFailed, 0), submit(job(1, 2, 1000)))
}

// Elastic jobs give back what helps, and no more.
func TestShrinkOnlyWhatHelps(t *testing.T) {
	h := newHand(t, "1x4xT4+1x4xV100", "fifo", nil)
	on := func(typ string) func(*cluster.Job) { return func(j *cluster.Job) { j.GPUTypes = []string{typ} } }
	h.want(0, "start 0, start 1", submit(job(0, 1, 1000, elastic(1, 4), on("T4"))),
		submit(job(1, 1, 1000, elastic(1, 4), on("V100"))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "resize 0", submit(job(2, 2, 10, on("T4"))))
	h.want(3, "start 2", ev(engine.Resized, 0))
}

// A resize is confirmed before the next one is asked for: the driver's answer
// cannot be taken for that to another.
func TestOneResizeAtATime(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 2, 1000)), submit(job(1, 1, 1000, elastic(1, 4))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "resize 1", stopped(0, engine.Completed)) // grows
	h.want(3, "", submit(job(2, 1, 10)))
	h.want(4, "resize 1", ev(engine.Resized, 1)) // grown; now it shrinks
	h.want(5, "start 2", ev(engine.Resized, 1))
}

// Growth of an elastic job whose tasks hold several shares leaves nothing behind.
func TestGrowShares(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	two := job(0, 2, 1000, elastic(1, 3))
	two.Tasks[0].Request.Share = 500
	h.want(0, "start 1, start 0", submit(job(1, 2, 10, func(j *cluster.Job) { j.Priority = 1 })), submit(two))
	h.at(1, ev(engine.Started, 0), ev(engine.Started, 1))
	h.at(2, stopped(1, engine.Completed))
	h.at(3, stopped(0, engine.Completed))
	h.want(4, "start 2", submit(job(2, 4, 10)))
}

// A gang grows only within the domain that it must stay in.
func TestGrowWithinRack(t *testing.T) {
	h := newHand(t, "2x2xT4", "fifo", func(c *engine.Config) {
		c.Spec.Nodes[0].Rack, c.Spec.Nodes[1].Rack = "r1", "r2"
	})
	h.want(0, "start 0, start 1", submit(job(0, 1, 100)), submit(job(1, 1, 100)))
	h.want(1, "start 2", submit(job(2, 1, 1000, elastic(1, 4), func(j *cluster.Job) {
		j.Topology = cluster.Topology{Level: cluster.LevelRack, Required: true}
	})))
	h.want(2, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	h.at(3, stopped(0, engine.Completed), stopped(1, engine.Completed))
}

// A task of a second set may share the devices that the first set opened.
func TestSharesOfTwoSets(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", nil)
	j := job(0, 2, 10)
	j.Tasks[0].Request.Share = 300
	j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 1, Share: 300}})
	h.want(0, "start 0", submit(j))
}

// Media engines: one instance with them on each GPU.
func TestOneMediaSlice(t *testing.T) {
	h := newHand(t, "1x1xA100-80GB", "fifo", nil)
	me := func(id int) cluster.Job {
		return job(id, 1, 10, func(j *cluster.Job) { j.Tasks[0].Request.Profile = "1g.10gb+me" })
	}
	h.want(0, "start 0", submit(me(0)), submit(me(1)))
	h.want(1, "start 1", stopped(0, engine.Completed))
}

// Of several short jobs of one shape behind a blocked head, all run that can.
func TestBackfillGoesOn(t *testing.T) {
	h := newHand(t, "1x8xT4", "fifo", backfill(engine.EASY))
	h.want(0, "start 0", submit(job(0, 5, 100)))
	h.want(1, "", submit(job(1, 8, 100)))
	h.want(2, "start 3, start 4, start 5", submit(job(2, 1, 1000)), submit(job(3, 1, 50)), submit(job(4, 1, 50)),
		submit(job(5, 1, 50)))
}

// Slurm, test 2: conservative backfill promises a slot to every blocked job.
func TestConservativeVector(t *testing.T) {
	for mode, want := range map[engine.Backfill]string{engine.EASY: "start 3", engine.Conservative: ""} {
		h := newHand(t, "4x1xT4", "fifo", backfill(mode))
		gang := func(id, n, run int) cluster.Job {
			return job(id, 1, run, func(j *cluster.Job) { j.Tasks[0].Count = n; j.Limit = seconds(run) })
		}
		h.want(0, "start 0", submit(gang(0, 2, 10)))
		h.want(0, want, ev(engine.Started, 0), submit(gang(1, 3, 10)), submit(gang(2, 4, 10)), submit(gang(3, 1, 30)))
		if mode == engine.Conservative {
			jobs, at := h.e.Reservations()
			if fmt.Sprint(jobs, at) != "[1 2 3] [10s 20s 30s]" {
				t.Fatalf("reservations %v at %v", jobs, at)
			}
		}
	}
}

// A reservation that is looked through and left half-way leaves no trace.
func TestReservationsInRow(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", backfill(engine.Conservative))
	h.want(0, "start 0, start 1", submit(job(0, 4, 10)), submit(job(1, 4, 20)))
	h.want(1, "", submit(job(2, 3, 100)), submit(job(3, 1, 100)), submit(job(4, 4, 5)), submit(job(5, 2, 500)),
		submit(job(6, 4, 50)))
	h.at(10, stopped(0, engine.Completed))
	h.at(20, stopped(1, engine.Completed))
}

// Nothing starts on a node that is drained, not even what was chosen for it.
func TestDrainPlaced(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", nil)
	h.want(0, "start 0", submit(job(0, 2, 1000, tier(cluster.BestEffort))))
	h.want(1, "preempt 0 for 1", submit(job(1, 2, 1000)))
	h.want(2, "", engine.Event{Type: engine.NodeDrained, Node: "n1"})
	h.want(3, "", stopped(0, engine.Preempted))
	h.want(4, "start 1", engine.Event{Type: engine.NodeDrained, Node: "n1", Undo: true})
}

// The end of a minimum run time is an occasion to preempt, whatever the policy.
func TestMinRuntimeEnds(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.MinRuntime = seconds(60) })
	h.want(0, "start 0", submit(job(0, 2, 1000, tier(cluster.BestEffort))))
	h.want(1, "", submit(job(1, 2, 1000)))
	if h.d.WakeAt != cluster.Time(seconds(60)) {
		t.Fatalf("wakes at %v", h.d.WakeAt)
	}
	h.want(60, "preempt 0 for 1")
}

// What uses no GPU does not leave because a queue has too many.
func TestExcessSparesCPUJobs(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		q := queue("a", 0, 2000)
		q.Windows = []cluster.Window{{From: 10 * time.Minute, To: 20 * time.Minute, Guarantee: -1, Limit: 1000}}
		c.Spec.Queues = []cluster.Queue{q}
	})
	h.want(0, "start 0, start 1", submit(job(0, 0, 5000, inQueue("a"))), submit(job(1, 2, 5000, inQueue("a"))))
	h.want(600, "preempt 1")
}

// A starving job that loses its place to a critical one is looked at again in
// the same pass, also if no other of its kind was waiting when it began.
func TestLostPlaceInTheSamePass(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", func(c *engine.Config) {
		skip := engine.Skip
		c.Starvation, c.Backfill = seconds(60), &skip
	})
	h.want(0, "start 1, start 0", submit(job(0, 4, 1000, tier(cluster.BestEffort))),
		submit(job(1, 4, 1000, tier(cluster.Critical))))
	h.want(0, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(1, "", submit(job(2, 4, 100, func(j *cluster.Job) { j.Tasks[0].Count = 2 })))
	h.want(100, "preempt 0 for 2", stopped(1, engine.Completed))
	h.want(101, "", submit(job(3, 1, 5000, tier(cluster.BestEffort))))
	h.want(102, "start 4", submit(job(4, 4, 500, tier(cluster.Critical)))) // where the first critical job was
	h.want(103, "", stopped(0, engine.Preempted))                          // for the starving one: job 3 would delay it
}

// A job that shrinks and then stops for two losses at one instant holds all that
// it had until it has left: it is told once.
func TestTwoLossesAtOnce(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0",
		submit(job(0, 1, 1000, func(j *cluster.Job) {
			j.Tasks[0].Count, j.Elastic = 4, cluster.Elastic{Min: 2, Max: 4}
		})))
	h.want(0, "", ev(engine.Started, 0))
	h.want(10, "preempt 0", engine.Event{Type: engine.GPUBad, Node: "n1", GPUs: 1},
		engine.Event{Type: engine.GPUBad, Node: "n1", GPUs: 0b110})
	h.want(20, "", stopped(0, engine.NodeLost))
	if got := h.e.Attained(0); got != 4*1000*20_000 {
		t.Errorf("it was served %d milli-GPU-ms", got)
	}
}

// Task sets are placed one after the other: a gang that found no place may find
// one when another has started, for then its first set goes elsewhere.
func TestStartMakesGangFit(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", func(c *engine.Config) {
		skip := engine.Skip
		c.Backfill = &skip
		c.Spec.Nodes[0].RAM, c.Spec.Nodes[1].RAM = 10, 100
		c.Placer, _ = place.New("worst-fit")
	})
	// two free, three free
	h.want(0, "start 0, start 1, start 2", submit(job(0, 1, 1000)), submit(job(1, 1, 1000)), submit(job(2, 1, 1000)))
	h.want(1, "", submit(job(3, 2, 10, func(j *cluster.Job) {
		j.Tasks[0].Request.CPU = 1
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 2, RAM: 100}})
	})))
	h.want(2, "start 4", submit(job(4, 1, 1000)))
	h.want(2, "start 3", engine.Event{Type: engine.Tick})
}

// A promise names nodes and not devices: a gang that must be within one NVLink
// domain does not get devices of two islands of the promised node.
func TestPromiseWithinIsland(t *testing.T) {
	h := newHand(t, "1x8xT4", "fifo", func(c *engine.Config) {
		mode := engine.Conservative
		c.Backfill, c.Spec.Nodes[0].Islands = &mode, 2
		c.Placer, _ = place.New("worst-fit") // task by task
	})
	// the first island, and half of the second
	h.want(0, "start 0, start 1, start 2", submit(job(0, 2, 100)), submit(job(1, 2, 100)), submit(job(2, 2, 1000)))
	h.want(0, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	h.want(1, "", submit(job(3, 2, 10, func(j *cluster.Job) {
		j.Tasks[0].Count, j.Topology = 2, cluster.Topology{Level: cluster.LevelNVLink, Required: true}
	})))
	h.want(100, "start 3", stopped(0, engine.Completed), stopped(1, engine.Completed))
}

// Within its queue a job takes by order what the queue borrows, or what fits into
// the guarantee; not what is guaranteed for what would then be borrowed: others
// would reclaim that, and so on in a circle.
func TestOrderKeepsGuarantee(t *testing.T) {
	for guarantee, want := range map[int64]string{0: "preempt 0 for 1", 2000: "", 4000: "preempt 0 for 1"} {
		h := newHand(t, "1x4xT4", "las:base=1m", func(c *engine.Config) {
			c.Spec.Queues = []cluster.Queue{queue("a", guarantee, -1), queue("b", 0, -1)}
		})
		h.want(0, "start 0", submit(job(0, 2, 5000, inQueue("a"))))
		h.want(0, "", ev(engine.Started, 0))
		h.want(600, want, submit(job(1, 4, 5000, inQueue("a"))))
	}
}

// A window opens on the second, also for an engine that learnt of it between two seconds.
func TestWindowOnTheSecond(t *testing.T) {
	q := queue("a", 0, 2000)
	q.Windows = []cluster.Window{{From: 10 * time.Minute, To: 20 * time.Minute, Guarantee: -1, Limit: 1000}}
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Spec.Queues = []cluster.Queue{queue("a", 0, 2000)} })
	h.want(0, "start 0", submit(job(0, 2, 5000, inQueue("a"))), submit(job(1, 2, 5000, inQueue("a"))))
	d := h.e.Step(engine.Batch{Now: cluster.Time(500 * time.Millisecond),
		Events: []engine.Event{{Type: engine.QueueChanged, Queues: []cluster.Queue{q}}}})
	if want := cluster.Time(8 * time.Minute); d.WakeAt != want { // a grace before, for jobs that have to leave
		t.Fatalf("wakes at %v, want %v", d.WakeAt, want)
	}
}

// What a job attains grows at another rate from the moment that it gets more
// devices, not only once the driver has seen to it.
func TestGrownJobChangesLevelSooner(t *testing.T) {
	h := newHand(t, "1x2xT4", "las:base=1m", nil)
	h.want(0, "start 1", submit(job(1, 1, 1000)))
	h.want(0, "start 0", submit(job(0, 1, 1000, func(j *cluster.Job) { j.Elastic = cluster.Elastic{Min: 1, Max: 2} })))
	h.want(0, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(20, "resize 0", stopped(1, engine.Completed))
	h.want(21, "", submit(job(2, 2, 10)))
	if want := cluster.Time(seconds(40)); h.d.WakeAt != want {
		t.Fatalf("wakes at %v, want %v", h.d.WakeAt, want)
	}
}

// A job that runs slowly does not get faster in the order by being stopped:
// two jobs would take each other's devices forever.
func TestNoPingPong(t *testing.T) {
	h := newHand(t, "1x2xT4", "srtf", nil)
	h.want(0, "start 0", submit(job(0, 2, 100)))
	h.want(0, "", engine.Event{Type: engine.Started, Job: 0, Rate: 500_000})
	h.want(0, "preempt 0 for 1", submit(job(1, 2, 150)))
	h.want(0, "start 1", stopped(0, engine.Preempted))
	h.want(0, "", ev(engine.Started, 1))
}

// A running job's key may be older than a minute: which job is taken is judged by
// the key as it is now.
func TestStaleKey(t *testing.T) {
	h := newHand(t, "1x2xT4", "srsf", nil)
	h.want(0, "start 0", submit(job(0, 2, 100)))
	h.want(0, "", ev(engine.Started, 0))
	h.want(59, "", submit(job(1, 2, 60)))
}

// An update may name other dependencies and another user; a job that has a
// place but no devices yet can be held and updated.
func TestUpdate(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", nil)
	h.want(0, "start 0", submit(job(0, 2, 1000)), submit(job(1, 2, 10)))
	j := job(1, 2, 10, func(j *cluster.Job) { j.After = []cluster.Dependency{{Type: cluster.AfterAny, Job: 0}} })
	h.want(1, "", engine.Event{Type: engine.Updated, Job: 1, Spec: &j})
	h.want(2, "start 1", stopped(0, engine.Completed))
}

func TestHoldPlaced(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", nil)
	h.want(0, "start 0", submit(job(0, 2, 1000, tier(cluster.BestEffort))))
	h.want(1, "preempt 0 for 1", submit(job(1, 2, 1000)))
	h.want(2, "", ev(engine.Held, 1))
	h.want(3, "start 0", stopped(0, engine.Preempted))
}

// A second job of a shape may be short enough to end before an advance
// reservation although the first is not.
func TestShortBeforeReservation(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		c.Spec.Reservations = []cluster.Reservation{
			{Name: "v", Start: cluster.Time(seconds(100)), End: cluster.Time(seconds(200)), Nodes: []string{"n1"}}}
	})
	h.want(0, "", submit(job(0, 1, 1000)))
	h.want(1, "start 1", submit(job(1, 1, 50)))
}

// A job that is started at its full size counts the queue's running jobs once.
func TestGrowAtJobCap(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) {
		a := queue("a", 0, -1)
		a.MaxJobs = 1
		c.Spec.Queues = []cluster.Queue{a, queue("b", 0, -1)}
	})
	h.want(0, "start 0, start 1", submit(job(0, 2, 1000, inQueue("b"))),
		submit(job(1, 1, 1000, inQueue("a"), elastic(1, 4))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "resize 1", stopped(0, engine.Completed))
}

// An elastic job that is still starting when devices become free grows as soon
// as it runs.
func TestGrowAfterStart(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", nil)
	h.want(0, "start 0, start 1", submit(job(0, 2, 1000)), submit(job(1, 1, 1000, elastic(1, 4))))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "", stopped(0, engine.Completed))
	h.want(3, "resize 1", ev(engine.Started, 1))
}

// A placed job's devices become free at the instant at which its node is lost.
func TestReadyOnLostNode(t *testing.T) {
	for _, typ := range []engine.EventType{engine.NodeDown, engine.NodeDrained} {
		h := newHand(t, "1x2xT4", "fifo", nil)
		h.want(0, "start 0", submit(job(0, 2, 1000, tier(cluster.BestEffort))))
		h.want(1, "preempt 0 for 1", submit(job(1, 2, 1000)))
		h.want(2, "", stopped(0, engine.Preempted), engine.Event{Type: typ, Node: "n1"})
	}
}

// A suspended elastic job holds more than its smallest size: its queue's limit,
// lowered in the meantime, counts that.
func TestSuspendedAboveLimit(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) {
		c.Stop = &[3]engine.StopRule{1: {How: engine.Suspend, Grace: time.Second},
			2: {How: engine.Suspend, Grace: time.Second}}
		c.Spec.Queues = []cluster.Queue{queue("a", 0, -1), queue("b", 1000, -1)}
	})
	h.want(0, "start 0", submit(job(0, 1, 1000, inQueue("a"), elastic(1, 4), tier(cluster.BestEffort))))
	h.want(0, "", ev(engine.Started, 0))
	h.want(1, "preempt 0 for 1", submit(job(1, 4, 1000, inQueue("b"))))
	h.want(2, "start 1", stopped(0, engine.Preempted))
	h.want(3, "", engine.Event{Type: engine.QueueChanged,
		Queues: []cluster.Queue{queue("a", 0, 2000), queue("b", 1000, -1)}})
	h.want(4, "", stopped(1, engine.Completed))
}

// A gang of a whole GPU and of slices needs fewer GPUs than it has tasks.
func TestPreemptForSlices(t *testing.T) {
	h := newHand(t, "1x3xA100-80GB", "fifo", nil)
	h.want(0, "start 0", submit(job(0, 2, 1000, tier(cluster.BestEffort))))
	h.want(1, "preempt 0 for 1", submit(job(1, 1, 1000, func(j *cluster.Job) {
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 3, Request: cluster.Request{GPUs: 1, Profile: "2g"}})
	})))
}

// Two jobs lose their queue, and one of them waits for the other.
func TestOrphansOfOrphans(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) {
		c.Spec.Queues = []cluster.Queue{queue("a", 1000, -1), queue("b", 0, -1)}
	})
	h.want(0, "start 0", submit(job(0, 2, 100, inQueue("a"))))
	h.want(1, "", submit(job(1, 2, 100, inQueue("b"))), submit(job(2, 2, 100, inQueue("b"), func(j *cluster.Job) {
		j.After = []cluster.Dependency{{Type: cluster.AfterOK, Job: 1}}
	})))
	h.want(2, "reject 2, reject 1",
		engine.Event{Type: engine.QueueChanged, Queues: []cluster.Queue{queue("a", 1000, -1)}})
}

// A suspended elastic job gets room from another one: it comes back at its size.
func TestSuspendedTakesSurplus(t *testing.T) {
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) {
		c.Stop = &[3]engine.StopRule{{How: engine.Suspend, Grace: time.Second},
			{How: engine.Suspend, Grace: time.Second}, {How: engine.Suspend, Grace: time.Second}}
	})
	h.want(0, "start 1", submit(job(1, 2, 1000)))
	h.want(1, "start 0", submit(job(0, 1, 1000, tier(cluster.BestEffort), elastic(1, 2))))
	h.want(2, "preempt 0 for 2", ev(engine.Started, 0), submit(job(2, 2, 1000)))
	h.want(3, "start 2", stopped(0, engine.Preempted), ev(engine.Held, 0))
	h.want(4, "start 3", stopped(1, engine.Completed), stopped(2, engine.Completed),
		submit(job(3, 1, 1000, elastic(1, 4), tier(cluster.BestEffort))))
	h.want(5, "", ev(engine.Started, 3))
	h.want(6, "resize 3", engine.Event{Type: engine.Held, Job: 0, Undo: true})
	h.want(7, "start 0", ev(engine.Resized, 3))
}

// The set that only one node can hold is placed first, else the gang would be
// rejected as impossible.
func TestHardestSetFirst(t *testing.T) {
	h := newHand(t, "2x2xT4", "fifo", func(c *engine.Config) { c.Spec.Nodes[0].CPU, c.Spec.Nodes[1].CPU = 64000, 1000 })
	h.want(0, "start 0", submit(job(0, 1, 10, func(j *cluster.Job) {
		j.Tasks[0].Count = 2
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: 1, CPU: 60000}})
	})))
}

// Heads are compared again once in a period, not in every step: a pass needs a reason.
func TestRekeyOncePerPeriod(t *testing.T) {
	h := newHand(t, "1x2xT4", "multifactor", nil)
	by := func(user string) func(*cluster.Job) { return func(j *cluster.Job) { j.User = user } }
	h.want(0, "start 0", submit(job(0, 2, 10_000, by("a"))))
	h.want(1, "", submit(job(1, 2, 100, by("b"))), submit(job(2, 2, 100, by("c"))))
	h.want(2, "") // new users: all ranks are others
	before := h.e.Stats().Passes
	for now := 3; now < 903; now++ {
		h.want(now, "")
	}
	if n := h.e.Stats().Passes - before; n != 3 {
		t.Fatalf("%d passes in three periods in which nothing happens", n)
	}
}

// A gang of shares that no node holds alone: of two nodes with room for equally
// many tasks, the fuller one gets most of it, as with whole GPUs.
func TestMostOnTheFuller(t *testing.T) {
	h := newHand(t, "2x2xT4", "fifo", nil)
	share := func(n int, milli, mem int64) func(*cluster.Job) {
		return func(j *cluster.Job) {
			j.Tasks = []cluster.TaskSet{{Count: n, Request: cluster.Request{GPUs: 1, Share: milli, Memory: mem}}}
		}
	}
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(1, "start 1", submit(job(1, 1, 1000, share(1, 100, 1000))))
	h.want(2, "", stopped(0, engine.Completed))
	h.want(3, "start 2", submit(job(2, 1, 1000, share(3, 500, 9000))))
	on := [2]int{}
	for _, a := range h.d.Actions[0].Allocs {
		on[a.Node]++
	}
	if on != [2]int{1, 2} {
		t.Errorf("%v tasks on the two nodes, want 1 on the empty one and 2 on the other", on)
	}
}

// In strict order no job passes a gang of two task sets that is behind a blocked
// job: also not to the nodes on which only its smaller tasks can run.
func TestStrictKeepsForGang(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", func(c *engine.Config) { c.Spec.Nodes[1].GPUs = 2 })
	h.want(0, "start 0", submit(job(0, 4, 1000)))
	h.want(1, "", submit(job(1, 4, 1000)))
	h.want(2, "", submit(job(2, 4, 1000, func(j *cluster.Job) {
		j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 2, Request: cluster.Request{GPUs: 1}})
	})))
	h.want(3, "", submit(job(3, 1, 1000)))
	h.want(4, "start 1", stopped(0, engine.Completed))
}

// Where the policy orders queues, a start may make another job the first in
// line: strict order looks again with the next event, whatever it is.
func TestStrictQueuesLookAgain(t *testing.T) {
	h := newHand(t, "2x4xT4", "proportional", func(c *engine.Config) {
		m := engine.Strict
		c.Backfill = &m
		c.Spec.Nodes[1] = cluster.Node{Name: "other", Model: "V100-16GB", GPUs: 4}
		c.Spec.Queues = []cluster.Queue{queue("a", 0, -1), queue("b", 0, -1)}
	})
	on := func(model string) func(*cluster.Job) { return func(j *cluster.Job) { j.GPUTypes = []string{model} } }
	h.want(0, "start 0", submit(job(0, 2, 1000, inQueue("b"), on("T4"))))
	// a is first: its first job waits for T4s and keeps b's from them; its second gets V100s.
	h.want(1, "start 2", submit(job(1, 3, 1000, inQueue("a"), on("T4"))),
		submit(job(2, 4, 1000, inQueue("a"), on("V100"))),
		submit(job(3, 1, 1000, inQueue("b"), on("T4"))))
	h.want(2, "start 3", ev(engine.Started, 2)) // b holds less than a now
}

// A restarted engine knows how large nodes are before it finds out which plans jobs can follow.
func TestRestoreSizes(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x2xT4", "lyra", func(c *engine.Config) {
		c.Spec.Nodes[0].CPU, c.Spec.Nodes[1].CPU = 16000, 16000
		cfg = *c
	})
	h.want(0, "start 0", submit(job(0, 1, 100, elastic(1, 2))))
	h.want(1, "", ev(engine.Started, 0), sized(h.e.Nodes()[1].Name, 8000, 0))
	for _, h := range h.andRestored(cfg) {
		h.want(2, "reject 1", submit(job(1, 1, 100, func(j *cluster.Job) {
			j.Tasks[0].Count, j.Tasks[0].Request.CPU = 2, 9000
		})))
	}
}

// No job has an instance of a broken GPU.
func TestSliceOnBrokenGPU(t *testing.T) {
	h := newHand(t, "1x2xA100-80GB", "fifo", func(c *engine.Config) {
		c.Spec.Nodes[0].MIG, c.Spec.Nodes[0].Bad = "0:*;1:*", 1
	})
	slice := func(gpu uint64) *engine.Reshape {
		return &engine.Reshape{Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1, Profile: "4g"}}},
			Allocs: []engine.Alloc{{Tasks: 1, GPUs: gpu, Share: 571, Slots: 15, Compute: 4, Mem: 40192}}}
	}
	h.want(0, "start 0", submit(job(0, 1, 100, func(j *cluster.Job) { j.Tasks = slice(0).Tasks })))
	if text := h.e.CheckReshape(0, slice(2)); text != "" {
		t.Errorf("it cannot stay on the healthy GPU: %s", text)
	}
	if h.e.CheckReshape(0, slice(1)) == "" {
		t.Error("it may be on the broken GPU")
	}
}

// most plans for each job the most that it can have.
type most struct{}

func (most) Name() string                             { return "most" }
func (most) Traits() sched.Traits                     { return sched.Traits{Backfill: engine.Skip} }
func (most) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }
func (most) Plan(_ sched.View, l []sched.JobView) sched.Plan {
	p := sched.Plan{Next: cluster.Never}
	for _, j := range l {
		_, _, n := j.Tasks()
		p.Targets = append(p.Targets, engine.Target{Tasks: n})
	}
	return p
}

// A job whose plan cannot be followed any more, because a node is another, does not wait for ever.
func TestPlanOutgrown(t *testing.T) {
	h := newHand(t, "2x2xT4", "fifo", func(c *engine.Config) { c.Policy = most{} })
	h.want(0, "start 0", submit(job(0, 2, 100)))
	h.want(1, "", ev(engine.Started, 0), submit(job(1, 1, 100, elastic(1, 4))))
	n := h.e.Nodes()[1]
	n.GPUs = 1
	h.want(2, "start 1", engine.Event{Type: engine.NodeChanged, Node: n.Name, Spare: &n})
}

// On a node that has become smaller a placed job waits for more than it takes itself, because others hold too much.
// When these leave, too, that is no room for a third.
func TestSmallerNodeLeft(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Spec.Nodes[0].CPU = 12000 })
	cores := func(n int64) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request = cluster.Request{CPU: n * 1000} }
	}
	h.want(0, "start 0, start 1, start 2", submit(job(0, 0, 100, cores(4))), submit(job(1, 0, 100, cores(2))),
		submit(job(2, 0, 100, cores(3))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	h.want(2, "", sized(h.e.Nodes()[0].Name, 8000, 0))
	h.want(3, "preempt 2", ev(engine.Cancelled, 2))
	h.want(4, "", submit(job(3, 0, 100, cores(1)))) // of 9 cores that are in use 2 have to be free
	h.want(5, "preempt 0, preempt 1", ev(engine.Cancelled, 0), ev(engine.Cancelled, 1))
	h.want(6, "", stopped(1, engine.WasCancelled))
	h.want(7, "", submit(job(4, 0, 100, cores(2)))) // 7 of 8 cores are in use
	h.want(8, "start 3", stopped(2, engine.WasCancelled))
	h.want(9, "start 4", stopped(0, engine.WasCancelled))
}

// A job that was to start on a node gives its place up when the node becomes too small for it and those that leave.
func TestSmallerNodePlaced(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Spec.Nodes[0].CPU = 16000 })
	cores := func(n int64) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request = cluster.Request{CPU: n * 1000} }
	}
	h.want(0, "start 0, start 1", submit(job(0, 0, 100, cores(6))), submit(job(1, 0, 100, cores(7))))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1))
	h.want(2, "preempt 0, preempt 1", ev(engine.Cancelled, 0), ev(engine.Cancelled, 1))
	h.want(3, "", submit(job(2, 0, 100, cores(8)))) // 5 of the 8 cores are to become free: when one of the two has left
	h.want(4, "", sized(h.e.Nodes()[0].Name, 8000, 0))
	h.want(5, "", stopped(0, engine.WasCancelled))
	h.want(6, "start 2", stopped(1, engine.WasCancelled))
}
