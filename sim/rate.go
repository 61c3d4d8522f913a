package sim

import (
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
)

// rateOf returns a job's speed (ppm) on what it holds, from the model.
func (w *World) rateOf(j *jobRun) int64 {
	p := w.placement(j)
	rate, part := int64(1_000_000), int64(1_000_000)
	if w.opt.Lanes != cluster.NoLanes && w.packing && p.Share == cluster.Whole && len(p.Partners) > 0 {
		part, p.Partners = w.inLanes(j)
	}
	switch {
	case w.opt.Model != nil:
		rate = w.heldBack(j, w.opt.Model.Rate(&j.entry.Job, p))
	case w.packing && p.Share == cluster.Whole && len(p.Partners) > 0: // they take turns
		rate /= int64(1 + len(p.Partners))
	case p.Profile != "": // as fast as it has compute slices
		rate = p.Share * (1_000_000 / cluster.Whole)
	case p.Want > 0 && p.Tasks != p.Want: // elastic: linear without a model
		rate = rate * int64(p.Tasks) / int64(p.Want)
	}
	rate = rate * part / 1_000_000
	if j.sends != nil {
		rate = rate * j.sends.speed / 1_000_000
	}
	if c := &j.entry.Job.Checkpoint; c.Interval > 0 && c.Cost > 0 && !c.None {
		rate = rate * int64(c.Interval/1000) / int64((c.Interval+c.Cost)/1000) // periodic checkpoints stop the work
	}
	return max(1, rate)
}

// paceOf is a job's speed times the number of tasks that it requests, so that it is comparable with
// jobs of its model that request more; 0: paces are not reported.
func (w *World) paceOf(j *jobRun) int64 {
	if !w.opt.Paces || j.entry.Job.Model == "" {
		return 0
	}
	return j.rate * int64(j.entry.Job.NumTasks())
}

// placement describes a job's holdings.
func (w *World) placement(j *jobRun) perf.Placement {
	p := perf.Placement{Share: cluster.Whole, Want: j.entry.Job.NumTasks()}
	first := int32(-1)
	seen := int32(-1)
	level := cluster.LevelNode
	for i := range j.allocs {
		a := &j.allocs[i]
		n := &w.spec.Nodes[a.Node]
		p.Tasks += int(a.Tasks)
		p.GPUs += bits.OnesCount64(a.GPUs) // a guest's GPUs included, although they are charged to another job
		if a.Share > 0 {
			p.Share = cluster.Milli(a.Share)
		}
		if first < 0 {
			first, p.GPU = a.Node, n.Model
		}
		if a.Node != seen {
			p.Nodes++
			seen = a.Node
			level = max(level, w.distance(first, a.Node))
		}
	}
	p.Level = level
	if p.GPUs == 1 && j.allocs[0].Slots != 0 && j.entry.Job.Tasks[0].Request.Profile == "" {
		p.Profile = w.profileOf(&j.allocs[0])
	}
	p.Partners = w.partners(j)
	p.MPS = w.spec.Sharing == cluster.MPS && p.Share < cluster.Whole
	return p
}

// profileOf names the MIG instance of an allocation.
func (w *World) profileOf(a *engine.Alloc) string {
	model, _ := w.spec.Model(w.spec.Nodes[a.Node].Model)
	if p, _, ok := model.Held(a.Slots, int(a.Compute), a.Media); ok {
		return p.Name
	}
	return ""
}

// distance is the level that two nodes share: node, rack, fabric, or any.
func (w *World) distance(a, b int32) cluster.Level {
	x, y := &w.spec.Nodes[a], &w.spec.Nodes[b]
	switch {
	case a == b:
		return cluster.LevelNode
	case x.NVLink != "" && x.NVLink == y.NVLink:
		return cluster.LevelNode // one NVLink domain counts as one node
	case x.Rack == y.Rack:
		return cluster.LevelRack
	case x.Fabric == y.Fabric:
		return cluster.LevelFabric
	}
	return cluster.LevelFabric + 1
}

// shared calls f for each device (numbered over all nodes) of the job on which other jobs may be:
// shared ones, and whole ones where jobs may be guests. Slices are isolated: jobs in MIG instances
// of one GPU are not partners.
func (w *World) shared(j *jobRun, f func(k int)) {
	for i := range j.allocs {
		a := &j.allocs[i]
		if a.Slots != 0 || a.Share == 0 && !w.packing {
			continue
		}
		for m := a.GPUs; m != 0; m &= m - 1 {
			f(w.devices[a.Node] + bits.TrailingZeros64(m))
		}
	}
}

