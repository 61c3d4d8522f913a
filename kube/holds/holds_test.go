package holds

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// An allocation of several tasks loses some of them, whole ones.
func TestFewer(t *testing.T) {
	for _, c := range []struct {
		tasks, less int
		gpus, want  uint64
	}{{2, 1, 0b1111, 0b0011}, {3, 2, 0b1011, 0b0001}, {4, 1, 0, 0}, {2, 1, 0b110110, 0b000110}} {
		a := engine.Alloc{Tasks: int32(c.tasks), GPUs: c.gpus, CPU: cluster.Milli(500 * c.tasks),
			RAM: cluster.MiB(10 * c.tasks)}
		want := engine.Alloc{Tasks: int32(c.tasks - c.less), GPUs: c.want, CPU: cluster.Milli(500 * (c.tasks - c.less)),
			RAM: cluster.MiB(10 * (c.tasks - c.less))}
		if got := Fewer(a, c.less); got != want {
			t.Errorf("%+v without %d tasks is %+v, not %+v", a, c.less, got, want)
		}
	}
}

// A task is cut out of an allocation with its devices; tasks of one allocation that ask for different amounts become
// two.
func TestCutAndReset(t *testing.T) {
	order := []string{"n0", "n1"}
	list := []engine.Alloc{{Node: 0, Tasks: 1, GPUs: 1}, {Node: 1, Tasks: 2, GPUs: 0b1111, CPU: 2000, RAM: 20}}
	one, ok := Cut(&list, order, "n1", 0)
	if !ok || one.Tasks != 1 || one.GPUs != 0b1100 || one.CPU != 1000 || list[1].GPUs != 0b11 || list[1].Tasks != 1 {
		t.Errorf("%v: %+v of %+v", ok, one, list)
	}
	if _, ok := Cut(&list, order, "n1", 1); ok {
		t.Error("a task of another set is cut out")
	}
	sets := []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 2, CPU: 1000}},
		{Count: 1, Request: cluster.Request{GPUs: 2, CPU: 3000}}}
	got := Reset(engine.Alloc{Node: 1, Tasks: 2, GPUs: 0b1111, CPU: 2000}, []int{0, 1}, sets)
	want := []engine.Alloc{{Node: 1, Tasks: 1, GPUs: 0b11, CPU: 1000},
		{Node: 1, Set: 1, Tasks: 1, GPUs: 0b1100, CPU: 3000}}
	if !slices.EqualFunc(got, want, func(a, b engine.Alloc) bool { return a == b }) {
		t.Errorf("%+v", got)
	}
}

// A share goes to a GPU that is shared already and has as much left, else to one that is free.
func TestTake(t *testing.T) {
	u := InUse{Devices: 0b1}
	for i, c := range []struct {
		share int32
		want  uint64
	}{{500, 0b10}, {400, 0b10}, {200, 0b100}, {0, 0b1000}, {100, 0b10}} {
		if dev, ok := u.Take(c.share); !ok || dev != c.want {
			t.Errorf("%d: %b, not %b", i, dev, c.want)
		}
	}
	u.Devices = ^uint64(0)
	if _, ok := u.Take(0); ok {
		t.Error("there is one more than there are")
	}
}

// Tasks are counted by the names of the nodes that they are on, in any order and several times on one.
func TestTasksOn(t *testing.T) {
	allocs := []engine.Alloc{{Node: 1, Tasks: 2}, {Node: 0, Tasks: 1}, {Node: 1, Tasks: 3}}
	if got := fmt.Sprint(TasksOn(allocs, []string{"a", "b"})); got != "map[a:1 b:5]" {
		t.Error(got)
	}
}
