package engine_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/shared"
)

// dumbParts finds the cheapest moves of slices, shares and whole GPUs by trying everything:
// each set of jobs, each GPU and each legal start for each of them and for the one that waits.
type dumbParts struct {
	model cluster.GPUModel
	gpus  []dumbGPU
	per   int // of a node
	jobs  []partMover
}

type dumbGPU struct {
	held    bool // whole
	slots   uint8
	compute int
	shares  int64 // thousandths
}

type partMover struct {
	is   []partAt
	ask  cluster.Request
	cost time.Duration
	toll cluster.Milli // of the bound of moves
}

// partAt is what a job has of a GPU.
type partAt struct {
	gpu int
	is  engine.Alloc
}

// put lists what a GPU can be with one more task on it.
func (d *dumbParts) put(g dumbGPU, r *cluster.Request) (list []dumbGPU) {
	switch p, ok := d.model.Profile(r.Profile); {
	case g.held:
	case r.Profile != "":
		for i := 0; ok && g.shares == 0 && i < len(p.Starts); i++ {
			if m := p.Mask(p.Starts[i]); g.slots&m == 0 && g.compute+p.Compute <= d.model.Compute {
				list = append(list, dumbGPU{slots: g.slots | m, compute: g.compute + p.Compute})
			}
		}
	case r.Fractional():
		if g.slots == 0 && g.shares+r.Share <= 1000 {
			list = append(list, dumbGPU{shares: g.shares + r.Share})
		}
	case g == dumbGPU{}:
		list = append(list, dumbGPU{held: true})
	}
	return list
}

func (g *dumbGPU) without(a *engine.Alloc) {
	switch {
	case a.Slots != 0:
		g.slots, g.compute = g.slots&^a.Slots, g.compute-int(a.Compute)
	case a.Share > 0:
		g.shares -= int64(a.Share)
	default:
		g.held = false
	}
}

// fits reports whether all these find room.
func (d *dumbParts) fits(gpus []dumbGPU, asks []*cluster.Request) bool {
	if len(asks) == 0 {
		return true
	}
	for n := 0; n < len(gpus); n += d.per {
		if d.fitsOn(gpus, n, n+d.per, asks[0].GPUs, asks) {
			return true
		}
	}
	return false
}

// fitsOn reports whether the first task finds so many more GPUs of a node among some, and then the others room.
func (d *dumbParts) fitsOn(gpus []dumbGPU, from, to, left int, asks []*cluster.Request) bool {
	if left == 0 {
		return d.fits(gpus, asks[1:])
	}
	for i := from; i < to; i++ {
		if asks[0].GPUs == 1 && slices.Contains(gpus[from:i], gpus[i]) {
			continue
		}
		was := gpus[i]
		for _, g := range d.put(was, asks[0]) {
			gpus[i] = g
			if d.fitsOn(gpus, i+1, to, left-1, asks) {
				gpus[i] = was
				return true
			}
		}
		gpus[i] = was
	}
	return false
}

// cheapest returns what moves that make room cost; -1: there are none.
func (d *dumbParts) cheapest(ask *cluster.Request, tasks, most int) time.Duration {
	best := time.Duration(-1)
	for mask := range 1 << len(d.jobs) {
		gpus, asks, cost, toll := slices.Clone(d.gpus), slices.Repeat([]*cluster.Request{ask}, tasks), time.Duration(0),
			cluster.Milli(0)
		for i := range d.jobs {
			if mask>>i&1 == 1 {
				j := &d.jobs[i]
				for k := range j.is {
					gpus[j.is[k].gpu].without(&j.is[k].is)
				}
				asks, cost, toll = append(asks, &j.ask), cost+j.cost, toll+j.toll
			}
		}
		if toll <= cluster.Milli(most)*cluster.Whole && (best < 0 || cost < best) && d.fits(gpus, asks) {
			best = cost
		}
	}
	return best
}

