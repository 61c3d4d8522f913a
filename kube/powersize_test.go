package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/power"
)

// hand is a driver whose inbox and API server are the test's: what is seen of nodes is put in by hand, and what
// is asked for is looked up in what the driver believes that it asked for.
type hand struct {
	*testing.T
	*Driver
	now time.Time
}

func byHand(t *testing.T, rules []Power, nodes ...*v1.Node) *hand {
	h := &hand{T: t, now: time.Unix(1_800_000_000, 0)}
	opt := testOptions(nil, slog.New(slog.NewTextHandler(t.Output(), nil)))
	opt.Now, opt.Power = func() time.Time { return h.now }, rules
	h.Driver = New(opt)
	for _, n := range nodes {
		h.nodeChanged(n)
	}
	if err := h.begin(h.found(), "start"); err != nil {
		t.Fatal(err)
	}
	return h
}

// batch is a rule for the pool that these tests have.
func batch(except ...string) []Power {
	rule := cluster.DefaultPower(4)
	rule.Buffer, rule.Except = 0, except
	return []Power{{Rule: rule, Selector: map[string]string{"pool": "batch"}, Timeout: 15 * time.Minute, Resume: "/on"}}
}

// offNode is a node of the pool that a scheduler switched off when it had eight GPUs; the API server keeps that
// it has so many.
func offNode(name string, gpus int, by string) *v1.Node {
	n := controlplane.Node(name, 8, map[string]string{"pool": "batch", LabelPower: power.Off})
	n.UID, n.Spec.Unschedulable = types.UID(name), true
	n.Annotations = map[string]string{AnnotationPowerSize: power.SizeText(n), AnnotationPowerBy: by}
	n.Status.Capacity, n.Status.Allocatable = sized(n, gpus), sized(n, gpus)
	return n
}

func sized(n *v1.Node, gpus int) v1.ResourceList {
	list := n.Status.Capacity.DeepCopy()
	list["nvidia.com/gpu"] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	return list
}

// passes lets time pass, then looks.
func (h *hand) passes(t time.Duration) {
	h.now = h.now.Add(t)
	h.power.at = 0
	h.powerRound(h.clock())
}

// is checks what the driver last wrote, or saw, of a node; it counts as seen, and the request as answered.
func (h *hand) is(name, state string) {
	h.Helper()
	n := h.nodes[name]
	if n.powerLabel() != state {
		h.Errorf("%s is %q, want %q", name, n.powerLabel(), state)
	}
	if n.power.busy = false; n.power.asked != "" {
		obj := n.obj.DeepCopy()
		obj.Labels[LabelPower], obj.Annotations[AnnotationPower] = n.power.asked,
			n.power.since.UTC().Format(time.RFC3339)
		h.nodeChanged(obj)
	}
}

// boots has a node say that it is ready, and has so many GPUs.
func (h *hand) boots(name string, gpus int) {
	obj := h.nodes[name].obj.DeepCopy()
	obj.Status.Conditions = []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(h.now)}}
	obj.Status.Capacity, obj.Status.Allocatable = sized(obj, gpus), sized(obj, gpus)
	h.nodeChanged(obj)
}

// needs has a gang wait for a node.
func (h *hand) needs(name string) { h.holding[&gang{key: name, slots: []slot{{node: name}}}] = true }

// A node that is off has the GPUs that it had, whatever the API server keeps of it; it is back when they are, and not
// as soon as it is ready.
func TestPowerSize(t *testing.T) {
	h := byHand(t, batch(), offNode("n1", 0, "muster"))
	if s, n := h.eng.Nodes()[0], h.nodes["n1"]; s.GPUs != 8 || n.state() != cluster.Up || h.wakes(n) == 0 ||
		h.badGPUs(n, &s, holds.Of{}) != 0 {
		t.Fatalf("%+v, %v", s, n.state())
	}
	h.needs("n1")
	h.passes(time.Second)
	h.is("n1", power.Resuming)
	for _, gpus := range []int{0, 4} {
		h.passes(30 * time.Second)
		h.boots("n1", gpus)
		h.passes(time.Second)
		h.is("n1", power.Resuming)
	}
	h.boots("n1", 8)
	h.passes(time.Second)
	h.is("n1", power.On)
	if s := h.nodeSpec("n1", h.nodes["n1"], holds.Of{}); s.GPUs != 8 {
		t.Errorf("%+v", s)
	}
}

