package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
)

// whole is one allocation of so many tasks of whole GPUs.
func whole(node, set, tasks int, gpus uint64) engine.Alloc {
	return engine.Alloc{Node: int32(node), Set: int32(set), Tasks: int32(tasks), GPUs: gpus}
}

func reshape(tasks []cluster.TaskSet, allocs ...engine.Alloc) *engine.Reshape {
	return &engine.Reshape{Tasks: tasks, Allocs: allocs}
}

func reshaped(id int, tasks []cluster.TaskSet, allocs ...engine.Alloc) engine.Event {
	return engine.Event{Type: engine.JobReshaped, Job: cluster.JobID(id), Reshape: reshape(tasks, allocs...)}
}

func sets(list ...cluster.TaskSet) []cluster.TaskSet { return list }

func up(node string) engine.Event   { return engine.Event{Type: engine.NodeUp, Node: node} }
func down(node string) engine.Event { return engine.Event{Type: engine.NodeDown, Node: node} }

// cpuTasks is so many tasks of a GPU and so much CPU.
func cpuTasks(count int, cpu cluster.Milli) cluster.TaskSet {
	return cluster.TaskSet{Count: count, Request: cluster.Request{GPUs: 1, CPU: cpu}}
}

// gpuTasks is so many tasks of so many GPUs.
func gpuTasks(count, gpus int) cluster.TaskSet {
	return cluster.TaskSet{Count: count, Request: cluster.Request{GPUs: gpus}}
}

func adopted(j cluster.Job, at int, allocs ...engine.Alloc) engine.Event {
	started := cluster.Time(seconds(at))
	r := &engine.JobRecord{Spec: &j, Holdings: engine.JobHoldings{Allocs: allocs}}
	r.State, r.Rate, r.StarvingSince, r.LimitAt = engine.Running, 1_000_000, cluster.Never, cluster.Never
	r.Started, r.FirstStart, r.Acc = started, started, started
	return engine.Event{Type: engine.Adopted, Job: j.ID, Record: r}
}

func changedTo(n cluster.Node) engine.Event {
	return engine.Event{Type: engine.NodeChanged, Node: n.Name, Spare: &n}
}

func amended(j cluster.Job) engine.Event {
	return engine.Event{Type: engine.Updated, Job: j.ID, Spec: &j}
}

func known(c *engine.Config) func(*engine.Config) {
	return func(o *engine.Config) { *c = *o }
}

// A job that runs loses a task with its node and goes on, gets it back, and is of tasks of two kinds: one that waits
// gets what it leaves, and its queue is charged for what it has.
func TestReshaped(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "3x2xT4", "fifo", known(&cfg))
	h.want(0, "start 1", submit(job(1, 2, 1000, tasks(3))))
	h.want(1, "", ev(engine.Started, 1), submit(job(2, 2, 1000)))
	h.want(2, "", reshaped(1, sets(gpuTasks(2, 2)), whole(0, 0, 1, 3), whole(1, 0, 1, 3)), down("n3"))
	if r := h.e.Record(1); r.State != engine.Running || r.Tasks != 2 {
		t.Fatalf("it is %s with %d tasks", r.State, r.Tasks)
	}
	for _, h := range h.andRestored(cfg) {
		h.want(3, "start 2", up("n3"))
	}
	h.want(4, "", stopped(2, engine.Completed))
	two := sets(gpuTasks(2, 2), gpuTasks(1, 1))
	h.want(5, "", reshaped(1, two, whole(0, 0, 1, 3), whole(1, 0, 1, 3), whole(2, 1, 1, 2)))
	h.want(6, "start 3", submit(job(3, 1, 1000)))
	three := reshape(sets(gpuTasks(3, 2)), whole(0, 0, 1, 3), whole(1, 0, 1, 3), whole(2, 0, 1, 3))
	if text := h.e.CheckReshape(1, three); text != "not all of it is free" {
		t.Errorf("it could have what another has: %q", text)
	}
	if r := h.e.Record(1); h.e.Attained(1) != 29_000_000 || r.Spec.NumTasks() != 3 {
		t.Errorf("it attained %d with %d tasks", h.e.Attained(1), r.Spec.NumTasks())
	}
}

