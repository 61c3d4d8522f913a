package books

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/controlplane"
	"github.com/muster-gpu/muster/internal/shared"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/place"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/show"
)

// base is when tests begin.
var base = time.Unix(1_800_000_000, 0)

// after is a time so many minutes after that.
func after(minutes int) cluster.Time {
	return cluster.Time(base.Add(time.Duration(minutes) * time.Minute).UnixNano())
}

// newRoom is a room, and an engine with a policy, for nodes of eight GPUs: n0 and so on.
func newRoom(t *testing.T, count int, by string) (*Room, Scene) {
	t.Helper()
	names := &gpus.Names{GPUs: []string{"nvidia.com/gpu"},
		Labels:    gpus.Labels{Stated: gpus.Stated{Product: "nvidia.com/gpu.product"}},
		Published: func(string) (int, string) { return 0, "" }}
	now := func() cluster.Time { return after(0) }
	list := nodes.New(nodes.Options{GPUs: names, Labels: &names.Labels, Suits: fit.NewNodes(names),
		World: fit.NewWorld(), Power: power.New(power.Options{Now: time.Now, LoopTime: now}),
		MIG: mig.New(mig.Options{GPUs: names, Now: time.Now, LoopTime: now}), Loans: loans.New(nil),
		Published: func(string) int { return 0 }, Claimed: func(string) int { return 0 }})
	var spec cluster.Spec
	for i := range count {
		n := controlplane.Node(fmt.Sprint("n", i), 8, nil)
		n.UID = types.UID(n.Name)
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		list.See(n)
		spec.Nodes = append(spec.Nodes, cluster.Node{Name: n.Name, Model: "T4-16GB", GPUs: 8})
	}
	list.Begin(&engine.Snapshot{}, false)
	e := shared.Must(engine.New(engine.Config{Spec: spec, Policy: shared.Must(policy.New(by)),
		Placer: shared.Must(place.New("best-fit")), Stop: &engine.DefaultStop}))
	r := New(Options{Nodes: list, GPUs: names, QueueOf: func(*gang.Gang, *v1.Pod) string { return "q" }})
	return r, Scene{Engine: e, Gangs: map[string]*gang.Gang{}, Jobs: map[cluster.JobID]*gang.Gang{}, Now: after(0)}
}

// add adds a gang of so many pods.
func (s *Scene) add(name string, pods, gpus int) *gang.Gang {
	g := gang.New(&gangs.Claim{Key: "gang/default/" + name, Name: "default/" + name})
	for i := range pods {
		obj := controlplane.Pod(fmt.Sprint(name, "-", i), gpus, nil)
		obj.UID, obj.CreationTimestamp = types.UID(obj.Name), metav1.NewTime(base.Add(-time.Minute))
		p := &gang.Pod{Gang: g}
		p.Obj, p.Request = obj, cluster.Request{GPUs: gpus}
		g.Pods[obj.UID] = p
	}
	s.Gangs[g.Key] = g
	return g
}

// submit gives a gang to the engine and starts it there if it has room.
func (s *Scene) submit(g *gang.Gang, deadline cluster.Time) {
	id := cluster.JobID(100 + len(s.Jobs)) // other numbers than people know
	g.Phase, g.Job, s.Jobs[id] = gang.Waiting, id, g
	g.Spec = &cluster.Job{ID: id, Name: g.Name, User: "default", Tasks: gang.TaskSets(g.Sorted()), Submit: s.Now,
		Estimate: time.Hour, Deadline: deadline}
	s.Engine.Step(engine.Batch{Seq: int64(2 * id), Now: s.Now,
		Events: []engine.Event{{Type: engine.Submitted, Job: id, Spec: g.Spec}}})
	if r := s.Engine.Record(id); r.State == engine.Starting {
		s.Engine.Step(engine.Batch{Seq: int64(2*id + 1), Now: s.Now,
			Events: []engine.Event{{Type: engine.Started, Job: id}}})
		g.Phase = gang.Running
	}
}