// One that does not get all of its GPUs back is counted on no more after the time, then used as it is.
func TestPowerLacks(t *testing.T) {
	h := byHand(t, batch(), offNode("n1", 0, "muster"))
	h.needs("n1")
	h.passes(time.Second)
	h.is("n1", power.Resuming)
	h.boots("n1", 4)
	if why := h.lacks(h.nodes["n1"]); why != "nvidia.com/gpu: 4 of 8" {
		t.Errorf("lacks %q", why)
	}
	h.passes(14 * time.Minute)
	h.is("n1", power.Resuming)
	h.passes(2 * time.Minute)
	if h.is("n1", power.Resuming); h.nodes["n1"].state() == cluster.Up || !h.nodes["n1"].power.late {
		t.Error("it is counted on after the time")
	}
	h.boots("n1", 4)
	h.passes(time.Second)
	h.is("n1", power.On)
	h.boots("n1", 4) // what was written down counts no more
	if s := h.nodeSpec("n1", h.nodes["n1"], holds.Of{}); s.GPUs != 4 {
		t.Errorf("%+v", s)
	}
}

// A size that cannot be read, and one of a node that is on, count for nothing.
func TestPowerSizeUnread(t *testing.T) {
	torn, on := offNode("n1", 2, "muster"), offNode("n2", 2, "muster")
	torn.Annotations[AnnotationPowerSize] = `{"capacity": {"nvidia.com/gpu": "many"}}`
	on.Labels[LabelPower] = power.On
	h := byHand(t, batch(), torn, on)
	for i, s := range h.eng.Nodes() {
		if s.GPUs != 2 {
			t.Errorf("node %d: %+v", i, s)
		}
	}
}

// A wake-up in the round of a step is booked as one: nothing is put to sleep for a while after it.
func TestPowerWokeInStep(t *testing.T) {
	for _, step := range []bool{false, true} {
		h := byHand(t, batch(), offNode("n1", 8, "muster"), offNode("n2", 8, "muster"))
		h.passes(0)
		h.needs("n1")
		wait := time.Minute
		if step {
			wait = h.power.groups[0].Rule.Every
		}
		h.passes(wait)
		h.is("n1", power.Resuming)
		if m := &h.power.groups[0].meter; m.Grown != h.now.Unix() || (len(m.Last) == 1) != step {
			t.Errorf("step %v: woken at %d, now is %d; %d steps", step, m.Grown, h.now.Unix(), len(m.Last))
		}
	}
}

// Whoever has no rule any more is switched on: an excepted node by its rule's program, one that a loan selects now, one
// of no rule by its label alone; one that another scheduler switched off, or that is on, is left alone.
func TestPowerStray(t *testing.T) {
	other := offNode("n4", 8, "another")
	other.Labels["pool"] = "its own"
	gone := offNode("n3", 8, "muster")
	gone.Labels["pool"], gone.Labels[LabelPower] = "renamed", power.Suspending
	old := offNode("n5", 8, "")
	delete(old.Annotations, AnnotationPowerBy)
	h := byHand(t, batch("n1", "n5"), offNode("n1", 0, "muster"), offNode("n2", 8, "muster"), gone, other, old)
	h.passes(time.Second)
	for name, state := range map[string]string{"n1": power.Resuming, "n2": power.Off, "n3": power.Resuming,
		"n4": power.Off, "n5": power.Resuming} {
		h.is(name, state)
	}
	if p := h.switchOf(h.nodes["n1"]); p.Resume != "/on" {
		t.Errorf("n1 is switched by %+v", p)
	}
	if p := h.switchOf(h.nodes["n3"]); p.Resume != "" || p.Timeout != powerAway {
		t.Errorf("n3 is switched by %+v", p)
	}
	if h.nodes["n1"].state() == cluster.Up {
		t.Error("n1 is counted on while nobody has switched it on")
	}
	h.boots("n1", 0)
	h.boots("n3", 8)
	h.passes(time.Second)
	h.is("n1", power.Resuming) // its GPUs are not there yet
	h.is("n3", power.On)
	h.boots("n1", 8)
	h.passes(time.Second)
	h.is("n1", power.On)
	h.passes(time.Second)
	if len(h.power.nodes) != 2 { // n2, n5
		t.Errorf("%d nodes are looked after", len(h.power.nodes))
	}
}