// A job that is found on a node that is down, when it is taken over or after it was reshaped, is lost with it: no
// report of the node's loss is to come.
func TestFoundOnNodeThatIsDown(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", nil)
	h.want(0, "start 1", submit(job(1, 1, 1000)))
	h.want(1, "", ev(engine.Started, 1), down("n2"))
	h.want(2, "preempt 2", adopted(job(2, 1, 1000), 1, whole(1, 0, 1, 1)))
	h.want(3, "preempt 1", reshaped(1, sets(gpuTasks(1, 1)), whole(1, 0, 1, 2)))
	if r := h.e.Record(2); r.State != engine.Stopping || r.Reason != engine.NodeLost {
		t.Errorf("it is %s: %v", r.State, r.Reason)
	}
	h.want(4, "start 1, start 2", stopped(1, engine.NodeLost), stopped(2, engine.NodeLost))
}

// A job that does not come back can be wherever its driver says; one that does, on the nodes that it names only.
func TestReshapedElsewhere(t *testing.T) {
	h := newHand(t, "3x2xT4", "fifo", nil)
	once := func(j *cluster.Job) { j.NoRequeue = true }
	one, two := job(1, 2, 1000, among("left"), once), job(2, 2, 1000, among("left"))
	h.want(0, "start 1, start 2", named("left", "n1", "n2"), submit(one), submit(two))
	small := sets(gpuTasks(1, 1))
	h.want(1, "", reshaped(1, small, whole(2, 0, 1, 1)), reshaped(2, small, whole(2, 0, 1, 2)))
	if got := h.on(1) + h.on(2); got != "n3n2" {
		t.Errorf("they are on %s", got)
	}
}

// An elastic job is one of a fixed size from when its driver says so; a job that has its place beside what it gets and
// has not started gives that up.
func TestReshapedElastic(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", func(c *engine.Config) {
		for i := range c.Spec.Nodes {
			c.Spec.Nodes[i].CPU = 8000
		}
	})
	cpu := func(m cluster.Milli) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request.CPU = m }
	}
	h.want(0, "start 1", submit(job(1, 1, 1000, tasks(6), elastic(2, 6), cpu(1000))))
	h.want(1, "", ev(engine.Started, 1))
	r := h.e.Record(1)
	if r.Tasks != 6 {
		t.Fatalf("it has %d tasks", r.Tasks)
	}
	h.want(2, "", reshaped(1, sets(cpuTasks(2, 1000)), engine.Alloc{Node: 0, Tasks: 2, GPUs: 3, CPU: 2000}))
	h.want(3, "start 2", submit(job(2, 1, 1000, tasks(6))))
	h.want(4, "", stopped(2, engine.Completed)) // it does not grow
	h.want(5, "start 3", down("n2"), submit(job(3, 2, 1000, cpu(4000), tier(cluster.BestEffort))))
	h.want(6, "preempt 3 for 4", ev(engine.Started, 3), submit(job(4, 2, 1000, cpu(6000))))
	h.want(7, "", reshaped(1, sets(cpuTasks(2, 1500)), engine.Alloc{Node: 0, Tasks: 2, GPUs: 3, CPU: 3000}))
	if r := h.e.Record(4); r.State != engine.Pending {
		t.Errorf("it is %s, and what it was promised is another's", r.State)
	}
	larger := reshape(sets(cpuTasks(2, 2500)), engine.Alloc{Node: 0, Tasks: 2, GPUs: 3, CPU: 5000})
	if text := h.e.CheckReshape(1, larger); text != "not all of it is free" {
		t.Errorf("it could have what one that leaves still has: %q", text)
	}
	h.want(8, "", stopped(3, engine.Preempted))
}

