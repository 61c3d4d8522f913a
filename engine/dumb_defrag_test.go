package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/defrag"
	"github.com/muster-gpu/muster/internal/shared"
)

// dumbMoves finds the cheapest moves by trying everything: each node for the gang, each
// set of jobs – with chains anywhere, else on that node only –, each place for each of them. free is by node;
// jobs are those that may be moved.
type dumbMoves struct {
	free   []int
	jobs   []dumbMover
	chains bool
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
					inside = inside && (d.chains || d.jobs[i].node == node)
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

// buddies are sizes that are powers of two.
var buddies = []int{1, 1, 2, 2, 4}

// dumbWorld is a random cluster with jobs of some sizes, of which so many in a
// hundred are over (50: of those of one GPU, so that room is in small parts), and so many not to be moved.
func dumbWorld(t *testing.T, r *rand.Rand, defrag engine.Defrag, sizes []int, pinned, ended int,
	specs ...string) (h *hand, cfg engine.Config, d dumbMoves, jobs int) {
	h = newHand(t, pick(r, specs...), "fifo", func(c *engine.Config) {
		c.Defrag = &defrag
		cfg = *c
	})
	d.free = make([]int, len(h.e.Nodes()))
	per := h.e.Nodes()[0].GPUs
	var first, begun, over []engine.Event
	for jobs = range len(d.free) * per { // they fill node after node; some of them end then
		j := job(jobs, pick(r, sizes...), 36000)
		// they leave at once: none waits
		j.Checkpoint = cluster.Checkpoint{Cost: seconds(2), Restart: seconds(1 + r.IntN(60))}
		j.NoRequeue = chance(r, pinned)
		first, begun = append(first, submit(j)), append(begun, ev(engine.Started, jobs))
	}
	jobs++
	h.at(0, first...)
	for i := range d.free {
		d.free[i] = per
	}
	for i := range jobs {
		rec := h.e.Record(cluster.JobID(i))
		if rec.State == engine.Pending {
			over = append(over, ev(engine.Cancelled, i))
			continue
		}
		if chance(r, ended) && (ended < 50 || rec.Spec.GPUs() == 1) {
			over = append(over, stopped(i, engine.Completed))
			continue
		}
		gpus, node := rec.Spec.GPUs(), int(rec.Allocs[0].Node)
		d.free[node] -= gpus
		if !rec.Spec.NoRequeue {
			d.jobs = append(d.jobs,
				dumbMover{node, gpus, time.Duration(gpus) * (rec.Spec.Checkpoint.Cost + rec.Spec.Checkpoint.Restart)})
		}
	}
	h.at(1, begun...)
	h.at(2, over...)
	return h, cfg, d, jobs
}

// The planner finds moves where there are any, and none are cheaper: on 2,000 random
// clusters against a search through everything. Sizes are powers of two, for which
// placing the largest first, each where it fits, misses nothing. With chains likewise: as many are found as
// there are with so many moves, and none are dearer.
func TestDefragCheapest(t *testing.T) {
	t.Parallel()
	for _, chain := range []int{1, 3} {
		t.Run(fmt.Sprintf("chains of %d", chain), func(t *testing.T) {
			found, none, chained := 0, 0, 0
			for seed := range shared.Soak[uint64](700, 2000) * uint64(min(chain, 2)) {
				r := rand.New(rand.NewPCG(seed, 3))
				most := 3 + r.IntN(4)
				h, cfg, d, id := dumbWorld(t, r, engine.Defrag{Moves: most, Chain: chain}, buddies, 20,
					[]int{35, 50}[min(chain-1, 1)], "2x4xT4", "3x4xT4", "4x4xT4", "3x8xT4")
				if d.chains = chain > 1; len(d.jobs) > 14 {
					continue // too many to try everything
				}
				gang := pick(r, 2, 3, 4, h.e.Nodes()[0].GPUs)
				if h.at(3, submit(job(id, gang, 600))) != "" {
					continue // it fits
				}
				m := h.plan(cfg, id)
				cost := d.cheapest(gang, most)
				if cost < 0 && len(m.Moves) == 0 {
					none++
					continue
				}
				if cost < 0 || len(m.Moves) == 0 || m.Cost != cost {
					t.Fatalf("seed %d: gang of %d, free %v, %v: the planner has %q (%v, %s); %v is possible", seed,
						gang, d.free, d.jobs, movesText(&m), m.Cost, m.Text, cost)
				}
				if found++; slices.ContainsFunc(m.Moves, func(x defrag.Move) bool { return x.From[0] != m.On[0] }) {
					chained++
				}
			}
			t.Logf("%d with moves, %d of them with chains, %d without", found, chained, none)
			least := shared.Soak(35, 100)
			if found < least || none < least || chain > 1 && chained < least*3/10 {
				t.Error("the clusters are not mixed")
			}
		})
	}
}

// The buddies' rule: with sizes that are powers of two, and all jobs movable,
// there are moves for whatever fits in what is free by count.
func TestDefragBuddies(t *testing.T) {
	t.Parallel()
	found, deep := 0, 0
	for seed := range shared.Soak[uint64](750, 1500) {
		r := rand.New(rand.NewPCG(seed, 4))
		h, cfg, d, id := dumbWorld(t, r, engine.Defrag{Moves: 100}, buddies, 0, 50, "4x4xT4", "6x4xT4", "8x4xT4",
			"4x8xT4", "6x8xT4")
		gang, free := pick(r, 2, 4, h.e.Nodes()[0].GPUs), 0
		for _, n := range d.free {
			free += n
		}
		if free < gang || h.at(3, submit(job(id, gang, 600))) != "" {
			continue
		}
		m := h.plan(cfg, id)
		if len(m.Moves) == 0 {
			t.Fatalf("seed %d: no moves for a gang of %d, free %v, %v: %s", seed, gang, d.free, d.jobs, m.Text)
		}
		if found++; slices.ContainsFunc(m.Moves, func(x defrag.Move) bool { return len(x.After) > 0 }) {
			deep++
		}
	}
	t.Logf("%d with moves, %d of them with one that waits for another", found, deep)
	if found < shared.Soak(100, 200) || deep < shared.Soak(12, 25) {
		t.Error("the clusters are not mixed")
	}
}

// With any sizes the places of those that move are found the largest first, which may
// miss some: what is found is possible and none is cheaper, and it is nearly always the cheapest.
func TestDefragAnySize(t *testing.T) {
	t.Parallel()
	there, found, cheapest := 0, 0, 0
	for seed := range shared.Soak[uint64](1500, 3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		most := 3 + r.IntN(4)
		h, cfg, d, id := dumbWorld(t, r, engine.Defrag{Moves: most}, []int{1, 1, 2, 3, 3, 5}, 20, 50, "3x6xT4",
			"4x6xT4", "3x8xT4")
		gang := 2 + r.IntN(h.e.Nodes()[0].GPUs-1)
		if d.chains = true; len(d.jobs) > 14 || h.at(3, submit(job(id, gang, 600))) != "" {
			continue
		}
		m, cost := h.plan(cfg, id), d.cheapest(gang, most)
		if cost >= 0 {
			there++
		}
		if len(m.Moves) == 0 {
			continue
		}
		if cost < 0 || m.Cost < cost || len(m.Moves) > most {
			t.Fatalf("seed %d: gang of %d, free %v, %v: the planner has %q (%v); %v is possible", seed, gang, d.free,
				d.jobs, movesText(&m), m.Cost, cost)
		}
		if found++; m.Cost == cost {
			cheapest++
		}
	}
	if t.Logf("moves there are for %d, found for %d, the cheapest for %d", there, found, cheapest); there < 200 ||
		found*100 < there*97 || cheapest*100 < there*95 {
		t.Error("too few are found")
	}
}
