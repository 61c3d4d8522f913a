package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/internal/inbox"
	"github.com/muster-gpu/muster/kube/books"
	"github.com/muster-gpu/muster/kube/confirm"
	"github.com/muster-gpu/muster/kube/fit"
	"github.com/muster-gpu/muster/kube/fit/claims"
	"github.com/muster-gpu/muster/kube/fit/volumes"
	"github.com/muster-gpu/muster/kube/gang"
	"github.com/muster-gpu/muster/kube/gangs"
	"github.com/muster-gpu/muster/kube/gpus"
	"github.com/muster-gpu/muster/kube/history"
	"github.com/muster-gpu/muster/kube/loans"
	"github.com/muster-gpu/muster/kube/look"
	"github.com/muster-gpu/muster/kube/mig"
	"github.com/muster-gpu/muster/kube/nodes"
	"github.com/muster-gpu/muster/kube/notices"
	"github.com/muster-gpu/muster/kube/power"
	"github.com/muster-gpu/muster/kube/queues"
	"github.com/muster-gpu/muster/kube/reader"
	"github.com/muster-gpu/muster/kube/relocations"
	"github.com/muster-gpu/muster/kube/setaside"
	"github.com/muster-gpu/muster/kube/succession"
	"github.com/muster-gpu/muster/kube/write"
	"github.com/muster-gpu/muster/perf"
)

// Recorder records the steps of a segment of the journal.
type Recorder interface {
	driver.Journal
	Close() error
}

// Driver is a Kubernetes cluster. It is the driver of its engine. All of its
// state belongs to the loop; what other goroutines have to say, they put into
// the inbox.
type Driver struct {
	opt   Options
	inbox inbox.Inbox[func()] // items run on the loop, which alone touches the driver's state

	nodes *nodes.Room // what nodes are to the engine, and which pods are there
	pods  map[types.UID]*gang.Pod
	// Pods of gangs that came to their end before this scheduler was there.
	earlier []*v1.Pod
	objects *gangs.Objects // what makes gangs
	// Gang key → number of its single-pod gangs, which started after it or run beside it.
	singletons map[string]int

	gangs  map[string]*gang.Gang
	byID   map[cluster.JobID]*gang.Gang
	agenda agenda // which gangs are to be settled
	// Counts changes after which what was refused for good may be possible.
	refusalEpoch int

	eng         *engine.Engine
	cfg         engine.Config // that it was made with
	journal     Recorder
	next        cluster.JobID
	seq         int64
	now         cluster.Time
	wake        cluster.Time
	stale       string         // why the engine has to be renewed; "": it has not
	unconfirmed confirm.Step   // what it is told in this step and has to take over
	queued      []engine.Event // for the next batch
	step        []engine.Event // the last batch
	sizedAt     cluster.Time   // when it was last looked at the sizes of nodes and pods
	life        lifetime       // of the engine
	checked     cluster.Time   // when engine and cluster were last compared

	gpus   *gpus.Names
	fit    fit.Nodes // what pods may ask for of nodes
	queues *queues.Set
	reader *reader.Reader // of what gangs ask for

	neighbours
	volumes      *volumes.Volumes
	relocations  *relocations.Room
	inheritances succession.Memory // what gangs that had to leave left to those that come in their place
	victimSearch victimSearch
	claims       *claims.Claims
	setAside     *setaside.Room
	lenders      bool // others may lend than the engine knows

	writer  *write.Writer // what is asked of the API server
	workers sync.WaitGroup
	ready   atomic.Bool
	notices *notices.Writer

	losses   perf.Losses
	reported books.Reports // what pods told that is not booked yet
	books    *books.Room   // for people
	telling  books.Rounds  // in which gangs that wait are told why
	history  *history.Room
	desk     *look.Desk
}

// errRenew ends the loop for a moment: the engine is renewed.
var errRenew = errors.New("the engine starts again")

// The engine is renewed now and then, so that it forgets what is over; and it is compared with the cluster as after a
// restart, which finds nothing unless something went wrong.
const (
	renewEvery = 24 * time.Hour
	renewJobs  = 10_000
	renewSets  = 10_000 // of nodes
	checkEvery = time.Minute
	// Nodes change their size with every foreign pod, and pods can be resized all the time: that is looked at so often,
	// and no more than a part of the time goes into it.
	resizeEvery = time.Second
	resizePart  = 10
)

