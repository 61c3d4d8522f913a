// Package gang is a gang and its pods as the scheduler keeps them: where it is on its way from gathering to its end,
// what the engine has of it, and what can be asked of both without a look at other gangs.
package gang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/moves"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/notices"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/plans"
	"github.com/muster-gpu/muster/kube/reports"
	"github.com/muster-gpu/muster/kube/succession"
	"github.com/muster-gpu/muster/kube/terms"
)

// Phase is where a gang is.
type Phase uint8

const (
	Gathering Phase = iota // not all of its pods are there, or something keeps it from the engine
	Waiting                // the engine has it, nothing is bound
	Starting               // its pods are being bound
	Unwinding              // it could not be bound as a whole: those that were bound go
	Running                // all are bound
	Stopping               // the engine told it to leave
	Moving                 // its pods left for other places, which are kept for those that are made instead
)

// Gang is pods that start together or not at all; most are one pod.
type Gang struct {
	Key  string // what makes it one: the gang's name, its owner's, or the pod's own
	Name string // for people and the journal: namespace/name
	Need func() (gangs.Membership, error)
	Pods map[types.UID]*Pod // those that still exist

	Of     string    // the gang that this pod alone belongs to, which runs without it; "": none
	Object gangs.Key // what made it
	Kind   cluster.Kind

	Phase    Phase
	Job      cluster.JobID // in the engine; NoJob: it is not there
	InJob    []types.UID   // in the engine: the pods that it stood for when it was submitted
	Optional []types.UID   // ... those of them that it can do without, in the order in which they start
	Narrow   bool          // one of those is in its way: it starts without
	Rivals   []fit.Rival   // the pods that have what it needs alone
	Spec     *cluster.Job
	Places   places.List // where its tasks are, from starting on
	Plan     string      // ... as it is written to the pods
	Run      int         // counts starts: what is on its way for an earlier one is void
	Grace    int64       // stopping: seconds that its tier has
	Notice   Notice      // stopping: why
	Failed   bool        // a pod of this run failed
	Done     bool        // a pod of this run succeeded
	Fails    int         // starts that failed, since the last that did not
	Retry    cluster.Time
	Refused  string // why it is not in the engine though it is complete
	// The engine refused these pods in this epoch (Driver.refusalEpoch): it would again.
	RefusedIn  int
	RefusedFor []types.UID
	RefusedAs  uint64     // ... with these facts
	Facts      uint64     // waiting: its facts when it was submitted (package reader)
	Resized    bool       // pods of it hold other amounts of CPU and memory than the engine knows
	Nodes      *nodes.Set // that suit it, as of when it was last looked at; nil: it was not
	Leaves     string     // why it was told to leave as a whole
	Dirty      bool
	Waking     bool   // it is held until nodes are back that were off
	KeptOff    string // from some nodes, by what, besides want of room
	Turn       string // among pods that are in each other's way

	Told   notices.Told // why it waits
	Pledge Pledge
	MIG    mig.Gang
	Book   look.Book
	Was    Phase // as of when its book was written last
	Repair
	Search areas.Search // where it is looked for places
	VictimSearch
	Relocation *Relocation        // it is moved; nil: it is not
	Parting    succession.Parting // while it stops: to which gang it leaves what it received
	// AskedBack is when others were first told to make room for it, a replica of a service that lends; zero: none was.
	AskedBack   time.Time
	HasBack     bool                    // it has its place: what its pod says of an earlier wait is over
	Inheritance *succession.Inheritance // what it goes on from when it starts; nil: nothing, or it started
	// How its metric converges; "": it does not end by that.
	Converge string
	reports.Telling
}

// New is a gang without pods that a claim on one makes.
func New(c *gangs.Claim) *Gang {
	g := &Gang{Key: c.Key, Name: c.Name, Of: c.Of, Object: c.Object, Kind: c.Kind, Pods: map[types.UID]*Pod{},
		Job: cluster.NoJob}
	g.Need = func() (gangs.Membership, error) { return c.Need(g) }
	return g
}

// ByJob orders gangs by their jobs.
func ByJob(a, b *Gang) int { return cmp.Compare(a.Job, b.Job) }

// Relocation is the way of a gang that is moved.
type Relocation struct {
	moves.Relocation
	Successor *Gang // gathers what comes instead
}

// StartedAt is when the pods of a gang that is found running started.
func (g *Gang) StartedAt(now cluster.Time) cluster.Time {
	at := now
	for _, p := range g.Pods {
		if s := p.Obj.Status.StartTime; s != nil {
			at = min(at, cluster.Time(s.UnixNano()))
		}
	}
	return at
}

