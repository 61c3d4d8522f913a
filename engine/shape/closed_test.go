package shape

import (
	"slices"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
)

// cluster3 is nodes a and b with T4s and c with a P4, and the shapes of jobs on one GPU.
func cluster3(t *testing.T) (*inventory.Store, *Table) {
	st, names := &inventory.Store{}, map[string]int32{}
	table := NewTable(st, names, false)
	parts := []cluster.Partition{{Name: "x", Nodes: []string{"a", "c"}}, {Name: "y", Nodes: []string{"a"}}}
	if err := table.SetPartitions(parts); err != nil {
		t.Fatal(err)
	}
	for i, model := range []string{"T4", "T4", "P4"} {
		name := string(rune('a' + i))
		names[name] = int32(i)
		n := cluster.Node{Name: name, Model: model, GPUs: 4}
		if _, err := st.Add(n, cluster.GPUModel{Name: model}, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	return st, &table
}

func (t *Table) shapeFor(nodes string, types ...string) *Shape {
	id, _ := t.Of(&cluster.Job{Nodes: nodes, GPUTypes: types,
		Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}})
	return t.At(id)
}

// TestClosed: behind a blocked job all nodes of its classes are closed; behind one that names a set of nodes only
// those of the set.
func TestClosed(t *testing.T) {
	st, table := cluster3(t)
	table.NameAll([]cluster.NodeSet{{Name: "first", Nodes: []string{"a"}}, {Name: "both", Nodes: []string{"b", "a"}}})
	any1, t4, p4 := table.shapeFor(""), table.shapeFor("", "T4"), table.shapeFor("", "P4")
	first, both := table.shapeFor("first"), table.shapeFor("both")
	shuts := func(c *Closed) (list []bool) {
		for _, s := range []*Shape{any1, t4, p4, first, both} {
			list = append(list, c.Shuts(st, s))
		}
		return list
	}
	for _, x := range []struct {
		name    string
		blocked []*Shape
		all     bool
		want    []bool // any model, T4, P4, first, both
	}{
		{"none", nil, false, []bool{false, false, false, false, false}},
		{"T4", []*Shape{t4}, false, []bool{false, true, false, true, true}},
		{"T4, then P4", []*Shape{t4, p4}, true, []bool{true, true, true, true, true}},
		{"any model", []*Shape{any1}, true, []bool{true, true, true, true, true}},
		{"the first node", []*Shape{first}, false, []bool{false, false, false, true, false}},
		{"both nodes", []*Shape{both}, false, []bool{false, false, false, true, true}},
	} {
		var c Closed
		all := false
		for _, s := range x.blocked {
			all = c.Close(st, s)
		}
		if got := shuts(&c); all != x.all || !slices.Equal(got, x.want) {
			t.Errorf("%s: all %v, shut %v; want %v, %v", x.name, all, got, x.all, x.want)
		}
		if c.Clear(); slices.Contains(shuts(&c), true) {
			t.Errorf("%s: something is shut when all is open again", x.name)
		}
	}
}

// TestSetsNamed: the sets that jobs name are described once, in the order of the jobs.
func TestSetsNamed(t *testing.T) {
	_, table := cluster3(t)
	table.NameAll([]cluster.NodeSet{{Name: "p", Nodes: []string{"c", "gone", "a"}}, {Name: "q", Nodes: []string{"b"}}})
	got := table.SetsNamed([]string{"q", "", "p", "q", "unknown"})
	if len(got) != 2 || got[0].Name != "q" || got[1].Name != "p" || !slices.Equal(got[1].Nodes, []string{"a", "c"}) {
		t.Errorf("%+v", got)
	}
}

// TestPartitions: the mask of a node has a bit for each partition that lists it.
func TestPartitions(t *testing.T) {
	_, table := cluster3(t)
	for name, want := range map[string]uint64{"a": 3, "b": 0, "c": 1} {
		if got := table.PartitionsOf(name); got != want {
			t.Errorf("node %s is in %b, not %b", name, got, want)
		}
	}
	if err := table.CheckPartitions(); err != nil {
		t.Error(err)
	}
	none := NewTable(&inventory.Store{}, nil, false)
	if none.HasPartitions() || none.PartitionsOf("a") != 1 {
		t.Error("without partitions a node is not in the first")
	}
	for name, parts := range map[string][]cluster.Partition{"twice": {{Name: "x"}, {Name: "x"}}, "no name": {{}},
		"too many": make([]cluster.Partition, 64)} {
		if none.SetPartitions(parts) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	missing := NewTable(&inventory.Store{}, map[string]int32{}, false)
	if err := missing.SetPartitions([]cluster.Partition{{Name: "x", Nodes: []string{"a"}}}); err != nil {
		t.Fatal(err)
	}
	if missing.CheckPartitions() == nil {
		t.Error("a partition may list a node that is not there")
	}
}
