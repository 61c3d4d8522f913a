package compat

import (
	"cmp"
	"slices"

	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
)

// gavelFIFO is FIFO without heterogeneity as implemented in Gavel's simulator (section 6): a job
// should get a random model, but a defect gives it the last one of the list, and removes another
// one from the list when that is full. So a model may be overbooked; its holders then take turns.
// It is particular to that simulator, so it is here and not a policy.
type gavelFIFO struct {
	w       *GavelWorld
	chance  *twister
	changed int // number of arrivals and ends at the last solution
	last    float64
	holds   map[int]*gavelHold
	holders []int // numbers of the jobs that hold a model, in order
}

// gavelHold is a job that holds a model.
type gavelHold struct {
	on      int
	base    float64 // seconds that it had received there at the last reset, less half a round
	deficit float64 // seconds due to it that it did not receive
}

func newGavelFIFO(w *GavelWorld) *gavelFIFO {
	f := &gavelFIFO{w: w, chance: newTwister(w.x.Seed), holds: map[int]*gavelHold{}}
	w.emptied = f.solveAgain
	return f
}

func (*gavelFIFO) Name() string { return "gavel-fifo" }

func (*gavelFIFO) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: engine.Skip, Round: 1, Gated: true}
}

func (*gavelFIFO) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }

// solveAgain solves again if jobs have arrived or ended, even if none is left.
func (f *gavelFIFO) solveAgain() {
	clock := f.w.clock
	over := len(f.w.jobs) - len(f.w.live)
	if f.changed != len(f.w.jobs)+over && (clock-f.last >= gavelReset || f.last == 0) {
		f.changed = len(f.w.jobs) + over
		f.recount(clock)
		f.solve()
		f.last = clock
	}
}

// Plan selects the jobs that run in this round.
func (f *gavelFIFO) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	f.solveAgain()
	f.w.planned = map[int]string{}
	for k := range gavelModels {
		f.selectOn(k)
	}
	plan := sched.Plan{Targets: make([]engine.Target, len(jobs)), Next: v.Now() + 1}
	for i, j := range jobs {
		gpu := f.w.planned[int(j.Spec().ID)]
		plan.Targets[i] = engine.Target{GPU: gpu, Idle: gpu == ""}
	}
	return plan
}

// recount restarts the accounting of received time.
func (f *gavelFIFO) recount(clock float64) {
	for _, id := range f.holders {
		h, j := f.holds[id], f.w.jobs[id]
		h.deficit += clock - f.last - (j.got[h.on] - h.base - f.w.x.Round/2)
		h.base = j.got[h.on] - f.w.x.Round/2
	}
}

// solve assigns models to jobs that have none: steps a to e of the specification.
func (f *gavelFIFO) solve() {
	var queue []*gavelJob
	for _, j := range f.w.live {
		if f.holds[int(j.spec.ID)] == nil {
			queue = append(queue, j)
		}
	}
	free := [3]int{gavelGPUs, gavelGPUs, gavelGPUs}
	var gone []int
	for _, id := range slices.Clone(f.holders) {
		on, j := f.holds[id].on, f.w.jobs[id]
		switch {
		case !j.done:
			free[on] -= j.gpus
			continue
		case len(queue) > 0 && queue[0].gpus <= free[on] && queue[0].rate[on] > 0:
			f.hold(queue[0], on)
			free[on] -= queue[0].gpus
			queue = queue[1:]
		}
		gone = append(gone, id)
	}
	for _, id := range gone {
		delete(f.holds, id)
	}
	f.holders = slices.DeleteFunc(f.holders, func(id int) bool { return f.holds[id] == nil })
	var list []int
	for k := range free {
		if free[k] > 0 {
			list = append(list, k)
		}
	}
	for len(queue) > 0 && len(list) > 0 {
		head := queue[0]
		queue = queue[1:]
		var room []int // indices in the list
		for at, k := range list {
			if free[k] >= head.gpus {
				room = append(room, at)
			}
		}
		if len(room) == 0 {
			break
		}
		drawn, on := room[f.chance.below(len(room))], list[len(list)-1]
		if head.rate[on] == 0 {
			continue // it makes no steps there: it is skipped after its random draw
		}
		f.hold(head, on)
		if free[on] -= head.gpus; free[on] == 0 {
			list = slices.Delete(list, drawn, drawn+1)
		}
	}
	slices.Sort(f.holders)
}

func (f *gavelFIFO) hold(j *gavelJob, on int) {
	id := int(j.spec.ID)
	f.holds[id] = &gavelHold{on: on, base: j.got[on] - f.w.x.Round/2}
	f.holders = append(f.holders, id)
}

// selectOn runs holders of a model, the least served first, as far as the GPUs suffice.
func (f *gavelFIFO) selectOn(model int) {
	var line []int
	for _, id := range f.holders {
		if f.holds[id].on == model && !f.w.jobs[id].done {
			line = append(line, id)
		}
	}
	had := func(id int) float64 { return f.w.jobs[id].got[model] - f.holds[id].base }
	slices.SortStableFunc(line, func(a, b int) int {
		return cmp.Or(cmp.Compare(had(a), had(b)), cmp.Compare(f.holds[b].deficit, f.holds[a].deficit))
	})
	free := gavelGPUs
	for _, id := range line {
		if n := f.w.jobs[id].gpus; n <= free && f.w.jobs[id].rate[model] > 0 {
			f.w.planned[id] = gavelModels[model].ours
			free -= n
		}
	}
}
