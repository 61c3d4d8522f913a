package control

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
)

// TestKeys: the gateway has the keys of the configuration, by every write of replicas, and at once when they change;
// another controller takes a revoked one away before it knows which replicas answer, whose entries stay. Without a
// list nobody needs a key, with an empty one nobody is let in.
func TestKeys(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	key := func(name string, tier cluster.Tier, services ...string) config.ServiceKey {
		return config.ServiceKey{Name: name, Hash: strings.Repeat("a", 63) + name, Services: services, Rate: 5,
			Burst: 7, Tier: tier}
	}
	list := []config.ServiceKey{key("a", cluster.Critical, "vision"), key("b", cluster.Standard, "speech"),
		key("c", cluster.BestEffort)}
	if notes := c.SetKeys(list); len(notes) != 2 || w.told != nil {
		t.Errorf("%q; the gateway has %v", notes, w.told)
	}
	expect := func(when, names string) {
		t.Helper()
		var got []string
		for _, k := range w.told.Keys {
			got = append(got, k.Name)
		}
		if strings.Join(got, " ") != names || !w.told.NeedsKey {
			t.Errorf("%s: %q, needed: %v", when, got, w.told.NeedsKey)
		}
	}
	w.apply(c, text("serve", 1, 1))
	w.pass(c, 3*time.Second)
	w.expect(c, "vision", "1 answers")
	expect("with the replicas", "a b c")
	if a, b := w.told.Keys[0], w.told.Keys[2]; a.Priority <= w.told.Keys[1].Priority || b.Priority >= a.Priority-1 ||
		a.Rate != 5 || a.Burst != 7 || a.Services[0] != "vision" || b.Services != nil {
		t.Errorf("%+v", w.told.Keys)
	}
	if notes := c.SetKeys(list[:1]); len(notes) != 0 {
		t.Errorf("%q", notes)
	}
	expect("at once", "a")
	before := w.told
	w.pass(c, 2*time.Second)
	if w.told != before {
		t.Error("nothing has changed, and it is written again")
	}

	c = w.controller()
	c.SetKeys([]config.ServiceKey{})
	if err := c.step(context.Background()); err != nil {
		t.Fatal(err)
	}
	expect("by another controller, at its first step", "")
	if len(w.told.Services[0].Replicas) != 1 {
		t.Errorf("it took a replica away: %+v", w.told.Services[0])
	}
	w.pass(c, 2*time.Second)
	expect("by another controller, later", "")
	c.SetKeys(nil)
	if len(w.told.Keys) > 0 || w.told.NeedsKey || len(w.told.Services[0].Replicas) != 1 {
		t.Errorf("without a list: %+v", w.told)
	}
}

// TestRefused: what the gateway would not take of one service does not keep it from following the others. It is refused
// when it is applied; one that is kept is left out, and says so.
func TestRefused(t *testing.T) {
	w := newWorld(t, 4)
	c := w.controller()
	spec := text("serve", 1, 1)
	many := spec
	for i := range mostVariants {
		many += strings.Replace("  - {name: bI, command: [serve], profile: [{batch: 1, latency: 5ms}]}\n", "I",
			strconv.Itoa(i), 1)
	}
	for text, want := range map[string]string{
		strings.Replace(spec, "latency: 50ms", "latency: 200h", 1):     "latency: 200h0m0s is more than a day",
		strings.Replace(spec, "name: a,", "name: a, startup: 60h,", 1): "variants[0]: startup: 60h0m0s is more",
		spec + "batching: {delay: 300h}\n":                             "batching: delay: 300h0m0s is more",
		many:                                                           "variants: there are 33, at most 32",
		strings.Replace(spec, "latency: 50ms", "latency: 24h\npath: 'a/b'", 1): "path: ",
	} {
		if _, err := c.Apply(t.Context(), &ask.ServiceFile{Text: text}, Caller{User: "eve"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	kept := ask.ServiceFile{Text: strings.Replace(spec, "latency: 50ms", "latency: 200h", 1)}
	old, err := Read(&kept)
	if err != nil {
		t.Fatal(err)
	}
	w.kept["vision"] = Service{Service: *old, File: kept, Owner: "eve", Generation: Generation(old)}
	c = w.controller()
	w.apply(c, strings.Replace(spec, "vision", "speech", 1))
	w.pass(c, 3*time.Second)
	if len(w.told.Services) != 1 || w.told.Services[0].Name != "speech" || len(w.told.Services[0].Replicas) != 1 {
		t.Errorf("%+v", w.told)
	}
	if v, err := c.Service("vision"); err != nil || !strings.Contains(strings.Join(v.Why, "\n"), "does not take it") {
		t.Errorf("%q %v", v.Why, err)
	}
}
