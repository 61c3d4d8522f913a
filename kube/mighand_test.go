package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/kube/kubetest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/mig"
)

// partitionHand is a driver by hand with nodes of a pool that may be partitioned.
func partitionHand(t *testing.T, rules []MIG, nodes ...*v1.Node) *hand {
	h := byHand(t, nil)
	h.opt.MIG = rules
	var o Options
	migRules(&o)
	h.opt.Labels = o.Labels
	h.opt.Labels.Product, h.opt.Labels.Memory, h.opt.Labels.Replicas = "nvidia.com/gpu.product",
		"nvidia.com/gpu.memory", "nvidia.com/gpu.replicas"
	h.nodes.MIG, h.done = h.newMIG(h), map[string]func(error){}
	h.nodes.MIG.MapChanged(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mig"},
		Data: map[string]string{"config.yaml": kubetest.MIGMap}}, false)
	for _, n := range nodes {
		n.UID = types.UID(n.Name)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		h.nodeChanged(n)
	}
	if err := h.begin(h.found(), "nodes"); err != nil {
		t.Fatal(err)
	}
	return h
}

// PatchNode is answered by migPasses.
func (h *hand) PatchNode(name string, _ []byte, _ string, done func(error)) { h.done[name] = done }

func (h *hand) Event(*v1.Node, string, string, string)         {}
func (h *hand) MapEvent(*v1.ConfigMap, string, string, string) {}

func migRule() []MIG {
	return []MIG{{Selector: map[string]string{"pool": "shared"}, Space: "default", Map: "mig", After: time.Second,
		Keep: 10 * time.Minute, Timeout: 5 * time.Minute}}
}

// migNodeOf is a node of two GPUs, with what a scheduler wrote on it.
func migNodeOf(labels map[string]string, note *mig.Note) *v1.Node {
	n := controlplane.Node("n1", 2,
		map[string]string{"pool": "shared", migConfigLabel: "all-disabled", migStateLabel: "success"})
	for k, v := range labels {
		n.Labels[k] = v
	}
	if note != nil {
		text, err := json.Marshal(note)
		if err != nil {
			panic(err)
		}
		n.Annotations = map[string]string{mig.Annotation: string(text)}
		n.Spec.Unschedulable = n.Labels[mig.Label] != ""
	}
	return n
}

