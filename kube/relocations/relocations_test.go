package relocations

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/job"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/places"
)

// at is so many seconds after the epoch.
func at(seconds int64) cluster.Time { return cluster.Time(seconds * int64(time.Second)) }

// pod asks for GPUs, and is made again by a ReplicaSet.
func pod(name, owner string, gpus int, created int64) *gang.Pod {
	p := &gang.Pod{}
	p.Obj = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
		CreationTimestamp: metav1.Unix(created, 0), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: types.UID(owner), Controller: ptr.To(true)}}}}
	p.Request, p.Signature = cluster.Request{GPUs: gpus}, "any node"
	return p
}

// gathered is a gang of these pods that waits for nothing else.
func gathered(pods ...*gang.Pod) *gang.Gang {
	name := pods[0].Obj.Name
	g := &gang.Gang{Key: "pod/" + name, Name: "default/" + name, Pods: map[types.UID]*gang.Pod{}, Job: cluster.NoJob}
	for _, p := range pods {
		p.Gang = g
		g.Pods[p.Obj.UID] = p
	}
	return g
}

// running is a gang of these pods on node n0.
func running(id cluster.JobID, pods ...*gang.Pod) *gang.Gang {
	g := gathered(pods...)
	g.Phase, g.Job = gang.Running, id
	g.Spec = &cluster.Job{ID: id, Name: g.Name, Tasks: gang.TaskSets(pods), NoRequeue: true}
	for _, p := range pods {
		p.Node = "n0"
		g.Places = append(g.Places, places.Place{Node: "n0", Pod: p.Obj.UID})
	}
	return g
}

// in is the record of a job in this state, with these places that are booked for it elsewhere.
func in(state job.Phase, dest ...engine.Alloc) *engine.JobRecord {
	r := &engine.JobRecord{}
	r.State, r.Dest = state, dest
	return r
}

var nodeNames = []string{"n0", "n1"}

// leaving is a gang of one pod of four GPUs that is told at 100 s to leave for node n1. Its place is kept for a minute.
func leaving(t *testing.T) (*Room, *gang.Gang) {
	t.Helper()
	r, g := New(time.Minute), running(7, pod("a", "r", 4, 1))
	g.Phase = gang.Stopping
	rec := in(engine.Stopping, engine.Alloc{Node: 1, Tasks: 1})
	p := r.SetOut(g, &engine.Action{Reason: engine.Preempted, Grace: 30 * time.Second}, rec, nodeNames, at(100))
	if p == nil || p.To != "n1" || p.Until != at(190) || g.Relocation != p || !r.Any() || !r.Busy() {
		t.Fatalf("it is not on its way: %+v", p)
	}
	return r, g
}

// moving is the gang whose pods have gone at 110 s.
func moving(t *testing.T) (*Room, *gang.Gang) {
	t.Helper()
	r, g := leaving(t)
	w := r.Placeholder(g, at(110))
	if w == nil || g.Relocation != nil || w.Relocation.Until != at(170) || w.Phase != gang.Moving || w.Job != 7 ||
		w.Key != "move/7" || w.Name != "default/a-move" {
		t.Fatalf("%+v stands for it", w)
	}
	return r, w
}

// begin says that the place of a gang is free.
func begin(t *testing.T, r *Room, w *gang.Gang) {
	t.Helper()
	a := &engine.Action{Type: engine.Start, Job: 7, Allocs: []engine.Alloc{{Node: 1, Tasks: 1}}}
	if lost := r.Apply(w, a); lost != nil {
		t.Fatalf("it is lost: %s", lost.Text())
	}
	a.Allocs[0].Node = 0 // the engine goes on with its own
	if s := w.Relocation.Start; s == nil || s.Allocs[0].Node != 1 {
		t.Fatalf("it starts as %+v", s)
	}
}

