package perf

import (
	"testing"

	"github.com/muster-gpu/muster/cluster"
)

func TestRate(t *testing.T) {
	tab := &Table{
		Speed: map[string]map[string]int64{"r": {"T4": 500_000, "A100/3g": 800_000},
			"*": {"T4": 250_000, "A100/1g": 200_000}},
		Distance: map[string]map[cluster.Level]int64{"*": {cluster.LevelRack: 800_000, cluster.LevelFabric: 600_000},
			"r": {cluster.LevelFabric: 900_000}},
		Pairs: map[Pair]int64{{"r", "b"}: 700_000, {"r", "*"}: 900_000, {"*", "*"}: 850_000},
		Scale: map[string]map[int]int64{"r": {1: 300_000}},
	}
	for _, c := range []struct {
		name  string
		model string
		p     Placement
		want  int64
	}{
		{"as recorded", "r", Placement{GPU: "V100", Nodes: 1, Tasks: 4, Want: 4}, 1_000_000},
		{"slower GPU", "r", Placement{GPU: "T4", Nodes: 1}, 500_000},
		{"any model on it", "x", Placement{GPU: "T4", Nodes: 1}, 250_000},
		{"one node pays no distance", "x", Placement{Nodes: 1, Level: cluster.LevelFabric}, 1_000_000},
		{"a rack apart", "x", Placement{Nodes: 2, Level: cluster.LevelRack}, 800_000},
		{"beyond the fabric costs what the fabric does", "x", Placement{Nodes: 2, Level: cluster.LevelFabric + 1},
			600_000},
		{"own row: nearer levels are free", "r", Placement{Nodes: 2, Level: cluster.LevelRack}, 1_000_000},
		{"a named partner, and another", "r", Placement{Nodes: 1, Partners: []string{"b", "c"}}, 630_000},
		{"any pair", "x", Placement{Nodes: 1, Partners: []string{"y"}}, 850_000},
		{"an instance", "r", Placement{GPU: "A100", Profile: "3g", Share: 428}, 800_000},
		{"an instance of any model's", "r", Placement{GPU: "A100", Profile: "1g", Share: 142}, 200_000},
		{"an instance of unknown speed", "r", Placement{GPU: "A100", Profile: "4g", Share: 571}, 571_000},
		{"an instance of a slower GPU", "r", Placement{GPU: "T4", Profile: "4g", Share: 571}, 285_500},
		{"scaled by table", "r", Placement{Nodes: 1, Tasks: 1, Want: 4}, 300_000},
		{"scaled linearly", "r", Placement{Nodes: 1, Tasks: 2, Want: 4}, 500_000},
	} {
		if got := tab.Rate(&cluster.Job{Model: c.model}, c.p); got != c.want {
			t.Errorf("%s: %d ppm, want %d", c.name, got, c.want)
		}
	}
}

// The interference of jobs in shares depends on the pair alone.
func TestPair(t *testing.T) {
	b := Belief{&Table{Speed: map[string]map[string]int64{"*": {"T4": 250_000}},
		Pairs: map[Pair]int64{{"r", "b"}: 700_000, {"*", "x"}: 900_000}}}
	for pair, want := range map[Pair]int64{{"r", "b"}: 700_000, {"b", "r"}: 1_000_000, {"r", "x"}: 900_000} {
		if got := b.Pair(pair[0], pair[1]); got != want {
			t.Errorf("%v: %d ppm, want %d", pair, got, want)
		}
	}
}

func TestRateIsNeverZero(t *testing.T) {
	tab := &Table{Speed: map[string]map[string]int64{"*": {"T4": 1}}, Pairs: map[Pair]int64{{"*", "*"}: 1}}
	if got := tab.Rate(&cluster.Job{}, Placement{GPU: "T4", Partners: []string{"a"}}); got != 1 {
		t.Errorf("%d ppm, want 1", got)
	}
}

func TestCheck(t *testing.T) {
	for _, tab := range []Table{
		{Speed: map[string]map[string]int64{"a": {"T4": 0}}},
		{Distance: map[string]map[cluster.Level]int64{"a": {cluster.LevelRack: -1}}},
		{Pairs: map[Pair]int64{{"a", "b"}: 1 << 40}},
	} {
		if tab.Check() == nil {
			t.Errorf("%+v was accepted", tab)
		}
	}
}