// A cluster without a rule looks after its strays, and then no more.
func TestPowerNoRule(t *testing.T) {
	h := byHand(t, nil, offNode("n1", 8, "muster"))
	h.passes(time.Second)
	h.is("n1", power.Resuming)
	h.boots("n1", 8)
	h.passes(time.Second)
	h.is("n1", power.On)
	if at := h.nextPower(); at != cluster.Never {
		t.Errorf("the next look is at %v", at)
	}
}

// A node that was deleted is none that the buffer is for, and one of its name is another.
func TestPowerDeleted(t *testing.T) {
	rules := batch()
	rules[0].Rule.Buffer = -1
	var nodes []*v1.Node
	for i := range 21 {
		nodes = append(nodes, offNode(fmt.Sprintf("n%02d", i), 8, "muster"))
	}
	h := byHand(t, rules, nodes...)
	if b := h.bufferOf(0); b != 2 {
		t.Errorf("the buffer of 21 nodes is %d", b)
	}
	h.nodeGone("n07")
	if b := h.bufferOf(0); b != 1 {
		t.Errorf("the buffer of 20 nodes is %d", b)
	}
	h.nodeChanged(controlplane.Node("n07", 8, map[string]string{"pool": "batch"}))
	if n := h.nodes["n07"]; n.sleeps() || h.bufferOf(0) != 2 {
		t.Errorf("a new node is %q", n.powerState())
	}
}

// gpus has the API server keep of a node that it has so many.
func (f *fuse) gpus(name string, gpus int) {
	f.Helper()
	patch := fmt.Sprintf(`{"status": {"capacity": {"nvidia.com/gpu": "%d"}, "allocatable": {"nvidia.com/gpu": "%d"}}}`,
		gpus, gpus)
	if _, err := f.c.CoreV1().Nodes().Patch(f.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		"status"); err != nil {
		f.Fatal(err)
	}
}

// A node of which the API server keeps that it has no GPUs, is off; it is woken for who needs them, and bound to when
// they are there.
func testPowerShrunk(b *bench) {
	b.pool("n1")
	f := &fuse{bench: b, open: true}
	_, stop := b.schedule(f.options)
	defer stop()
	b.isOff("n1")
	f.gpus("n1", 0)
	b.create(eight("g", 1)...)
	b.wait("n1 is asked for", func() bool { _, on := f.called(); return slices.Equal(on, []string{"n1"}) })
	b.wait("who waits says so", func() bool {
		return strings.Contains(condition(b.pod("g-0")).Message, "1 node is waking")
	})
	if state, cordoned := b.power("n1"); state != power.Resuming || !cordoned {
		b.Errorf("without its GPUs the node is %q, cordoned %v", state, cordoned)
	}
	f.gpus("n1", 8)
	b.wait("the gang runs", func() bool { return b.pod("g-0").Spec.NodeName == "n1" })
}

// Nodes that are off come back when no rule is theirs any more: by the program of the rule that excepts them, or by
// their label alone where there is no rule.
func testPowerLeft(b *bench) {
	b.pool("n1", "n2")
	f := &fuse{bench: b, open: true}
	_, stop := b.schedule(f.options)
	b.isOff("n1", "n2")
	stop()
	isOn := func(name string) {
		b.Helper()
		b.wait(name+" is back", func() bool { state, cordoned := b.power(name); return state == power.On && !cordoned })
	}
	_, stop = b.schedule(f.options, func(o *Options) { o.Power[0].Rule.Except = []string{"n1"} })
	isOn("n1")
	stop()
	if _, on := f.called(); !slices.Equal(on, []string{"n1"}) {
		b.Errorf("switched on: %v", on)
	}
	_, stop = b.schedule()
	defer stop()
	b.wait("n2 is wanted back", func() bool { state, _ := b.power("n2"); return state == power.Resuming })
	if err := f.boot(context.Background(), "n2"); err != nil {
		b.Fatal(err)
	}
	isOn("n2")
}
