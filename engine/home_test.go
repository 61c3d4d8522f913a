package engine_test

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// suspended is two GPUs on which jobs 0 and 1 ran, of which 1 is suspended with 80 s of work, and 2 has its
// GPU; 0 ends at 100 s. A checkpoint takes 20 s, a start from it 10.
func suspended(t *testing.T, one, two func(*cluster.Job)) *hand {
	t.Helper()
	h := newHand(t, "1x2xH100-80GB", "srtf", func(c *engine.Config) {
		c.Stop = &[3]engine.StopRule{{How: engine.Suspend}, {How: engine.Suspend, Grace: seconds(60)},
			{How: engine.Kill}}
	})
	costs := func(j *cluster.Job) { j.Checkpoint.Cost, j.Checkpoint.Restart = seconds(20), seconds(10) }
	begun := func(id int) engine.Event {
		return engine.Event{Type: engine.Started, Job: cluster.JobID(id), Rate: 1_000_000}
	}
	h.want(0, "start 0, start 1", submit(job(0, 1, 500)), submit(job(1, 1, 1100, costs, one)))
	h.want(0, "", begun(0), begun(1))
	h.want(80, "preempt 1 for 2", submit(job(2, 1, 300, costs, two)))
	h.want(81, "start 2", engine.Event{Type: engine.Stopped, Job: 1, Reason: engine.Preempted, Done: seconds(80)})
	h.want(82, "", begun(2))
	h.want(100, "", stopped(0, engine.Completed))
	return h
}

func asItIs(*cluster.Job) {}

func (h *hand) sound() {
	h.t.Helper()
	if err := h.e.CheckInvariants(); err != nil {
		h.t.Error(err)
	}
}

// A job that holds the devices of a suspended one goes to free ones, by a checkpoint, when it has been there for half a
// minute, and the suspended one goes on where its memory is.
func TestClearHome(t *testing.T) {
	h := suspended(t, asItIs, asItIs)
	h.want(110, "")
	h.want(111, "preempt 2 for 1")
	if a := h.d.Actions[0]; a.How != engine.Checkpoint {
		t.Errorf("it is told to stop by %s", a.How)
	}
	h.sound()
	h.want(131, "start 2, start 1",
		engine.Event{Type: engine.Stopped, Job: 2, Reason: engine.Preempted, Done: seconds(30)})
	if r := h.e.Record(1); r.Done != seconds(80) || r.Allocs[0].GPUs != 2 || h.e.Record(2).Allocs[0].GPUs != 1 {
		t.Errorf("it goes on with %v on %v", r.Done, r.Allocs)
	}
	h.sound()
}

// No job leaves for another's memory that could not go on elsewhere with what it has done, or is about to end,
// or may not be stopped. Then the suspended job leaves its memory when it has waited as long as that costs.
func TestLeaveHome(t *testing.T) {
	for name, two := range map[string]func(*cluster.Job){
		"may not be stopped": func(j *cluster.Job) { j.Tier = cluster.Critical },
		"saves nothing":      func(j *cluster.Job) { j.Checkpoint.None = true },
		"is about to end":    func(j *cluster.Job) { j.Estimate = seconds(40) },
		"comes not back":     func(j *cluster.Job) { j.NoRequeue = true },
	} {
		h := suspended(t, asItIs, two)
		for _, now := range []int{111, 120, 170} {
			h.want(now, "")
		}
		h.sound()
		h.want(171, "start 1") // it came into line at 81 s: 80 s of work, and a start of 10
		if r := h.e.Record(1); r.Done != 0 || r.Allocs[0].GPUs != 1 {
			t.Errorf("beside a job that %s: it begins with %v on %v", name, r.Done, r.Allocs)
		}
		h.sound()
	}
}

// A suspended job goes back to its memory if that is free when it has given it up, and one that saves
// nothing never gives it up.
func TestBackHome(t *testing.T) {
	critical := func(j *cluster.Job) { j.Tier = cluster.Critical }
	h := suspended(t, asItIs, critical)
	h.want(150, "start 3", submit(job(3, 1, 200, critical)))
	h.want(171, "")
	h.want(300, "start 1", stopped(2, engine.Completed))
	if r := h.e.Record(1); r.Done != seconds(80) || r.Allocs[0].GPUs != 2 {
		t.Errorf("it goes on with %v on %v", r.Done, r.Allocs)
	}
	h.sound()
	says := func(want string) {
		t.Helper()
		if y := h.e.Why(1); len(y.Blockers) != 1 ||
			y.Blockers[0] != "suspended: its memory is on GPU 1 of n1"+want+"; job 2 has GPU 1" {
			t.Errorf("%q", y.Blockers)
		}
	}
	h = suspended(t, asItIs, critical)
	h.want(110, "")
	says(", which it leaves for any others at 2m51s")
	h = suspended(t, func(j *cluster.Job) { j.Checkpoint.None = true }, critical)
	h.want(100_000, "")
	says(", and it saves nothing: it goes on there only")
	h.want(100_001, "start 1", stopped(2, engine.Completed))
	if r := h.e.Record(1); r.Done != seconds(80) {
		t.Errorf("it goes on with %v", r.Done)
	}
}
