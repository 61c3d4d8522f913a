package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/lending"
	"github.com/muster-gpu/muster/engine/limits"
	"github.com/muster-gpu/muster/engine/placement"
	"github.com/muster-gpu/muster/engine/reserve"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/engine/shape"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/place"
)

// checker checks jobs for nodes a and b of four T4s each, and c of eight V100s, with a partition for trials of up to
// an hour.
func checker(t *testing.T) (*Checker, *inventory.Store) {
	t.Helper()
	st, names := &inventory.Store{}, map[string]int32{}
	spec := &cluster.Spec{Partitions: []cluster.Partition{{Name: "all", Nodes: []string{"a", "b", "c"}, Default: true},
		{Name: "trials", Nodes: []string{"a"}, MaxTime: time.Hour, MaxGPUs: 2,
			Tiers: []cluster.Tier{cluster.BestEffort}}}}
	table := shape.NewTable(st, names, false)
	if err := table.SetPartitions(spec.Partitions); err != nil {
		t.Fatal(err)
	}
	for i, n := range []cluster.Node{{Name: "a", Model: "T4-16GB", GPUs: 4}, {Name: "b", Model: "T4-16GB", GPUs: 4},
		{Name: "c", Model: "V100-16GB", GPUs: 8}} {
		names[n.Name] = int32(i)
		model, _ := spec.Model(n.Model)
		if _, err := st.Add(n, model, table.PartitionsOf(n.Name), 0); err != nil {
			t.Fatal(err)
		}
	}
	w := &sched.World{Store: st, Shapes: &table}
	lent := lending.New(st, &table)
	limit, err := limits.New(w, spec, lent, 24*time.Hour, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	queues := []cluster.Queue{{Name: "q", Limit: cluster.Unlimited, Lend: cluster.Unlimited}}
	spec.Queues = queues
	if _, err := limit.Init(queues, nil, 16_000); err != nil {
		t.Fatal(err)
	}
	find := &placement.Finder{World: w, Lending: lent}
	ch := New(find, spec, shared.Must(place.New("first-fit")), &limit, &reserve.Book{World: w}, names, false)
	return &ch, st
}

func asks(tasks, gpus int, change ...func(*cluster.Job)) *cluster.Job {
	s := &cluster.Job{ID: 9, Queue: "q", Tier: cluster.Standard,
		Tasks: []cluster.TaskSet{{Count: tasks, Request: cluster.Request{GPUs: gpus}}}}
	for _, f := range change {
		f(s)
	}
	return s
}

// TestCheck: a job is refused for what its spec says, or because the empty cluster could not hold it, but not because
// the cluster is full.
func TestCheck(t *testing.T) {
	ch, st := checker(t)
	for i, mask := range []uint64{0b1111, 0b1111, 0b11111111} {
		st.Take(&inventory.Alloc{Node: int32(i), GPUs: mask})
	}
	st.Commit()
	within := func(s *cluster.Job) { s.Partitions = []string{"trials"} }
	limited := func(s *cluster.Job) { s.NodeLimits = []cluster.NodeLimit{{Nodes: []string{"z"}}} }
	trial := func(s *cluster.Job) { s.Tier = cluster.BestEffort }
	for _, x := range []struct {
		spec *cluster.Job
		want string // part of the text; "": accepted
	}{
		{asks(1, 8), ""}, {asks(2, 4), ""},
		{asks(2, 8), "even the empty cluster cannot hold that"},
		{asks(3, 4), "even the empty cluster cannot hold that"}, // a gang is on GPUs of one model
		{asks(1, 9), "needs 9 GPUs on one node; V100-16GB nodes have 8"},
		{asks(0, 1), "count 0"},
		{asks(1, 1, func(s *cluster.Job) { s.Limit = -1 }), "limit and estimate"},
		{asks(1, 1, func(s *cluster.Job) { s.Queue = "none" }), "queue"},
		{asks(1, 1, func(s *cluster.Job) { s.Nodes = "none" }), `node set "none": no set has that name`},
		{asks(1, 1, func(s *cluster.Job) { s.After = []cluster.Dependency{{Job: 9}} }), "submitted before it"},
		{asks(1, 1, limited), "node limits"},
		{asks(1, 1, func(s *cluster.Job) { s.Partitions = []string{"x"} }), "partition"},
		{asks(1, 1, within), "does not take standard jobs"},
		{asks(1, 1, within, trial), ""},
		{asks(1, 3, within, trial), "allows 2 in one job"},
		{asks(1, 1, within, trial, func(s *cluster.Job) { s.Limit = 2 * time.Hour }), "is beyond partition trials's"},
	} {
		text := ch.Check(x.spec)
		if (text == "") != (x.want == "") || !strings.Contains(text, x.want) {
			t.Errorf("%+v: %q, want %q", x.spec.Tasks, text, x.want)
		}
	}
	if st.Nodes()[2].FreeGPUs() != 0 || st.Tentative() {
		t.Error("the cluster is another than before")
	}
}

// TestNarrowed: a target narrows what a job asks for, unless it could never run so.
func TestNarrowed(t *testing.T) {
	ch, _ := checker(t)
	spec := asks(1, 8)
	base := ch.ShapeOf(spec)
	if got := ch.Narrowed(spec, &job.Target{}, base); got != base {
		t.Errorf("a target that says nothing makes it shape %d of %d", got, base)
	}
	on := ch.Narrowed(spec, &job.Target{GPU: "V100-16GB"}, base)
	if on < 0 || on == base || ch.Narrowed(spec, &job.Target{GPU: "V100-16GB"}, base) != on {
		t.Errorf("on V100s it is shape %d", on)
	}
	if got := ch.Narrowed(spec, &job.Target{GPU: "T4-16GB"}, base); got != -1 {
		t.Errorf("8 GPUs of a node of T4s are shape %d", got)
	}
	two := ch.Narrowed(asks(3, 1), &job.Target{Tasks: 2, Least: 2}, ch.ShapeOf(asks(3, 1)))
	if s := ch.world.Shapes.Get(two); s.Min != 2 || s.Max != 2 {
		t.Errorf("at two tasks it has %d to %d", s.Min, s.Max)
	}
}

// TestNodesChanged: what could never run is judged again where nodes are others.
func TestNodesChanged(t *testing.T) {
	ch, st := checker(t)
	big := asks(1, 1, func(s *cluster.Job) { s.Tasks[0].Request.CPU = 8000 })
	st.SetSize(0, 4000, 0)
	st.SetSize(1, 4000, 0)
	st.SetSize(2, 4000, 0)
	ch.world.Shapes.Recompute()
	ch.NodesChanged()
	if ch.Check(big) == "" {
		t.Fatal("a task of 8 CPUs is accepted where nodes have 4")
	}
	st.SetSize(2, 16_000, 0)
	ch.world.Shapes.Recompute()
	ch.world.Shapes.Judge()
	ch.NodesChanged()
	if text := ch.Check(big); text != "" {
		t.Errorf("a node has 16 CPUs now: %q", text)
	}
}