// A job that is found running is one like others: it is charged, preempted, and outlives a restart. One whose devices
// are not free, or that says what cannot be, is not taken over.
func TestAdopted(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x4xT4", "fifo", known(&cfg))
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(1, "", ev(engine.Started, 0))
	h.want(10, "", adopted(job(3, 2, 1000, tasks(3)), 5, whole(0, 0, 1, 0b1100), whole(1, 0, 2, 0b1111)))
	if r := h.e.Record(3); r == nil || r.State != engine.Running || h.e.Attained(3) != 30_000_000 {
		t.Fatalf("it is %+v", r)
	}
	for _, h := range h.andRestored(cfg) {
		h.want(11, "", submit(job(4, 2, 1000)))
		h.want(12, "preempt 3 for 5", submit(job(5, 4, 1000, tier(cluster.Critical))))
	}
	h.want(13, "start 5, start 4", stopped(3, engine.Preempted))
	h.want(14, "", stopped(4, engine.Completed))
	free := whole(0, 0, 1, 0b1100)
	bad := []engine.Event{adopted(job(7, 2, 1000), 5, whole(0, 0, 1, 3)), adopted(job(8, 2, 1000), 99, free),
		adopted(job(9, 2, 1000), 5), adopted(job(10, 2, 1000), 5, whole(9, 0, 1, 3)),
		adopted(job(11, 2, 1000), 5, whole(0, -1, 1, 0b1100)), adopted(job(5, 2, 1000), 5, free),
		adopted(job(12, 2, 1000, elastic(1, 2)), 5, free), {Type: engine.Adopted},
		adopted(job(13, 0, 1000), 5), adopted(job(1<<30, 2, 1000), 5, free)}
	h.at(15, bad...)
	for _, ev := range bad {
		if ev.Job != 5 && h.e.Knows(ev.Job) && ev.Type == engine.Adopted && ev.Record != nil {
			t.Errorf("job %d was taken over: %+v", ev.Job, ev.Record)
		}
	}
	h.at(16, adopted(job(14, 2, 1000), 5, free))
	if r := h.e.Record(14); r == nil {
		t.Error("what is free can be taken over")
	}
}

// A node becomes smaller than what runs there: its jobs keep what they hold, also over a restart, and a job that takes
// their place starts only when so many have left that it has room.
func TestNodeShrinks(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) {
		c.Spec.Nodes[0].CPU, c.Spec.Nodes[0].RAM = 12_000, 1000
		cfg = *c
	})
	cpu := func(m cluster.Milli) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request.CPU = m }
	}
	low := tier(cluster.BestEffort)
	h.want(0, "start 1, start 2, start 3", submit(job(1, 1, 1000, cpu(4000))), submit(job(2, 1, 1000, cpu(4000), low)),
		submit(job(3, 1, 1000, cpu(4000), low)))
	h.want(1, "", ev(engine.Started, 1), ev(engine.Started, 2), ev(engine.Started, 3), sized("n1", 8000, 1000))
	if again := h.restarted(cfg); again.Nodes[0].CPU != 8000 {
		t.Errorf("after a restart the node has %d CPU", again.Nodes[0].CPU)
	}
	for id := range cluster.JobID(4) {
		if r := h.e.Record(id); r != nil && r.State != engine.Running {
			t.Errorf("after a restart job %d is %s", id, r.State)
		}
	}
	h.want(2, "preempt 3 for 4, preempt 2 for 4", submit(job(4, 1, 1000, cpu(4000))))
	h.want(3, "", stopped(2, engine.Preempted))
	h.want(4, "start 4", stopped(3, engine.Preempted))
	h.want(5, "start 2", sized("n1", 12_000, 1000))
	if first, again := h.restarted(cfg), h.e.Snapshot(); fmt.Sprint(first.Resized, again.Resized) != "[n1] [n1]" {
		t.Errorf("sizes that were reported: of %v, after a restart of %v", first.Resized, again.Resized)
	}
}

// A job that is found on a node that is given back to its owner leaves it at once.
func TestFoundOnGivenNode(t *testing.T) {
	h := newHand(t, "3x2xT4", "fifo", func(c *engine.Config) {
		c.Spec.Partitions = []cluster.Partition{{Name: "lent", Nodes: []string{"n1"}},
			{Name: "own", Nodes: []string{"n2", "n3"}}}
		c.Spec.Loans = []cluster.Loan{
			{Partition: "lent", Back: []cluster.Back{{Hours: cluster.Hours{To: 24 * time.Hour}, Nodes: 1}}}}
	})
	h.want(0, "start 1", submit(job(1, 2, 1000)))
	h.want(1, "", ev(engine.Started, 1))
	h.want(2, "preempt 2", adopted(job(2, 1, 1000), 1, whole(0, 0, 1, 1)))
	h.want(3, "preempt 1", reshaped(1, sets(gpuTasks(1, 1)), whole(0, 0, 1, 2)))
}

