package sim

import (
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/learn"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/trace"
)

// LearnWorlds draws worlds in which policy sched2 learns from a trace (learn.Worlds). Jobs that its network cannot
// handle are left out. Losses by distance come from the model, as the policy receives them (sched.View.Losses);
// without a model (nil) only skew is known. Jobs without an estimate have unknown length.
func LearnWorlds(spec *cluster.Spec, entries []trace.Entry,
	model perf.Model) (func(r *learn.Rand, load float64) *learn.World, error) {
	var jobs []learn.Job
	for i := range entries {
		if e := &entries[i]; len(e.Job.Tasks) == 1 && e.Run > 0 {
			if t := &e.Job.Tasks[0]; t.Request.GPUs > 0 && !t.Request.Fractional() && t.Request.Profile == "" {
				jobs = append(jobs, learn.Job{Tasks: int32(t.Count), Each: int32(t.Request.GPUs),
					Submit: e.Job.Submit.Sub(0).Seconds(), Run: e.Run.Seconds(),
					Loss: lostApart(&e.Job, model), Unknown: e.Job.Estimate <= 0})
			}
		}
	}
	var nodes []learn.Room
	racks, kinds := map[string]int32{}, map[string]int32{} // looked up, never iterated
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		if _, ok := racks[n.Rack]; !ok {
			racks[n.Rack] = int32(len(racks))
		}
		if _, ok := kinds[n.Model]; !ok {
			kinds[n.Model] = int32(len(kinds))
		}
		if n.GPUs > 0 {
			nodes = append(nodes,
				learn.Room{GPUs: int32(n.GPUs), Free: int32(n.GPUs), Rack: racks[n.Rack], Kind: kinds[n.Model]})
		}
	}
	return learn.Worlds(jobs, nodes)
}

// lostApart is the part of its speed that a job loses on several nodes of one rack, and on several
// racks, as in sched.View.Losses.
func lostApart(j *cluster.Job, model perf.Model) (loss [2]float64) {
	if j.NumTasks() < 2 {
		return loss
	}
	for i, l := range []cluster.Level{cluster.LevelRack, cluster.LevelFabric} {
		switch {
		case model != nil:
			loss[i] = min(max(1-float64(perf.Belief{Model: model}.Apart(j, "", l))/perf.Million, 0), 1)
		case j.Skew > 100:
			loss[i] = 0.3
		}
	}
	return loss
}
