package found

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/admission"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/pending"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/plan"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/running"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
)

// room is nodes a and c with four T4s each and b with two P4s, and job 0, which runs on GPU 0 of the first.
type room struct {
	Books
	st    inventory.Store
	table shape.Table
	world sched.World
	jobs  []*job.State
}

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{}
	spec, names := &cluster.Spec{}, map[string]int32{}
	for i, n := range []cluster.Node{{Name: "a", Model: "T4-16GB", GPUs: 4}, {Name: "b", Model: "P4-8GB", GPUs: 2},
		{Name: "c", Model: "T4-16GB", GPUs: 4}} {
		names[n.Name] = int32(i)
		model, _ := spec.Model(n.Model)
		if _, err := r.st.Add(n, model, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.table = shape.NewTable(&r.st, names, false)
	r.table.Name(&cluster.NodeSet{Name: "only-c", Nodes: []string{"c"}})
	r.world = sched.World{Now: cluster.Time(time.Hour), Store: &r.st, Shapes: &r.table}
	limit, err := limits.New(&r.world, spec, lending.New(&r.st, &r.table), 24*time.Hour, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := limit.Init(nil, nil, 10_000); err != nil {
		t.Fatal(err)
	}
	admit := admission.New(&placement.Finder{World: &r.world}, spec, nil, &limit, &reserve.Book{World: &r.world}, names,
		false)
	all := func() []*job.State { return r.jobs }
	r.Books = Books{Spec: spec, World: &r.world, Jobs: all, Nodes: names, Admission: &admit, Running: &running.Jobs{},
		Leavers: &pending.Leavers{Store: &r.st, Jobs: all, Touch: func(*job.State) {}}, Plan: &plan.Book{}}
	j := &job.State{Spec: asks(1), Tenure: &job.Tenure{}, Weight: cluster.Whole, Facts: job.Facts{State: job.Running}}
	j.Shape = admit.ShapeOf(j.Spec)
	j.Base, j.Allocs = j.Shape, on(0, 0b0001)
	r.CountHeld(j)
	r.st.TakeAll(j.Allocs)
	r.st.Commit()
	r.jobs = []*job.State{j}
	return r
}

// asks is the spec of job 0 with so many tasks on one GPU each.
func asks(tasks int) *cluster.Job { return &cluster.Job{Tasks: oneGPU(tasks)} }

func oneGPU(tasks int) []cluster.TaskSet {
	return []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: 1}}}
}

func on(node int32, gpus uint64) []inventory.Alloc {
	a := inventory.Alloc{Node: node, GPUs: gpus}
	for m := gpus; m != 0; m &= m - 1 {
		a.Tasks++
	}
	return []inventory.Alloc{a}
}

// TestReshaped: a job can be made of other tasks where all that they hold is free, or its own.
func TestReshaped(t *testing.T) {
	for _, x := range []struct {
		name   string
		r      *Reshape
		change func(r *room)
		want   string
	}{
		{"nothing", nil, nil, "nothing is said of it"},
		{"grows", &Reshape{oneGPU(2), on(0, 0b0011)}, nil, ""},
		{"goes elsewhere", &Reshape{oneGPU(1), on(1, 0b01)}, nil, ""},
		{"no such device", &Reshape{oneGPU(1), on(1, 0b100)}, nil, "there is no such node or device"},
		{"holds less than it asks for", &Reshape{oneGPU(2), on(0, 0b0001)}, nil,
			"set 0 has 1 tasks on 1 GPUs, wants 2 to 2 tasks of 1"},
		{"is over", &Reshape{oneGPU(1), on(0, 1)}, func(r *room) { r.jobs[0].State = job.Done }, "it is done"},
		{"is resized", &Reshape{oneGPU(1), on(0, 1)}, func(r *room) { r.jobs[0].Resizing = true },
			"it is being resized, or beside another"},
		{"GPUs of another", &Reshape{oneGPU(2), on(0, 0b0011)}, func(r *room) { r.st.TakeAll(on(0, 0b0010)) },
			"not all of it is free"},
		{"not on its nodes", &Reshape{oneGPU(1), on(0, 1)}, func(r *room) { r.jobs[0].Spec.Nodes = "only-c" },
			"it is on a node that it may not be on"},
		{"on another's nodes for good", &Reshape{oneGPU(1), on(0, 1)}, func(r *room) {
			r.jobs[0].Spec.Nodes, r.jobs[0].Spec.NoRequeue = "only-c", true
		}, ""},
	} {
		r := newRoom(t)
		if x.change != nil {
			x.change(r)
		}
		mark := r.st.Mark()
		if _, text := r.Reshaped(r.jobs[0], x.r); text != x.want {
			t.Errorf("%s: %q, want %q", x.name, text, x.want)
		}
		if r.st.Mark() != mark {
			t.Errorf("%s: the inventory is another", x.name)
		}
	}
}