// partWorld is a random cluster of GPUs in slices, shares and whole, with room; wide: also with shares of several.
func partWorld(t *testing.T, r *rand.Rand, wide bool, defrag engine.Defrag) (h *hand, cfg engine.Config, d dumbParts,
	jobs int) {
	spec := pick(r, "1x1xH100-80GB", "1x2xH100-80GB", "2x1xA100-80GB", "1x3xH100-80GB", "1x2xA30-24GB")
	if wide {
		spec = pick(r, "1x2xH100-80GB", "1x3xH100-80GB", "2x2xA100-80GB", "1x4xT4-16GB")
	}
	h = newHand(t, spec, "fifo", func(c *engine.Config) {
		c.Defrag = &defrag
		cfg = *c
	})
	d.per = cfg.Spec.Nodes[0].GPUs
	d.model, _ = cluster.FindModel(cfg.Spec.Nodes[0].Model)
	asks := []func(*cluster.Job){
		slice("1g"), slice("1g"), slice("1g"), slice("2g"), slice("2g"), slice(pick(r, "3g", "4g")),
		share(pick[int64](r, 250, 500)), func(*cluster.Job) {}}
	if d.model.Compute == 4 {
		asks[5] = slice("2g")
	}
	if wide {
		asks = []func(*cluster.Job){
			share(250), share(500), share(300), shares(2, 250), shares(2, 500), func(*cluster.Job) {}, share(750),
			slice("2g")}
		if !d.model.MIG() {
			asks[7] = shares(3, 250)
		}
	}
	var first, begun, over []engine.Event
	for jobs = range 24 {
		j := job(jobs, 1, 36000, asks[min(r.IntN(9), r.IntN(9), 7)])
		// they leave at once: none waits
		j.Checkpoint = cluster.Checkpoint{Cost: seconds(2), Restart: seconds(1 + r.IntN(60))}
		j.NoRequeue = chance(r, 15)
		first = append(first, submit(j))
	}
	jobs++
	h.at(0, first...)
	for i := range h.e.Nodes() {
		d.gpus = append(d.gpus, make([]dumbGPU, h.e.Nodes()[i].GPUs)...)
	}
	for i := range jobs {
		rec := h.e.Record(cluster.JobID(i))
		if rec.State == engine.Pending {
			over = append(over, ev(engine.Cancelled, i))
			continue
		}
		begun = append(begun, ev(engine.Started, i))
		if chance(r, 55) {
			over = append(over, stopped(i, engine.Completed))
			continue
		}
		if m := d.add(rec); !rec.Spec.NoRequeue {
			d.jobs = append(d.jobs, m)
		}
	}
	h.at(1, begun...)
	h.at(2, over...)
	return h, cfg, d, jobs
}

// add books what a job has, and says what it is as a mover.
func (d *dumbParts) add(rec *engine.JobRecord) (m partMover) {
	m.ask = rec.Spec.Tasks[0].Request
	each, room := (rec.Spec.Checkpoint.Cost+rec.Spec.Checkpoint.Restart)/1000, cluster.Milli(0)
	for _, a := range rec.Allocs {
		at := int(a.Node)*d.per + bits.TrailingZeros64(a.GPUs)
		g := &d.gpus[at]
		g.held, g.slots, g.compute = a.Share == 0, g.slots|a.Slots, g.compute+int(a.Compute)
		if a.Slots == 0 {
			g.shares += int64(a.Share)
		}
		m.is = append(m.is, partAt{at, a})
		m.cost += each * time.Duration(a.Milli())
		room += max(a.Milli(), cluster.Milli(bits.OnesCount8(a.Slots))*cluster.Whole/8)
	}
	m.toll = min(cluster.Whole, room)
	return m
}

// On random GPUs with slices and shares moves are found nearly always where there are any,
// nearly always the cheapest; what is found is possible, and none is cheaper than the search through everything
// says. Where it is made, all start where that was booked.
func TestDefragPartsCheapest(t *testing.T) {
	t.Parallel()
	count := newFoundMoves()
	for seed := range shared.Soak[uint64](5000, 8000) {
		r := rand.New(rand.NewPCG(seed, 6))
		most := 2 + r.IntN(4)
		h, cfg, d, id := partWorld(t, r, false, engine.Defrag{Moves: most})
		kind, tasks := pick(r, "2g", "3g", "4g", "7g", "0.5", "GPU", "GPU", "1g", "2g", "3g", "0.5"),
			pick(r, 1, 1, 2, 3)
		ask := func(*cluster.Job) {}
		switch {
		case kind == "0.5":
			ask = share(500)
		case kind != "GPU":
			if _, ok := d.model.Profile(kind); !ok {
				continue
			}
			ask = slice(kind)
		}
		j := job(id, 1, 600, ask)
		j.Tasks[0].Count = tasks
		if tasks > 1 {
			kind = "gang of " + kind
		}
		count.look(h, cfg, &d, fmt.Sprintf("seed %d: %s", seed, kind), kind, &j, most)
	}
	count.enough(t, 96, 94)
}

