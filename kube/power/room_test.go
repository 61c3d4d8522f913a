package power

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
)

const gpu = v1.ResourceName("nvidia.com/gpu")

func isGPU(name v1.ResourceName) bool { return name == gpu }

// hand is a room whose writer is the test's: what is seen of nodes is put in by hand, and what is asked for is looked
// up in what the room believes that it asked for.
type hand struct {
	*testing.T
	*Room
	now    time.Time
	order  []string
	known  map[string]*Node
	needed map[string]bool
	kept   map[string]string
}

func (h *hand) PatchNode(string, []byte, string, func(error)) {}
func (h *hand) Switch(string, string, bool, func(error))      {}

func (h *hand) Keep(data map[string]string, done func(error)) {
	h.kept = data
	done(nil)
}

func byHand(t *testing.T, rules []Rule, nodes ...*v1.Node) *hand {
	h := &hand{T: t, now: time.Unix(1_800_000_000, 0), known: map[string]*Node{}, needed: map[string]bool{}}
	h.Room = New(Options{Rules: rules, Scheduler: "muster", Keeps: true, Now: func() time.Time { return h.now },
		LoopTime: h.clock, IsGPU: isGPU, Changed: func() {}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Writer: h})
	for _, n := range nodes {
		h.order = append(h.order, n.Name)
		h.known[n.Name] = &Node{}
		h.sees(n)
	}
	return h
}

func (h *hand) clock() cluster.Time { return cluster.Time(h.now.UnixNano()) }

func (h *hand) sees(obj *v1.Node) {
	n := h.known[obj.Name]
	h.See(n, n.Whole(obj), false)
}

// batch is a rule for the pool that these tests have.
func batch(except ...string) []Rule {
	rule := cluster.DefaultPower(4)
	rule.Buffer, rule.Except = 0, except
	return []Rule{{Rule: rule, Selector: map[string]string{"pool": "batch"}, Timeout: 15 * time.Minute, Resume: "/on"}}
}

// newNode is a node of the pool with eight GPUs.
func newNode(name string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{},
		Labels: map[string]string{"pool": "batch"}}}
	n.Status.Capacity, n.Status.Allocatable = gpuList(8), gpuList(8)
	return n
}

// offNode is a node of the pool that a scheduler switched off when it had eight GPUs; the API server keeps that it has
// so many.
func offNode(name string, gpus int, by string) *v1.Node {
	n := newNode(name)
	n.Labels[Label], n.Spec.Unschedulable = Off, true
	n.Annotations = map[string]string{AnnotationSize: sizeText(n), AnnotationBy: by}
	n.Status.Capacity, n.Status.Allocatable = gpuList(gpus), gpuList(gpus)
	return n
}

func gpuList(gpus int) v1.ResourceList {
	return v1.ResourceList{gpu: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
}

func count(obj *v1.Node) int64 {
	q := obj.Status.Allocatable[gpu]
	return q.Value()
}

// passes lets time pass, then looks.
func (h *hand) passes(t time.Duration) {
	h.now = h.now.Add(t)
	h.Soon()
	if h.clock() >= h.Next() {
		h.Look(h.clock(), &Nodes{Order: h.order, Used: h.needed, Needed: h.needed,
			Up: func(string) bool { return true }})
	}
}

// is checks what the room last wrote, or saw, of a node; it counts as seen, and the request as answered.
func (h *hand) is(name, state string) {
	h.Helper()
	n := h.known[name]
	if n.Label() != state {
		h.Errorf("%s is %q, want %q", name, n.Label(), state)
	}
	if n.busy = false; n.asked != "" {
		obj := n.obj.DeepCopy()
		obj.Labels[Label], obj.Annotations[AnnotationSince] = n.asked, n.since.UTC().Format(time.RFC3339)
		h.sees(obj)
	}
}

// boots has a node say that it is ready, and has so many GPUs.
func (h *hand) boots(name string, gpus int) {
	obj := h.known[name].obj.DeepCopy()
	obj.Status.Conditions = []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(h.now)}}
	obj.Status.Capacity, obj.Status.Allocatable = gpuList(gpus), gpuList(gpus)
	h.sees(obj)
}

// What a room learns of the cluster's weeks is known to the next one; what is torn is learnt again. Where nothing is
// kept, nothing is prepared for it.
func TestLearn(t *testing.T) {
	h := byHand(t, batch(), offNode("n1", 8, "muster"))
	h.passes(0)
	h.passes(h.groups[0].Rule.Rule.Every)
	next := byHand(t, batch())
	next.Learn("muster-power", map[string]string{"pool_batch": "{"})
	if len(next.groups[0].meter.Last) != 0 {
		t.Errorf("%v of a torn text", next.groups[0].meter.Last)
	}
	next.Learn("muster-power", h.kept)
	if len(h.kept) != 1 || len(next.groups[0].meter.Last) != 1 {
		t.Errorf("%v of %v", next.groups[0].meter.Last, h.kept)
	}
	h.kept, h.opt.Keeps = nil, false
	if h.passes(h.groups[0].Rule.Rule.Every); h.kept != nil {
		t.Errorf("%v is kept", h.kept)
	}
}

// A node that is off is back when it has the GPUs that it had, and not as soon as it is ready.
func TestBackWhole(t *testing.T) {
	h := byHand(t, batch(), offNode("n1", 0, "muster"))
	h.needed["n1"] = true
	h.passes(time.Second)
	h.is("n1", Resuming)
	for _, gpus := range []int{0, 4} {
		h.passes(30 * time.Second)
		h.boots("n1", gpus)
		h.passes(time.Second)
		h.is("n1", Resuming)
	}
	h.boots("n1", 8)
	h.passes(time.Second)
	h.is("n1", On)
}