// What a message says of the GPUs that there are depends on the nodes as they are.
func TestRejectedAfterChange(t *testing.T) {
	h := newHand(t, "2x2xT4", "fifo", nil)
	n := h.e.Nodes()[0]
	for i, gpus := range []int{3, 4, 2} {
		n.GPUs = gpus
		h.want(i, "", changedTo(n))
	}
	text := h.e.Check(&cluster.Job{Tasks: sets(gpuTasks(1, 1)), GPUTypes: []string{"none"}})
	if want := `unknown GPU type "none" (valid: T4-16GB)`; text != want {
		t.Errorf("it is refused with %q, not %q", text, want)
	}
}

// A job does not get more of a GPU than it has while one that leaves still has a share of it.
func TestReshapedBesideLeaver(t *testing.T) {
	h := newHand(t, "1x1xT4", "fifo", nil)
	share := func(m cluster.Milli) func(*cluster.Job) {
		return func(j *cluster.Job) { j.Tasks[0].Request.Share = m }
	}
	h.want(0, "start 1, start 2", submit(job(1, 1, 1000, share(500))), submit(job(2, 1, 1000, share(300))))
	h.want(1, "preempt 2", ev(engine.Started, 1), ev(engine.Started, 2), ev(engine.Cancelled, 2))
	half := engine.Alloc{Tasks: 1, GPUs: 1, Share: 500}
	two := reshape(sets(cluster.TaskSet{Count: 2, Request: cluster.Request{GPUs: 1, Share: 500}}), half, half)
	if text := h.e.CheckReshape(1, two); text != "a job that leaves still has a device of it" {
		t.Errorf("it can have the share of one that leaves: %q", text)
	}
	h.want(2, "", stopped(2, engine.WasCancelled))
	if text := h.e.CheckReshape(1, two); text != "" {
		t.Errorf("when that has left: %q", text)
	}
}

// A job that has its place where another is found, and has not started, gives it up.
func TestAdoptedInPlace(t *testing.T) {
	h := newHand(t, "2x1xT4", "fifo", nil)
	h.want(0, "start 1", submit(job(1, 1, 1000, tier(cluster.BestEffort))))
	h.want(1, "", ev(engine.Started, 1))
	h.want(2, "preempt 1 for 2", submit(job(2, 1, 1000, tasks(2))))
	h.want(3, "", adopted(job(3, 1, 1000), 1, whole(1, 0, 1, 1)))
	if two, three := h.e.Record(2), h.e.Record(3); two.State != engine.Pending || three == nil {
		t.Fatalf("one waits for devices as %s, the other is %+v", two.State, three)
	}
	h.want(4, "", stopped(1, engine.Preempted))
	h.want(5, "start 2", stopped(3, engine.Completed))
}

// No share of a GPU in MIG mode can be taken over, also where none of its instances is in use.
func TestAdoptedShare(t *testing.T) {
	h := newHand(t, "1x2xA100-80GB", "fifo", func(c *engine.Config) {
		c.Spec.Nodes[0].MIG = cluster.GeometryText([][]cluster.Instance{{{Profile: "1g.10gb", Start: 0}}, nil})
	})
	half := func(j *cluster.Job) { j.Tasks[0].Request.Share = 500 }
	on := func(gpu uint64) engine.Alloc { return engine.Alloc{Tasks: 1, GPUs: gpu, Share: 500} }
	h.want(0, "", adopted(job(1, 1, 1000, half), 0, on(1)), adopted(job(2, 1, 1000, half), 0, on(2)))
	if h.e.Knows(1) || !h.e.Knows(2) {
		t.Errorf("taken over are %+v", h.e.Beliefs())
	}
}