// A gang is moved if the engine preempts it and has places for it elsewhere.
func TestSetOut(t *testing.T) {
	dest := engine.Alloc{Node: 1}
	for name, c := range map[string]struct {
		why engine.StopReason
		rec *engine.JobRecord
	}{
		"its node is lost": {engine.NodeLost, in(engine.Stopping, dest)},
		"its job is over":  {engine.Preempted, nil},
		"it runs":          {engine.Preempted, in(engine.Running, dest)},
		"it goes nowhere":  {engine.Preempted, in(engine.Stopping)},
	} {
		r, g := New(time.Minute), running(7, pod("a", "r", 4, 1))
		p := r.SetOut(g, &engine.Action{Reason: c.why}, c.rec, nodeNames, at(100))
		if p != nil || g.Relocation != nil || r.Busy() || r.Placeholder(g, at(110)) != nil {
			t.Errorf("%s: it is moved, %+v", name, p)
		}
	}
}

// The successor is what the same owner made since, and asks for the same; what asks for something else ends the wait.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		pod     *gang.Pod
		more    []*gang.Pod
		claimed bool
		want    string // why it waits, or why the place is let go; "": it is not for the pod
	}{
		{"the same", pod("b", "r", 4, 101), nil, false, "it takes the place of default/a, which is moved to n1"},
		{"the same, of before", pod("b", "r", 4, 50), nil, false, "it takes the place of default/a"},
		{"another owner's", pod("b", "s", 4, 101), nil, false, ""},
		{"fewer GPUs", pod("b", "r", 1, 101), nil, false, "default/b, which came instead, asks for something else"},
		{"fewer GPUs, of before", pod("b", "r", 1, 50), nil, false, ""},
		{"more pods", pod("b", "r", 4, 101), []*gang.Pod{pod("c", "r", 4, 101)}, false, "asks for something else"},
		{"another is to take it", pod("b", "r", 4, 101), nil, true, ""},
	} {
		r, kept := moving(t)
		all := map[string]*gang.Gang{}
		if c.claimed {
			first := gathered(pod("first", "r", 4, 101))
			all[first.Key] = first
			if w, _ := r.Match(first, first.Sorted(), nil, all); w != kept {
				t.Errorf("%s: the first does not take it", c.name)
			}
		}
		g := gathered(c.pod)
		all[g.Key] = g
		w, differs := r.Match(g, g.Sorted(), c.more, all)
		got := g.Refused
		if differs != nil {
			got = differs.Text()
			if w != nil || differs.Outcome != moves.Differs || differs.Gang != kept {
				t.Errorf("%s: %+v", c.name, differs)
			}
		} else if (w == kept) != (c.want != "") || w != nil && w.Relocation.Successor != g {
			t.Errorf("%s: it takes the place of %+v", c.name, w)
		}
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// Once the engine says that the place is free the successor has the job, and nothing is left of the way.
func TestTakeOver(t *testing.T) {
	r, w := moving(t)
	g := gathered(pod("b", "r", 4, 101))
	all := map[string]*gang.Gang{g.Key: g}
	for _, wait := range []bool{true, false} {
		if !wait {
			begin(t, r, w)
			g.Refused = ""
		}
		if got, differs := r.Match(g, g.Sorted(), nil, all); got != w || differs != nil || (g.Refused != "") != wait {
			t.Fatalf("wait %v: %+v %+v, %q", wait, got, differs, g.Refused)
		}
	}
	old := w.Relocation.Spec
	p := r.TakeOver(g, w, g.Sorted())
	if g.Job != 7 || g.Phase != gang.Waiting || g.Spec == old || g.Spec.Name != "default/b" ||
		old.Name != "default/a" || !slices.Equal(g.InJob, []types.UID{"b"}) {
		t.Errorf("%+v has job %+v", g, g.Spec)
	}
	if p.Start == nil || w.Relocation != nil || !w.Book.Over || r.Busy() {
		t.Errorf("%+v is kept, of %+v", w, p)
	}
	if got, _ := r.Match(gathered(pod("c", "r", 4, 102)), []*gang.Pod{pod("c", "r", 4, 102)}, nil, all); got != nil {
		t.Error("it is taken twice")
	}
}

// A place is let go when its time is over, in words that say whose time that was.
func TestLate(t *testing.T) {
	for _, c := range []struct {
		make   func(*testing.T) (*Room, *gang.Gang)
		until  int64
		why    string
		events []engine.EventType
	}{
		{leaving, 190, "its pods were not gone within 1m beyond their grace", []engine.EventType{engine.Cancelled}},
		{moving, 170, "its owner made no others within 1m", []engine.EventType{engine.StartFailed, engine.Cancelled}},
	} {
		r, w := c.make(t)
		if e := r.Late(w, at(c.until)-1); e != nil {
			t.Errorf("too early: %s", e.Text())
		}
		e := r.Late(w, at(c.until))
		if e == nil || e.Outcome != moves.Late || e.Text() != "the place of default/a on n1 is kept no longer: "+c.why {
			t.Fatalf("%+v, not %q", e, c.why)
		}
		var got []engine.EventType
		for _, ev := range r.LetGo(e) {
			if got = append(got, ev.Type); ev.Job != 7 {
				t.Errorf("%+v", ev)
			}
		}
		if !slices.Equal(got, c.events) || r.Busy() || w.Relocation != nil || r.Late(w, at(c.until)) != nil {
			t.Errorf("the engine hears %v; %+v", got, w)
		}
		if w.Book.Over != (w.Phase == gang.Moving) {
			t.Error("a gang with pods goes on, one without is over")
		}
		g := gathered(pod("b", "r", 4, 101))
		if w, e := r.Match(g, g.Sorted(), nil, nil); w != nil || e != nil {
			t.Error("one that comes too late has a place")
		}
	}
}

// A Job's pod that succeeded when it was told to leave is not made again.
func TestOver(t *testing.T) {
	r, g := leaving(t)
	p := g.Pods["a"].Obj
	p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "batch/v1", "Job"
	if r.Over(g) != nil {
		t.Error("it is not over")
	}
	p.Status.Phase = v1.PodSucceeded
	if e := r.Over(g); e == nil || e.Outcome != moves.Over || e.Why != "it came to its end" {
		t.Errorf("%+v", e)
	}
	if r.Over(gathered(pod("b", "r", 1, 1))) != nil {
		t.Error("it is not moved")
	}
}

// records has one job.
type records struct{ *engine.JobRecord }

func (r records) Record(cluster.JobID) *engine.JobRecord { return r.JobRecord }

// What the engine gave to others is lost: it says so, or it is found by the state of the job.
func TestLost(t *testing.T) {
	r, w := moving(t)
	if e := r.Apply(w, &engine.Action{Type: engine.Preempt, Job: 7}); e == nil || e.Outcome != moves.Lost ||
		e.Why != "others need its place, or that is gone" {
		t.Errorf("%+v", e)
	}
	for _, c := range []struct {
		rec  *engine.JobRecord
		lost bool
	}{{nil, true}, {in(engine.Pending), true}, {in(engine.Done), true},
		{in(engine.Placed), false}} {
		list := r.Lost(records{c.rec})
		const why = "its place was lost meanwhile"
		if (len(list) == 1) != c.lost || c.lost && (list[0].Gang != w || list[0].Why != why) {
			t.Errorf("%+v: %+v", c.rec, list)
		}
	}
	begin(t, r, w)
	if list := r.Lost(records{}); len(list) > 0 {
		t.Error("it started")
	}
	if stopping, _ := leaving(t); len(stopping.Lost(records{})) > 0 {
		t.Error("it has not left yet")
	}
}

// A job comes back in the next engine while it is moved, as it was allowed to then.
func TestComesBack(t *testing.T) {
	_, g := leaving(t)
	g.Relocation.Spec.Checkpoint = cluster.Checkpoint{None: true}
	spec := cluster.Job{Name: "old", NoRequeue: true, Checkpoint: cluster.Checkpoint{Interval: 1, Cost: 2}}
	if p := ComesBack(g, &spec); p == nil || spec.NoRequeue || !spec.Checkpoint.None || p.Spec != &spec {
		t.Errorf("%+v %+v", p, spec)
	}
	g = running(8, pod("b", "r", 1, 1))
	spec = cluster.Job{Name: "old", Checkpoint: cluster.Checkpoint{Interval: 1, Cost: 2}}
	if ComesBack(g, &spec) != nil || !spec.NoRequeue || spec.Name != "default/b" ||
		spec.Checkpoint != (cluster.Checkpoint{Interval: 1}) {
		t.Errorf("%+v", spec)
	}
}
