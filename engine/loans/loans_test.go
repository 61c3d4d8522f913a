package loans

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/inventory"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/engine/sched"
)

const hour = cluster.Time(time.Hour)

// lender is a cluster of nodes a, b and c, of which a and b are lent, and wanted back: one from 8 h, both from 10 h to
// 12 h of the first day, a Monday.
func lender(t *testing.T) (*Book, *inventory.Store, *sched.World) {
	t.Helper()
	st, names := &inventory.Store{}, map[string]int32{}
	for i, name := range []string{"a", "b", "c"} {
		names[name] = int32(i)
		n := cluster.Node{Name: name, Model: "T4", GPUs: 1}
		if _, err := st.Add(n, cluster.GPUModel{Name: "T4"}, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	monday := cluster.Hours{Days: 1 << time.Monday}
	morning, noon := monday, monday
	morning.From, morning.To, noon.From, noon.To = 8*time.Hour, 12*time.Hour, 10*time.Hour, 12*time.Hour
	spec := &cluster.Spec{Epoch: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
		Partitions: []cluster.Partition{{Name: "p", Nodes: []string{"b", "a"}}},
		Loans: []cluster.Loan{{Partition: "p",
			Back: []cluster.Back{{Hours: morning, Nodes: 1}, {Hours: noon, Nodes: 2}}}}}
	w := &sched.World{Store: st}
	b, err := New(w, spec, names)
	if err != nil {
		t.Fatal(err)
	}
	return &b, st, w
}

// TestDue: as many nodes are given back as are wanted at an instant, and those that no longer are, are taken again. It
// is asked only when that may be another.
func TestDue(t *testing.T) {
	b, st, w := lender(t)
	if due := b.Due(); len(due) != 0 || b.Wake() != 8*hour {
		t.Fatalf("at midnight %+v, then at %v", due, b.Wake())
	}
	w.Now = 8*hour - 1
	if b.Due() != nil {
		t.Fatal("nodes are due before their time")
	}
	w.Now = 8 * hour
	due := b.Due()
	if len(due) != 1 || due[0].Back != 1 || !slices.Equal(b.Candidates(&due[0], true), []int32{0, 1}) {
		t.Fatalf("%+v", due)
	}
	if err := b.Check(nil); err == nil {
		t.Error("a node is wanted back, none is given back, and that is right")
	}
	st.SetGiven(1, true)
	st.SetState(1, cluster.Draining)
	if err := b.Check(nil); err != nil || !slices.Equal(b.GivenBack(), []string{"b"}) {
		t.Fatalf("%v: %v", b.GivenBack(), err)
	}
	w.Now = 10 * hour
	if due = b.Due(); len(due) != 1 || due[0].Back != 1 || !slices.Equal(b.Candidates(&due[0], true), []int32{0}) {
		t.Fatalf("%+v", due)
	}
	st.SetGiven(0, true)
	st.SetState(0, cluster.Draining)
	w.Now = 12 * hour
	if due = b.Due(); len(due) != 1 || due[0].Back != 0 || !slices.Equal(due[0].Take, []int32{0, 1}) {
		t.Fatalf("%+v", due)
	}
}

// TestCheck: no job holds devices of a node that is given back.
func TestCheck(t *testing.T) {
	b, st, w := lender(t)
	w.Now = 8 * hour
	st.SetGiven(1, true)
	st.SetState(1, cluster.Draining)
	j := &job.State{Spec: &cluster.Job{}, Tenure: &job.Tenure{}, Facts: job.Facts{State: job.Running}}
	j.Allocs = []inventory.Alloc{{Node: 1, GPUs: 1}}
	if err := b.Check([]*job.State{nil, j}); err == nil || !strings.Contains(err.Error(), "job 0 is on node b") {
		t.Error(err)
	}
}

// TestNew: loans are of partitions that there are, and no node is in two of them.
func TestNew(t *testing.T) {
	_, st, w := lender(t)
	names := map[string]int32{"a": 0, "b": 1, "c": 2}
	one := []cluster.Back{{Hours: cluster.Hours{To: time.Hour}, Nodes: 1}}
	spec := &cluster.Spec{Partitions: []cluster.Partition{{Name: "p", Nodes: []string{"a", "b"}},
		{Name: "q", Nodes: []string{"b", "c"}}},
		Loans: []cluster.Loan{{Partition: "p", Back: one}, {Partition: "q", Back: one}}}
	if _, err := New(w, spec, names); err == nil || !strings.Contains(err.Error(), "node b is in p, too") {
		t.Error(err)
	}
	spec.Loans = []cluster.Loan{{Partition: "x"}}
	if _, err := New(w, spec, names); err == nil || !strings.Contains(err.Error(), "partition") {
		t.Error(err)
	}
	if !st.Nodes()[0].Lent() || st.Nodes()[2].Lent() {
		t.Error("other nodes are lent than those of the loan")
	}
}
