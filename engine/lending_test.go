package engine_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// replicaOf makes a job a replica of a service that lends.
func replicaOf(service string) func(*cluster.Job) {
	return func(j *cluster.Job) { j.Service, j.Tier = service, cluster.Critical }
}

// lender is a service whose replicas are like a job.
func lender(replicas int, like cluster.Job) cluster.Lender {
	return cluster.Lender{Service: like.Service, Replica: &like, Replicas: replicas}
}

func lend(list ...cluster.Lender) engine.Event {
	return engine.Event{Type: engine.LendersChanged, Lenders: list}
}

// What a service lends, best-effort and elastic jobs may have, and leave for its replicas. Others have only what is
// left besides, though they ask for the same; a critical one takes that from a standard one. It is told, also by the
// next engine.
func TestLending(t *testing.T) {
	var cfg engine.Config
	h := newHand(t, "1x4xT4", "fifo", func(c *engine.Config) { backfill(engine.Skip)(c); known(&cfg)(c) })
	replica := func(id int) cluster.Job { return job(id, 1, 1000, replicaOf("chat")) }
	h.want(0, "start 0", lend(lender(3, replica(0))), submit(replica(0)))
	h.want(1, "start 2", submit(job(1, 2, 1000)), submit(job(2, 1, 1000)))
	h.want(2, "start 4", submit(job(3, 1, 500)), submit(job(4, 1, 1000, tier(cluster.BestEffort))))
	h.want(3, "start 5", submit(job(5, 1, 1000, elastic(1, 2))))
	why := h.e.Why(3)
	if text := strings.Join(why.Blockers, "; "); !strings.Contains(text, "service chat lends 2 GPUs of T4-16GB, which "+
		"only best-effort and elastic jobs may have until it needs them: 0 GPUs left for others, 1 GPU asked") ||
		why.Expected != cluster.Time(seconds(1001)) {
		t.Errorf("%+v", why)
	}
	for _, h := range h.andRestored(cfg) {
		h.want(4, "preempt 2 for 6", submit(job(6, 1, 1000, tier(cluster.Critical))))
		h.want(5, "start 6", stopped(2, engine.Preempted))
		h.want(6, "", submit(job(7, 1, 1000, tier(cluster.Critical))))
		h.want(7, "preempt 4 for 8", submit(replica(8)))
		h.want(8, "start 8", stopped(4, engine.Preempted))
		h.want(9, "start 7", stopped(6, engine.Completed))
		h.want(10, "preempt 5 for 9", submit(replica(9)))
		h.want(11, "start 9", stopped(5, engine.Preempted))
		h.want(12, "start 5", stopped(9, engine.WasCancelled))         // what it had is lent again
		h.want(13, "start 2", lend(), stopped(8, engine.WasCancelled)) // nothing is lent, so 4 comes later
	}
}

// A job that may be on GPUs of several models starts where no service lends, and one whose memory is on what is lent
// waits; replicas that were none so far count from when it is told what they are.
func TestLendingByModel(t *testing.T) {
	h := newHand(t, "1x2xT4+1x2xV100-16GB", "fifo", backfill(engine.Skip))
	on := func(model string) func(*cluster.Job) {
		return func(j *cluster.Job) { j.GPUTypes = []string{model} }
	}
	t4 := lender(2, job(0, 1, 1, replicaOf("chat"), on("T4")))
	h.want(0, "start 0, start 1", lend(t4), submit(job(0, 1, 1000)), submit(job(1, 1, 1000)))
	for id := range 2 {
		if at := h.on(id); at != "n2" {
			t.Errorf("job %d is on %q", id, at)
		}
	}
	h.want(1, "", submit(job(2, 1, 1000)))
	h.want(2, "start 3", submit(job(3, 1, 1000, tier(cluster.Critical), on("V100"))), stopped(0, engine.Completed))
	h.want(3, "", submit(job(4, 1, 1000, tier(cluster.Critical), on("T4"))))
	replica := job(4, 1, 1000, replicaOf("chat"), on("T4"))
	h.want(4, "start 4", engine.Event{Type: engine.Updated, Job: 4, Spec: &replica})
	h.at(5, ev(engine.Started, 4))
	own := job(4, 1, 1000, tier(cluster.Critical), on("T4"))
	h.want(6, "", engine.Event{Type: engine.Updated, Job: 4, Spec: &own}) // one more that is not the service's
	h.want(7, "", lend(lender(1, *t4.Replica)))
	h.want(8, "start 2", stopped(3, engine.Failed), submit(job(5, 2, 1000)))
}

// Two services whose replicas can be on some of the same GPUs: each alone would leave enough for a job, both do not.
func TestLendingOverlaps(t *testing.T) {
	h := newHand(t, "1x2xT4+1x2xV100-16GB+1x2xA100-40GB", "fifo", backfill(engine.Skip))
	on := func(models ...string) func(*cluster.Job) {
		return func(j *cluster.Job) { j.GPUTypes = models }
	}
	chat := lender(3, job(0, 1, 1, replicaOf("chat"), on("T4", "V100")))
	vision := lender(3, job(0, 1, 1, replicaOf("vision"), on("V100", "A100")))
	h.want(0, "", lend(chat, vision), submit(job(0, 1, 1000, on("T4"))), submit(job(1, 1, 1000, on("A100"))))
	why := h.e.Why(0)
	if text := strings.Join(why.Blockers, "; "); !strings.Contains(text, "services chat, vision lend 6 GPUs of "+
		"T4-16GB, V100-16GB, A100-40GB, which only best-effort and elastic jobs may have until they need them: "+
		"0 GPUs left for others, 1 GPU asked") {
		t.Error(text)
	}
	vision.Replicas = 2
	h.want(1, "start 0", lend(chat, vision))
	vision.Replicas = 0 // all that it shares with chat is chat's to have back
	h.want(2, "start 1", lend(chat, vision))
	h.want(3, "start 2", submit(job(2, 1, 1000, on("A100"))))
	h.want(4, "", submit(job(3, 1, 1000, on("V100"))))
}