// New makes a driver; Run connects it to its cluster.
func New(opt Options) *Driver {
	if opt.Observe == nil {
		opt.Observe = noObserver{}
	}
	if opt.Workers == 0 {
		opt.Workers = 32
	}
	if opt.TellAfter == 0 {
		opt.TellAfter = tellAfter
	}
	if opt.StatusEvery == 0 {
		opt.StatusEvery = statusEvery
	}
	if opt.Await == 0 {
		opt.Await = awaitMoved
	}
	opt.Rules.Launches = 1 << 30 // the driver decides when a start is tried again
	d := &Driver{opt: opt,
		pods: map[types.UID]*gang.Pod{}, objects: gangs.NewObjects(), singletons: map[string]int{},
		gangs: map[string]*gang.Gang{}, byID: map[cluster.JobID]*gang.Gang{}, wake: cluster.Never,
		agenda: agenda{later: map[string]*gang.Gang{}}, queues: queues.New(opt.Rules.Spec.Queues, opt.DefaultQueue),
		neighbours: newNeighbours(), relocations: relocations.New(opt.Await),
	}
	d.volumes, d.claims = d.newVolumes(), d.newClaims()
	d.gpus = &gpus.Names{GPUs: opt.GPUs, Labels: opt.Labels, Published: d.claims.Published}
	world := d.newWorld()
	d.fit = fit.NewNodes(d.gpus, power.Label, loans.Label, mig.Label)
	d.inbox.Init()
	d.writer = write.New(write.Options{Client: opt.Client, Log: opt.Log, Now: opt.Now, Loop: d.inbox.Put,
		Crash: opt.Crash})
	d.nodes = nodes.New(nodes.Options{GPUs: d.gpus, Labels: &d.opt.Labels, Suits: d.fit, World: world,
		Power: d.newPower(), MIG: d.newMIG(migWriter{d}), Loans: loans.New(opt.Loans), Published: d.claims.GPUsOn,
		Claimed: d.claims.Others})
	d.reader = &reader.Reader{GPUs: d.gpus, Objects: d.objects, Queues: d.queues, Nodes: d.nodes, Fit: d.fit,
		Claims: d.claims, Volumes: d.volumes, Rules: d.opt.termRules(), DefaultQueue: opt.DefaultQueue,
		Lender: d.opt.lender}
	d.books = books.New(books.Options{Nodes: d.nodes, GPUs: d.gpus, QueueOf: d.reader.QueueOf})
	d.telling = books.NewRounds(opt.TellAfter)
	d.history = history.New(opt.History, opt.Log)
	d.notices = notices.New(opt.Tell, opt.Scheduler)
	d.setAside = setaside.New(setaside.Options{Log: opt.Log, Count: opt.Observe.SetAside,
		Event: func(obj runtime.Object, kind, reason, text string) { d.notices.Event(obj, kind, reason, text) }})
	d.desk = look.NewDesk(look.Loop{Ready: d.Ready, Put: d.inbox.Put, See: d.see, Now: opt.Now,
		Zone: opt.Rules.Spec.Zone})
	return d
}

// Ready reports whether the driver has seen the cluster and schedules.
func (d *Driver) Ready() bool { return d.ready.Load() }

// Run schedules until the context ends. Nothing of it outlives Run: when it
// returns, another scheduler may take over. It runs once.
func (d *Driver) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	for range d.opt.Workers {
		d.workers.Go(func() { d.writer.Work(ctx) })
	}
	d.workers.Go(func() { d.notices.Run(ctx) })
	defer func() {
		d.ready.Store(false)
		d.opt.Observe.Leading(false)
		d.desk.Close()
		cancel()
		d.workers.Wait()
		err = errors.Join(err, d.closeJournal())
		if errors.Is(err, context.Canceled) {
			err = nil
		}
	}()
	if err := d.arrive(ctx); err != nil {
		return err
	}
	if d.opt.Lenders != nil {
		d.opt.Lenders.Watch(func() { d.inbox.Put(func() { d.lenders = true }) })
	}
	d.ready.Store(true)
	d.opt.Observe.Leading(true)
	d.opt.Log.Info("scheduling", "nodes", len(d.nodes.Order()), "pods", len(d.pods), "policy", d.opt.Rules.Policy)
	for {
		err := d.drive(ctx)
		if !errors.Is(err, errRenew) {
			return err
		}
		if err := d.renew(); err != nil {
			return err
		}
	}
}

