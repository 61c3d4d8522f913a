package learn

import (
	"fmt"
	"slices"
)

// WorldJobs is the number of consecutive jobs of a trace in one world.
const WorldJobs = 400

// Worlds draws worlds to learn in: consecutive jobs, on a subset of the nodes, so that the offered load is reached
// without changing times. It is an error if there are too few jobs, or no nodes.
func Worlds(jobs []Job, nodes []Room) (func(r *Rand, load float64) *World, error) {
	if len(jobs) < WorldJobs || len(nodes) == 0 {
		return nil, fmt.Errorf(
			"%d jobs on whole GPUs and %d nodes with GPUs are too few to learn from: at least %d jobs are needed",
			len(jobs), len(nodes), WorldJobs)
	}
	return func(r *Rand, load float64) *World {
		from := r.Int(len(jobs) - WorldJobs + 1)
		w := &World{Check: 60, Jobs: slices.Clone(jobs[from : from+WorldJobs])}
		work, widest := 0.0, int32(0)
		for i := range w.Jobs {
			work += float64(w.Jobs[i].Run * float64(w.Jobs[i].Tasks*w.Jobs[i].Each))
			widest = max(widest, w.Jobs[i].Tasks)
		}
		span := max(w.Jobs[WorldJobs-1].Submit-w.Jobs[0].Submit, 1)
		gpus := work / span / load
		n := 0
		for have := 0.0; n < len(nodes) && (have < gpus || n < int(widest)); n++ {
			have += float64(nodes[n].GPUs)
		}
		w.Rooms = slices.Clone(nodes[:n])
		total := 0.0
		for _, x := range w.Rooms {
			total += float64(x.GPUs)
		}
		begin, stretch := w.Jobs[0].Submit, work/(load*total)/span // times take up what rounding to nodes leaves
		for i := range w.Jobs {
			w.Jobs[i].Submit = float64((w.Jobs[i].Submit - begin) * stretch)
		}
		w.Trim()
		return w
	}, nil
}
