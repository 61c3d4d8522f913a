package kube

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/kube/areas"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/holds"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/notices"
	"github.com/muster-gpu/muster/kube/places"
	"github.com/muster-gpu/muster/kube/reports"
	"github.com/muster-gpu/muster/kube/succession"
)

// phase is where a gang is.
type phase uint8

const (
	gathering phase = iota // not all of its pods are there, or something keeps it from the engine
	waiting                // the engine has it, nothing is bound
	starting               // its pods are being bound
	unwinding              // it could not be bound as a whole: those that were bound go
	running                // all are bound
	stopping               // the engine told it to leave
	moving                 // its pods left for other places, which are kept for those that are made instead
)

// gang is pods that start together or not at all; most are one pod.
type gang struct {
	key  string // what makes it one: the gang's name, its owner's, or the pod's own
	name string // for people and the journal: namespace/name
	need func() (gangs.Membership, error)
	pods map[types.UID]*pod // those that still exist

	of     string    // the gang that this pod alone belongs to, which runs without it; "": none
	object gangs.Key // what made it
	kind   cluster.Kind

	phase   phase
	id      cluster.JobID // in the engine; NoJob: it is not there
	members []types.UID   // in the engine: the pods that it stood for when it was submitted
	more    []types.UID   // ... those of them that it can do without, in the order in which they start
	narrow  bool          // one of those is in its way: it starts without
	rivals  []fit.Rival   // the pods that have what it needs alone
	spec    *cluster.Job
	places  places.List // where its tasks are, from starting on
	plan    string      // ... as it is written to the pods
	run     int         // counts starts: what is on its way for an earlier one is void
	grace   int64       // stopping: seconds that its tier has
	notice  notice      // stopping: why
	failed  bool        // a pod of this run failed
	done    bool        // a pod of this run succeeded
	fails   int         // starts that failed, since the last that did not
	retry   cluster.Time
	refused string // why it is not in the engine though it is complete
	// The engine refused these pods in this epoch (Driver.refusalEpoch): it would again.
	refusedIn  int
	refusedFor []types.UID
	refusedAs  uint64     // ... with these facts
	facts      uint64     // waiting: factsOf when it was submitted
	resized    bool       // pods of it hold other amounts of CPU and memory than the engine knows
	nodes      *nodes.Set // that suit it, as of when it was last looked at; nil: it was not
	leaves     string     // why it was told to leave as a whole
	dirty      bool
	waking     bool   // it is held until nodes are back that were off
	keptOff    string // from some nodes, by what, besides want of room
	turn       string // among pods that are in each other's way

	told   notices.Told // why it waits
	pledge pledge
	mig    mig.Gang
	book   look.Book
	was    phase // as of when its book was written last
	repair
	search areas.Search // where it is looked for places
	lifting
	relocation *relocation        // it is moved; nil: it is not
	parting    succession.Parting // while it stops: to which gang it leaves what it received
	// askedBack is when others were first told to make room for it, a replica of a service that lends; zero: none was.
	askedBack   time.Time
	hasBack     bool                    // it has its place: what its pod says of an earlier wait is over
	inheritance *succession.Inheritance // what it goes on from when it starts; nil: nothing, or it started
	// How its metric converges; "": it does not end by that.
	converge string
	reports.Telling
}

// sorted lists the gang's pods in their order.
func (g *gang) sorted() []*pod {
	list := make([]*pod, 0, len(g.pods))
	for _, p := range g.pods {
		list = append(list, p)
	}
	slices.SortFunc(list, podOrder)
	return list
}

// seated lists the pods that are bound and not over.
func (g *gang) seated() []*pod {
	return slices.DeleteFunc(g.sorted(), func(p *pod) bool { return p.node == "" || p.Over() })
}

// ready lists the pods that want to be bound.
func (g *gang) ready() (list []*pod) {
	for _, p := range g.sorted() {
		if p.ready() {
			list = append(list, p)
		}
	}
	return list
}

// specOf makes the engine's job of a gang whose pods these are.
func (d *Driver) specOf(g *gang, pods []*pod, m gangs.Membership) (*cluster.Job, error) {
	first := pods[0].Obj
	submit := m.Submit
	for _, p := range pods {
		if at := p.Obj.CreationTimestamp.Time; m.Submit.IsZero() && (submit.IsZero() || at.Before(submit)) {
			submit = at
		}
	}
	t, err := d.terms(g, first)
	if err != nil {
		return nil, err
	}
	g.repair.wanted, g.converge = t.Repair, t.Converge
	for _, p := range pods {
		p.Want = t.Want
		p.Sign(d.fit)
	}
	if d.claims.Shared(neighboursOf(pods)) {
		t.Topology = cluster.Topology{Level: cluster.LevelNode, Required: true}
	}
	j := &cluster.Job{Name: g.name, User: first.Namespace, Queue: t.Queue, Kind: g.kind, Tier: t.Tier,
		Priority: t.Priority, Topology: t.Topology,
		Estimate: t.RunTime, Deadline: t.Deadline, Submit: cluster.Time(submit.UnixNano()), NoRequeue: true,
		Tasks:     taskSets(pods),
		NoPreempt: g.neverPreempts(first), Checkpoint: cluster.Checkpoint{Interval: t.Saves}}
	j.Model, j.MinSpeed, j.Traffic = t.Sharer.Model, t.Sharer.Least, t.Traffic
	j.Service = d.opt.lender(first)
	return j, nil
}

// taskSets groups pods that ask for the same, the largest first.
func taskSets(pods []*pod) (sets []cluster.TaskSet) {
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
