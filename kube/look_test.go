package kube

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/show"
)

// still is a driver without an API server, whose clock stands: what would be
// bound stays on its way.
func still(t testing.TB, nodes int, pods ...*v1.Pod) (*Driver, *time.Time) {
	t.Helper()
	return stillWith(t, nodes, func(*Options) {}, pods...)
}

// stillWith is still with other options.
func stillWith(t testing.TB, nodes int, change func(*Options), pods ...*v1.Pod) (*Driver, *time.Time) {
	t.Helper()
	opt := testOptions(nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	opt.Tell, opt.Now = nil, func() time.Time { return now }
	change(&opt)
	d := New(opt)
	for i := range nodes {
		n := controlplane.Node(fmt.Sprintf("n%04d", i), 8, nil)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		d.nodeChanged(n)
	}
	for i, p := range pods {
		p.UID = types.UID(fmt.Sprintf("%s-%d", p.Name, i))
		p.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
		d.podChanged(p)
	}
	if err := d.begin(d.found(), "start"); err != nil {
		t.Fatal(err)
	}
	steps(t, d)
	return d, &now
}

// steps takes steps until nothing is to be told any more.
func steps(t testing.TB, d *Driver) {
	t.Helper()
	for once(t, d) {
	}
}

// once takes a step, or begins again; false: there is nothing to do.
func once(t testing.TB, d *Driver) bool {
	t.Helper()
	events := d.events(d.clock())
	if d.outdated(events) {
		if err := d.renew(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if len(events) == 0 {
		return len(d.queued) > 0
	}
	d.seq++
	dec := d.eng.Step(engine.Batch{Seq: d.seq, Now: d.clock(), Events: events})
	if err := d.Apply(context.Background(), dec); err != nil {
		t.Fatal(err)
	}
	return true
}

// A gang keeps its number while its pods leave for others and come back; one
// that is over is found among those that are.
func TestBook(t *testing.T) {
	train := controlplane.Gang("train", 2, 8, map[string]string{LabelTier: "best-effort"})
	d, now := still(t, 2, train...)
	see := func() (list []string) {
		l := d.see()
		for _, r := range slices.Concat(l.Rows, l.Past) {
			j := r.Job(l.At)
			list = append(list, fmt.Sprintf("%d %s %s restarts=%d preempted=%d", j.ID, j.Submission.Name, j.State,
				j.Restarts, j.Preemptions))
		}
		return list
	}
	expect := func(want ...string) {
		t.Helper()
		if got := see(); !slices.Equal(got, want) {
			t.Fatalf("%q, not %q", got, want)
		}
	}
	bound := func(g *gang.Gang) {
		for _, p := range g.Pods {
			for _, s := range g.Places {
				if s.Pod == p.Obj.UID {
					p.Node, p.Binding = s.Node, false
				}
			}
		}
		d.agenda.touch(g)
		steps(t, d)
	}
	g := d.gangs["gang/default/train"]
	expect("1 default/train starting restarts=0 preempted=0")
	bound(g)
	*now = now.Add(time.Hour)
	high := controlplane.Pod("high", 4, map[string]string{LabelTier: "critical"})
	high.UID, high.CreationTimestamp = "high", metav1.NewTime(*now)
	d.podChanged(high)
	steps(t, d)
	expect("2 default/high pending restarts=0 preempted=0", "1 default/train stopping restarts=0 preempted=1")
	for _, p := range train {
		d.podGone(p)
	}
	steps(t, d)
	expect("2 default/high starting restarts=0 preempted=0", "1 default/train preempted restarts=0 preempted=1")
	for i, p := range train {
		again := p.DeepCopy()
		again.UID = types.UID(fmt.Sprintf("again-%d", i))
		d.podChanged(again)
	}
	steps(t, d)
	expect("2 default/high starting restarts=0 preempted=0", "1 default/train pending restarts=0 preempted=1")
	l := d.see()
	j := l.Rows[1].Job(l.At)
	if j.GPUHours != 16 || time.Duration(j.Ran) != time.Hour || j.Submission.Tasks != 2 || j.Submission.GPUs != 8 {
		t.Errorf("books: %g GPU-hours in %s, %d tasks of %d GPUs", j.GPUHours, time.Duration(j.Ran), j.Submission.Tasks,
			j.Submission.GPUs)
	}
	bound(d.gangs["pod/high"])
	done := high.DeepCopy()
	done.Status.Phase = v1.PodSucceeded
	d.podChanged(done)
	steps(t, d)
	expect("1 default/train starting restarts=1 preempted=1", "2 default/high completed restarts=0 preempted=0")
	d.podGone(done)
	steps(t, d)
	expect("1 default/train starting restarts=1 preempted=1", "2 default/high completed restarts=0 preempted=0")
}

// BenchmarkLook is what those who look cost the loop: 1,000 nodes, 10,000 pods
// that wait.
func BenchmarkLook(b *testing.B) {
	var pods []*v1.Pod
	for i := range 11_000 {
		pods = append(pods, controlplane.Pod(fmt.Sprintf("p%05d", i), 8, nil))
	}
	d, _ := still(b, 1000, pods...)
	b.Run("see", func(b *testing.B) {
		for b.Loop() {
			d.see()
		}
	})
	l := d.see()
	b.Run("jobs", func(b *testing.B) {
		for b.Loop() {
			for _, r := range l.Choose(ask.Filter{States: show.Live}) {
				r.Job(l.At)
			}
		}
	})
	g := d.gangs["pod/"+string(pods[len(pods)-1].UID)]
	b.Run("why", func(b *testing.B) {
		for b.Loop() {
			d.scene(d.clock()).Explain(g)
		}
	})
}

// Gangs that can never run, each on nodes of its own, are refused, and that is the
// end of it: the engine does not begin again for one after the other for ever.
func TestRefusedApart(t *testing.T) {
	var pods []*v1.Pod
	for i := range 3 {
		p := controlplane.Pod(fmt.Sprintf("large-%d", i), 16, nil)
		p.UID = types.UID(p.Name)
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: fmt.Sprintf("n%04d", i)}
		pods = append(pods, p)
	}
	d, _ := still(t, 3)
	for i, p := range pods { // one after the other
		d.podChanged(p)
		for range 20 {
			if !once(t, d) {
				break
			}
		}
		if once(t, d) {
			t.Fatalf("with %d of them the scheduler does not come to rest", i+1)
		}
		if g := d.pods[p.UID].Gang; g.Refused == "" {
			t.Errorf("%s does not say why it waits", p.Name)
		}
	}
}

// GPUs that the engine counts as free by mistake are not given away twice.
func TestOverdrawn(t *testing.T) {
	d, now := still(t, 1)
	d.come(t, now, controlplane.Pod("has", 6, nil))
	if on := d.places("has"); on["n0000"] != 1 {
		t.Fatalf("it is on %v", on)
	}
	id := d.pods["has"].Gang.Job
	d.queued = append(d.queued, engine.Event{Type: engine.Stopped, Job: id, Reason: engine.Completed}) // a lie
	steps(t, d)
	life := d.life.count
	p := controlplane.Pod("wants", 4, nil)
	p.UID, p.CreationTimestamp = "wants", metav1.NewTime(*now)
	d.podChanged(p)
	for range 5 { // it is tried again only when time has passed
		once(t, d)
	}
	if on := d.places("wants"); len(on) != 0 || d.life.count == life {
		t.Errorf("6 of 8 GPUs are held, and a pod with 4 is on %v; the engine began %d times again", on, d.life.count-life)
	}
	d.podGone(d.pods["has"].Obj)
	for range 3 {
		*now = now.Add(time.Minute)
		d.agenda.due(d.clock())
		steps(t, d)
	}
	if on := d.places("wants"); on["n0000"] != 1 {
		t.Errorf("the GPUs are free, and it is on %v", on)
	}
}