// TestAdopted: a job that is found running is taken over if it has a number of its own and what it has is free.
func TestAdopted(t *testing.T) {
	record := func(id cluster.JobID, gpus uint64) *job.Record {
		r := &job.Record{Spec: asks(1), Facts: job.Facts{State: job.Running}}
		r.Spec.ID, r.Allocs = id, on(0, gpus)
		return r
	}
	stops, late := record(1, 0b0010), record(1, 0b0010)
	stops.State, late.Started = job.Stopping, cluster.Time(2*time.Hour)
	for _, x := range []struct {
		name string
		r    *job.Record
		want string
	}{
		{"next number", record(1, 0b0010), ""},
		{"number left out", record(9, 0b0010), ""},
		{"known number", record(0, 0b0010), "it has no number of its own"},
		{"too large a number", record(mostSkipped+2, 0b0010), "it has no number of its own"},
		{"no record", nil, "it has no number of its own"},
		{"GPU of another", record(1, 0b0001), "not all of it is free"},
		{"stops", stops, "it does not run"},
		{"started in the future", late, "what it received is not possible"},
	} {
		if text := newRoom(t).Adopted(x.r); text != x.want {
			t.Errorf("%s: %q, want %q", x.name, text, x.want)
		}
	}
}

// TestAmended: a running job gets another name, but no spec with which it could not be where it is.
func TestAmended(t *testing.T) {
	r := newRoom(t)
	j := r.jobs[0]
	named := asks(3)
	named.Name = "x"
	spec, shape := r.Amended(j, named)
	if spec == nil || spec.Name != "x" || spec.Tasks[0].Count != 1 || shape != j.Shape {
		t.Errorf("%+v, shape %d", spec, shape)
	}
	named.Nodes = "only-c"
	if spec, _ = r.Amended(j, named); spec != nil {
		t.Error("it may be where its spec says that it may not")
	}
	named.ID = 4
	if spec, _ = r.Amended(j, named); spec != nil {
		t.Error("it gets the spec of another job")
	}
}

// TestChanged: a node can become another only where no job has one of its GPUs, if these are others.
func TestChanged(t *testing.T) {
	r := newRoom(t)
	for _, x := range []struct {
		name string
		n    cluster.Node
		want string
	}{
		{"another rack", cluster.Node{Name: "a", Model: "T4-16GB", GPUs: 4, CPU: 7}, ""},
		{"fewer GPUs", cluster.Node{Name: "a", Model: "T4-16GB", GPUs: 2}, "a job has a GPU of it"},
		{"other GPUs", cluster.Node{Name: "b", Model: "A100-40GB", GPUs: 8}, ""},
		{"unknown", cluster.Node{Name: "d"}, "there is no such node"},
		{"unknown model", cluster.Node{Name: "b", Model: "Z1", GPUs: 1}, `GPU model "Z1" is not known`},
		{"too many", cluster.Node{Name: "b", Model: "T4-16GB", GPUs: 65}, "65 GPUs; between 0 and 64 are supported"},
		{"negative", cluster.Node{Name: "b", CPU: -1}, "CPU or RAM is negative"},
	} {
		if text := r.Changed(&x.n); text != x.want {
			t.Errorf("%s: %q, want %q", x.name, text, x.want)
		}
	}
	r.st.Leaving(1, 0)
	if text := r.Changed(&cluster.Node{Name: "b", Model: "A100-40GB", GPUs: 8}); text != "a job has a GPU of it" {
		t.Errorf("a job leaves it: %q", text)
	}
}