// occupy and vacate keep track of the jobs on a device.
func (w *World) occupy(j *jobRun) {
	w.shared(j, func(k int) { w.tenants[k] = append(w.tenants[k], j.entry.Job.ID) })
}

func (w *World) vacate(j *jobRun) {
	w.shared(j, func(k int) {
		w.tenants[k] = slices.DeleteFunc(w.tenants[k], func(id cluster.JobID) bool { return id == j.entry.Job.ID })
	})
}

// beginPacking tracks whole devices, too, from the first guest on.
func (w *World) beginPacking(a *engine.Action) {
	if w.packing || !slices.ContainsFunc(a.Allocs, func(a engine.Alloc) bool { return a.Beside }) {
		return
	}
	w.packing = true
	clear(w.tenants)
	for i := range w.jobs {
		if j := &w.jobs[i]; j.entry.Job.ID != a.Job {
			w.occupy(j) // nothing if it holds nothing
		}
	}
}

// passToGuest gives the devices of a job that has left to its first guest, as the engine does.
func (w *World) passToGuest(gone *jobRun) {
	if !w.packing || gone.milli == 0 || gone.allocs[0].Share != 0 {
		return
	}
	first := cluster.NoJob
	w.shared(gone, func(k int) {
		if l := w.tenants[k]; first == cluster.NoJob && len(l) > 0 && w.jobs[l[0]].milli == 0 {
			first = l[0]
		}
	})
	if first == cluster.NoJob {
		return
	}
	j := &w.jobs[first]
	computes := j.phase == running
	w.advance(j)
	w.book.drop(j, 0, w.now)
	j.allocs = slices.Clone(j.allocs)
	for i := range j.allocs {
		j.allocs[i].Beside = false
		j.milli += j.allocs[i].Milli()
	}
	w.book.hold(j, j.milli, w.now)
	if computes {
		w.book.busy += j.milli
	}
}

// heldBack is a job's speed where guests are throttled so that their host keeps its part of its
// speed (Action.Yield): the steady state of a driver that throttles guests by measurement.
func (w *World) heldBack(j *jobRun, rate int64) int64 {
	if !w.packing {
		return rate
	}
	host, yield := (*jobRun)(nil), int64(0)
	for _, id := range append(w.others(j), j.entry.Job.ID) {
		if x := &w.jobs[id]; x.milli > 0 {
			host = x
		} else {
			yield = max(yield, x.yield)
		}
	}
	if host == nil || yield == 0 {
		return rate
	}
	p := w.placement(host)
	full := w.opt.Model.Rate(&host.entry.Job, p)
	p.Partners = nil
	alone := w.opt.Model.Rate(&host.entry.Job, p)
	keep := alone * yield / 1_000_000
	switch {
	case full >= keep:
		return rate
	case j == host:
		return keep
	}
	return rate * (alone - keep) / (alone - full)
}

// others lists the jobs that compute on devices of the job, by number.
func (w *World) others(j *jobRun) []cluster.JobID {
	ids := slices.DeleteFunc(w.sharers(j), func(id cluster.JobID) bool { return id == j.entry.Job.ID })
	slices.Sort(ids)
	return ids
}

// partners lists the models of the other jobs on a job's shared devices, including jobs in shares
// that write a checkpoint before they leave: they interfere until then, as the engine assumes
// (Engine.Company).
func (w *World) partners(j *jobRun) []string {
	var names []string
	for _, id := range w.tenantsOf(j) {
		if o := &w.jobs[id]; o != j && (o.phase == running || o.phase == leaving && o.entry.Job.Shares()) {
			names = append(names, o.entry.Job.Model)
		}
	}
	slices.Sort(names)
	return names
}

// neighbours lists the other jobs that compute on a job's shared devices: their speeds change when
// it arrives or leaves.
func (w *World) neighbours(j *jobRun) []cluster.JobID {
	if w.opt.Model == nil && !w.packing {
		return nil
	}
	return w.others(j)
}

// respeed updates the speeds of jobs after a change of their neighbours; the engine receives a
// progress report, as from a live driver.
func (w *World) respeed(ids []cluster.JobID) {
	for _, id := range ids {
		j := &w.jobs[id]
		w.advance(j)
		if rate := w.rateOf(j); rate != j.rate {
			j.rate = rate
			w.plan(j)
			if r := j.replica; r != nil && r.number >= 0 {
				w.opt.Serving.fleet.Slow(r.number, slowed(rate))
			}
			w.reports = append(w.reports, engine.Event{Type: engine.Progress, Job: id, Rate: rate,
				Done: j.entry.Run - j.left, Saved: j.saved})
		}
	}
}
