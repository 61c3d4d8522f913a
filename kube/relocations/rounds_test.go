package relocations

import (
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/gang"
)

// Moves are looked for at multiples of the period; one in a protected time waits for its end.
func TestNextRound(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	protected := &cluster.Weekly{Zone: "UTC",
		Hours: []cluster.Hours{{From: 12*time.Hour + 2*time.Minute, To: 14 * time.Hour}}}
	often := &engine.Defrag{Auto: true, Every: time.Minute, Protected: protected}
	for _, c := range []struct {
		f           *engine.Defrag
		after, want time.Duration // want 0: never
	}{{often, 0, time.Minute}, {often, time.Minute, 2 * time.Hour}, {often, 2 * time.Hour, 2*time.Hour + time.Minute},
		{&engine.Defrag{Auto: true}, 0, roundEvery}, {&engine.Defrag{Every: time.Minute}, 0, 0}, {nil, 0, 0}} {
		r, want := New(time.Minute), cluster.Never
		if c.want > 0 {
			want = cluster.Time(noon.Add(c.want).UnixNano())
		}
		for range 2 { // it stays the same until then
			if got := r.NextRound(c.f, cluster.Time(noon.Add(c.after).UnixNano())); got != want {
				t.Errorf("after %s the next round is at %s, not after %s", c.after, time.Unix(0, int64(got)).UTC(),
					c.want)
			}
		}
	}
}

// A round looks for what lets a waiting gang start, if one waits, and for what empties nodes, if that is wanted; one at
// a time.
func TestStartRound(t *testing.T) {
	waits := map[string]*gang.Gang{"a": {Phase: gang.Running}, "b": {Phase: gang.Waiting}}
	for _, c := range []struct {
		all  map[string]*gang.Gang
		by   engine.Compact
		want []string
	}{{waits, engine.NoCompact, []string{""}}, {waits, engine.EmptyNodes, []string{"", "nodes"}},
		{nil, engine.EmptyNodes, []string{"nodes"}}, {nil, engine.NoCompact, nil}} {
		r, f := New(time.Minute), &engine.Defrag{Auto: true, Every: time.Minute, Compact: c.by}
		if list := r.StartRound(f, at(30), c.all); len(list) > 0 || r.NextRound(f, at(30)) != at(60) {
			t.Errorf("%+v: it is too early", list)
		}
		list := r.StartRound(f, at(60), c.all)
		if len(list) != len(c.want) {
			t.Fatalf("%+v, not %q", list, c.want)
		}
		for i := range list {
			if (list[i].Compact != "") != (c.want[i] != "") || list[i].Job != 0 {
				t.Errorf("%+v, not %q", list[i], c.want[i])
			}
		}
		if len(list) > 0 {
			if r.NextRound(f, at(61)) != cluster.Never || !r.Busy() || len(r.StartRound(f, at(600), c.all)) > 0 {
				t.Error("two rounds at a time")
			}
			r.RoundOver()
		}
		if r.NextRound(f, at(61)) != at(120) || r.Busy() {
			t.Errorf("the next round is at %d", r.NextRound(f, at(61)))
		}
	}
}