// sit puts a gang's pods on nodes, one after the other.
func sit(g *gang.Gang, on ...string) {
	g.Places = nil
	for i, p := range g.Sorted() {
		p.Node = on[i]
		g.Places = append(g.Places, places.Place{Node: on[i], Pod: p.Obj.UID})
	}
}

// A gang waits, starts, runs, gets fewer pods, has to leave, comes back and ends; another goes without having run. What
// its row says, how many gangs wait and run, and how many GPUs they hold, follows from its phases.
func TestPhases(t *testing.T) {
	r, s := newRoom(t, 2, "fifo")
	g := s.add("train", 2, 4)
	spec := &cluster.Job{Name: g.Name, Tasks: gang.TaskSets(g.Sorted())}
	small := &cluster.Job{Name: g.Name, Tasks: []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: 4}}}}
	for i, c := range []struct {
		to           gang.Phase
		change       func()
		state        string
		wait, run    int
		held         int64
		moment       string
		runs, evicts int
	}{
		{gang.Gathering, func() {}, "pending", 1, 0, 0, "", 0, 0},
		{gang.Waiting, func() { g.Spec = spec }, "pending", 1, 0, 0, "all of it is there: it waits for GPUs", 0, 0},
		{gang.Starting, func() { sit(g, "n0", "n1") }, "starting", 0, 1, 8, "", 1, 0},
		{gang.Running, func() {}, "running", 0, 1, 8, "", 1, 0},
		{gang.Running, func() {
			g.Spec, g.Places = small, g.Places[:1]
			r.Resize(g, s.Now)
		}, "running", 0, 1, 4, "", 1, 0},
		{gang.Stopping, func() {}, "stopping", 0, 1, 4, "told to leave for others", 1, 1},
		{gang.Gathering, func() { sit(g, "", "") }, "pending", 1, 0, 0,
			"preempted: it waits again when its pods are there again", 1, 1},
		{gang.Waiting, func() { g.Spec = spec }, "pending", 1, 0, 0, "all of it is there: it waits for GPUs", 1, 1},
		{gang.Running, func() { sit(g, "n1", "n1") }, "running", 0, 1, 8, "", 2, 1},
	} {
		s.Now = after(10 * i)
		g.Phase = c.to
		c.change()
		r.Note(g, s)
		l := r.Sight(s)
		row, now := l.Rows[0], l.Series[len(l.Series)-1]
		text := row.Moments[len(row.Moments)-1].Text
		if row.Number != 1 || row.State != c.state || text != c.moment || row.Runs != c.runs ||
			row.Evicted != c.evicts {
			t.Errorf("%d: number %d is %s (%q), ran %d times and left %d times", i, row.Number, row.State, text,
				row.Runs, row.Evicted)
		}
		if now.Waiting != c.wait || now.Running != c.run || now.Allocated != c.held*cluster.Whole {
			t.Errorf("%d: %d wait, %d run, and hold %d", i, now.Waiting, now.Running, now.Allocated)
		}
	}
	s.Now, g.Phase, g.Book.Outcome = after(90), gang.Gathering, engine.Completed
	for _, p := range g.Pods {
		p.Obj.Status.Phase = v1.PodSucceeded
	}
	r.Note(g, s)
	l := r.Sight(s)
	// it had 8 GPUs for twenty minutes, 4 for as long, and later 8 for ten
	if len(l.Rows) != 0 || len(l.Past) != 1 || l.Past[0].State != "completed" || l.Past[0].GPUTime != 320*time.Minute ||
		l.Past[0].Waited != 41*time.Minute || !slices.Equal(l.Past[0].Nodes, []string{"n1"}) {
		t.Errorf("%d rows, and of those that are over %+v", len(l.Rows), l.Past[0])
	}
	other := s.add("other", 1, 1)
	r.Note(other, s)
	delete(s.Gangs, other.Key)
	r.Note(other, s)
	l = r.Sight(s)
	if row := l.Past[len(l.Past)-1]; row.Number != 2 || row.State != "cancelled" || row.Reason != "its pods are gone" ||
		row.Spec.Queue != "q" || row.Spec.Tasks[0].Request.GPUs != 1 {
		t.Errorf("one whose pods are gone is %+v", row)
	}
}

