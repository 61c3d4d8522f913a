package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
)

// TestPromises: in order of submission, with exact run times and nothing that
// fails, the first blocked job (EASY), or every one with a reservation
// (conservative), starts no later than was ever promised, on one node or many.
func TestPromises(t *testing.T) {
	t.Parallel()
	for _, mode := range []engine.Backfill{engine.EASY, engine.Conservative} {
		t.Run(mode.String(), func(t *testing.T) {
			for seed := range shared.Soak[uint64](15, 200) {
				promises(t, mode, seed)
			}
		})
	}
}

func promises(t *testing.T, mode engine.Backfill, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 11))
	size := pick(r, "1x8xT4", "3x4xT4", "4x2xT4", "2x8xT4", "5x4xT4")
	h := newHand(t, size, "fifo", func(c *engine.Config) {
		c.Backfill, c.Reserve = &mode, 1000
	})
	queue := map[int][]engine.Event{} // by time; looked up only
	id, last := 0, 0
	for at := 0; id < 60; at += r.IntN(30) {
		j := job(id, 1<<r.IntN(3), 5+r.IntN(200), func(j *cluster.Job) {
			j.Submit, j.Limit = cluster.Time(seconds(at)), j.Estimate
			if j.Tasks[0].Request.GPUs <= 2 {
				j.Tasks[0].Count = 1 + r.IntN(4)
			}
		})
		queue[at] = append(queue[at], submit(j))
		id, last = id+1, at
	}
	run := map[cluster.JobID]int{} // seconds; looked up only
	best := map[cluster.JobID]cluster.Time{}
	for now := 0; now <= last+20000; now++ {
		for evs := queue[now]; len(evs) > 0 || now == 0; {
			for i := range evs {
				if evs[i].Type == engine.Submitted {
					run[evs[i].Job] = int(evs[i].Spec.Estimate / seconds(1))
				}
			}
			h.at(now, evs...)
			evs = nil
			for i := range h.d.Actions {
				a := &h.d.Actions[i]
				if a.Type != engine.Start {
					continue
				}
				if p, ok := best[a.Job]; ok && cluster.Time(seconds(now)) > p {
					t.Fatalf("%s seed %d: job %d was promised a start at %v and starts at %ds", mode, seed, a.Job, p,
						now)
				}
				evs = append(evs, ev(engine.Started, int(a.Job)))
				end := now + run[a.Job]
				queue[end] = append(queue[end], stopped(int(a.Job), engine.Completed))
			}
			jobs, at := h.e.Reservations()
			for i, id := range jobs {
				if mode == engine.EASY && i > 0 {
					break
				}
				if p, ok := best[id]; ok && at[i] > p {
					t.Fatalf("%s seed %d at %ds: job %d was promised a start at %v, now at %v", mode, seed, now, id, p,
						at[i])
				}
				best[id] = at[i]
			}
			if len(evs) == 0 {
				break
			}
		}
	}
	if len(best) == 0 && seed < 3 {
		fmt.Println("no promises: the load is too low")
	}
}
