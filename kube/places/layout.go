package places

import (
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/holds"
)

// Layout is what a gang is made of: its task sets, the place of each task, and the devices that these have. Nothing
// that is made of a layout changes it.
type Layout struct {
	Tasks  []cluster.TaskSet
	Places List
	Allocs []engine.Alloc // nil: the engine has not said yet
}

// spot is what an allocation has in common with the places that it is for.
type spot struct {
	node string
	set  int
}

// Without takes the places out that are lost, with their devices, and lists them. Task sets without places are dropped.
func (l Layout) Without(lost func(*Place) bool, order []string) (left Layout, gone List) {
	less, count := map[spot]int{}, make([]int, len(l.Tasks))
	for _, s := range l.Places {
		if lost(&s) {
			less[spot{s.Node, s.Set}]++
			gone = append(gone, s)
			continue
		}
		left.Places = append(left.Places, s)
		count[s.Set]++
	}
	at := make([]int, len(l.Tasks)) // a set's place among those that are left
	for i := range l.Tasks {
		if at[i] = len(left.Tasks); count[i] > 0 {
			left.Tasks = append(left.Tasks, cluster.TaskSet{Count: count[i], Request: l.Tasks[i].Request})
		}
	}
	for _, a := range l.Allocs {
		key := spot{order[a.Node], int(a.Set)}
		k := min(less[key], int(a.Tasks))
		less[key] -= k
		if k < int(a.Tasks) {
			a = holds.Fewer(a, k)
			a.Set = int32(at[a.Set])
			left.Allocs = append(left.Allocs, a)
		}
	}
	for i := range left.Places {
		left.Places[i].Set = at[left.Places[i].Set]
	}
	return left, gone
}

// With is both together.
func (l Layout) With(other Layout) Layout {
	both := Layout{l.Tasks, slices.Clone(l.Places), slices.Clone(l.Allocs)}
	at := make([]int, len(other.Tasks)) // a set's place in both
	for i, t := range other.Tasks {
		both.Tasks = holds.AddTasks(both.Tasks, t)
		at[i] = holds.SetOf(both.Tasks, &t.Request)
	}
	for _, s := range other.Places {
		s.Set = at[s.Set]
		both.Places = append(both.Places, s)
	}
	for _, a := range other.Allocs {
		a.Set = int32(at[a.Set])
		both.Allocs = append(both.Allocs, a)
	}
	return both
}

// Single is a place that was taken out of its gang, as a job of one task has it.
type Single struct {
	Place
	Alloc engine.Alloc
	Held  bool // the gang had devices for it
}

// Divide parts what the gang needs from the places beyond that.
func (l Layout) Divide(order []string) (needed Layout, surplus []Single) {
	needed = Layout{slices.Clone(l.Tasks), l.Places.Needed(), slices.Clone(l.Allocs)}
	for _, s := range l.Places {
		if s.Surplus {
			needed.Tasks[s.Set].Count--
			a, held := holds.Cut(&needed.Allocs, order, s.Node, s.Set)
			surplus = append(surplus, Single{s, a, held})
		}
	}
	return needed, surplus
}

// As has each place be for what request says of it, given what it was for, and reports whether any is for something
// else now. It has no devices.
func (l Layout) As(request func(*Place, cluster.Request) cluster.Request) (now Layout, changed bool) {
	now.Places = slices.Clone(l.Places)
	for i := range now.Places {
		s := &now.Places[i]
		was := l.Tasks[s.Set].Request
		r := request(s, was)
		changed = changed || r != was
		now.Tasks = holds.AddTasks(now.Tasks, cluster.TaskSet{Count: 1, Request: r})
		s.Set = holds.SetOf(now.Tasks, &r)
	}
	return now, changed
}

// Resized is As where the places keep their devices; false: nothing that large can run, or the devices are those of
// other places.
func (l Layout) Resized(request func(*Place, cluster.Request) cluster.Request, order []string) (now Layout, ok bool) {
	now, _ = l.As(request)
	if engine.CheckTasks(&cluster.Job{Tasks: now.Tasks}) != "" {
		return now, false
	}
	sets := map[spot][]int{}
	for i, s := range l.Places {
		at := spot{s.Node, s.Set}
		sets[at] = append(sets[at], now.Places[i].Set)
	}
	for _, a := range l.Allocs {
		at := spot{order[a.Node], int(a.Set)}
		if len(sets[at]) < int(a.Tasks) {
			return now, false
		}
		now.Allocs = append(now.Allocs, holds.Reset(a, sets[at][:a.Tasks], now.Tasks)...)
		sets[at] = sets[at][a.Tasks:]
	}
	return now, true
}

// Occupied takes the places out that no pod has, and lists them. The layout has no devices.
func (l Layout) Occupied() (left Layout, empty List) {
	for _, s := range l.Places {
		if s.Pod == "" {
			empty = append(empty, s)
		} else {
			left.Places = append(left.Places, s)
		}
	}
	left.Tasks = l.Tasks
	left, _ = left.As(func(_ *Place, r cluster.Request) cluster.Request { return r })
	return left, empty
}