// What becomes of a node that an earlier scheduler left on its way: by its labels alone.
func TestMIGSteps(t *testing.T) {
	began := time.Unix(1_800_000_000, 0).UTC()
	offer := &config.MIGOffer{Slices: map[string]int{"1g.10gb": 14}}
	note := func(f func(*mig.Note)) *mig.Note {
		n := &mig.Note{By: "muster", Config: "all-1g.10gb", From: "all-disabled", Since: began,
			For: []string{"default/g"}, GPUs: 2, Offer: offer}
		if f != nil {
			f(n)
		}
		return n
	}
	changing := map[string]string{mig.Label: mig.Changing, migConfigLabel: "all-1g.10gb"}
	for _, c := range []struct {
		name   string
		rules  []MIG
		labels map[string]string
		note   *mig.Note
		after  time.Duration
		step   string
		failed string
	}{
		{"closed and empty: it is changed", migRule(), map[string]string{mig.Label: mig.Closed}, note(nil), 0,
			mig.Changing, ""},
		{"no gang waits for it any more: opened", migRule(), map[string]string{mig.Label: mig.Closed},
			note(func(n *mig.Note) { n.For = []string{"default/gone"} }), 0, "", ""},
		{"of no rule any more: opened", nil, map[string]string{mig.Label: mig.Closed}, note(nil), 0, "", ""},
		{"another scheduler's: left alone", migRule(), map[string]string{mig.Label: mig.Closed},
			note(func(n *mig.Note) { n.By = "other" }), 0, mig.Closed, ""},
		{"another writer labelled it: opened", migRule(),
			map[string]string{mig.Label: mig.Closed, migConfigLabel: "half"}, note(nil), 0, "", ""},
		{"its note cannot be read: opened", migRule(), map[string]string{mig.Label: mig.Closed},
			note(func(n *mig.Note) { n.Offer = nil }), 0, "", ""},
		{"being changed: waited for", migRule(),
			map[string]string{mig.Label: mig.Changing, migConfigLabel: "all-1g.10gb", migStateLabel: "pending"},
			note(nil), 4 * time.Minute, mig.Changing, ""},
		{"success, but it offers what it had: waited for", migRule(),
			changing, note(nil), 4 * time.Minute,
			mig.Changing, ""},
		{"too late: opened, and remembered", migRule(),
			changing, note(nil), 6 * time.Minute, "",
			"after 5m its state is \"success\", and it offers 2 GPUs of 14 1g.10gb"},
		{"failed: opened, and remembered", migRule(),
			map[string]string{mig.Label: mig.Changing, migConfigLabel: "all-1g.10gb", migStateLabel: "failed"},
			note(nil), 0, "", "mig-manager says failed"},
		{"of no rule, in the midst of it: waited for", nil,
			changing, note(nil), 14 * time.Minute,
			mig.Changing, ""},
		{"of no rule, for too long: opened", nil,
			changing, note(nil), 16 * time.Minute, "",
			"after 15m"},
	} {
		h := partitionHand(t, c.rules, migNodeOf(c.labels, c.note))
		if c.note.For[0] == "default/g" {
			h.come(migGang("g", 14, "1g.10gb", nil)...)
		} else {
			h.come()
		}
		h.now = began.Add(c.after)
		h.migRound(h.clock())
		n := h.nodes.Node("n1")
		if n.MIG.Step() != c.step {
			t.Errorf("%s: %q, want %q", c.name, n.MIG.Step(), c.step)
		}
		f := n.MIG.Note().Failed
		if c.failed == "" && f != nil ||
			c.failed != "" && (f == nil || !strings.Contains(f.Why["all-1g.10gb"], c.failed)) {
			t.Errorf("%s: remembered %+v", c.name, f)
		}
		if c.step == mig.Changing && n.Obj.Labels[mig.Label] == mig.Changing {
			if s := h.nodes.Spec("n1", holds.Of{}); !strings.Contains(s.MIG, "1g.10gb") {
				t.Errorf("%s: while it is changed it counts as %q", c.name, s.MIG)
			}
		}
	}
}

// fullPool are nodes of two GPUs, each with a pod of another scheduler that has both, half of them of either of
// two rules.
func fullPool(t *testing.T, nodes int) *hand {
	var list []*v1.Node
	var pods []*v1.Pod
	for i := range nodes {
		n := migNodeOf(map[string]string{"pool": fmt.Sprintf("h%d", i%2)}, nil)
		n.Name = fmt.Sprintf("n%d", i+1)
		n.Labels["kubernetes.io/hostname"] = n.Name
		p := controlplane.Pod("on-"+n.Name, 2, nil)
		p.Spec.SchedulerName, p.Spec.NodeName = "somebody", n.Name
		list, pods = append(list, n), append(pods, p)
	}
	rules := append(migRule(), migRule()...)
	rules[0].Selector, rules[1].Selector = map[string]string{"pool": "h0"}, map[string]string{"pool": "h1"}
	h := partitionHand(t, rules, list...)
	h.come(pods...)
	return h
}

// come has pods come.
func (h *hand) come(pods ...*v1.Pod) {
	for _, p := range pods {
		p.UID, p.CreationTimestamp = types.UID(p.Name), metav1.NewTime(h.now)
		h.podChanged(p)
	}
	steps(h.T, h.Driver)
}

