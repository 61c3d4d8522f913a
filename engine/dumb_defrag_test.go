package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// dumbMoves finds the cheapest moves by trying everything: each node for the gang, each
// set of jobs there, each place for each of them (nobody moves for one that moves). free is by node; jobs are those that may be
// moved.
type dumbMoves struct {
	free []int
	jobs []dumbMover
}

type dumbMover struct {
	node, gpus int
	cost       time.Duration
}

// cheapest returns what the moves for a gang on one node cost; -1: there are none.
func (d *dumbMoves) cheapest(gang, most int) time.Duration {
	best := time.Duration(-1)
	for node := range d.free {
		for mask := range 1 << len(d.jobs) {
			free := append([]int(nil), d.free...)
			cost, n, inside := time.Duration(0), 0, true
			for i := range d.jobs {
				if mask>>i&1 == 1 {
					inside = inside && d.jobs[i].node == node
					free[d.jobs[i].node] += d.jobs[i].gpus
					cost, n = cost+d.jobs[i].cost, n+1
				}
			}
			if free[node] -= gang; free[node] < 0 || !inside || n > most || best >= 0 && cost >= best {
				continue
			}
			if d.fits(free, mask, 0) {
				best = cost
			}
		}
	}
	return best
}

// fits reports whether the chosen jobs find room.
func (d *dumbMoves) fits(free []int, mask, from int) bool {
	for i := from; i < len(d.jobs); i++ {
		if mask>>i&1 == 0 {
			continue
		}
		for n := range free {
			if free[n] >= d.jobs[i].gpus {
				free[n] -= d.jobs[i].gpus
				ok := d.fits(free, mask, i+1)
				free[n] += d.jobs[i].gpus
				if ok {
					return true
				}
			}
		}
		return false
	}
	return true
}

// The planner finds moves where there are any, and none are cheaper: on 2,000 random
// clusters against a search through everything. Sizes are powers of two, for which
// placing the largest first, each where it fits, misses nothing.
func TestDefragCheapest(t *testing.T) {
	found, none := 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		var cfg engine.Config
		most := 3 + r.IntN(4)
		h := newHand(t, pick(r, "2x4xT4", "3x4xT4", "4x4xT4", "3x8xT4"), "fifo", func(c *engine.Config) {
			c.Defrag = &engine.Defrag{Moves: most}
			cfg = *c
		})
		nodes := len(h.e.Nodes())
		per := h.e.Nodes()[0].GPUs
		d := dumbMoves{free: make([]int, nodes)}
		var first, begun, over []engine.Event
		id := 0
		for range nodes * per { // jobs fill node after node; some of them end then
			j := job(id, pick(r, 1, 1, 2, 2, 4), 36000, costing(2*(1+r.IntN(30))))
			j.NoRequeue = chance(r, 20)
			first, begun = append(first, submit(j)), append(begun, ev(engine.Started, id))
			id++
		}
		h.at(0, first...)
		for i := range d.free {
			d.free[i] = per
		}
		for i := range id {
			rec := h.e.Record(cluster.JobID(i))
			if rec.State == engine.Pending {
				over = append(over, ev(engine.Cancelled, i))
				continue
			}
			if chance(r, 35) {
				over = append(over, stopped(i, engine.Completed))
				continue
			}
			gpus, node := rec.Spec.GPUs(), int(rec.Allocs[0].Node)
			d.free[node] -= gpus
			if !rec.Spec.NoRequeue {
				d.jobs = append(d.jobs, dumbMover{node, gpus, time.Duration(gpus) * (rec.Spec.Checkpoint.Cost + rec.Spec.Checkpoint.Restart)})
			}
		}
		if len(d.jobs) > 14 {
			continue
		}
		h.at(1, begun...)
		h.at(2, over...)
		gang := pick(r, 2, 3, 4, per)
		if h.at(3, submit(job(id, gang, 600))) != "" {
			continue // it fits
		}
		m := h.plan(cfg, id)
		cost := d.cheapest(gang, most)
		switch {
		case cost < 0 && len(m.Moves) == 0:
			none++
		case cost < 0 || len(m.Moves) == 0 || m.Cost != cost:
			t.Fatalf("seed %d: gang of %d, free %v, %v: the planner has %q (%v, %s); %v is possible", seed, gang, d.free, d.jobs, movesText(&m), m.Cost, m.Text, cost)
		default:
			found++
		}
	}
	if t.Logf("%d with moves, %d without", found, none); found < 200 || none < 200 {
		t.Error("the clusters are not mixed")
	}
}
