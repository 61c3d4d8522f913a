package loans

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

func node(name, team, label string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team, Label: label}}}
}

// Nodes of a loan are partitions of the engine, and wanted back are no more than there are. The first engine has those
// given back that say so, but for those on which jobs still are.
func TestLend(t *testing.T) {
	r := New([]Loan{{Selector: map[string]string{"team": "x"},
		Loan: cluster.Loan{Partition: "x", Back: []cluster.Back{{Nodes: 9}}}}})
	objects := map[string]*v1.Node{"a": node("a", "x", given), "b": node("b", "y", given), "c": node("c", "x", given)}
	object := func(name string) *v1.Node { return objects[name] }
	spec := cluster.Spec{Nodes: []cluster.Node{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "gone"}}}
	r.Lend(&spec, object)
	if len(spec.Loans) != 1 || spec.Loans[0].Back[0].Nodes != 2 || len(spec.Partitions) != 2 ||
		!slices.Equal(spec.Partitions[0].Nodes, []string{"a", "c"}) || len(spec.Partitions[1].Nodes) != 4 {
		t.Errorf("%+v, %+v", spec.Loans, spec.Partitions)
	}
	holds := engine.JobHoldings{Allocs: []engine.Alloc{{Node: 2}}}
	snap := engine.Snapshot{Nodes: slices.Clone(spec.Nodes), Jobs: []engine.JobRecord{{Holdings: holds}}}
	snap.Nodes[0].State = cluster.Up
	r.Found(&snap, object)
	if !slices.Equal(snap.Given, []string{"a"}) || snap.Nodes[0].State != cluster.Draining {
		t.Errorf("given back %v, %+v", snap.Given, snap.Nodes)
	}
}

// A node is told once whether it is given back, again when that failed or is another, and not if it says so.
func TestMark(t *testing.T) {
	r := New([]Loan{{Selector: map[string]string{"team": "x"}}})
	n, ours := node("a", "x", lent), node("b", "y", "")
	told := func(n *v1.Node, isGiven bool) string {
		_, to := r.Mark(n, isGiven)
		return to
	}
	var got []string
	for range 2 {
		got = append(got, told(n, false), told(n, true), told(ours, true))
	}
	if !r.Failed("a", given) || r.Failed("a", given) {
		t.Error("it is not told again when that failed")
	}
	got = append(got, told(n, true))
	n.Labels[Label] = given
	r.See(n)
	if got = append(got, told(n, true), told(n, false)); !slices.Equal(got,
		[]string{"", given, "", "", "", "", given, "", lent}) {
		t.Errorf("%q", got)
	}
}

// The engine looks at the hours at the beginning, and then when other nodes may be wanted; without loans never.
func TestDue(t *testing.T) {
	r := New([]Loan{{Loan: cluster.Loan{Clock: cluster.Weekly{Zone: "UTC"}, Back: []cluster.Back{{Nodes: 1,
		Hours: cluster.Hours{From: 8 * time.Hour, To: 18 * time.Hour}}}}}})
	at := cluster.Time(time.Date(2026, 3, 2, 7, 0, 0, 0, time.UTC).UnixNano())
	if !r.Due(at) || r.Due(at.Add(59*time.Minute)) || !r.Due(at.Add(time.Hour)) {
		t.Errorf("next at %v", r.Next())
	}
	if none := New(nil); none.Due(at) || none.Next() != cluster.Never {
		t.Error("due without loans")
	}
}

// The engine is told which services lend, and of gangs whose spec says something else whose replicas they are; what the
// next replica asks for is what the newest asks for, or else what the service says.
func TestServiceEvents(t *testing.T) {
	gang := func(id, gpus int, was, is string) Gang {
		return Gang{Spec: &cluster.Job{ID: cluster.JobID(id), Service: was,
			Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: gpus}}}}, Service: is}
	}
	stated := &cluster.Job{Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 1}}}}
	list := []cluster.Lender{{Service: "a/x", Replica: stated, Replicas: 3},
		{Service: "a/y", Replica: stated, Replicas: 2}}
	gangs := []Gang{gang(3, 2, "", "a/x"), gang(1, 4, "a/x", "a/x"), gang(2, 1, "", ""), gang(4, 1, "a/z", "")}
	var told []string
	events := ServiceEvents(list, gangs, func(spec *cluster.Job) {
		told = append(told, fmt.Sprintf("%d:%s", spec.ID, spec.Service))
	})
	if !slices.Equal(told, []string{"3:a/x", "4:"}) || len(events) != 3 || gangs[0].Spec.Service != "" {
		t.Fatalf("%v, %+v", told, events)
	}
	last := &events[2]
	if last.Type != engine.LendersChanged || last.Lenders[0].Replica.GPUs() != 2 || last.Lenders[1].Replica != stated ||
		list[0].Replica != stated {
		t.Errorf("%+v", last.Lenders)
	}
	if events[0].Type != engine.Updated || events[0].Spec.Service != "a/x" || events[1].Spec.Service != "" {
		t.Errorf("%+v", events)
	}
}