// A job that runs comes back when it is stopped, or no more, as its driver says; where it may be is taken over only if
// it is there.
func TestAmended(t *testing.T) {
	h := newHand(t, "2x4xT4", "fifo", nil)
	once := func(j *cluster.Job) { j.NoRequeue = true }
	h.want(0, "start 1, start 2", named("left", "n1"), submit(job(1, 4, 1000, once)), submit(job(2, 4, 1000, once)))
	h.at(1, ev(engine.Started, 1), ev(engine.Started, 2))
	h.want(1, "", amended(job(1, 4, 1000, among("left"))), amended(job(2, 4, 1000, among("left"))))
	a, b := h.e.Spec(1), h.e.Spec(2)
	if a.Nodes != "left" || a.NoRequeue || b.Nodes != "" || !b.NoRequeue {
		t.Errorf("they are %+v and %+v", a, b)
	}
	h.want(2, "preempt 2 for 3", submit(job(3, 4, 1000, tier(cluster.Critical))))
	h.want(3, "start 3", stopped(2, engine.Preempted))
	h.want(4, "preempt 1 for 4", submit(job(4, 4, 1000, tier(cluster.Critical))))
	h.want(5, "start 4", stopped(1, engine.Preempted))
	h.want(6, "", stopped(3, engine.Completed)) // 2 has ended, and 1 waits for its nodes
	h.want(7, "start 1", stopped(4, engine.Completed))
	h.want(8, "", amended(job(1, 4, 1000, once)))
	h.want(9, "preempt 1 for 5", submit(job(5, 4, 1000, tier(cluster.Critical), among("left"))))
	h.want(10, "start 5", stopped(1, engine.Preempted))
	h.want(11, "", stopped(5, engine.Completed))
}

// Which of equal places a job gets depends on what the nodes are, not on what they were and in which order they
// changed: an engine that is restored decides as the one that went on.
func TestNodesChangedInAnyOrder(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x2xT4", "fifo", known(&cfg))
	as := func(at int, model string) engine.Event {
		n := h.e.Nodes()[at]
		n.Model = model
		return changedTo(n)
	}
	h.want(0, "", as(1, "V100-16GB"))
	h.want(1, "", as(0, "A100-80GB"))
	for _, h := range h.andRestored(cfg) {
		if h.want(2, "start 1", submit(job(1, 1, 1000, tasks(2)))); h.on(1) != "n1" {
			t.Errorf("it is on %s", h.on(1))
		}
	}
}

// A node gets slices instead of GPUs while no job has any of them, and back, and the jobs that wait for them
// start. While a job has a GPU there, only its place in the network changes.
func TestNodeChanged(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "2x2xA100-80GB", "fifo", known(&cfg))
	slice := func(j *cluster.Job) { j.Tasks[0].Request.Profile = "1g.10gb" }
	node := h.e.Nodes()[1]
	h.want(0, "start 1", submit(job(1, 2, 1000)))
	h.want(1, "", ev(engine.Started, 1))
	cut := node
	small := func(start int) cluster.Instance { return cluster.Instance{Profile: "1g.10gb", Start: start} }
	cut.MIG = cluster.GeometryText([][]cluster.Instance{{small(0), small(1)}, {small(0)}})
	h.want(2, "", changedTo(cut))
	if got := h.e.Nodes()[1]; got.MIG != cut.MIG {
		t.Fatalf("its GPUs are partitioned as %q", got.MIG)
	}
	h.want(3, "start 2, start 3, start 4", submit(job(2, 1, 1000, slice)), submit(job(3, 1, 1000, slice)),
		submit(job(4, 1, 1000, slice)), submit(job(5, 1, 1000, slice)))
	h.want(4, "", submit(job(6, 2, 1000)), changedTo(node))
	for _, h := range h.andRestored(cfg) {
		h.want(5, "start 5", stopped(2, engine.Completed), stopped(3, engine.Completed), submit(job(7, 2, 1000)))
	}
	h.at(6, stopped(4, engine.Completed), stopped(5, engine.Completed))
	four := node
	four.GPUs, four.CPU = 4, 9000
	unknown, nowhere := cluster.Node{Name: "n2", GPUs: 2, Model: "none"}, cluster.Node{Name: "nowhere", GPUs: 2}
	h.want(7, "start 6, start 7", changedTo(four), changedTo(nowhere), changedTo(unknown))
	if text := h.e.CheckChange(&node); text != "a job has a GPU of it" {
		t.Errorf("it can be changed while jobs run there: %q", text)
	}
	four.Rack, four.NVLink = "r9", "x9"
	for _, h := range h.andRestored(cfg) {
		h.want(8, "start 8", changedTo(four), stopped(6, engine.Completed), submit(job(8, 2, 1000)))
	}
	if snap := h.restarted(cfg); fmt.Sprint(snap.Changed) != "[n2]" || h.e.Nodes()[1].Rack != "r9" {
		t.Errorf("the snapshot has others than configured: %v", snap.Changed)
	}
}