// lacking says which pod of a gang waits for claims, and for which; "": none.
func (g *Gang) lacking() string {
	for _, p := range g.Sorted() {
		if p.Claimed.Lacks != "" && p.Node == "" && !p.Over() {
			return fmt.Sprintf("pod %s: %s", p.Obj.Name, p.Claimed.Lacks)
		}
	}
	return ""
}

// Sorted lists the gang's pods in their order.
func (g *Gang) Sorted() []*Pod {
	list := make([]*Pod, 0, len(g.Pods))
	for _, p := range g.Pods {
		list = append(list, p)
	}
	slices.SortFunc(list, Order)
	return list
}

// Seated lists the pods that are bound and not over.
func (g *Gang) Seated() []*Pod {
	return slices.DeleteFunc(g.Sorted(), func(p *Pod) bool { return p.Node == "" || p.Over() })
}

// Ready lists the pods that want to be bound.
func (g *Gang) Ready() (list []*Pod) {
	for _, p := range g.Sorted() {
		if p.Ready() {
			list = append(list, p)
		}
	}
	return list
}

// TaskSets groups pods that ask for the same, the largest first.
func TaskSets(pods []*Pod) (sets []cluster.TaskSet) {
	for _, p := range pods {
		if i := holds.SetOf(sets, &p.Request); i >= 0 {
			sets[i].Count++
		} else {
			sets = append(sets, cluster.TaskSet{Count: 1, Request: p.Request})
		}
	}
	slices.SortStableFunc(sets, func(a, b cluster.TaskSet) int { return b.Request.GPUs - a.Request.GPUs })
	return sets
}

// BeforeStart is what a gang that starts now was given before; nil: nothing.
func (g *Gang) BeforeStart(e *engine.Engine) *plans.Before {
	b := e.Carryover(g.Job, e.Now())
	if b == nil || b.Ran == 0 {
		return nil
	}
	return &plans.Before{Carryover: *b, Submit: g.Spec.Submit, Work: g.Inheritance.KnownWork()}
}

// AskedSince is when others were first told to make room for a gang, perhaps by a scheduler before this one; zero: none
// was, or what they made is counted.
func (g *Gang) AskedSince(first *v1.Pod, seal plans.Key, now time.Time) time.Time {
	if g.AskedBack.IsZero() && !g.HasBack && seal.Holds(first, terms.AnnotationAsked) {
		text := first.Annotations[terms.AnnotationAsked]
		counted := first.Annotations[terms.AnnotationReturned] == text && seal.Holds(first, terms.AnnotationReturned)
		at, err := time.Parse(time.RFC3339Nano, text)
		if err == nil && at.Before(now) && !counted {
			g.AskedBack = at
		}
	}
	return g.AskedBack
}

// BoundAt is when a gang that was found bound had its place, as one of its pods says; else now.
func (g *Gang) BoundAt(now time.Time) time.Time {
	for _, p := range g.Pods {
		for _, c := range p.Obj.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && !c.LastTransitionTime.IsZero() {
				now = c.LastTransitionTime.Time
			}
		}
	}
	return now
}

// Submitted lists the pods that the engine's job stands for, as far as they are
// there.
func (g *Gang) Submitted() (pods []*Pod) {
	for _, uid := range g.InJob {
		if p := g.Pods[uid]; p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, Order)
	return pods
}

// Asleep lists the nodes that a gang waits for; it says, too, which of them is not coming.
func (g *Gang) Asleep(all *nodes.Room) (names []string, lost string) {
	for _, s := range g.Places.Needed() {
		name := s.Node
		n := all.Node(name)
		switch {
		case slices.Contains(names, name):
		case n != nil && n.Power.Sleeps():
			names = append(names, name)
		case !n.Up():
			lost = name
		}
	}
	return names, lost
}

// WakingText says which nodes a gang waits for, and about how long; stem is the same at any time.
func (g *Gang) WakingText(all *nodes.Room, now cluster.Time) (stem, text string) {
	names, _ := g.Asleep(all)
	left := time.Duration(0)
	for _, name := range names {
		left = max(left, all.Node(name).Power.Left(time.Unix(0, int64(now))))
	}
	what := "nodes are waking"
	if len(names) == 1 {
		what = "node is waking"
	}
	stem = fmt.Sprintf("%d %s: %s", len(names), what, strings.Join(names, ","))
	return stem, fmt.Sprintf("%d %s, ready in about %s: %s", len(names), what,
		cluster.FormatDuration(left.Round(time.Second)), strings.Join(names, ","))
}

// reporter is the pod whose reports count for its gang: the first that reports, in the order
// of their ranks. What others add is the same work, told by another rank.
func (g *Gang) reporter() *Pod {
	for _, p := range g.Seated() {
		if p.Report != nil && p.Report.Lines > 0 {
			return p
		}
	}
	return nil
}