// arrive looks at the cluster as it is and begins the first engine.
func (d *Driver) arrive(ctx context.Context) error {
	if err := d.watch(ctx); err != nil {
		return err
	}
	d.collect()
	d.meetEarlier()
	d.loadPower(ctx)
	d.queues.Rebuild(d.opt.Rules.Spec.Queues, d.opt.Log)
	return d.begin(d.found(), "start")
}

func (d *Driver) closeJournal() error {
	if d.journal == nil {
		return nil
	}
	err := d.journal.Close()
	d.journal = nil
	return err
}

// clock is the time, which never runs backwards.
func (d *Driver) clock() cluster.Time {
	d.now = max(d.now, cluster.Time(d.opt.Now().UnixNano()))
	return d.now
}

// collect takes in what happened since the last time.
func (d *Driver) collect() {
	for _, it := range d.inbox.Take() {
		d.guarded("an object that changed", it)
	}
}

// Next waits until something happened that the engine has to know, or until it
// wants to be woken.
func (d *Driver) Next(ctx context.Context) (engine.Batch, error) {
	for {
		now := d.clock()
		until := min(d.wake, d.checked.Add(checkEvery), d.nextTell(now), d.agenda.next(),
			d.relocations.NextRound(d.opt.Rules.Defrag, now), d.queues.NextStatus(d.opt.StatusEvery), d.nodes.Next(),
			d.reported.Next())
		if d.nodes.SizesDirty {
			until = min(until, d.nextResize())
		}
		if d.seen != d.nodes.World.Version() {
			until = min(until, d.lookAt)
		}
		if d.victimSearch.done != d.stamp() {
			until = min(until, d.victimSearch.at)
		}
		if !d.hasNews() {
			if err := d.inbox.Wait(ctx, max(0, until.Sub(now))); err != nil {
				return engine.Batch{}, err
			}
		} else if err := ctx.Err(); err != nil {
			return engine.Batch{}, err
		}
		d.collect()
		now = d.clock()
		d.agenda.due(now)
		d.powerRound(now)
		if d.nodes.Loans.Due(now) {
			d.queued = append(d.queued, engine.Event{Type: engine.Tick})
		}
		d.migRound(now)
		d.round(now)
		if d.nodes.MayForget(now) {
			d.stale = cmp.Or(d.stale, "nodes left")
		}
		events := d.events(now)
		if d.nodes.SizesDirty && now >= d.nextResize() {
			events = append(events, d.sizeEvents()...)
		}
		if d.stale == "" && (d.life.isOver(now) || len(d.nodes.Sets.Named()) >= renewSets) {
			d.stale = "age"
		}
		if d.outdated(events) {
			return engine.Batch{}, errRenew
		}
		if len(events) > 0 || now >= d.wake {
			d.seq++
			d.step = events
			return engine.Batch{Seq: d.seq, Now: now, Events: events}, nil
		}
		d.sample(now)
		d.tell(now)
		d.writeStatus(now)
	}
}

// hasNews reports whether the engine is to hear of something at once.
func (d *Driver) hasNews() bool {
	return len(d.queued) > 0 || len(d.agenda.now) > 0 || d.reported.Urgent() || d.nodes.Dirty || d.nodes.Sets.Dirty() ||
		d.queues.Dirty() || d.lenders || d.stale != ""
}

// outdated reports whether the engine is to be renewed now: it has heard all that it was to hear before, also what came
// up while these events were gathered.
func (d *Driver) outdated(events []engine.Event) bool {
	return d.stale != "" && len(events) == 0 && len(d.queued) == 0
}