// What becomes of a patch stands in its gang's book; what it held is the gang's.
func TestMerged(t *testing.T) {
	r, s := newRoom(t, 1, "fifo")
	w := s.add("patch", 1, 2)
	w.Phase, w.Spec = gang.Starting, &cluster.Job{Name: w.Name, Tasks: gang.TaskSets(w.Sorted())}
	sit(w, "n0")
	r.Note(w, s)
	held := func() int64 { return r.present(s).Allocated / cluster.Whole }
	before := held()
	r.Merged(w, s.Now)
	delete(s.Gangs, w.Key)
	r.Note(w, s)
	if l := r.Sight(s); before != 2 || held() != 0 || len(l.Past) != 0 {
		t.Errorf("%d GPUs were held, then %d; %d are over", before, held(), len(l.Past))
	}
}

// Samples are kept every five seconds, and say how many GPUs are healthy.
func TestSample(t *testing.T) {
	r, s := newRoom(t, 2, "fifo")
	if !r.Sample(s) || r.Sample(s) {
		t.Error("there is a first sample, and none at once after it")
	}
	s.Now = after(1)
	if !r.Sample(s) {
		t.Error("a minute later there is none")
	}
	s.Now = after(61)
	l := r.Sight(s)
	total := time.Duration(0)
	for _, h := range l.Hours {
		total += h.Total
	}
	if len(l.Series) != 3 || total != 61*16*time.Minute {
		t.Errorf("%d samples; %s of 16 GPUs within 61 minutes", len(l.Series), total)
	}
}

// Those that wait are in line and say why, with the numbers that people know; nodes say which gangs hold them.
func TestSight(t *testing.T) {
	r, s := newRoom(t, 1, "fifo")
	first, second := s.add("first", 1, 8), s.add("second", 1, 8)
	s.submit(first, 0)
	sit(first, "n0")
	r.Note(first, s)
	s.submit(second, 0)
	r.Note(second, s)
	l := r.Sight(s)
	if len(l.Rows) != 2 || l.Rows[0].Name != "default/second" || l.Rows[0].Position != 1 || l.Rows[1].Position != 0 ||
		!strings.Contains(l.Rows[0].Reason, "GPU") {
		t.Errorf("%+v, %+v", l.Rows[0], l.Rows[1])
	}
	if n := l.Nodes[0]; len(l.Nodes) != 1 || !slices.Equal(n.Holders, []look.Holder{{GPUs: 0xff, Number: 1}}) {
		t.Errorf("%d nodes, the first is held by %+v", len(l.Nodes), n.Holders)
	}
	if y := s.Explain(second); !strings.Contains(strings.Join(y.Holders, ";"), "job 1 default/first") {
		t.Errorf("held by %q", y.Holders)
	}
	if stem, text := r.Why(second, s); !strings.HasPrefix(text, stem+". Held by job 1 default/first") {
		t.Errorf("it is told %q", text)
	}
}

// What is said of one job: of one that waits also what blocks it and its place in the line, of one that runs where it
// is, and of one that is over what stands in the books.
func TestAnswer(t *testing.T) {
	r, s := newRoom(t, 1, "fifo")
	first, second := s.add("first", 1, 8), s.add("second", 1, 8)
	s.submit(first, 0)
	sit(first, "n0")
	s.submit(second, 0)
	r.Note(first, s)
	r.Note(second, s)
	l := r.Sight(s)
	ask := func(g *gang.Gang) (*Answer, show.Why) {
		t.Helper()
		a := r.Answer(g, s)
		r.Explain(&a, g, s)
		w, err := a.Of(g.Book.Number, l, s.Now)
		if err != nil {
			t.Fatal(err)
		}
		return &a, w
	}
	if a, w := ask(second); a.Live != 2 || len(w.Blockers) == 0 || len(w.Holders) != 1 || w.Job.Position != 1 ||
		w.Job.Expected == nil || len(w.Job.Tasks) != 1 {
		t.Errorf("of %d jobs one that waits: %+v", a.Live, w)
	}
	if a, w := ask(first); a.Live != 0 || w.Blockers == nil || len(w.Blockers) > 0 || w.Text != "on n0" {
		t.Errorf("of %d jobs one that runs: %+v", a.Live, w)
	}
	if s.Find(1) != first || s.Find(2) != second || s.Find(3) != nil {
		t.Error("a number is that of another")
	}
	second.Phase = gang.Gathering
	delete(s.Gangs, second.Key)
	r.Note(second, s)
	s.Gangs[second.Key] = second // its book is closed
	if s.Find(2) != nil {
		t.Error("one that is over is found among the others")
	}
	delete(s.Gangs, second.Key)
	var none Answer
	if w, err := none.Of(2, r.Sight(s), s.Now); err != nil || w.Text != "its pods are gone" || w.Blockers == nil {
		t.Errorf("one that is over: %+v, %v", w, err)
	}
	if _, err := none.Of(3, l, s.Now); err == nil {
		t.Error("one that never was is known")
	}
}

