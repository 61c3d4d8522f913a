package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/shared"
)

// The order of a round: Gavel, OSDI'20, vector 4, and H2 of Gavel's simulator. With shares of 0.8
// and 0.2, after four rounds and one both have what they should, and the deficit decides; after one
// more of the first the second comes first.
func TestGavelTurns(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b gavelPair
		want int
	}{
		{"vector 4, even: owed", gavelPair{x: 800_000, had: 4}, gavelPair{x: 200_000, had: 1, deficit: 1}, 1},
		{"vector 4, even: the larger share", gavelPair{x: 800_000, had: 4}, gavelPair{x: 200_000, had: 1}, -1},
		{"vector 4, a round later", gavelPair{x: 800_000, had: 5}, gavelPair{x: 200_000, had: 1}, 1},
		{"H2, after a reset", gavelPair{x: 750_000, had: 180}, gavelPair{x: 250_000, had: 180}, -1},
		{"H2, a round later: tie, then the larger share", gavelPair{x: 750_000, had: 540},
			gavelPair{x: 250_000, had: 180}, -1},
		{"H2, two rounds later", gavelPair{x: 750_000, had: 900}, gavelPair{x: 250_000, had: 180}, 1},
		{"nothing is due", gavelPair{had: 1}, gavelPair{x: 1, had: 1 << 62}, 1},
		{"large numbers", gavelPair{x: 1_000_000, had: 1 << 62}, gavelPair{x: 999_999, had: 1 << 62}, -1},
	} {
		if got := c.a.before(c.b); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if got := c.b.before(c.a); got != -c.want {
			t.Errorf("%s, the other way round: %d, want %d", c.name, got, -c.want)
		}
	}
}

// The models are taken fastest first, whichever GPU the speeds are relative to: two jobs are four
// times as fast on B as on A, one is three times slower there.
func TestGavelOrder(t *testing.T) {
	for _, c := range []struct {
		name, knobs string
		speeds      [][]int64
		want        string
	}{
		{"A is the reference", "", [][]int64{{1_000_000, 4_000_000}, {1_000_000, 4_000_000}, {3_000_000, 1_000_000}},
			"B A"},
		{"B is", "", [][]int64{{250_000, 1_000_000}, {250_000, 1_000_000}, {3_000_000, 1_000_000}}, "B A"},
		{"asked for", ":order=A/B", [][]int64{{250_000, 1_000_000}}, "A B"},
		{"asked for in part", ":order=A", [][]int64{{250_000, 1_000_000}}, "A B"},
		{"a model that is not there", ":order=C", [][]int64{{250_000, 1_000_000}}, "B A"},
	} {
		pol := shared.Must(New("gavel" + c.knobs))
		p := &gavelPlan{gavelPolicy: pol.(*gavelPolicy), kinds: []sched.Kind{{GPU: "A"}, {GPU: "B"}}}
		for _, s := range c.speeds {
			p.jobs = append(p.jobs, gavelJob{speed: s})
		}
		var got []string
		for _, k := range p.kindOrder(0) {
			got = append(got, p.kinds[k].GPU)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

func TestGavelBadKnobs(t *testing.T) {
	for knobs, want := range map[string]string{
		"order=A//B":    `order="A//B"`,
		"order=A/B/A":   `"A" is no GPU model, or there twice`,
		"solve=always":  "changes",
		"entities=user": "only with hierarchical",
		"objective=hierarchical,entities=project":            "unknown entities",
		"objective=hierarchical,inside=lifo":                 "unknown inside",
		"objective=hierarchical,inside=a:first":              "is not QUEUE:fifo",
		"objective=hierarchical,inside=a:fifo,entities=user": "unknown inside",
		"inside=a:fifo":                      "only with hierarchical",
		"weigh=user":                         "unknown weigh",
		"weigh=queue,objective=hierarchical": "only with las and waterfill",
	} {
		if _, err := New("gavel:" + knobs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %s", knobs, err, want)
		}
	}
}

// Settings that name what a cluster does not have are errors that list what it has.
func TestFits(t *testing.T) {
	spec := &cluster.Spec{Nodes: []cluster.Node{{Name: "a", Model: "Own-7GB"}},
		Partitions: []cluster.Partition{{Name: "new"}, {Name: "big"}}}
	for _, c := range []struct{ policy, want string }{
		{"gavel:order=Foo", `order: unknown GPU model "Foo" (valid: Own-7GB)`},
		{"gavel:order=H100", ""}, // nodes of it may be added
		{"gavel:objective=cost,prices=Own-7GB:1/Own-8GB:2",
			`prices: unknown GPU model "Own-8GB": did you mean "Own-7GB"? (valid: Own-7GB)`},
		{"gavel:order=Own-7GB/H100-80GB", ""},
		{"lucid:profile=nowhere", `profile: unknown partition "nowhere" (valid: new, big)`},
		{"lucid:profile=new,grow=bigger", `grow: unknown partition "bigger": did you mean "big"? (valid: new, big)`},
		{"lucid:profile=new,grow=big", ""},
		{"lucid", ""},
	} {
		p := shared.Must(New(c.policy))
		got := ""
		if err := p.(sched.Fitter).Fits(spec); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s\nwant %s", c.policy, got, c.want)
		}
	}
}
