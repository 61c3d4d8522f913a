package kube

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/loans"
)

// lender is a test's clock, and a loan with hours on it: of the pool one node is wanted back from one hour
// after the beginning, two from two hours, none from three.
type lender struct {
	*bench
	begin time.Time
	ahead atomic.Int64
}

func (l *lender) now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

func (l *lender) options(o *Options) {
	at := func(hours int) time.Duration {
		t := l.begin.Add(time.Duration(hours) * time.Hour).UTC()
		return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	}
	o.Now = l.now
	o.Loans = []Loan{{Selector: map[string]string{"pool": "lent"},
		Loan: cluster.Loan{Partition: "pool=lent", Clock: cluster.Weekly{Zone: "UTC"}, Back: []cluster.Back{
			{Hours: cluster.Hours{From: at(1), To: at(3)}, Nodes: 1},
			{Hours: cluster.Hours{From: at(2), To: at(3)}, Nodes: 2}}}}}
}

// passes lets hours pass, and the scheduler notice it.
func (l *lender) passes(d *Driver, hours int) {
	l.Helper()
	l.ahead.Store(int64(time.Duration(hours)*time.Hour + time.Minute))
	l.look(d, func() {})
}

func (b *bench) loan(names ...string) (list []string) {
	b.Helper()
	for _, name := range names {
		n, err := b.c.CoreV1().Nodes().Get(b.ctx, name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, n.Labels[loans.Label])
	}
	return list
}

func (b *bench) loans(want string, names ...string) {
	b.Helper()
	b.wait(strings.Join(names, ",")+": "+want, func() bool { return strings.Join(b.loan(names...), " ") == want })
}

// quiet checks that a comparison with the cluster finds nothing.
func (b *bench) quiet(d *Driver) {
	b.Helper()
	b.wait("a comparison finds nothing", func() (none bool) {
		b.look(d, func() { none = len(d.compare(d.clock())) == 0 })
		return none
	})
}

// lent is a pod for the lent nodes, or one of them.
func lent(name string, gpus int, node string) *v1.Pod {
	p := controlplane.Pod(name, gpus, nil)
	p.Spec.NodeSelector = map[string]string{"pool": "lent"}
	if node != "" {
		p.Spec.NodeSelector["kubernetes.io/hostname"] = node
	}
	return p
}

// When its hours begin, the node is given back on which no pod is; a pod that needs it waits and is told until when.
// The next scheduler gives back the same. When both are wanted, the pod on the other leaves, and says why; later both
// are lent again. No comparison in between finds anything to undo.
func testLoans(b *bench) {
	for _, n := range []string{"n1", "n2"} {
		if _, err := b.c.CoreV1().Nodes().Create(b.ctx, controlplane.Node(n, 8, map[string]string{"pool": "lent"}),
			metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.nodes(8, "own")
	l := &lender{bench: b, begin: time.Now().Truncate(time.Minute)}
	d, stop := b.schedule(l.options)
	defer stop()
	b.loans("lent lent", "n1", "n2")
	b.create(lent("a", 4, "n1"))
	b.wait("a runs", func() bool { return b.pod("a").Spec.NodeName == "n1" })
	l.passes(d, 1)
	b.loans("lent given", "n1", "n2")
	b.create(lent("b", 8, ""))
	b.wait("b is told until when it waits", func() bool {
		c := condition(b.pod("b"))
		return c.Status == v1.ConditionFalse && strings.Contains(c.Message, "given back: n2 until ") &&
			strings.Contains(c.Message, "(UTC)")
	})
	b.quiet(d)
	stop()
	d, stop = b.schedule(l.options)
	defer stop()
	b.wait("the next scheduler has the node as given back", func() (given bool) {
		b.look(d, func() { given = d.eng != nil && slices.Equal(d.eng.GivenBack(), []string{"n2"}) })
		return given
	})
	b.quiet(d)
	if b.pod("a").Spec.NodeName != "n1" || b.pod("b").Spec.NodeName != "" {
		b.Error("a left, or b runs")
	}
	// A person cordons the one that is given back: it is so when it is lent again.
	l.passes(d, 2)
	b.loans("given given", "n1", "n2")
	b.wait("a leaves", func() bool { return len(b.whereabouts("a")) == 0 })
	b.wait("it is told why", func() bool {
		list, err := b.c.CoreV1().Events("default").List(b.ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e v1.Event) bool {
			return e.Reason == "Preempted" && e.InvolvedObject.Name == "a" &&
				e.Message == "its node is given back to its lender"
		})
	})
	if _, err := b.c.CoreV1().Nodes().Patch(b.ctx, "n1", types.MergePatchType,
		[]byte(`{"spec": {"unschedulable": true}}`), metav1.PatchOptions{}); err != nil {
		b.Fatal(err)
	}
	b.wait("the scheduler hears of it", func() (closed bool) {
		b.look(d, func() { closed = d.nodes.Node("n1").Obj.Spec.Unschedulable })
		return closed
	})
	b.quiet(d)
	l.passes(d, 3)
	b.loans("lent lent", "n1", "n2")
	b.wait("b runs on the one that is not cordoned", func() bool { return b.pod("b").Spec.NodeName == "n2" })
	b.quiet(d)
}

// TestLoans plays nodes that are lent on a real API server.
func TestLoans(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.sub("hours", testLoans)
}