// Gangs are looked at a second after they began to wait, and then less and less often; those that were never told come
// first, then those that are due for longest.
func TestDue(t *testing.T) {
	r, s := newRoom(t, 0, "fifo")
	telling := NewRounds(time.Second)
	if next := telling.Next(s.Gangs, s.Now); next != cluster.Never {
		t.Errorf("none waits, and they are told at %v", next)
	}
	found := look.NewExplanations(func() time.Time { return base })
	due := func(at cluster.Time) (names []string) {
		for _, g := range telling.Due(s.Gangs, at) {
			names = append(names, g.Name)
		}
		return names
	}
	for _, name := range []string{"b", "a", "c", "runs"} {
		s.add(name, 1, 1).Refused = "it asks for what there is not"
	}
	s.Gangs["gang/default/runs"].Phase = gang.Running
	if list := due(s.Now); len(list) > 0 || telling.Next(s.Gangs, s.Now) != s.Now.Add(time.Second) {
		t.Errorf("%q are told at once; the others at %v", list, telling.Next(s.Gangs, s.Now))
	}
	at := s.Now.Add(time.Second)
	for k, name := range []string{"a", "b"} { // told before
		g := s.Gangs["gang/default/"+name]
		if letters, known := r.Letters(g, s, found); !known || len(letters) != 1 {
			t.Fatalf("%d letters of %s", len(letters), name)
		}
		g.Told.Next = at.Add(-time.Duration(k) * time.Second)
	}
	if list := due(at); !slices.Equal(list, []string{"default/c", "default/b", "default/a"}) {
		t.Errorf("they are told in this order: %q", list)
	}
	if list := due(at.Add(time.Second - 1)); len(list) > 0 {
		t.Errorf("within a second of the last round %q are told", list)
	}
	for _, g := range s.Gangs {
		g.Told.Next = cluster.Never
		telling.Missed(g, at)
	}
	if list := due(at.Add(time.Second)); len(list) != 3 {
		t.Errorf("of those that were missed %q are told again", list)
	}
}

// Pods of a gang that wait are told once what is in its way; what a job of the engine waits for, when that is known.
func TestLetters(t *testing.T) {
	r, s := newRoom(t, 1, "fifo")
	g := s.add("g", 2, 1)
	g.Refused = "it asks for what there is not"
	g.Sorted()[1].Node = "n0"
	now := base
	found := look.NewExplanations(func() time.Time { return now })
	told := func() (list []string) {
		t.Helper()
		letters, known := r.Letters(g, s, found)
		for _, l := range letters {
			list = append(list, l.Pod.Name+": "+l.Text)
			if !l.News || !l.At.Equal(base) {
				t.Errorf("%+v", l)
			}
		}
		if !known {
			t.Error("what it waits for is not known yet")
		}
		return list
	}
	if list := told(); !slices.Equal(list, []string{"g-0: it asks for what there is not"}) {
		t.Errorf("%q", list)
	}
	if list := told(); len(list) > 0 {
		t.Errorf("again %q", list)
	}
	s.submit(s.add("full", 1, 8), 0)
	s.submit(g, 0)
	if list := told(); len(list) != 1 || !strings.Contains(list[0], "Held by") {
		t.Errorf("that waits: %q", list)
	}
	found.Of(&cluster.Job{Queue: "other"}, func() engine.Why {
		now = now.Add(time.Hour) // longer than a look may take
		return engine.Why{}
	})
	late := s.add("late", 1, 2)
	s.submit(late, 0)
	if letters, known := r.Letters(late, s, found); known || len(letters) > 0 || late.Told.Any() {
		t.Errorf("what is to be found out in the next look is known: %d letters", len(letters))
	}
}