// HearReport books what its reporter told, if it is new.
func (g *Gang) HearReport(e *engine.Engine, now cluster.Time) []engine.Event {
	p, rec := g.reporter(), e.Record(g.Job)
	if p == nil || rec == nil || rec.State < engine.Starting || rec.State > engine.Stopping {
		return nil
	}
	r := reports.Report{Report: p.Report, Pod: p.Obj.UID, At: p.Reported, Run: g.Run + 1}
	return g.Hear(&r, g.Converge, rec, now)
}

// ExpectedEnd is when a running gang is expected to end by what it reports; Never: that does not tell.
func (g *Gang) ExpectedEnd(e *engine.Engine, now cluster.Time) cluster.Time {
	if g.Phase != Running {
		return cluster.Never
	}
	return g.End(e.Record(g.Job), now)
}

// Asks reports whether a pod of the gang wants to be bound, now or later.
func (g *Gang) Asks() bool {
	for _, p := range g.Pods {
		if p.Node == "" && !p.Over() && p.Obj.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// LacksPods says what a gang waits for before it can be scheduled.
func (g *Gang) LacksPods(have, want int, lacks string) string {
	gated := 0
	for _, p := range g.Pods {
		if len(p.Obj.Spec.SchedulingGates) > 0 {
			gated++
		}
	}
	text := fmt.Sprintf("%d of the gang's %d pods are there", have, want)
	if want == 1 {
		text = "not ready to be scheduled"
	}
	if lacks != "" {
		text += " (" + lacks + ")"
	}
	if why := g.lacking(); why != "" {
		text += "; " + why
	}
	if gated > 0 {
		text += fmt.Sprintf("; %d have scheduling gates", gated)
	}
	return text
}

// BoundByPlan reports whether pods are bound though this driver did not do it.
func (g *Gang) BoundByPlan() bool {
	for _, p := range g.Pods {
		if p.Node != "" && !p.Over() && !p.Binding && !p.Leaving {
			return true
		}
	}
	return false
}

// ID is the key of the gang (gangs.Gang).
func (g *Gang) ID() string { return g.Key }

// Members lists the pods of the gang that still exist, in their order.
func (g *Gang) Members() []*v1.Pod { return Objects(g.Sorted()) }

// Ahead counts the pods of a gang that a scheduler had bound when it died, and
// that came to their end before the next one was there. The others, which were
// there when these began, are what is left of that start: the gang does not wait
// for more. Pods that were made later are another run of the gang.
func (g *Gang) Ahead(size int) int {
	done, open := 0, g.Ready()
	for _, p := range g.Pods {
		if !p.Over() {
			continue
		}
		began := p.Obj.Status.StartTime
		later := func(o *Pod) bool { return o.Obj.CreationTimestamp.After(began.Time) }
		if !Finished(p.Obj) || began == nil || slices.ContainsFunc(open, later) {
			return 0
		}
		done++
	}
	if done == 0 || len(open) == 0 || done+len(open) != size {
		return 0
	}
	return done
}

// Pick chooses the pods that a gang starts with.
func Pick(m *gangs.Membership, ready []*Pod) (list []*Pod, lacks string) {
	chosen, lacks := m.Pick(Objects(ready))
	for _, i := range chosen {
		list = append(list, ready[i])
	}
	return list, lacks
}

// Wanted lists the pods of a gang that want to be bound, those first whose role
// lacks most to what runs: a head takes the place of a head.
func (g *Gang) Wanted() []*Pod {
	list := g.Ready()
	m, err := g.Need()
	if err != nil || m.Role == nil {
		return list
	}
	lack := map[string]int{}
	for _, r := range m.Roles {
		lack[r.Name] = r.Count
	}
	for i := range g.Places {
		if p := g.Pods[g.Places[i].Pod]; p != nil && !p.Over() {
			lack[m.Role(p.Obj)]--
		}
	}
	var first, rest []*Pod
	for _, p := range list {
		if name := m.Role(p.Obj); lack[name] > 0 {
			lack[name]--
			first = append(first, p)
			continue
		}
		rest = append(rest, p)
	}
	return append(first, rest...)
}

// Waits reports whether the gang waits for a place, or says why it cannot wait for one.
func (g *Gang) Waits() bool { return g.Phase == Waiting || g.Phase == Gathering && g.Refused != "" }

// Treatment is how the traffic of a gang is treated.
func (g *Gang) Treatment(e *engine.Engine) (t cluster.Treatment) {
	if r := e.Record(g.Job); r != nil {
		t = r.Treatment.Value()
	}
	return t
}
