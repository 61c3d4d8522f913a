package engine

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/explain"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/order"
	"github.com/muster-gpu/muster/engine/shape"
)

// A blocked job is promised a start from the expected ends of running jobs. Where their run times
// are not known there is nothing to promise, and smaller jobs could pass it for ever. So after
// Config.HoldAfter the nodes on which it can start soonest are held for it: what becomes free there
// stays free until it fits. Others still run there if they end before it could start.

// DefaultHoldAfter is what Config.HoldAfter is unless a configuration says otherwise. A hold idles
// at most what the job needs for as long as the jobs on those nodes run on; half an hour is about
// twice the median run of the jobs of public traces, so by then waiting has cost more.
const DefaultHoldAfter = 30 * time.Minute

// holdDue reports whether a job has been in line for so long that nodes may be held for it.
func (e *Engine) holdDue(j *job.State) bool {
	return e.cfg.HoldAfter > 0 && j.StarvingSince.Add(e.cfg.HoldAfter) <= e.w.Now
}

// outOfSight reports whether an instant stands for an end that is not known.
func (e *Engine) outOfSight(at cluster.Time) bool { return at >= e.w.Now.Add(cluster.MaxDuration/2) }

// holdFor returns a reservation of the nodes on which a job can start soonest as far as one can know:
// those with the fewest busy GPUs. Of nodes that are held the busy GPUs only become fewer, so the
// choice can change only to nodes that are nearer to being free.
func (e *Engine) holdFor(j *job.State) (reservation, bool) {
	s := e.shapes.At(j.Shape)
	nodes := e.leastBusy(s)
	on := e.allocsOn(nodes)
	mark := e.st.Mark()
	with := func(k int) (allocs []inventory.Alloc, ok bool) { // the first k nodes are empty
		e.st.Rollback(mark)
		for i := range k {
			for _, h := range on[i] {
				e.st.Release(h.a)
			}
		}
		return e.find.Place(e.anywhere(), j, s, s.Min)
	}
	defer func() { e.st.Rollback(mark) }()
	least, most := 0, min(1, len(nodes))
	for ; most < len(nodes); most = min(2*most, len(nodes)) {
		if _, ok := with(most); ok {
			break
		}
		least = most
	}
	k := least + sort.Search(most-least, func(i int) bool { _, ok := with(least + i); return ok })
	allocs, ok := with(k)
	if !ok {
		return reservation{}, false
	}
	r := e.promiseOf(j, s, e.w.Now, allocs)
	e.st.Rollback(mark)
	r.hold, r.until = true, cluster.Never
	for i := range r.nodes {
		n := &e.st.Nodes()[r.nodes[i].node]
		sl := &r.nodes[i]
		sl.gpus, sl.cpu, sl.ram = max(0, int32(n.FreeGPUs())-sl.tookGPUs), max(0, n.CPU()-sl.tookCPU),
			max(0, n.RAM()-sl.tookRAM)
		if at := slices.Index(nodes[:k], sl.node); at >= 0 {
			r.at = max(r.at, e.freeAt(sl, on[at]))
		}
	}
	return r, true
}

// leastBusy lists the nodes that suit a shape and are not held for another job, those with the
// fewest busy GPUs first, then with the least CPU in use, then as they joined.
func (e *Engine) leastBusy(s *shape.Shape) (nodes []int32) {
	taken := map[int32]bool{} // looked up only
	for i := range e.resv {
		for k := 0; e.resv[i].hold && k < len(e.resv[i].nodes); k++ {
			taken[e.resv[i].nodes[k].node] = true
		}
	}
	for id := range e.st.Nodes() {
		if n := &e.st.Nodes()[id]; n.TakesJobs() && s.Any.Has(n.Class()) && s.Reaches(int32(id)) && !taken[int32(id)] {
			nodes = append(nodes, int32(id))
		}
	}
	busy := func(id int32) (gpus int, cpu cluster.Milli) {
		n := &e.st.Nodes()[id]
		if n.Spec().CPU > 0 {
			cpu = n.Spec().CPU - n.CPU()
		}
		return popcount(n.Healthy()) - int(n.FreeGPUs()), cpu
	}
	slices.SortStableFunc(nodes, func(a, b int32) int {
		ga, ca := busy(a)
		gb, cb := busy(b)
		return cmp.Or(cmp.Compare(ga, gb), cmp.Compare(ca, cb))
	})
	return nodes
}

