package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

const gig = 1e9

// twoLeaves is two leaf switches of four nodes each, joined by two spines.
func twoLeaves() *cluster.Spec {
	s := &cluster.Spec{}
	c := Clos{NodesPerLeaf: 4, Cards: 1, Spines: 2, CardRate: 8 * gig, SpineRate: 8 * gig}
	for i := range 8 {
		name := fmt.Sprintf("n%d", i+1)
		s.Nodes = append(s.Nodes, cluster.Node{Name: name})
		c.Nodes = append(c.Nodes, name)
	}
	s.Network = &cluster.Network{Links: c.Links()}
	return s
}

func fabricOf(s *cluster.Spec) *Fabric { return New(s.Nodes, s.Network) }

// bytesBy is what of a job's traffic passes each link, by name.
func bytesBy(f *Fabric, d Demand, t cluster.Treatment) map[string]int64 {
	m := map[string]int64{}
	for _, b := range d.On(&t) {
		m[f.Name(b.Link)] = b.Bytes
	}
	return m
}

// The bytes on links of collectives are those of their formulas (NCCL's documentation, Thakur et al. 2005).
func TestBytes(t *testing.T) {
	f := fabricOf(twoLeaves())
	ranks := func(per int, nodes ...int32) (held []Held) {
		for _, n := range nodes {
			held = append(held, Held{n, per})
		}
		return held
	}
	for _, c := range []struct {
		name    string
		pattern cluster.Pattern
		held    []Held
		want    map[string]int64 // of 1 GB
	}{
		{"ring of 8, 2 nodes", cluster.Ring, ranks(4, 0, 1),
			map[string]int64{"n1>leaf0": 1.75e9, "leaf0>n1": 1.75e9, "n2>leaf0": 1.75e9, "leaf0>n2": 1.75e9}},
		{"hierarchical", cluster.Hierarchical, ranks(4, 0, 1),
			map[string]int64{"n1>leaf0": 1e9, "leaf0>n1": 1e9, "n2>leaf0": 1e9, "leaf0>n2": 1e9}},
		{"all to all over the leaves", cluster.AllToAll, ranks(4, 0, 4),
			map[string]int64{"n1>leaf0": 2e9, "leaf0>n1": 2e9, "n5>leaf1": 2e9, "leaf1>n5": 2e9, "leaf0>spine0": 2e9,
				"spine0>leaf1": 2e9, "leaf1>spine0": 2e9, "spine0>leaf0": 2e9}},
		{"parameter server", cluster.ParameterServer, ranks(2, 0, 1, 2),
			map[string]int64{"n1>leaf0": 4e9, "leaf0>n1": 4e9, "n2>leaf0": 2e9, "leaf0>n2": 2e9, "n3>leaf0": 2e9,
				"leaf0>n3": 2e9}},
		{"pipeline", cluster.Pipeline, ranks(1, 2, 0, 1),
			map[string]int64{"n1>leaf0": 1e9, "leaf0>n1": 1e9, "n2>leaf0": 2e9, "leaf0>n2": 2e9, "n3>leaf0": 1e9,
				"leaf0>n3": 1e9}},
		{"tree", cluster.Tree, ranks(1, 0, 1, 2),
			map[string]int64{"n1>leaf0": 2e9, "leaf0>n1": 2e9, "n2>leaf0": 1e9, "leaf0>n2": 1e9, "n3>leaf0": 1e9,
				"leaf0>n3": 1e9}},
		{"one node", cluster.Ring, ranks(8, 0), map[string]int64{}},
	} {
		d := f.Demand(1, cluster.Traffic{Pattern: c.pattern, Bytes: 1e9}, c.held)
		// all parts by the first spine
		got := bytesBy(f, d, cluster.Treatment{Path: make([]uint8, d.Choices())})
		for _, name := range sortedNames(c.want, got) {
			if got[name] != c.want[name] {
				t.Errorf("%s: %s carries %d, want %d", c.name, name, got[name], c.want[name])
			}
		}
	}
}

