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
	"github.com/muster-gpu/muster/kube/patch"
	"github.com/muster-gpu/muster/kube/power"
)

// hand is a driver whose inbox and API server are the test's: what is seen of nodes is put in by hand, and what
// is asked for is looked up in what the driver believes that it asked for.
type hand struct {
	*testing.T
	*Driver
	now  time.Time
	done map[string]func(error) // what is to be said when a node is written, by its name
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
	n := controlplane.Node(name, 8, map[string]string{"pool": "batch", power.Label: power.Off})
	n.UID, n.Spec.Unschedulable = types.UID(name), true
	n.Annotations = map[string]string{power.AnnotationSize: string(patch.JSON(v1.NodeStatus{Capacity: n.Status.Capacity,
		Allocatable: n.Status.Allocatable})), power.AnnotationBy: by}
	n.Status.Capacity, n.Status.Allocatable = sized(n, gpus), sized(n, gpus)
	return n
}

func sized(n *v1.Node, gpus int) v1.ResourceList {
	list := n.Status.Capacity.DeepCopy()
	list["nvidia.com/gpu"] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	return list
}

// A node that is off has the GPUs that it had, whatever the API server keeps of it.
func TestPowerSize(t *testing.T) {
	h := byHand(t, batch(), offNode("n1", 0, "muster"))
	if s, n := h.eng.Nodes()[0], h.nodes.Node("n1"); s.GPUs != 8 || n.State() != cluster.Up || n.Power.Wakes() == 0 ||
		h.nodes.Bad(&s, holds.Of{}) != 0 {
		t.Fatalf("%+v, %v", s, n.State())
	}
}

// A size that cannot be read, and one of a node that is on, count for nothing.
func TestPowerSizeUnread(t *testing.T) {
	torn, on := offNode("n1", 2, "muster"), offNode("n2", 2, "muster")
	torn.Annotations[power.AnnotationSize] = `{"capacity": {"nvidia.com/gpu": "many"}}`
	on.Labels[power.Label] = power.On
	h := byHand(t, batch(), torn, on)
	for i, s := range h.eng.Nodes() {
		if s.GPUs != 2 {
			t.Errorf("node %d: %+v", i, s)
		}
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

// A node of which the API server keeps that it has no GPUs, is off; it is woken for a pod that needs them, and bound to
// when they are there.
func testPowerShrunk(b *bench) {
	b.pool("n1")
	f := &fuse{bench: b, open: true}
	_, stop := b.schedule(f.options)
	defer stop()
	b.isOff("n1")
	f.gpus("n1", 0)
	b.create(eight("g", 1)...)
	b.wait("n1 is asked for", func() bool { _, on := f.called(); return slices.Equal(on, []string{"n1"}) })
	b.wait("the pod that waits says so", func() bool {
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
