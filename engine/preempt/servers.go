package preempt

import (
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/shape"
)

// servers finds the jobs that leave for a replica whose service has whole servers back: those of the servers that cost
// least (Lyra, EuroSys'23). What elastic jobs can do without has been given up by then. Jobs of the lowest tier come
// first. If the replica fits, they have released theirs and it is placed there; else the inventory is as it was.
func (f *Finder) servers(r placement.Request, j *job.State, s *shape.Shape) Departure {
	all := slices.DeleteFunc(f.victims(j, s, math.MaxInt).all(), func(x victim) bool { return x.only || x.swap })
	for tier := cluster.BestEffort; tier > j.Spec.Tier; tier-- {
		var jobs []*job.State
		for i := range all {
			if all[i].tier >= tier {
				jobs = append(jobs, all[i].j)
			}
		}
		nodes := f.serversFor(s, jobs)
		for n := 1; n <= min(len(nodes), tasksOf(s)); n++ {
			if way := f.vacate(r, j, s, jobs, nodes, n); way.Fits {
				return way
			}
		}
	}
	return Departure{}
}

// tasksOf counts the tasks of a job of a shape at its smallest size: it needs no more servers.
func tasksOf(s *shape.Shape) int {
	n := int(s.Min)
	for i := range s.Sets[1:] {
		n += s.Sets[1+i].Count
	}
	return n
}

// serversFor lists the nodes, by number, on which a task of the shape has room once these jobs have left.
func (f *Finder) serversFor(s *shape.Shape, jobs []*job.State) (nodes []int32) {
	gain := map[int32]int{}
	for _, v := range jobs {
		for i := range v.Allocs {
			a := &v.Allocs[i]
			if _, seen := gain[a.Node]; !seen {
				nodes = append(nodes, a.Node)
			}
			gain[a.Node] += bits.OnesCount64(a.GPUs)
		}
	}
	slices.Sort(nodes)
	task := &s.Sets[0].Request
	return slices.DeleteFunc(nodes, func(id int32) bool {
		n := &f.st.Nodes()[id]
		return !n.TakesJobs() || !s.Any.Has(n.Class()) || !s.Reaches(id) ||
			!shape.IsPart(task) && int(n.FreeGPUs())+gain[id] < task.GPUs
	})
}

// vacate has jobs leave n of some nodes, by number, and places a job.
func (f *Finder) vacate(r placement.Request, j *job.State, s *shape.Shape, jobs []*job.State, nodes []int32,
	n int) (way Departure) {
	lent := NewLent(nodes)
	var on []*job.State
	for _, v := range jobs {
		if lent.Add(v, nil) {
			on = append(on, v)
		}
	}
	lent.Reclaim(n)
	mark := f.st.Mark()
	for i, v := range on {
		if lent.Preempted(i) {
			f.remove(v)
			way.Jobs = append(way.Jobs, v)
		}
	}
	if !f.limits.Lacks(j) {
		way.Allocs, way.Fits = f.places.Place(r, j, s, s.Min)
	}
	if !way.Fits {
		f.st.Rollback(mark)
	}
	return way
}