func sortedNames(maps ...map[string]int64) (names []string) {
	for _, m := range maps {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A ring of nodes in any order crosses each uplink once, and what goes up comes down, under any treatment.
func TestRingOrder(t *testing.T) {
	f := fabricOf(twoLeaves())
	d := f.Demand(7, cluster.Traffic{Pattern: cluster.Ring, Bytes: 1e9}, []Held{{5, 1}, {0, 1}, {6, 1}, {2, 1}})
	for _, tr := range []cluster.Treatment{{}, {Spread: 4}, {Path: []uint8{1, 0}}} {
		up, down := int64(0), int64(0)
		for name, n := range bytesBy(f, d, tr) {
			switch {
			case len(name) > 11 && name[:4] == "leaf":
				up += n
			case name[:5] == "spine":
				down += n
			}
		}
		if up != 2*1.5e9 || down != up {
			t.Errorf("%+v: %d bytes go up to the spines and %d come down, want 3e9", tr, up, down)
		}
	}
	if d.Choices() != 2 {
		t.Errorf("%d choices, want 2", d.Choices())
	}
}

// Where jobs are real, switches choose: a part counts on all of its paths evenly, whatever is wanted.
func TestRealPaths(t *testing.T) {
	s := twoLeaves()
	s.Network.Real = true
	d := fabricOf(s).Demand(7, cluster.Traffic{Pattern: cluster.Ring, Bytes: 1e9}, []Held{{0, 1}, {5, 1}})
	for _, tr := range []cluster.Treatment{{}, {Spread: 4}, {Path: []uint8{1, 1}}} {
		spines := map[string]int64{}
		for name, n := range bytesBy(fabricOf(s), d, tr) {
			if strings.HasPrefix(name, "leaf0>spine") {
				spines[name] = n
			}
		}
		if len(spines) != 2 || spines["leaf0>spine0"] != 5e8 || spines["leaf0>spine1"] != 5e8 {
			t.Errorf("%+v: %v, want half on each of two spines", tr, spines)
		}
	}
}

// Nodes of one NVLink domain exchange nothing over the network, nor does a node that has no links.
func TestNoLinks(t *testing.T) {
	s := twoLeaves()
	s.Nodes[0].NVLink, s.Nodes[5].NVLink = "rack", "rack"
	s.Nodes = append(s.Nodes, cluster.Node{Name: "alone"})
	f := fabricOf(s)
	ring := cluster.Traffic{Pattern: cluster.Ring, Bytes: 1e9}
	for _, held := range [][]Held{{{0, 4}, {5, 4}}, {{1, 1}, {8, 1}}, {{1, 1}, {99, 1}}} {
		if d := f.Demand(1, ring, held); len(d.Parts) != 0 {
			t.Errorf("%v: %d parts", held, len(d.Parts))
		}
	}
}

// Rails: card i of each node is on leaf i of its group, and a part goes from rail to the same rail.
func TestRails(t *testing.T) {
	s := &cluster.Spec{}
	c := Clos{NodesPerLeaf: 2, Cards: 2, Rails: true, Planes: true, Spines: 1, CardRate: 8 * gig, SpineRate: 8 * gig}
	for i := range 4 {
		s.Nodes = append(s.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1)})
		c.Nodes = append(c.Nodes, s.Nodes[i].Name)
	}
	s.Network = &cluster.Network{Links: c.Links()}
	f := fabricOf(s)
	d := f.Demand(1, cluster.Traffic{Pattern: cluster.Hierarchical, Bytes: 1e9}, []Held{{0, 8}, {1, 8}, {2, 8}})
	got := bytesBy(f, d, cluster.Treatment{})
	const part = 666666667
	for _, name := range []string{"n1>leaf0-0", "n1>leaf0-1", "leaf0-1>spine0-1", "spine0-0>leaf1-0"} {
		if n := got[name]; n < part-2 || n > part+2 {
			t.Errorf("%s carries %d, want %d", name, n, part)
		}
	}
	if len(got) != 2*2*3+2*4 {
		t.Errorf("%d links: %v", len(got), sortedNames(got))
	}
}

// Three layers: pods of leaves, spines of a pod, cores. All paths of least hops are known, up to the bound.
func TestThreeLayers(t *testing.T) {
	s := &cluster.Spec{}
	c := Clos{NodesPerLeaf: 1, Cards: 1, Spines: 3, LeavesPerPod: 2, Cores: 4, CardRate: gig, SpineRate: gig,
		CoreRate: gig}
	for i := range 4 {
		s.Nodes = append(s.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1)})
		c.Nodes = append(c.Nodes, s.Nodes[i].Name)
	}
	s.Network = &cluster.Network{Links: c.Links()}
	f := fabricOf(s)
	paths := func(a, b int32) int { return len(f.Paths(f.leaf(a), f.leaf(b))) }
	got := [3]int{paths(0, 0), paths(0, 1), paths(0, 2)}
	if got != [3]int{1, 3, 3 * 4 * 3} {
		t.Errorf("%v paths on one leaf, in one pod, between pods; want 1, 3, 36", got)
	}
}