// migPasses lets seconds pass; what is written on nodes is there at once. It says what was, in order.
func (h *hand) migPasses(seconds int) (wrote []string) {
	for range seconds {
		h.now = h.now.Add(time.Second)
		h.migRound(h.clock())
		for _, name := range h.nodes.Order() {
			n := h.nodes.Node(name)
			done := h.done[name]
			if done == nil {
				continue
			}
			delete(h.done, name)
			done(nil)
			wrote = append(wrote, strings.TrimSpace(name+" "+n.MIG.Step()))
			text, err := json.Marshal(n.MIG.Note())
			if err != nil {
				h.Fatal(err)
			}
			obj := n.Obj.DeepCopy()
			if delete(obj.Labels, mig.Label); n.MIG.Step() != "" {
				obj.Labels[mig.Label] = n.MIG.Step()
			}
			obj.Annotations, obj.Spec.Unschedulable = map[string]string{mig.Annotation: string(text)},
				n.MIG.Step() != ""
			if n.MIG.Step() == mig.Changing {
				obj.Labels[migConfigLabel] = n.MIG.Note().Config
			}
			h.nodeChanged(obj)
		}
		steps(h.T, h.Driver)
	}
	return wrote
}

// Of two rules no more than one node is emptied for one gang, and it stays so; a second gang has one of the other rule,
// unless what is emptied for the first is enough for both.
func TestMIGTwoRules(t *testing.T) {
	for _, c := range []struct {
		name string
		size []int
		want string
	}{
		{"one gang", []int{14}, "n1 closed"},
		{"two of a node each", []int{14, 14}, "n1 closed,n2 closed"},
		{"two on one node", []int{8, 6}, "n1 closed"},
	} {
		h := fullPool(t, 4)
		for i, size := range c.size {
			h.come(migGang(fmt.Sprintf("g%d", i), size, "1g.10gb", nil)...)
		}
		if got := strings.Join(h.migPasses(100), ","); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// If a node that serves becomes empty, it is changed, and the one that was to be emptied is opened.
func TestMIGSooner(t *testing.T) {
	h := fullPool(t, 2)
	stays := h.pods["on-n1"].Obj.DeepCopy()
	stays.Spec.RestartPolicy = v1.RestartPolicyAlways
	h.podChanged(stays)
	h.come(migGang("g", 14, "1g.10gb", nil)...)
	wrote := h.migPasses(20)
	ended := stays.DeepCopy()
	ended.Status.Phase = v1.PodSucceeded
	h.podChanged(ended)
	steps(t, h.Driver)
	wrote = append(wrote, h.migPasses(40)...)
	if got, want := strings.Join(wrote, ","), "n2 closed,n1 closed,n1 changing,n2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A scheduler that finds a node closed preempts none there before it knows that it is needed still, by a gang of a
// higher tier.
func TestMIGDismiss(t *testing.T) {
	for _, c := range []struct {
		name, waits, tier string // the gang that waits, and its tier
		gone              bool
		step              string
	}{
		{"the gang for which it was closed is gone", "", "", false, ""},
		{"the gang for which it was closed waits", "wanted", "standard", true, mig.Closed},
		{"another gang waits, of the same tier as the one that is there", "other", "best-effort", false, mig.Closed},
		{"that gang is of a higher tier now: as it was closed", "wanted", "critical", true, mig.Closed},
	} {
		h := partitionHand(t, migRule(), migNodeOf(nil, nil))
		h.come(controlplane.Pod("low", 2, map[string]string{LabelTier: "best-effort"}))
		low := h.pods["low"]
		low.Node, low.Binding = "n1", false // bound
		h.agenda.touch(low.Gang)
		closed := migNodeOf(map[string]string{mig.Label: mig.Closed},
			&mig.Note{By: "muster", Config: "all-1g.10gb", From: "all-disabled",
				Since: h.now.UTC(), For: []string{"default/wanted"}, Tier: "standard", GPUs: 2,
				Offer: &config.MIGOffer{Slices: map[string]int{"1g.10gb": 14}}})
		closed.UID, closed.Status.Conditions = "n1", h.nodes.Node("n1").Obj.Status.Conditions
		h.nodeChanged(closed)
		if h.come(); c.waits != "" {
			h.come(migGang(c.waits, 14, "1g.10gb", map[string]string{LabelTier: c.tier})...)
		}
		if g := low.Gang; g.Phase != gang.Running || h.nodes.CountUsers("n1") == 0 {
			t.Fatalf("%s: it does not run: %v", c.name, g.Phase)
		}
		h.now = h.now.Add(time.Hour)
		h.migRound(h.clock())
		if gone := h.pods["low"].Gang.Leaves != ""; gone != c.gone || h.nodes.Node("n1").MIG.Step() != c.step {
			t.Errorf("%s: preempted %v, n1 is %q", c.name, gone, h.nodes.Node("n1").MIG.Step())
		}
	}
}

// Which nodes are for a gang, is the same by the index as by a walk of all nodes, whatever becomes of them.
func TestMIGForGangs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	h := partitionHand(t, migRule())
	told := 0
	for range 500 {
		note := &mig.Note{By: "muster", Config: "all-1g.10gb", From: "all-disabled", Since: h.now.UTC()}
		for range r.IntN(4) {
			note.For = append(note.For, fmt.Sprintf("default/g%d", r.IntN(4)))
		}
		n := migNodeOf(map[string]string{mig.Label: []string{mig.Closed, mig.Changing}[r.IntN(2)]}, note)
		n.Name = fmt.Sprintf("n%d", r.IntN(9))
		n.UID = types.UID(n.Name)
		if h.nodeChanged(n); r.IntN(9) == 0 {
			h.nodeGone(n.Name)
		}
		g := fmt.Sprintf("default/g%d", r.IntN(4))
		text := h.nodes.MIG.Told(g, h.nodes.CountUsers)
		for i := range 9 {
			name := fmt.Sprintf("n%d", i)
			x := h.nodes.Node(name)
			want := x != nil && x.Obj != nil && slices.Contains(x.MIG.Note().For, g)
			if strings.Contains(text, "node "+name+" ") != want {
				t.Fatalf("%s: %q, and node %s is for it: %v", g, text, name, want)
			}
			if want {
				told++
			}
		}
	}
	if told < 100 {
		t.Errorf("%d nodes told", told)
	}
}

// BenchmarkMIGLook is what it costs the loop to look for which gangs nodes are to be partitioned otherwise: 1,000
// nodes, of which 100 may be, 10,000 pods that wait for GPUs and 100 for slices.
func BenchmarkMIGLook(b *testing.B) {
	var pods []*v1.Pod
	for i := range 11_000 {
		pods = append(pods, controlplane.Pod(fmt.Sprintf("p%05d", i), 8, nil))
	}
	for i := range 100 {
		pods = append(pods, migPod(fmt.Sprintf("s%05d", i), "1g.10gb", nil))
	}
	d, now := still(b, 1000, pods...)
	var o Options
	migRules(&o)
	d.opt.MIG = migRule()
	d.opt.Labels.Count, d.opt.Labels.Config, d.opt.Labels.State, d.opt.Labels.Strategy = o.Labels.Count,
		o.Labels.Config, o.Labels.State, o.Labels.Strategy
	d.nodes.MIG = d.newMIG(migWriter{d})
	d.nodes.MIG.MapChanged(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mig"},
		Data: map[string]string{"config.yaml": kubetest.MIGMap}}, false)
	for i := range 100 {
		n := d.nodes.Node(fmt.Sprintf("n%04d", 900+i)).Obj.DeepCopy()
		n.Labels["pool"], n.Labels[migConfigLabel] = "shared", "all-disabled"
		d.nodeChanged(n)
	}
	steps(b, d)
	*now = now.Add(time.Hour)
	for b.Loop() {
		for _, g := range d.gangs {
			g.MIG = mig.Gang{}
		}
		d.lookMIG(d.clock())
	}
}
