package places

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/holds"
)

// Missing is the places that a gang lost and that no pod has taken yet, by what they are for.
type Missing []cluster.TaskSet

// Add notes that a place for a request was lost.
func (m Missing) Add(r *cluster.Request) Missing {
	return holds.AddTasks(m, cluster.TaskSet{Count: 1, Request: *r})
}

// AddAll notes that places were lost which are of these task sets.
func (m Missing) AddAll(list List, tasks []cluster.TaskSet) Missing {
	for i := range list {
		m = m.Add(&tasks[list[i].Set].Request)
	}
	return m
}

// Filled is what is left once there are pods for these tasks.
func (m Missing) Filled(tasks []cluster.TaskSet) Missing {
	left := slices.Clone(m)
	for _, t := range tasks {
		if i := holds.SetOf(left, &t.Request); i >= 0 {
			left[i].Count -= t.Count
		}
	}
	return slices.DeleteFunc(left, func(t cluster.TaskSet) bool { return t.Count <= 0 })
}

// Size counts the places.
func (m Missing) Size() (n int) {
	for i := range m {
		n += m[i].Count
	}
	return n
}
