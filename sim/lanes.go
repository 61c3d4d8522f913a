package sim

import (
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Jobs on the same whole GPUs under a policy with lanes (Salus, MLSys'20): one job of each lane
// computes at a time, for at least an iteration; jobs of different lanes compute at the same time
// and slow each other down as the performance table says. Lanes are reassigned whenever a job
// arrives or leaves: moving a lane at the end of an iteration is free.

// inLanes returns the part of its time, in ppm, that a job computes on its GPUs, and the models of
// the jobs that compute at the same time.
func (w *World) inLanes(j *jobRun) (part int64, partners []string) {
	ids := w.sharers(j)
	lane := w.lanes(j, ids)
	turn := map[int]cluster.JobID{} // lane → the job whose turn it is; looked up, never iterated
	most, mine := 0, 0
	for i, id := range ids {
		o := &w.jobs[id]
		if id == j.entry.Job.ID {
			mine = lane[i]
		}
		most = max(most, lane[i])
		if first, taken := turn[lane[i]]; !taken ||
			w.opt.Lanes == cluster.LaneSRTF && w.leftNow(o) < w.leftNow(&w.jobs[first]) {
			turn[lane[i]] = id
		}
	}
	for l := range most + 1 {
		if id, taken := turn[l]; taken && l != mine {
			partners = append(partners, w.jobs[id].entry.Job.Model)
		}
	}
	slices.Sort(partners)
	switch {
	case w.opt.Lanes == cluster.LaneEqual:
		n := int64(0)
		for _, l := range lane {
			if l == mine {
				n++
			}
		}
		return 1_000_000 / n, partners
	case turn[mine] == j.entry.Job.ID:
		return 1_000_000, partners
	}
	return 0, partners
}

// sharers lists a job and those that compute on its GPUs, in order of arrival.
func (w *World) sharers(j *jobRun) []cluster.JobID {
	return slices.DeleteFunc(w.tenantsOf(j), func(id cluster.JobID) bool {
		o := &w.jobs[id]
		return o != j && o.phase != running
	})
}

// tenantsOf lists all jobs on a job's shared GPUs, itself included, in order of arrival.
func (w *World) tenantsOf(j *jobRun) (ids []cluster.JobID) {
	w.shared(j, func(k int) {
		for _, id := range w.tenants[k] {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

// lanes assigns lanes to jobs. Jobs that do not fit side by side in this order share one lane; a
// job that does not state its memory footprint has a lane of its own.
func (w *World) lanes(j *jobRun, ids []cluster.JobID) []int {
	model, _ := w.spec.Model(w.spec.Nodes[j.allocs[0].Node].Model)
	list := make([]cluster.Footprint, len(ids))
	for i, id := range ids {
		list[i], _ = w.jobs[id].entry.Job.Tasks[0].Request.Footprint()
	}
	if lane, ok := cluster.Lanes(list, model.Memory); ok {
		return lane
	}
	return make([]int, len(ids))
}

// leftNow is the part of a job's work that is left now.
func (w *World) leftNow(j *jobRun) time.Duration {
	if j.phase != running {
		return j.left
	}
	return max(0, j.left-shrinkBy(w.now.Sub(j.since), j.rate))
}