// Pods are told of their deadline by a condition, all of them, and by one event; and again only when the answer is
// another, or other pods are there.
func TestVerdict(t *testing.T) {
	_, s := newRoom(t, 1, "elasticflow")
	first, second, none := s.add("first", 2, 4), s.add("second", 2, 4), s.add("none", 1, 1)
	s.submit(first, after(90))
	s.submit(second, after(90))
	v, w := s.Verdict(first), s.Verdict(second)
	if v == nil || w == nil || s.Verdict(none) != nil {
		t.Fatalf("%+v, %+v", v, w)
	}
	by := time.Unix(0, int64(after(90))).UTC().Format(time.RFC3339)
	if c := v.Condition; c.Type != "muster.sh/DeadlineAccepted" || c.Status != v1.ConditionTrue || len(v.Pods) != 2 ||
		c.Message != "its deadline is accepted ("+by+")" || v.Event.Reason != "DeadlineAccepted" ||
		v.Event.Kind != v1.EventTypeNormal || v.Event.Text != c.Message {
		t.Errorf("%+v; %+v", c, v.Event)
	}
	if c := w.Condition; c.Status != v1.ConditionFalse || w.Event.Reason != "DeadlineCannotBePromised" ||
		c.Message != "its deadline cannot be promised ("+by+"); it runs when it can" ||
		w.Event.Kind != v1.EventTypeWarning {
		t.Errorf("%+v; %+v", c, w.Event)
	}
	if first.Pledge = v.Pledge; s.Verdict(first) != nil {
		t.Error("it is news though they know it")
	}
	v.Pods[0].Status.Conditions = []v1.PodCondition{v.Condition}
	first.Sorted()[1].Obj.DeletionTimestamp = &metav1.Time{Time: base}
	if v = s.Verdict(first); v == nil || len(v.Pods) != 1 || v.Event != nil {
		t.Errorf("with other pods: %+v", v)
	}
}

// Reports of a gang that runs are booked when that is due, at once if something happened to it; of one that starts,
// when the engine knows that it runs.
func TestReports(t *testing.T) {
	_, s := newRoom(t, 2, "fifo")
	a, b := s.add("a", 1, 1), s.add("b", 1, 1)
	var reports Reports
	for _, g := range []*gang.Gang{a, b} {
		s.submit(g, 0)
		sit(g, "n0")
	}
	b.Phase = gang.Starting
	hear := func(g *gang.Gang, lines int) {
		reports.Hear(g.Sorted()[0], &show.Report{Lines: lines, Progress: show.Progress{Step: 1, Steps: 10}}, base)
	}
	s.Now = after(1)
	hear(a, 1)
	hear(b, 1)
	if events := reports.Book(s); len(events) != 1 || events[0].Job != a.Job || !reports.Has(b) || reports.Has(a) {
		t.Errorf("%+v are booked, and %d wait", events, reports.Len())
	}
	hear(a, 2)
	if reports.Settling([]*gang.Gang{b}); reports.Urgent() {
		t.Error("one that starts has no last words")
	}
	if reports.Settling([]*gang.Gang{b, a}); !reports.Urgent() || len(reports.Book(s)) != 1 {
		t.Error("what one told that ends perhaps is not booked at once")
	}
	if a.Worked = time.Hour; s.Work(a.Job) != time.Hour || s.Work(7) != 0 {
		t.Errorf("its work is %v, that of none %v", s.Work(a.Job), s.Work(7))
	}
	b.Phase, s.Now = gang.Running, after(2)
	if events := reports.Book(s); len(events) != 1 || events[0].Job != b.Job || reports.Len() != 0 {
		t.Errorf("of one that runs by now %+v are booked", events)
	}
}