// Random reports of jobs that run, and of nodes that are others, leave the books right, before and after a restart. As
// they stand in a journal they decide the same.
func TestFactsAtRandom(t *testing.T) {
	for seed := range shared.Soak[uint64](15, 40) {
		r := rand.New(rand.NewPCG(seed, 7))
		pol, made := pick(r, "fifo", "las:base=1m", "srtf"), 0
		var cfg [2]engine.Config
		begin := func() *hand {
			return newHand(t, "6x4xA100-80GB", pol, func(c *engine.Config) {
				for i := range c.Spec.Nodes {
					c.Spec.Nodes[i].CPU = 32_000
				}
				cfg[made] = *c
				made++
			})
		}
		h, replayed, next := begin(), begin(), 0
		for now := range 150 {
			list := randomFacts(r, h, &next, now)
			h.at(now, list...)
			if replayed.at(now, journaled(t, list)...); replayed.d.Hash != h.d.Hash {
				t.Fatalf("seed %d, at %ds: what stands in the journal decides otherwise: %+v", seed, now, list)
			}
			if chance(r, 5) {
				h.restarted(cfg[0])
				replayed.restarted(cfg[1])
			}
		}
	}
}

// journaled is events as a journal has them.
func journaled(t *testing.T, list []engine.Event) (read []engine.Event) {
	t.Helper()
	text, err := json.Marshal(list)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// randomFacts are what a driver may report at one instant.
func randomFacts(r *rand.Rand, h *hand, next *int, now int) (list []engine.Event) {
	id := *next
	if *next++; chance(r, 40) {
		of := tier(pick(r, cluster.Standard, cluster.Critical, cluster.BestEffort))
		list = append(list, submit(job(id, pick(r, 1, 2, 4), 100, tasks(1+r.IntN(3)), of, func(j *cluster.Job) {
			j.Tasks[0].Request.CPU, j.NoRequeue = 1000, chance(r, 50)
		})))
	} else {
		n := r.IntN(6)
		list = append(list, adopted(job(id, 1, 100), now, whole(n, 0, 1, 1<<r.IntN(4))))
	}
	for _, b := range h.e.Beliefs() {
		rec := h.e.Record(b.Job)
		switch {
		case rec.State == engine.Starting:
			list = append(list, ev(engine.Started, int(b.Job)))
		case rec.State == engine.Stopping:
			list = append(list, stopped(int(b.Job), engine.Preempted))
		case chance(r, 10):
			list = append(list, stopped(int(b.Job), engine.Completed))
		case chance(r, 30):
			list = append(list, randomReshape(r, rec))
		case chance(r, 10):
			spec := *rec.Spec
			spec.NoRequeue, spec.PerNode, spec.Name = !spec.NoRequeue, r.IntN(3), "other"
			list = append(list, amended(spec))
		}
	}
	if chance(r, 30) {
		nodes := h.e.Nodes()
		n := nodes[r.IntN(len(nodes))]
		n.Rack, n.GPUs, n.MIG, n.CPU = pick(r, "r1", "r2"), pick(r, 2, 4, 4, 8), "", n.CPU+1000
		if chance(r, 30) {
			n.MIG = cluster.GeometryText([][]cluster.Instance{nil, {{Profile: "1g.10gb", Start: 0}}})
			n.GPUs = 2
		}
		list = append(list, changedTo(n), pick(r, up, up, down)(n.Name))
	}
	return list
}

// randomReshape takes a task out of a job, or gives its tasks other CPU.
func randomReshape(r *rand.Rand, rec *engine.JobRecord) engine.Event {
	sets, allocs := slices.Clone(rec.Spec.Tasks), slices.Clone(rec.Allocs)
	if k := len(allocs) - 1; k > 0 && chance(r, 50) {
		sets[allocs[k].Set].Count -= int(allocs[k].Tasks)
		return reshaped(int(rec.Spec.ID), sets, allocs[:k]...)
	}
	cpu := int64(1000 * r.IntN(9))
	for i := range sets {
		sets[i].Request.CPU = cpu
	}
	for i := range allocs {
		allocs[i].CPU = cpu * int64(allocs[i].Tasks)
	}
	return reshaped(int(rec.Spec.ID), sets, allocs...)
}