// One that does not get all of its GPUs back is counted on no more after the time, then used as it is.
func TestLacks(t *testing.T) {
	h := byHand(t, batch(), offNode("n1", 0, "muster"))
	h.needed["n1"] = true
	h.passes(time.Second)
	h.is("n1", Resuming)
	h.boots("n1", 4)
	n := h.known["n1"]
	if why := n.before.lacks(n.have, isGPU); why != "nvidia.com/gpu: 4 of 8" {
		t.Errorf("lacks %q", why)
	}
	h.passes(14 * time.Minute)
	h.is("n1", Resuming)
	h.passes(2 * time.Minute)
	if h.is("n1", Resuming); h.known["n1"].Sleeps() || !h.known["n1"].late {
		t.Error("it is counted on after the time")
	}
	h.boots("n1", 4)
	h.passes(time.Second)
	h.is("n1", On)
	h.boots("n1", 4) // what was written down counts no more
	if gpus := count(n.obj); gpus != 4 {
		t.Errorf("it has %d GPUs", gpus)
	}
}

// A wake-up in the round of a step is booked as one: nothing is put to sleep for a while after it.
func TestWokeInStep(t *testing.T) {
	for _, step := range []bool{false, true} {
		h := byHand(t, batch(), offNode("n1", 8, "muster"), offNode("n2", 8, "muster"))
		h.passes(0)
		h.needed["n1"] = true
		wait := time.Minute
		if step {
			wait = h.groups[0].Rule.Rule.Every
		}
		h.passes(wait)
		h.is("n1", Resuming)
		if m := &h.groups[0].meter; m.Grown != h.now.Unix() || (len(m.Last) == 1) != step {
			t.Errorf("step %v: woken at %d, now is %d; %d steps", step, m.Grown, h.now.Unix(), len(m.Last))
		}
	}
}

// That a node is off has yet to be seen, and so has that it is cordoned: it is not taken for one that a person wants
// back. One that is seen off and not cordoned is.
func TestCordonUnseen(t *testing.T) {
	h := byHand(t, batch(), newNode("n1"))
	n := h.known["n1"]
	n.asked, n.since, n.cut = Off, h.now, true
	if h.passes(time.Second); n.Label() != Off {
		t.Errorf("what was seen last says that it is not cordoned: it is %q", n.Label())
	}
	obj := newNode("n1")
	obj.Labels[Label] = Off
	h.sees(obj)
	h.passes(time.Second)
	h.is("n1", Resuming)
}

// A node that has no rule any more is switched on: an excepted node by its rule's program, one of no rule by its label
// alone; one that another scheduler switched off, or that is on, is left alone.
func TestStray(t *testing.T) {
	other := offNode("n4", 8, "another")
	other.Labels["pool"] = "its own"
	gone := offNode("n3", 8, "muster")
	gone.Labels["pool"], gone.Labels[Label] = "renamed", Suspending
	old := offNode("n5", 8, "")
	delete(old.Annotations, AnnotationBy)
	h := byHand(t, batch("n1", "n5"), offNode("n1", 0, "muster"), offNode("n2", 8, "muster"), gone, other, old)
	h.passes(time.Second)
	for name, state := range map[string]string{"n1": Resuming, "n2": Off, "n3": Resuming,
		"n4": Off, "n5": Resuming} {
		h.is(name, state)
	}
	if p := h.switchOf(h.known["n1"]); p.Resume != "/on" {
		t.Errorf("n1 is switched by %+v", p)
	}
	if p := h.switchOf(h.known["n3"]); p.Resume != "" || p.Timeout != strayLate {
		t.Errorf("n3 is switched by %+v", p)
	}
	h.boots("n1", 0)
	h.boots("n3", 8)
	h.passes(time.Second)
	h.is("n1", Resuming) // its GPUs are not there yet
	h.is("n3", On)
	h.boots("n1", 8)
	h.passes(time.Second)
	h.is("n1", On)
	h.passes(time.Second)
	if len(h.nodes) != 2 { // n2, n5
		t.Errorf("%d nodes are looked after", len(h.nodes))
	}
}

// A cluster without a rule looks after its strays, and then no more.
func TestNoRule(t *testing.T) {
	h := byHand(t, nil, offNode("n1", 8, "muster"))
	h.passes(time.Second)
	h.is("n1", Resuming)
	h.boots("n1", 8)
	h.passes(time.Second)
	h.is("n1", On)
	if at := h.Next(); at != cluster.Never {
		t.Errorf("the next look is at %v", at)
	}
}

// A node that was deleted is none that the buffer is for, and one of its name is another.
func TestDeleted(t *testing.T) {
	rules := batch()
	rules[0].Rule.Buffer = -1
	var nodes []*v1.Node
	for i := range 21 {
		nodes = append(nodes, offNode(fmt.Sprintf("n%02d", i), 8, "muster"))
	}
	h := byHand(t, rules, nodes...)
	if b := h.buffer(0); b != 2 {
		t.Errorf("the buffer of 21 nodes is %d", b)
	}
	h.Gone("n07", h.known["n07"])
	if b := h.buffer(0); b != 1 {
		t.Errorf("the buffer of 20 nodes is %d", b)
	}
	fresh := newNode("n07")
	delete(fresh.Labels, Label)
	h.sees(fresh)
	if n := h.known["n07"]; n.Sleeps() || h.buffer(0) != 2 {
		t.Errorf("a new node is %q", n.State())
	}
}