// TestLendingHolds: whatever comes and goes, no job that keeps what it has starts where less would be left than
// services may have back, and the books are right.
func TestLendingHolds(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 26))
		var cfg engine.Config
		h := newHand(t, "2x4xT4", []string{"fifo", "las"}[seed%2], func(c *engine.Config) {
			backfill(engine.Backfill(r.IntN(4)))(c)
			known(&cfg)(c)
		})
		like := job(0, 1+r.IntN(2), 1, replicaOf("chat"))
		most := 1 + r.IntN(4)
		h.at(0, lend(lender(most, like)))
		held := map[int]bool{}
		for id := range 60 {
			var evs []engine.Event
			switch {
			case r.IntN(3) == 0 && len(held) > 0:
				ids := make([]int, 0, len(held))
				for id := range held {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				evs = append(evs, stopped(ids[r.IntN(len(ids))], engine.Completed))
			case r.IntN(12) == 0:
				most = 1 + r.IntN(4)
				evs = append(evs, lend(lender(most, like)))
			}
			kinds := []func(*cluster.Job){tier(cluster.Standard), tier(cluster.BestEffort), tier(cluster.Critical),
				elastic(1, 3), replicaOf("chat")}
			n := 1 + r.IntN(4)
			kind := kinds[r.IntN(len(kinds))]
			one := job(id, n, 100, kind)
			if one.Service != "" {
				one.Tasks = like.Tasks
			}
			before := h.booked()
			h.at(id+1, append(evs, submit(one))...)
			h.checkLent(most, int64(like.GPUs()), before)
			clear(held)
			for k := range id + 1 {
				switch rec := h.e.Record(cluster.JobID(k)); rec.State {
				case engine.Starting, engine.Running, engine.Stopping:
					held[k] = true
				case engine.Pending, engine.Placed, engine.Done:
				}
			}
			if r.IntN(8) == 0 {
				h.restarted(cfg)
			}
		}
	}
}

// booked are the jobs that have devices, or are promised some.
func (h *hand) booked() map[cluster.JobID]bool {
	list := map[cluster.JobID]bool{}
	for id := range h.e.Common().Next {
		if r := h.e.Record(id); r != nil && r.State >= engine.Placed && r.State <= engine.Running {
			list[id] = true
		}
	}
	return list
}

// checkLent checks what was placed in the last step against what is left of 8 GPUs.
func (h *hand) checkLent(most int, each int64, before map[cluster.JobID]bool) {
	h.t.Helper()
	var firm, have int64
	var came []cluster.JobID
	for id := range h.booked() {
		r := h.e.Record(id)
		switch {
		case r.Spec.Service != "":
			have++
			firm += each
		case r.Spec.Tier == cluster.BestEffort || r.Spec.Elastic.Max > 1:
		default:
			firm += int64(r.Spec.GPUs())
			if !before[id] {
				came = append(came, id)
			}
		}
	}
	if left := 8 - firm - max(0, int64(most)-have)*each; left < 0 && len(came) > 0 {
		h.t.Fatalf("%v are placed, and %d GPUs are left", came, left)
	}
}

// Lyra, EuroSys'23, Reclaim: a service that has whole servers back takes them where fewest jobs leave: of A on s1 and
// s2, B on s2 and s3, C on s3 and s4 first A, then B, each time with the first of the servers that cost half a job. One
// that has GPUs back takes them from the youngest.
func TestLendsServers(t *testing.T) {
	for servers, want := range map[bool][]string{
		true: {"preempt 0 for 3", "preempt 1 for 4"}, false: {"preempt 2 for 3", "preempt 1 for 4"}} {
		h := newHand(t, "4x3xT4", "fifo", nil)
		like := job(0, 3, 1, replicaOf("chat"))
		l := lender(4, like)
		l.Servers = servers
		gang := func(id int, sizes ...int) engine.Event {
			j := job(id, 0, 1000, tier(cluster.BestEffort))
			j.Tasks = nil
			for _, n := range sizes {
				j.Tasks = append(j.Tasks, cluster.TaskSet{Count: 1, Request: cluster.Request{GPUs: n}})
			}
			return submit(j)
		}
		h.want(0, "start 0, start 1, start 2", lend(l), gang(0, 3, 1), gang(1, 2, 2), gang(2, 1, 3))
		h.at(1, ev(engine.Started, 0), ev(engine.Started, 1), ev(engine.Started, 2))
		h.want(2, want[0], submit(job(3, 3, 1000, replicaOf("chat"))))
		h.want(3, want[1], submit(job(4, 3, 1000, replicaOf("chat"))))
	}
}