// The same for tasks with shares of two or three GPUs, gangs of them, and jobs in whose way such are.
func TestDefragWideCheapest(t *testing.T) {
	t.Parallel()
	count := newFoundMoves()
	for seed := range shared.Soak[uint64](2500, 16000) {
		r := rand.New(rand.NewPCG(seed, 16))
		most := 2 + r.IntN(4)
		h, cfg, d, id := partWorld(t, r, true, engine.Defrag{Moves: most})
		gpus, milli, tasks := min(d.per, pick(r, 1, 2, 2, 3, 3)), pick[int64](r, 250, 500, 500, 750),
			pick(r, 1, 1, 2, 2, 3)
		kind := fmt.Sprintf("%d shares", gpus)
		if tasks > 1 {
			kind = "gang of " + kind
		}
		j := job(id, 1, 600, shares(gpus, milli))
		j.Tasks[0].Count = tasks
		count.look(h, cfg, &d, fmt.Sprintf("seed %d: %d of %d times %d", seed, tasks, gpus, milli), kind, &j, most)
	}
	count.enough(t, 95, 94)
}

// foundMoves counts by kind of job how often there are moves, how often they are found, and how
// often the cheapest.
type foundMoves struct{ there, found, cheapest map[string]int }

func newFoundMoves() foundMoves {
	return foundMoves{map[string]int{}, map[string]int{}, map[string]int{}}
}

func (c foundMoves) look(h *hand, cfg engine.Config, d *dumbParts, what, kind string, j *cluster.Job, most int) {
	id := int(j.ID)
	if h.at(3, submit(*j)) != "" || len(d.jobs) > 12 {
		return // it fits, or there are too many to try everything
	}
	m, cost := h.plan(cfg, id), d.cheapest(&j.Tasks[0].Request, j.Tasks[0].Count, most)
	if cost == 0 {
		h.t.Fatalf("%s, %+v: it fits as it is, and waits", what, d.gpus)
	}
	if cost > 0 {
		c.there[kind]++
	}
	if len(m.Moves) == 0 {
		return
	}
	if cost < 0 || m.Cost < cost {
		h.t.Fatalf("%s, %+v, %+v: the planner has %q (%v); %v is possible", what, d.gpus, d.jobs, movesText(&m), m.Cost,
			cost)
	}
	if c.found[kind]++; m.Cost == cost {
		c.cheapest[kind]++
	}
	h.makeMoves(id, &m)
}

// enough fails where less than so many of a hundred are found, or are the cheapest.
func (c foundMoves) enough(t *testing.T, found, cheapest int) {
	t.Helper()
	t.Logf("moves there are for %v, found for %v, the cheapest for %v", c.there, c.found, c.cheapest)
	least, missed := shared.Soak(4, 8), shared.Soak(1, 0) // of few, one may be missed
	for kind, n := range c.there {
		if n < least || 100*(c.found[kind]+missed) < n*found || 100*(c.cheapest[kind]+missed) < n*cheapest {
			t.Errorf("%s: too few are found", kind)
		}
	}
}

// makeMoves has moves made, and looks which is where when those that move have left.
func (h *hand) makeMoves(id int, m *engine.Moves) {
	h.t.Helper()
	h.at(4, askAll)
	if x := h.e.Moved(); len(x) != 1 || x[0].Made != m.Worth {
		h.t.Fatalf("%+v were made of %+v", x, m)
	}
	if !m.Worth {
		return
	}
	var gone []engine.Event
	dest := map[cluster.JobID]string{cluster.JobID(id): ""}
	for i := range m.Moves {
		r := h.e.Record(m.Moves[i].Job)
		dest[r.Spec.ID] = fmt.Sprint(r.Dest)
		gone = append(gone, stopped(int(r.Spec.ID), engine.Preempted))
	}
	h.at(5, gone...)
	for id, want := range dest {
		if r := h.e.Record(id); r.State != engine.Starting || want != "" && fmt.Sprint(r.Allocs) != want {
			h.t.Fatalf("job %d is %v on %v, not on %s", id, r.State, r.Allocs, want)
		}
	}
}
