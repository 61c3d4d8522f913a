package queues

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

func objects(specs ...string) map[string]*object {
	list := map[string]*object{}
	for i, s := range specs {
		name, text, _ := strings.Cut(s, " ")
		list[name] = &object{name: name, spec: text, created: time.Unix(int64(i), 0)}
	}
	return list
}

func names(t *Tree) string {
	var list []string
	for i := range t.list {
		list = append(list, fmt.Sprintf("%s:%d", t.list[i].Name, t.list[i].Guarantee/cluster.Whole))
	}
	return strings.Join(list, " ")
}

// Objects stand beside the file's queues and count more; what cannot be used is
// named, keeps what it was, and does not touch the others.
func TestMergeQueues(t *testing.T) {
	unlimited := cluster.Queue{Limit: cluster.Unlimited, Lend: cluster.Unlimited}
	file := func(name string, gpus int64) cluster.Queue {
		q := unlimited
		q.Name, q.Guarantee = name, gpus*cluster.Whole
		return q
	}
	for _, c := range []struct {
		name     string
		file     []cluster.Queue
		objects  map[string]*object
		fallback string
		want     string
		bad      string
	}{
		{"no objects", []cluster.Queue{file("a", 4)}, nil, "", "a:4", ""},
		{"beside the file's", []cluster.Queue{file("a", 4)}, objects(`b {"guarantee":2}`), "", "a:4 b:2 default:0", ""},
		{"an object counts", []cluster.Queue{file("a", 4)}, objects(`a {"guarantee":2}`), "a", "a:2", ""},
		{"children before their parent", nil, objects(`c {"parent":"p","guarantee":2}`, `p {"guarantee":4}`), "p",
			"c:2 p:4", ""},
		{"unknown parent", nil, objects(`a {"guarantee":1}`, `b {"parent":"x"}`), "a", "a:1",
			`b: queue "b": unknown parent "x"`},
		{"a circle", nil, objects(`a {"parent":"b"}`, `b {"parent":"a"}`, `c {}`), "c", "c:0", `unknown parent`},
		{"more than the parent has", nil,
			objects(`p {"guarantee":4}`, `a {"parent":"p","guarantee":3}`, `b {"parent":"p","guarantee":2}`), "a",
			"a:3 p:4", "b: the children of queue \"p\" are guaranteed 5 GPUs"},
		{"unknown field", nil, objects(`a {"guarante":4}`, `b {}`), "b", "b:0", `a: spec: unknown field "guarante"`},
		{"a default of one's own", nil, objects(`default {"guarantee":3}`), "", "default:3", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := merge(c.file, c.objects, c.fallback)
			if got := names(tree); got != c.want {
				t.Errorf("the tree is %s, not %s", got, c.want)
			}
			var bad []string
			for name, why := range tree.bad {
				bad = append(bad, name+": "+why)
			}
			if text := strings.Join(bad, "; "); !strings.Contains(text, c.bad) || c.bad == "" && text != "" {
				t.Errorf("unusable: %q, want %q", text, c.bad)
			}
		})
	}
	was := objects(`p {"guarantee":2}`, `a {"parent":"p","guarantee":3}`, `b {"guarantee":1}`)
	was["p"].inForce, was["a"].inForce = `{"guarantee":4}`, `{"parent":"p","guarantee":3}`
	tree := merge(nil, was, "b")
	if names(tree) != "a:3 b:1 p:4" || tree.bad["p"] == "" || tree.specs["p"] != `{"guarantee":4}` ||
		len(tree.bad) != 1 {
		t.Errorf("a change that makes no sense is to count for nothing: %s, %v", names(tree), tree.bad)
	}
}

// Namespaces and tiers are those of the nearest queue that names any.
func TestAdmits(t *testing.T) {
	tree := merge(nil, objects(`org {"namespaces":["team-*"],"tiers":["standard"]}`, `a {"parent":"org"}`,
		`b {"parent":"org","namespaces":["special"]}`,
		`broken {"parent":"nobody"}`), "")
	for _, c := range []struct {
		queue, namespace string
		tier             cluster.Tier
		want             string
	}{
		{"a", "team-x", cluster.Standard, ""},
		{"a", "special", cluster.Standard, "queue a takes pods of team-*, this one's namespace is special"},
		{"b", "special", cluster.Standard, ""},
		{"b", "team-x", cluster.Standard, "takes pods of special"},
		{"a", "team-x", cluster.Critical, "queue a takes pods of the tiers standard, this one is critical"},
		{"default", "any", cluster.Critical, ""},
		{"unheard", "any", cluster.Standard, ""}, // the engine says so
		{"broken", "any", cluster.Standard, `queue broken cannot be used: queue "broken": unknown parent "nobody"`},
	} {
		err := tree.Admits(&cluster.Job{Queue: c.queue, User: c.namespace, Tier: c.tier})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s in %s: %v, want %q", c.namespace, c.queue, err, c.want)
		}
	}
}

// A cluster that is too small keeps a part of what it promised, and what a group
// is promised is not counted again with its children.
func TestScaledTree(t *testing.T) {
	q := func(name, parent string, gpus, lend cluster.Milli) cluster.Queue {
		return cluster.Queue{Name: name, Parent: parent, Guarantee: gpus * cluster.Whole, Lend: lend * cluster.Whole,
			Limit: cluster.Unlimited}
	}
	tree := []cluster.Queue{q("org", "", 8, 4), q("a", "org", 4, 4), q("b", "org", 4, 2)}
	if got := Scaled(tree, 8); got[0].Guarantee != 8*cluster.Whole || got[1].Guarantee != 4*cluster.Whole {
		t.Errorf("what fits is lowered: %+v", got)
	}
	got := Scaled(tree, 2)
	if got[0].Guarantee != 2*cluster.Whole || got[1].Guarantee != cluster.Whole || got[2].Lend != cluster.Whole/2 {
		t.Errorf("%+v", got)
	}
	night := []cluster.Queue{q("serve", "", 6, 6), q("train", "", 2, 2)}
	night[0].Windows = []cluster.Window{
		{From: 22 * time.Hour, To: 7 * time.Hour, Guarantee: 2 * cluster.Whole, Limit: cluster.Unlimited}}
	night[1].Windows = []cluster.Window{
		{From: 22 * time.Hour, To: 7 * time.Hour, Guarantee: 6 * cluster.Whole, Limit: cluster.Unlimited}}
	if got := Scaled(night, 8); got[0].Guarantee != 6*cluster.Whole {
		t.Errorf("what fits at every hour is lowered: %+v", got)
	}
	if got := Scaled(night, 0); got[0].Guarantee != 0 || got[0].Lend != 0 {
		t.Errorf("without a GPU: %+v", got)
	}
}

// A cluster that is smaller than what its queues are guaranteed schedules all
// the same, with all guarantees lowered in proportion.
func TestScaled(t *testing.T) {
	queues := []cluster.Queue{{Name: "a", Guarantee: 12_000, Limit: cluster.Unlimited},
		{Name: "b", Guarantee: 4_000, Reserve: 2_000}}
	if got := Scaled(queues, 16); got[0].Guarantee != 12_000 {
		t.Errorf("%+v", got)
	}
	got := Scaled(queues, 8)
	if got[0].Guarantee != 6_000 || got[1].Guarantee != 2_000 || got[1].Reserve != 1_000 ||
		got[0].Limit != cluster.Unlimited || queues[0].Guarantee != 12_000 {
		t.Errorf("%+v of %+v", got, queues)
	}
	if Scaled(queues, 0)[0].Guarantee != 0 {
		t.Error("an empty cluster guarantees something")
	}
}
