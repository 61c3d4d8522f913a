package engine_test

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/policy"
)

// beside is a policy that puts every job beside job 0, or apart.
type beside struct{ alone bool }

func (b *beside) Name() string                             { return "beside" }
func (b *beside) Traits() sched.Traits                     { return sched.Traits{Backfill: engine.Skip} }
func (b *beside) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }
func (b *beside) Plan(_ sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: cluster.Never}
	for _, j := range jobs {
		t := engine.Target{Alone: b.alone}
		if j.Spec().ID != 0 && !b.alone {
			t.Beside = 1
		}
		p.Targets = append(p.Targets, t)
	}
	return p
}

// Jobs run on the GPUs of another, which count once; when it leaves, the first of
// them has its place; a restored engine knows all that.
func TestBeside(t *testing.T) {
	var cfg engine.Config
	pol := &beside{}
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Policy = pol; cfg = *c })
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "start 1", submit(job(1, 2, 1000)))
	h.want(3, "start 2", submit(job(2, 2, 1000)), ev(engine.Started, 1))
	h.want(4, "", submit(job(3, 1, 1000))) // another size
	if use := h.e.QueueUse(); use[0].Used != 2000 {
		t.Errorf("%d milli-GPU count; there are two GPUs", use[0].Used)
	}
	if r := h.e.Record(1); !r.Allocs[0].Beside || r.GuestOf != 1 {
		t.Errorf("job 1 is no guest: %+v", r)
	}
	for _, o := range h.andRestored(cfg) {
		e := o.e
		o.want(5, "", stopped(0, engine.Completed))
		if r, g := e.Record(1), e.Record(2); r.Allocs[0].Beside || r.GuestOf != 0 || len(r.Guests) != 1 ||
			g.GuestOf != 2 {
			t.Errorf("job 1 does not hold the GPUs, or job 2 is not beside it: %+v %+v", r, g)
		}
		if got := e.Attained(2); got != 2*2*1000*1000 {
			t.Errorf("a guest of two seconds was served %d milli-GPU-ms", got)
		}
		o.want(6, "", stopped(1, engine.Completed))
		o.want(7, "start 3", stopped(2, engine.Completed))
		if err := e.CheckInvariants(); err != nil {
			t.Error(err)
		}
	}
}

// A guest that the plan wants alone is stopped; so is one whose queue may not hold
// the GPUs when they would become its own.
func TestApart(t *testing.T) {
	pol := &beside{}
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Policy = pol })
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "start 1", submit(job(1, 2, 1000)))
	h.want(3, "", ev(engine.Started, 1))
	pol.alone = true
	h.want(4, "preempt 1", submit(job(2, 1, 1)))

	h = newHand(t, "2x2xT4", "fifo", func(c *engine.Config) {
		c.Policy, c.Spec.Queues = &beside{}, []cluster.Queue{queue("a", 0, -1), queue("b", 0, 2000)}
	})
	h.want(0, "start 0", submit(job(0, 2, 1000, inQueue("a"))))
	h.want(1, "start 1", ev(engine.Started, 0), submit(job(1, 1, 1000, inQueue("b"))))
	h.want(2, "start 2", ev(engine.Started, 1), submit(job(2, 2, 1000, inQueue("b"))))
	h.want(3, "preempt 2", ev(engine.Started, 2), stopped(0, engine.Completed))
	if err := h.e.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// Where whole GPUs are handed out once, no job is put beside another.
func TestUnshared(t *testing.T) {
	h := newHand(t, "1x2xT4", "fifo", func(c *engine.Config) { c.Policy, c.Unshared = &beside{}, true })
	h.want(0, "start 0", submit(job(0, 2, 1000)))
	h.want(1, "", ev(engine.Started, 0))
	h.want(2, "", submit(job(1, 2, 1000)))
	h.want(3, "start 1", stopped(0, engine.Completed))
}