// Of more paths than are known, as many are known that differ, and that are spread over all switches between.
func TestManyPaths(t *testing.T) {
	s := &cluster.Spec{}
	c := Clos{NodesPerLeaf: 1, Cards: 1, Spines: 8, LeavesPerPod: 1, Cores: 6, CardRate: gig, SpineRate: gig,
		CoreRate: gig}
	for i := range 2 {
		s.Nodes = append(s.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i+1)})
		c.Nodes = append(c.Nodes, s.Nodes[i].Name)
	}
	s.Network = &cluster.Network{Links: c.Links()}
	f := fabricOf(s)
	passed, differ := map[string]int{}, map[string]bool{}
	for _, p := range f.Paths(f.leaf(0), f.leaf(1)) {
		differ[fmt.Sprint(p)] = true
		for _, l := range p[:len(p)-1] {
			_, to := f.direction(l)
			passed[f.names[to]]++
		}
	}
	if len(differ) != MostPaths || len(passed) != 8+6+8 {
		t.Errorf("%d paths over %d switches, want %d over 22", len(differ), len(passed), MostPaths)
	}
	for name, n := range passed {
		if even := MostPaths / map[byte]int{'s': 8, 'c': 6}[name[0]]; 3*n < 2*even || 2*n > 3*even {
			t.Errorf("%d paths pass %s: %v", n, name, passed)
		}
	}
}

// A tree by racks and fabrics: nodes of a rack meet at its switch, those of a fabric one level up, others at the core.
func TestTree(t *testing.T) {
	nodes := []cluster.Node{{Name: "a", Rack: "r1", Fabric: "f1"}, {Name: "b", Rack: "r1", Fabric: "f1"},
		{Name: "c", Rack: "r2", Fabric: "f1"}, {Name: "d", Rack: "r3", Fabric: "f2"}, {Name: "e"}}
	f := New(nodes, &cluster.Network{Rates: []int64{8e9, 16e9, 32e9}})
	ring := cluster.Traffic{Pattern: cluster.Ring, Bytes: 1e9}
	for _, c := range []struct {
		with  int32
		links int
	}{{1, 4}, {2, 8}, {3, 12}, {4, 0}} {
		d := f.Demand(1, ring, []Held{{0, 1}, {c.with, 1}})
		if on := d.On(&cluster.Treatment{}); len(on) != c.links {
			t.Errorf("a and %s use %d directed links, want %d", nodes[c.with].Name, len(on), c.links)
		}
	}
	if f.Links() != 2*(4+3+2) {
		t.Errorf("%d directed links", f.Links())
	}
	// two cores: with a fourth rate they are joined by links of their own, without one all fabrics meet at one
	for i, cores := range [][]string{{"c1"}, {"c1"}, {"c1"}, {"c1"}, {"c2"}} {
		nodes[i].Cores = cores
	}
	nodes[4].Rack, nodes[4].Fabric = "r4", "f3"
	for _, c := range []struct {
		rates []int64
		with  int32
		links int
		last  string
	}{{[]int64{8e9, 16e9, 32e9}, 3, 12, "fabric f1>core"}, {[]int64{8e9, 16e9, 32e9}, 4, 12, "fabric f1>core"},
		{[]int64{8e9, 16e9, 32e9, 64e9}, 3, 12, "fabric f1>core c1"},
		{[]int64{8e9, 16e9, 32e9, 64e9}, 4, 16, "core c1>core"}} {
		f := New(nodes, &cluster.Network{Rates: c.rates})
		on := f.Demand(1, ring, []Held{{0, 1}, {c.with, 1}})
		var names []string
		for _, b := range on.On(&cluster.Treatment{}) {
			names = append(names, f.Name(b.Link))
		}
		if len(names) != c.links || !slices.Contains(names, c.last) {
			t.Errorf("%d rates: a and %s use %v; want %d links, one of them %s", len(c.rates), nodes[c.with].Name,
				names, c.links, c.last)
		}
	}
	nodes[4].Rack, nodes[4].Fabric = "", ""
	f = New(nodes, &cluster.Network{Rates: []int64{8e9}}) // racks that nothing joins
	if d := f.Demand(1, ring, []Held{{0, 1}, {2, 1}}); len(d.Parts) != 0 {
		t.Error("there is a way between racks")
	}
}

func TestTakes(t *testing.T) {
	if d := Takes(1e12, 1e9); d != 1000*time.Second {
		t.Error(d)
	}
	if d := Takes(10, 3); d != 3333333334 {
		t.Error(d)
	}
	if n := Moved(3, 3333333334); n != 10 {
		t.Error(n)
	}
	if d := Takes(1, 0); d < cluster.MaxDuration {
		t.Error(d)
	}
}

// Of hosts with a rank each, the one that sends most sends what the pattern has it send.
func TestSends(t *testing.T) {
	for pattern, want := range map[cluster.Pattern]int64{cluster.NoTraffic: 0, cluster.Ring: 1500, cluster.Tree: 2000,
		cluster.Hierarchical: 1500, cluster.AllToAll: 750, cluster.Pipeline: 2000, cluster.ParameterServer: 3000} {
		if got := Sends(cluster.Traffic{Pattern: pattern, Bytes: 1000}, 4); got != want {
			t.Errorf("%v: %d bytes, want %d", pattern, got, want)
		}
	}
}