// events are what the engine has to know now.
func (d *Driver) events(now cluster.Time) []engine.Event {
	d.nodes.StepBegins()
	if told := d.reports(now); len(told) > 0 {
		return told
	}
	events := append(d.queued, d.refresh(now)...)
	d.queued = nil
	d.relocations.StepBegins()
	if d.nodes.Dirty || now >= d.checked.Add(checkEvery) {
		events = append(events, d.repairEvents()...)
	}
	if now >= d.checked.Add(checkEvery) {
		events = append(events, d.compare(now)...)
	} else if d.nodes.Dirty {
		events = append(events, d.nodeEvents()...)
	}
	if d.nodes.Sets.Dirty() {
		events = append(events, d.setEvents()...)
	}
	if d.queues.Dirty() {
		events = append(events, d.queueEvents()...)
	}
	if d.lenders {
		events = append(events, d.lenderEvents()...)
	}
	if len(d.agenda.now) > 0 {
		d.queues.StatusChanged()
	}
	for g := range d.heldBack {
		d.agenda.touch(g)
	}
	for len(d.agenda.now) > 0 {
		list := d.agenda.now
		d.agenda.now = nil
		for i, g := range list {
			if d.opt.Failures != nil && slices.ContainsFunc(events, submits) { // one gang at a time
				d.agenda.now = list[i:]
				return append(events, d.seekVictims(events, now)...)
			}
			g.Dirty = false
			d.guarded("gang "+g.Name, func() {
				events = append(events, d.settle(g, now)...)
				d.note(g, now)
			})
		}
	}
	return append(events, d.seekVictims(events, now)...)
}

// Record records the step (driver.Journal).
func (d *Driver) Record(b *engine.Batch, dec *engine.Decision) error {
	d.opt.Observe.Stepped(d.opt.Now().Sub(time.Unix(0, int64(b.Now))))
	d.desk.Tell()
	if d.journal == nil {
		return nil
	}
	return d.journal.Record(b, dec)
}

// Apply carries out what was decided.
func (d *Driver) Apply(_ context.Context, dec engine.Decision) error {
	d.wake = dec.WakeAt
	for i := range dec.Actions {
		a := &dec.Actions[i]
		g := d.byID[a.Job]
		if g == nil {
			continue
		}
		if g.Phase == gang.Moving {
			d.applyToMoving(g, a)
			continue
		}
		switch a.Type {
		case engine.Start:
			d.start(g, a)
		case engine.Preempt:
			d.stop(g, a)
		case engine.Reject:
			switch {
			case g.Phase != gang.Waiting:
			case g.Search.IsNarrow(): // it may be elsewhere
				g.Search.Widen()
				d.withdraw(g)
			default:
				g.Phase, g.Refused = gang.Gathering, a.Text
				g.RefusedIn, g.RefusedFor, g.RefusedAs = d.refusalEpoch, g.InJob, g.Facts
				d.forget(g)
			}
		case engine.Treat:
			d.treat(g, a.Treatment)
		case engine.Resize: // no gang is elastic here
			return fmt.Errorf("gang %s is to be resized, which pods cannot be", g.Name)
		}
		d.note(g, d.now)
	}
	d.checkTaken()
	d.checkRelocations()
	d.markLoans()
	d.answered()
	d.nominate()
	d.count()
	d.sample(d.now)
	d.tell(d.now)
	d.tellDeadlines()
	d.queues.StatusChanged()
	d.writeStatus(d.now)
	return nil
}

// forget drops a gang's job, which is over in the engine.
func (d *Driver) forget(g *gang.Gang) {
	delete(d.byID, g.Job)
	delete(d.constrained, g)
	d.unhold(g)
	d.forgetVictims(g)
	g.Job, g.Spec, g.InJob, g.Optional = cluster.NoJob, nil, nil, nil
	d.life.ended++
}

// count tells how many gangs are where.
func (d *Driver) count() {
	var gathering, waiting, placed int
	for _, g := range d.gangs {
		switch g.Phase {
		case gang.Gathering:
			gathering++
		case gang.Waiting:
			waiting++
		default:
			placed++
		}
	}
	d.opt.Observe.Gangs(gathering, waiting, placed)
}

// rules are how an engine is built for the cluster as it is.
func (d *Driver) rules(spec cluster.Spec) (config.Rules, engine.Config, error) {
	r := d.opt.Rules
	// MinSpeed stands in each job
	spec.Queues, spec.Zone, spec.Epoch = queues.Scaled(d.queues.Tree().List(), spec.GPUs()), r.Spec.Zone, r.Spec.Epoch
	r.Spec, r.Unshared = spec, true
	if r.Defrag != nil { // the driver looks for moves first, and asks for them
		asked := *r.Defrag
		asked.Auto = false
		r.Defrag = &asked
	}
	cfg, err := r.Config()
	cfg.Clock = func(t cluster.Time) string {
		at := time.Unix(0, int64(t))
		if at.Sub(d.opt.Now()).Abs() < 12*time.Hour {
			return at.Format("15:04:05")
		}
		return at.Format("15:04 Mon 2 Jan 2006")
	}
	return r, cfg, err
}
