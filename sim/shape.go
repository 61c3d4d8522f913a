package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// SizeFor returns the number of nodes, of perNode GPUs each, that carry the workload at a load:
// requested GPU time divided by the span of submissions.
func SizeFor(wl *trace.Workload, load float64, perNode int) (int, error) {
	work, span := Demand(wl)
	if span <= 0 || work <= 0 || !(load > 0) {
		return 0, fmt.Errorf("load %g: the workload has no span or no GPU time to size a cluster by", load)
	}
	nodes := math.Ceil(work / span / load / float64(perNode))
	if nodes > 1<<20 {
		return 0, fmt.Errorf("load %g needs %.0f nodes; at most %d are supported", load, nodes, 1<<20)
	}
	return max(1, int(nodes)), nil
}

// Demand returns the workload's GPU-seconds and the seconds between its first
// and last submission.
func Demand(wl *trace.Workload) (gpuSeconds, span float64) {
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		gpuSeconds += e.GPUTime()
	}
	if n := len(wl.Jobs); n > 1 {
		span = wl.Jobs[n-1].Job.Submit.Sub(wl.Jobs[0].Job.Submit).Seconds()
	}
	return gpuSeconds, span
}

// DemandOn is Demand over the jobs that the cluster can hold; it also counts those that it cannot.
func DemandOn(wl *trace.Workload, spec *cluster.Spec) (gpuSeconds, span float64, tooLarge int) {
	gpuSeconds, span = Demand(wl)
	rooms := roomsOf(spec)
	for i := range wl.Jobs {
		if !rooms.hold(&wl.Jobs[i].Job) {
			gpuSeconds -= wl.Jobs[i].GPUTime()
			tooLarge++
		}
	}
	return max(0, gpuSeconds), span, tooLarge
}

// room is a cluster's capacity of one GPU model.
type room struct {
	model      cluster.GPUModel
	node, most int // GPUs on the largest node, and in total
}

type rooms []room

func roomsOf(spec *cluster.Spec) (list rooms) {
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		at := slices.IndexFunc(list, func(r room) bool { return r.model.Name == n.Model })
		if at < 0 {
			m, _ := spec.Model(n.Model)
			m.Name = n.Model
			at = len(list)
			list = append(list, room{model: m})
		}
		list[at].node = max(list[at].node, n.GPUs)
		list[at].most += n.GPUs
	}
	return list
}

// hold reports whether some GPU model has enough GPUs for a job, on nodes that are large enough for
// its tasks. A job that is refused for another reason (a quota, CPU, a partition) counts as held.
func (r rooms) hold(j *cluster.Job) bool {
	for i := range r {
		m := &r[i]
		if j.GPUs() > 0 && len(j.GPUTypes) > 0 &&
			!slices.ContainsFunc(j.GPUTypes, func(t string) bool { return cluster.MatchModel(m.model.Name, t) }) {
			continue
		}
		fits, need := true, 0
		for k := range j.Tasks {
			q, count := &j.Tasks[k].Request, j.Tasks[k].Count
			if k == 0 && j.Elastic.Min > 0 {
				count = min(count, j.Elastic.Min)
			}
			if !q.Fractional() && q.Profile == "" {
				need += count * q.GPUs
			}
			fits = fits && q.GPUs <= m.node && (q.GPUs == 0 || m.model.Memory == 0 || q.Memory <= m.model.Memory)
		}
		if fits && need <= m.most {
			return true
		}
	}
	return false
}

// Tile repeats the workload n times, one after the other: each copy begins a second after the last
// submission of the previous one.
func Tile(wl *trace.Workload, n int) {
	base := wl.Jobs
	if len(base) == 0 || n < 2 {
		return
	}
	span := base[len(base)-1].Job.Submit + cluster.Time(time.Second)
	wl.Jobs = make([]trace.Entry, 0, n*len(base))
	for k := range n {
		off := cluster.Time(k) * span
		for i := range base {
			e := base[i]
			e.Job.ID = cluster.JobID(len(wl.Jobs))
			e.Job.Submit += off
			move(&e, off)
			wl.Jobs = append(wl.Jobs, e)
		}
	}
}

// move shifts all times of an entry except its submission.
func move(e *trace.Entry, by cluster.Time) {
	for _, t := range []*cluster.Time{&e.Job.Deadline, &e.Job.Begin, &e.End} {
		if *t > 0 {
			*t += by
		}
	}
}

// Stretch scales the distances between submissions so that the offered load is as given. Deadlines
// move with their jobs.
func Stretch(wl *trace.Workload, spec *cluster.Spec, load float64) error {
	work, span, _ := DemandOn(wl, spec)
	gpus := float64(spec.GPUs())
	if span <= 0 || work <= 0 || gpus == 0 || !(load > 0) {
		return fmt.Errorf("load %g: the workload has no span or no GPU time to stretch", load)
	}
	factor := work / (gpus * load) / span
	if factor*span > cluster.MaxDuration.Seconds() {
		return fmt.Errorf("load %g would stretch the workload beyond 100 years", load)
	}
	first := wl.Jobs[0].Job.Submit
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		old := e.Job.Submit
		e.Job.Submit = first + cluster.Time(float64(old-first)*factor)
		move(e, e.Job.Submit-old)
	}
	return nil
}

// UnknownModels describes GPU models that nodes name but no table describes: their memory is
// unbounded, so that it never keeps a job from running.
func UnknownModels(nodes []cluster.Node) []cluster.GPUModel {
	var out []cluster.GPUModel
	seen := map[string]bool{}
	for i := range nodes {
		m := nodes[i].Model
		if _, ok := cluster.FindModel(m); ok || m == "" || seen[m] {
			continue
		}
		seen[m] = true
		out = append(out, cluster.GPUModel{Name: m, Memory: cluster.MaxMiB})
	}
	return out
}
