package kube

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
)

// tells has a pod report, as of some time ago, and takes the steps that come of it.
func (d *Driver) tells(t *testing.T, name types.UID, r show.Report) error {
	t.Helper()
	d.ready.Store(true)
	failed := make(chan error, 1)
	p := d.pods[name]
	go func() { failed <- d.Report(t.Context(), p.Obj.Namespace, p.Obj.Name, p.Obj.UID, &r) }()
	for {
		if err := d.inbox.Wait(t.Context(), 10*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		d.collect()
		steps(t, d)
		select {
		case err := <-failed:
			return err
		default:
		}
	}
}

// stepped is a report of a step.
func stepped(lines int, step, steps float64) show.Report {
	return show.Report{Lines: lines, Progress: show.Progress{Step: step, Steps: steps, SamplesPerSec: 10}}
}

// arrives lets what is on its way to nodes arrive.
func (d *Driver) arrives(t *testing.T) {
	t.Helper()
	for _, g := range d.gangs {
		for _, s := range g.Places {
			if p := g.Pods[s.Pod]; p != nil && p.Binding {
				p.Node, p.Binding = s.Node, false
				d.agenda.touch(g)
			}
		}
	}
	steps(t, d)
}

// What a pod reports is what a job on a machine writes: its speed, its end, what it saved. A report that comes
// twice, late or after one was lost changes nothing of that.
func TestHearReport(t *testing.T) {
	d, now := still(t, 1)
	d.come(t, now, controlplane.Pod("a", 8, map[string]string{"!" + AnnotationModel: "resnet50"}))
	d.arrives(t)
	began, g := *now, d.pods["a"].Gang
	at := func(s int) { *now = began.Add(time.Duration(s) * time.Second) }
	at(100)
	if err := d.tells(t, "a", stepped(1, 100, 1000)); err != nil {
		t.Fatal(err)
	}
	at(110)
	_ = d.tells(t, "a", stepped(2, 200, 1000))
	at(115)
	_ = d.tells(t, "a", stepped(2, 200, 1000)) // the answer was lost
	if rate := g.Pace.Rate; rate != 10 {
		t.Errorf("it goes at %v steps a second", rate)
	}
	end, want := g.ExpectedEnd(d.eng, d.now), began.Add(190*time.Second)
	if end.Sub(0) != time.Duration(want.UnixNano()) {
		t.Errorf("it ends %v later", end.Sub(0)-time.Duration(want.UnixNano()))
	}
	late := stepped(3, 300, 1000)
	late.Age = 5000
	at(125)
	_ = d.tells(t, "a", late) // as of 120
	if rate := g.Pace.Rate; rate != 10 {
		t.Errorf("after a late report it goes at %v steps a second", rate)
	}
	saved := stepped(5, 400, 1000)
	step := 350.0
	saved.SavedAt, saved.Progress.Checkpoint = &step, "/ckpt"
	at(130)
	_ = d.tells(t, "a", saved)
	if r := d.eng.Record(g.Job); r.Saved != 125*time.Second {
		t.Errorf("%v of its work is saved, not what was done when it was at step 350", r.Saved)
	}
	at(140)
	saved = stepped(6, 500, 1000)
	saved.SavedAt = &step
	_ = d.tells(t, "a", saved)
	if r := d.eng.Record(g.Job); r.Saved != 125*time.Second {
		t.Errorf("without a new checkpoint %v is saved", r.Saved)
	}
	saved.Lines, saved.Finished = 7, true
	_ = d.tells(t, "a", saved)
	if r := d.eng.Record(g.Job); r.Saved != 140*time.Second {
		t.Errorf("it says that it has finished, and %v is saved", r.Saved)
	}
	j := d.books.Row(g, d.scene(d.now)).Job(d.now)
	if j.StepRate == nil || math.Abs(*j.StepRate-400/j.GPUHours) > 1e-9 || j.SampleRate == nil {
		t.Errorf("%v steps and %v samples for each of %v GPU-hours", j.StepRate, j.SampleRate, j.GPUHours)
	}
	if list := d.eng.Paces(); len(list) != 1 || list[0].Model != "resnet50" || list[0].Pace != 10_000_000 {
		t.Errorf("what is learnt of its model: %+v", list)
	}
}

// Of a gang the first pod that reports counts.
func TestHearReportGang(t *testing.T) {
	d, now := still(t, 2, controlplane.Gang("train", 2, 8, nil)...)
	d.arrives(t)
	*now = now.Add(time.Minute)
	if err := d.tells(t, "train-1-1", stepped(1, 5, 100)); err != nil {
		t.Fatal(err)
	}
	g := d.gangs["gang/default/train"]
	if g.Last == nil || g.Last.Step != 5 {
		t.Fatalf("what only the second reports is not heard: %+v", g.Last)
	}
	_ = d.tells(t, "train-0-0", stepped(1, 3, 100))
	_ = d.tells(t, "train-1-1", stepped(2, 6, 100))
	*now = now.Add(time.Second)
	steps(t, d)
	if g.Last.Step != 3 {
		t.Errorf("step %v counts, not that of the first", g.Last.Step)
	}
}

// Reports of many pods are booked together, once a second, but not those of a gang that leaves: what it saved last
// counts.
func TestReportsBooked(t *testing.T) {
	d, now := still(t, 3)
	for _, name := range []string{"a", "b", "c"} {
		d.come(t, now, controlplane.Pod(name, 8, nil))
	}
	d.arrives(t)
	*now = now.Add(time.Minute)
	told := func(name types.UID) float64 {
		if l := d.pods[name].Gang.Last; l != nil {
			return l.Step
		}
		return 0
	}
	saved, step := stepped(1, 1, 100), 1.0
	saved.SavedAt = &step
	_ = d.tells(t, "a", saved)
	before := d.seq
	for i := range 10 {
		*now = now.Add(time.Second / 20)
		_ = d.tells(t, "b", stepped(1+i, float64(1+i), 100))
		_ = d.tells(t, "c", stepped(1+i, float64(1+i), 100))
	}
	if told("a") != 1 || told("b") != 0 || d.seq != before || d.reported.Next() != d.clock().Add(time.Second/2) {
		t.Errorf("in the second after the first report %v, %v, %v are booked in %d steps; next in %v", told("a"),
			told("b"), told("c"), d.seq-before, d.reported.Next().Sub(d.clock()))
	}
	*now = now.Add(time.Second / 2)
	steps(t, d)
	if told("b") != 10 || told("c") != 10 || d.seq != before+1 || d.reported.Next() != cluster.Never {
		t.Errorf("then %v and %v in %d steps", told("b"), told("c"), d.seq-before)
	}
	done := stepped(11, 11, 100)
	done.Finished = true
	_ = d.tells(t, "b", done)
	if told("b") != 11 {
		t.Errorf("the last words of one that has finished wait: step %v", told("b"))
	}
	*now = now.Add(time.Second / 2)
	saved, step = stepped(11, 21, 100), 21
	saved.SavedAt = &step
	_ = d.tells(t, "c", saved)
	if told("c") == 21 {
		t.Error("it is booked already")
	}
	g := d.pods["c"].Gang
	d.agenda.touch(g) // something happened to it
	if once(t, d); told("c") != 21 || d.eng.Record(g.Job).Saved == 0 || !g.Dirty {
		t.Errorf("what it saved is not booked before what happened to it: step %v, saved %v", told("c"),
			d.eng.Record(g.Job).Saved)
	}
	steps(t, d)
}

// What the first pod of a gang reports before the last one is bound is not lost.
func TestReportEarly(t *testing.T) {
	d, now := still(t, 2, controlplane.Gang("train", 2, 8, nil)...)
	g := d.gangs["gang/default/train"]
	first := d.pods["train-0-0"]
	for _, s := range g.Places {
		if s.Pod == first.Obj.UID {
			first.Node, first.Binding = s.Node, false
		}
	}
	if err := d.tells(t, "train-0-0", stepped(1, 3, 100)); err != nil || g.Phase != gang.Starting || g.Last != nil {
		t.Fatalf("%v; it is in phase %d and told %+v", err, g.Phase, g.Last)
	}
	d.agenda.touch(g)
	steps(t, d)
	d.arrives(t)
	*now = now.Add(time.Second)
	steps(t, d)
	if g.Phase != gang.Running || g.Last == nil || g.Last.Step != 3 || d.reported.Len() != 0 {
		t.Errorf("in phase %d it told %+v", g.Phase, g.Last)
	}
}

// A pod that is not there, waits, or says what makes no sense, is told so; nothing overflows.
func TestReportNonsense(t *testing.T) {
	d, now := still(t, 1)
	d.come(t, now, controlplane.Pod("a", 8, nil))
	d.arrives(t)
	d.come(t, now, controlplane.Pod("waits", 8, nil))
	if err := d.tells(t, "waits", stepped(1, 1, 2)); !errors.Is(err, ErrNoPod) {
		t.Errorf("of a pod that waits: %v", err)
	}
	for _, c := range []struct {
		r    show.Report
		want string
	}{{stepped(1, -1, 2), "progress.step: -1"}, {stepped(1, 1, 1e300), "progress.steps: 1e+300"},
		{stepped(-1, 1, 2), "lines: -1"},
		{show.Report{Lines: 1, Age: -5}, "age_ms: -5"}, {show.Report{Lines: 1, Age: 1 << 62}, "age_ms"},
		{show.Report{Lines: 1, Progress: show.Progress{Checkpoint: strings.Repeat("x", 2000)}}, "2000 bytes"},
		{show.Report{Lines: 1, Metrics: make([]show.Metrics, show.MaxTrials*show.MaxMetrics+1)}, "there are 1025"},
		{show.Report{Lines: 1, Metrics: []show.Metrics{{Of: map[string]*float64{strings.Repeat("x", 65): nil}}}},
			"metrics[0].of: a name is 65 bytes"}} {
		if err := d.tells(t, "a", c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, not %q", err, c.want)
		}
	}
	*now = now.Add(time.Minute)
	old := stepped(1, 1, 1e15) // from before it started
	old.Age = 1000 * 3600 * 24 * 365 * 100
	_ = d.tells(t, "a", old)
	*now = now.Add(time.Minute)
	_ = d.tells(t, "a", stepped(2, 1.5, 1e15))
	if r := d.eng.Record(d.pods["a"].Gang.Job); r.Done < 0 || r.Spec.Estimate < 0 {
		t.Errorf("%+v", r)
	}
}

// A gang that had to leave goes on from its last checkpoint as reported, of as much work as its progress told,
// and so does one that had to leave again before it reported.
func TestReportGoesOn(t *testing.T) {
	yes := true
	owner := []metav1.OwnerReference{
		{APIVersion: "example.org/v1", Kind: "Trainer", Name: "trainer", UID: "trainer", Controller: &yes}}
	pod := func(name string) *v1.Pod {
		p := controlplane.Pod(name, 8, map[string]string{LabelTier: "best-effort"})
		p.OwnerReferences = owner
		return p
	}
	d, now := still(t, 1)
	d.come(t, now, pod("a-1"))
	d.arrives(t)
	began := *now
	at := func(s int) { *now = began.Add(time.Duration(s) * time.Second) }
	at(100)
	_ = d.tells(t, "a-1", stepped(1, 100, 1000))
	at(110)
	saved, step := stepped(2, 200, 1000), 200.0
	saved.SavedAt, saved.Progress.Checkpoint = &step, "/ckpt"
	_ = d.tells(t, "a-1", saved)
	at(150)
	displaced := func(name, next string) *gang.Gang {
		t.Helper()
		d.come(t, now, controlplane.Pod("big-"+name, 8, map[string]string{LabelTier: "critical"}))
		d.podGone(d.pods[types.UID(name)].Obj)
		steps(t, d)
		d.arrives(t)
		*now = now.Add(time.Minute)
		d.come(t, now, pod(next))
		return d.pods[types.UID(next)].Gang
	}
	g := displaced("a-1", "a-2")
	if r := d.eng.Record(g.Job); r == nil || r.Done != 110*time.Second || r.Spec.Estimate != 190*time.Second {
		t.Fatalf("it goes on with %+v", r)
	}
	d.podGone(d.pods["big-a-1"].Obj)
	steps(t, d)
	d.arrives(t)
	if g.Phase != gang.Running {
		t.Fatalf("it is in phase %d", g.Phase)
	}
	*now = now.Add(10 * time.Second)
	g = displaced("a-2", "a-3")
	if r := d.eng.Record(g.Job); r == nil || r.Done != 110*time.Second || r.Spec.Estimate != 190*time.Second {
		t.Errorf("the second time it goes on with %+v", r)
	}
}

// The end of a gang that states how its loss converges is predicted by that.
func TestReportConverges(t *testing.T) {
	d, now := still(t, 1)
	d.come(t, now, controlplane.Pod("a", 8, map[string]string{"!" + AnnotationConverge: "loss:0.001:2"}),
		controlplane.Pod("wrong", 8, map[string]string{"!" + AnnotationConverge: "loss"}))
	d.arrives(t)
	curve := perf.LossCurve{B0: 0.02, B1: 0.5, B2: 0.2}
	g, end := d.pods["a"].Gang, perf.Convergence{Metric: "loss", Below: 0.001, Times: 2}.End(curve, 10)
	for k := 1; k <= 10; k++ {
		*now = now.Add(10 * time.Second)
		r, v := stepped(k, float64(10*k), 0), curve.At(float64(10*k))
		r.Metrics = []show.Metrics{{Step: float64(10 * k), Of: map[string]*float64{"loss": &v}}}
		if err := d.tells(t, "a", r); err != nil {
			t.Fatal(err)
		}
	}
	if !g.Last.Predicted || math.Abs(g.Last.Steps-end) > 20 {
		t.Errorf("%+v, it converges at step %v", g.Last, end)
	}
	if at := g.ExpectedEnd(d.eng, d.now).Sub(d.now); math.Abs(at.Seconds()-(end-100)) > 30 {
		t.Errorf("it ends in %v", at)
	}
	if why := d.pods["wrong"].Gang.Refused; !strings.Contains(why, "annotation muster.sh/converge of pod wrong") {
		t.Errorf("what cannot be read: %q", why)
	}
}

// In lists, which all who may look see, none sees what a job measured, nor where its checkpoint is.
func TestReportListed(t *testing.T) {
	d, now := still(t, 1)
	d.come(t, now, controlplane.Pod("a", 8, nil))
	d.arrives(t)
	*now = now.Add(time.Minute)
	r, v, step := stepped(1, 5, -1), 0.5, 5.0
	r.Progress.Checkpoint, r.Progress.Predicted, r.SavedAt = "/ckpt", true, &step
	r.Metrics = []show.Metrics{{Step: 5, Of: map[string]*float64{"loss": &v}}}
	if err := d.tells(t, "a", r); err != nil {
		t.Fatal(err)
	}
	g, l := d.pods["a"].Gang, d.see()
	j := d.books.Row(g, d.scene(d.now)).Job(l.At)
	if len(j.Metrics) != 1 || j.Progress == nil || j.Progress.Checkpoint != "/ckpt" || j.Progress.Steps != 0 ||
		j.Progress.Predicted {
		t.Errorf("the job itself: %+v, %+v", j.Progress, j.Metrics)
	}
	reader := look.NewDesk(look.Loop{Ready: d.Ready, Put: func(f func()) { f() }, Now: d.opt.Now,
		See: func() *look.Sight { return l }}).Reader()
	list, err := reader.Jobs(t.Context(), ask.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	o, err := reader.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if list = append(list, o.Running...); len(list) != 2 {
		t.Fatalf("%d rows", len(list))
	}
	for _, j := range list {
		if j.Metrics != nil || j.Progress == nil || j.Progress.Checkpoint != "" || j.Progress.Step != 5 {
			t.Errorf("a row: %+v, %+v", j.Progress, j.Metrics)
		}
	}
}