// holder is an allocation of a job that holds devices.
type holder struct {
	j *job.State
	a *inventory.Alloc
}

// allocsOn lists what jobs hold of some nodes, by the nodes' places in the list.
func (e *Engine) allocsOn(nodes []int32) [][]holder {
	at, on := make([]int32, len(e.st.Nodes())), make([][]holder, len(nodes))
	for i, id := range nodes {
		at[id] = int32(i) + 1
	}
	e.byKey().Walk(func(it order.Item) bool {
		j := e.jobs[it.ID]
		for i := range j.Allocs {
			if k := at[j.Allocs[i].Node]; k > 0 {
				on[k-1] = append(on[k-1], holder{j, &j.Allocs[i]})
			}
		}
		return true
	})
	return on
}

// freeAt is the earliest instant at which a node can have the GPUs that a hold takes there, if jobs
// of which no end is known end at once, and the others when they are expected to.
func (e *Engine) freeAt(sl *slack, on []holder) cluster.Time {
	n := &e.st.Nodes()[sl.node]
	lacks := int(sl.tookGPUs) - int(n.FreeGPUs())
	var ends []ending
	for _, h := range on {
		end := e.endOf(h.j)
		if h.a.Share > 0 || h.a.Beside || n.CPU() < sl.tookCPU || n.RAM() < sl.tookRAM {
			return e.w.Now
		}
		if e.outOfSight(end) {
			lacks -= popcount(h.a.GPUs)
			continue
		}
		ends = append(ends, ending{at: end, resv: int32(popcount(h.a.GPUs))})
	}
	slices.SortStableFunc(ends, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
	for i := 0; i < len(ends) && lacks > 0; i++ {
		if lacks -= int(ends[i].resv); lacks <= 0 {
			return ends[i].at
		}
	}
	return e.w.Now
}

// openEnded reports whether all reservations that stand in a shape's way are for starts that are
// not in sight: they hold nothing.
func (e *Engine) openEnded(s *shape.Shape) bool {
	for i := range e.resv {
		if r := &e.resv[i]; e.meets(s, r) && !e.outOfSight(r.at) {
			return false
		}
	}
	return true
}

// holdText says what is held for a job; "": nothing is.
func (e *Engine) holdText(j *job.State) string {
	i := slices.IndexFunc(e.resv, func(r reservation) bool { return r.hold && r.job == j.Spec.ID })
	if i < 0 {
		return ""
	}
	var names []string
	gpus, have := 0, 0
	for k := range e.resv[i].nodes {
		sl := &e.resv[i].nodes[k]
		n := &e.st.Nodes()[sl.node]
		gpus, have = gpus+int(sl.tookGPUs), have+min(int(sl.tookGPUs), int(n.FreeGPUs()))
		if names = append(names, n.Spec().Name); len(names) > explain.MostNamed {
			names[explain.MostNamed] = "..."
			names = names[:explain.MostNamed+1]
		}
	}
	what := "room is"
	if gpus > 0 {
		what = "GPUs are"
	}
	text := fmt.Sprintf("%s being held for it since %s on %s", what, e.clock(e.heldSince(j)), strings.Join(names, ","))
	if gpus > 0 {
		text += fmt.Sprintf(": %d of %d are free", have, gpus)
	}
	return text
}

// heldSince is from when on nodes may be held for a job.
func (e *Engine) heldSince(j *job.State) cluster.Time { return j.StarvingSince.Add(e.cfg.HoldAfter) }
