package areas

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gpus"
)

var (
	order   = []string{"n3", "n0", "n1", "n2"}
	domains = []gpus.Domain{{Label: "clique", Level: cluster.LevelNVLink}, {Label: "rack", Level: cluster.LevelRack}}
)

// hall is four nodes in two racks; three are in NVLink domains.
func hall() *fit.World {
	w := fit.NewWorld()
	for name, labels := range map[string]map[string]string{"n0": {"clique": "c0", "rack": "r0"},
		"n1": {"clique": "c0", "rack": "r0"}, "n2": {"clique": "c1", "rack": "r0"}, "n3": {"rack": "r1"}} {
		w.SetNode(name, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	return w
}

// outside lists the nodes that a search closes.
func outside(s *Search) []string {
	var closed []string
	for _, l := range s.Confine(fit.Limits{}, order, hall()).Nodes {
		closed = append(closed, l.Nodes...)
	}
	return closed
}

// A gang is looked for first in the closest domain that all of it is in, then in the next, then anywhere; one that has
// to be in a domain, nowhere else.
func TestShared(t *testing.T) {
	rack := cluster.Topology{Level: cluster.LevelRack, Required: true}
	for name, c := range map[string]struct {
		on     []string
		t      cluster.Topology
		want   [][]string // what is closed, area by area
		narrow bool       // in the first
	}{
		"one node":               {[]string{"n0"}, cluster.Topology{}, [][]string{{"n2", "n3"}, {"n3"}}, true},
		"two of a clique":        {[]string{"n1", "n0"}, cluster.Topology{}, [][]string{{"n2", "n3"}, {"n3"}}, true},
		"two of a rack":          {[]string{"n1", "n2"}, cluster.Topology{}, [][]string{{"n3"}}, true},
		"of two racks":           {[]string{"n1", "n3"}, cluster.Topology{}, nil, false},
		"in no clique":           {[]string{"n3"}, cluster.Topology{}, [][]string{{"n0", "n1", "n2"}}, true},
		"its rack is required":   {[]string{"n0"}, rack, [][]string{{"n3"}}, false},
		"nowhere":                {nil, cluster.Topology{}, nil, false},
		"on a node that is gone": {[]string{"n9"}, cluster.Topology{}, nil, false},
	} {
		s := In(Shared(c.on, domains, c.t, hall()))
		if len(s.areas) != len(c.want) || s.IsNarrow() != c.narrow {
			t.Errorf("%s: %d areas, narrow %v", name, len(s.areas), s.IsNarrow())
			continue
		}
		for _, want := range c.want {
			if got := outside(&s); !slices.Equal(got, want) {
				t.Errorf("%s: %v are closed, not %v", name, got, want)
			}
			s.Widen()
		}
		if got := outside(&s); got != nil || s.IsNarrow() {
			t.Errorf("%s: %v are closed at last", name, got)
		}
	}
}

// The nodes that are liked best come first, then these and the next; never all of them, and no more than a few sets.
func TestLiked(t *testing.T) {
	names := []string{"n0", "n1", "n2", "n3"}
	for name, c := range map[string]struct {
		likes map[string]int64
		want  [][]string
	}{
		"alike":     {map[string]int64{}, nil},
		"one least": {map[string]int64{"n3": -5}, [][]string{{"n3"}}},
		"one most":  {map[string]int64{"n1": 5}, [][]string{{"n0", "n2", "n3"}}},
		"each":      {map[string]int64{"n0": 4, "n1": 3, "n2": 2}, [][]string{{"n1", "n2", "n3"}, {"n2", "n3"}, {"n3"}}},
	} {
		s := In(Liked(names, c.likes))
		if len(s.areas) != len(c.want) {
			t.Errorf("%s: %d areas", name, len(s.areas))
			continue
		}
		for _, want := range c.want {
			if got := outside(&s); !slices.Equal(got, want) || !s.IsNarrow() {
				t.Errorf("%s: %v are closed, not %v", name, got, want)
			}
			s.Widen()
		}
	}
	many := map[string]int64{}
	for i, name := range append(names, "n4", "n5", "n6") {
		many[name] = int64(i)
	}
	if n := len(Liked(append(names, "n4", "n5", "n6"), many)); n != mostLiked {
		t.Errorf("%d sets", n)
	}
}

// What was tried in vain for some pods is not tried again for the same, and is for others; a search goes on only once
// the engine has had its batch.
func TestSearch(t *testing.T) {
	asked := 0
	liked := func() []Area {
		asked++
		return Liked([]string{"n0", "n1"}, map[string]int64{"n1": 1})
	}
	var s Search
	if s.IsNarrow() || outside(&s) != nil {
		t.Error("the zero search is not anywhere")
	}
	s.Prefer([]types.UID{"a"}, liked)
	s.Asked = 7
	if s.WidenAfter(6) || !s.IsNarrow() {
		t.Error("it goes on before the engine has heard of it")
	}
	if !s.WidenAfter(7) || s.IsNarrow() || s.WidenAfter(8) {
		t.Error("it does not go on, or beyond anywhere")
	}
	s.Prefer([]types.UID{"a"}, liked)
	if asked != 1 || s.IsNarrow() {
		t.Error("what was tried in vain is tried again")
	}
	s.Prefer([]types.UID{"b"}, liked)
	if asked != 2 || !s.IsNarrow() {
		t.Error("other pods are not tried where they would like to be")
	}
	if s.Anywhere(); s.IsNarrow() {
		t.Error("it is not anywhere")
	}
}

// What is closed by an area comes before what nodes take otherwise, and a gang that no node takes is told only that.
func TestConfine(t *testing.T) {
	s := In(Shared([]string{"n3"}, domains, cluster.Topology{}, hall()))
	l := fit.Limits{Nodes: []cluster.NodeLimit{{Nodes: []string{"n3"}, Tasks: 1}}, Text: "1: full"}
	got := s.Confine(l, order, hall())
	if len(got.Nodes) != 2 || len(got.Nodes[0].Nodes) != 3 || got.Nodes[0].Tasks != 0 ||
		got.Text != "1: full; 3: outside the rack domain of its gang" {
		t.Errorf("%+v", got)
	}
	if got := s.Confine(fit.Limits{Why: "never"}, order, hall()); got.Why != "never" || got.Nodes != nil {
		t.Errorf("%+v", got)
	}
}