// There gandiva has no job wait for another one's GPUs that it would have put on them.
func TestUnsharedTurns(t *testing.T) {
	h := newHand(t, "1x3xT4", "fifo", func(c *engine.Config) {
		p, err := policy.New("gandiva")
		if err != nil {
			t.Fatal(err)
		}
		c.Policy, c.Unshared = p, true
	})
	h.want(0, "start 0, start 1, start 2", submit(job(0, 1, 1000)), submit(job(1, 1, 1000)), submit(job(2, 1, 1000)),
		submit(job(3, 1, 1000)))
	h.want(1, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	h.want(60, "preempt 2")
	h.want(61, "start 3", stopped(2, engine.Preempted))
}

// moves is a policy that plans every ten seconds: which is beside which is as it is told.
type moves struct {
	beside
	to map[cluster.JobID]cluster.JobID
}

func (m *moves) Traits() sched.Traits {
	return sched.Traits{Backfill: engine.Skip, Round: 10 * time.Second}
}

func (m *moves) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: v.Now() + 1}
	for _, j := range jobs {
		t := engine.Target{}
		if to, ok := m.to[j.Spec().ID]; ok {
			t = engine.Target{Beside: 1 + int32(to), Move: true, Idle: true}
		}
		p.Targets = append(p.Targets, t)
	}
	return p
}

// A job that is to move is stopped where it runs, whether alone, with guests or as one, and
// comes to the other when it is, without another plan, in a restored engine, too.
// There it stays, and it stays when it inherits the GPUs.
func TestMove(t *testing.T) {
	var cfg engine.Config
	pol := &moves{}
	h := newHand(t, "3x2xT4", "fifo", func(c *engine.Config) { c.Policy = pol; cfg = *c })
	h.want(1, "start 0, start 1, start 2", submit(job(0, 2, 1000)), submit(job(1, 2, 1000)), submit(job(2, 2, 1000)))
	h.want(2, "", ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
	pol.to = map[cluster.JobID]cluster.JobID{1: 0}
	h.want(11, "preempt 1", ev(engine.Tick, 0))
	h.want(12, "start 1", stopped(1, engine.Preempted))
	h.want(13, "", ev(engine.Started, 1))
	pol.to = map[cluster.JobID]cluster.JobID{0: 2, 1: 2} // the one that has a guest, and the guest
	h.want(21, "preempt 1, preempt 0", ev(engine.Tick, 0))
	for _, o := range h.andRestored(cfg) {
		e := o.e
		o.want(22, "start 0", stopped(0, engine.Preempted))
		o.want(23, "start 1", stopped(1, engine.Preempted))
		o.want(24, "", ev(engine.Started, 0), ev(engine.Started, 1))
		o.want(31, "", ev(engine.Tick, 0)) // they are there
		if a, b := e.Record(0), e.Record(1); a.GuestOf != 3 || b.GuestOf != 3 {
			t.Errorf("beside %d and %d, want 3", a.GuestOf, b.GuestOf)
		}
		o.want(32, "", stopped(2, engine.Completed))
		o.want(41, "", ev(engine.Tick, 0))
		if a, b := e.Record(0), e.Record(1); a.GuestOf != 0 || b.GuestOf != 1 {
			t.Errorf("beside %d and %d; job 0 holds the GPUs, with job 1 beside it", a.GuestOf, b.GuestOf)
		}
		if err := e.CheckInvariants(); err != nil {
			t.Error(err)
		}
	}
}

// A guest that was given its place while it waits for something else – CPU that another
// leaves – does not start beside a job that has been told to leave meanwhile.
func TestBesideLeaver(t *testing.T) {
	var cfg engine.Config
	cpu := func(n int64) func(*cluster.Job) { return func(j *cluster.Job) { j.Tasks[0].Request.CPU = n } }
	h := newHand(t, "1x3xT4", "fifo", func(c *engine.Config) {
		c.Policy, c.Spec.Nodes[0].CPU = &beside{}, 8000
		cfg = *c
	})
	h.want(0, "start 0, start 3", submit(job(0, 2, 1000, cpu(2000))), submit(job(3, 1, 1000, cpu(5000))))
	h.want(1, "preempt 3", ev(engine.Started, 0), ev(engine.Started, 3), ev(engine.Cancelled, 3))
	h.want(2, "", submit(job(1, 2, 1000, cpu(4000))))
	h.want(3, "preempt 0", ev(engine.Cancelled, 0))
	for _, o := range h.andRestored(cfg) {
		o.want(4, "", stopped(3, engine.WasCancelled))
		o.want(5, "start 1", stopped(0, engine.WasCancelled))
	}
}
