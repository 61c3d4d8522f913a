//go:build linux

// Package local drives the engine on one machine: its decisions become real
// processes. Everything that must not be lost is in the store before anything
// is done about it, and every task belongs to a shim that outlives the daemon,
// so that the daemon may be killed at any instant.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/config"
	"github.com/muster-gpu/muster/driver"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
	"github.com/muster-gpu/muster/internal/inbox"
	"github.com/muster-gpu/muster/local/cgroup"
	"github.com/muster-gpu/muster/local/clock"
	"github.com/muster-gpu/muster/local/devices"
	"github.com/muster-gpu/muster/local/evidence"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/local/record"
	"github.com/muster-gpu/muster/local/replicas"
	"github.com/muster-gpu/muster/local/rules"
	"github.com/muster-gpu/muster/local/run"
	"github.com/muster-gpu/muster/local/segment"
	"github.com/muster-gpu/muster/local/share"
	"github.com/muster-gpu/muster/local/watch"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// Options configures a machine.
type Options struct {
	Dir   string // of the state
	Rules config.Rules
	GPUs  []show.GPU // in the order of the node's devices
	// Devices reports the health and the use of the GPUs; nil: they are not watched.
	Devices     gpu.Source
	SampleEvery time.Duration      // 0: nothing is measured
	HourCost    float64            // of a GPU; 0: unknown
	Idle        *observe.IdleRules // what becomes of idle jobs; nil: they are left alone
	Saving      *perf.Saving       // how often jobs are to write checkpoints; nil: nothing is said of it
	Sharing     Sharing
	Network     config.QoS // by which marks the network knows classes of traffic
	// Groups keep tasks to what they asked for; nil: nothing does.
	Groups *cgroup.Manager
	Now    func() time.Time
	Log    *slog.Logger
	Shim   []string // the command that runs a shim; the task's folder is appended
	// Variables are what a task finds in its environment besides what its user and Muster say, such as Slurm's;
	// nil: nothing more.
	Variables func(j *show.Job, task int) []string
	// Members says who may submit to a queue and those below it; a queue that is
	// not named takes jobs of everybody.
	Members map[string]rules.Members
	// DefaultQueues says in which queue jobs are that name none.
	DefaultQueues rules.DefaultQueues
	Limits        rules.Limits  // of what a user can ask for
	Urgency       rules.Urgency // who may have jobs that go before others'
	Observe       Observer      // for metrics; nil: none
	// KillWait is how long a task has after SIGTERM; 0: 10 s.
	KillWait time.Duration
	// Keep is how long the journal and the folders of jobs that are over are kept;
	// 0: for ever.
	Keep time.Duration
	// Checkpoints is the folder for the folders that jobs save in; "": the state's. It may be on another file system.
	Checkpoints string
	// AcceptLoss goes on with a database that knows less than its surroundings.
	AcceptLoss bool
	// AuditKeep is how long the audit trail is kept; 0: until it is full.
	AuditKeep time.Duration
	// Crash, if it is set, is called at each of CrashPoints: a test makes the
	// daemon die there.
	Crash func(point string)
}

// Machine is this machine with its jobs. It is the driver of its engine.
type Machine struct {
	opt   Options
	store *store.Store
	clock *clock.Clock // the engine's time

	// mu is held for writing from the moment that a batch is complete until its
	// decision is carried out; readers see the state between two steps.
	mu    sync.RWMutex
	eng   *engine.Engine
	jobs  map[cluster.JobID]*job // those that are not done
	tally rules.Tally            // of jobs, by user
	next  cluster.JobID
	seq   int64
	wake  cluster.Time
	past  pastAt // what is stored of completed jobs

	renewed cluster.Time // when the engine last started over
	ended   int          // jobs that ended since

	conf   sync.RWMutex // guards what of opt a reload changes; it is written with mu held
	policy rules.InForce
	turns  []*turn // changes of the rules that wait for the end of a step

	inbox       inbox.Inbox[item]
	step        step
	moved       []show.Moves                // found by the last search for moves
	drained     atomic.Pointer[rules.Drain] // why the node takes no jobs
	ready       atomic.Bool                 // the last step could be stored
	stuck       atomic.Bool                 // the last step could not be stored yet
	watch       watch.Hub
	series      observe.Series
	lines       lines
	outlook     foresight.Outlook
	loans       replicas.Loans // of services to jobs
	tests       sync.Mutex     // one question what would become of a submission at a time
	runners     sync.WaitGroup
	stopped     context.CancelFunc
	running     context.Context // ends when the daemon does
	groups      *cgroup.Manager
	keeper      *run.Keeper          // of the runs of jobs
	known       foresight.Experience // from earlier jobs
	mps         *share.MPS
	gpus        *devices.GPUs
	sampler     atomic.Pointer[observe.Sampler]
	idle        atomic.Pointer[observe.IdleRules]
	interrupted interrupted
	traffic     treated
}

// step is what the present step collects, until it is stored.
type step struct {
	began   time.Time
	acks    []func(error) // called when it is stored
	keys    []submissionKey
	arrived []*record.Array
	trail   []*store.Audit
}

// job is a job that is not done.
type job struct {
	record.Job
	heldFor         cluster.JobID // 1 + the job for which it is held back; 0: none
	bare            int32         // its tasks that ask for neither GPUs nor CPUs
	stale           bool          // what was chosen for it was so by the service before
	firstPrediction cluster.Time  // of its start; 0: there was none yet
	lastQuote       time.Time     // expected start that was reported last
	lastForecast    forward.Asked // when it was explained last
	run             *runner
	then            []run.Order  // for the runner, when the step is stored
	throttled       cluster.Time // when it last had to stand still
	noWay           string       // why it cannot have what it asked for, as GPUs are shared now; "": it can
	duty            int          // as a guest: thousandths of the time that it runs; 0: it was never held back
	window          share.Window // as one with guests
}

// Open opens the state, restores the engine and finds the tasks that run.
func Open(ctx context.Context, opt Options) (*Machine, error) {
	if opt.Observe == nil {
		opt.Observe = noObserver{}
	}
	if opt.KillWait == 0 {
		opt.KillWait = 10 * time.Second
	}
	lost, err := examine(ctx, &opt)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(evidence.Database(opt.Dir))
	if err != nil {
		return nil, err
	}
	m := &Machine{opt: opt, store: st, clock: clock.New(opt.Now),
		gpus: devices.New(opt.GPUs, opt.Devices), jobs: map[cluster.JobID]*job{}, tally: rules.Tally{},
		wake: cluster.Never}
	m.running, m.stopped = context.WithCancel(context.WithoutCancel(ctx))
	if m.groups = opt.Groups; m.groups == nil {
		m.groups = &cgroup.Manager{}
	}
	m.keeper = m.newKeeper()
	m.traffic.init(&opt.Network)
	m.outlook.Running, m.outlook.Now, m.outlook.Seq, m.outlook.Look = m.running, opt.Now, m.lastSeq, m.makeForecast
	m.inbox.Init()
	m.SetIdle(opt.Idle)
	if err := m.policy.Restore(ctx, st, &m.opt.Rules, opt.Now(), opt.Log); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if err := m.endLost(ctx, lost); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	drain, err := rules.ReadDrain(ctx, st)
	if err := errors.Join(err, m.findMPS(), m.restore(ctx)); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	m.drained.Store(drain)
	return m, nil
}

// newKeeper makes what the runs of jobs have in common.
func (m *Machine) newKeeper() *run.Keeper {
	return &run.Keeper{Places: run.Places{Dir: m.opt.Dir, Checkpoints: m.opt.Checkpoints},
		Groups: m.groups, Shim: m.opt.Shim, Running: m.running, Log: m.opt.Log,
		Now: m.clock.Time, Crash: m.opt.Crash}
}

// lastStep is how long a daemon that is to end tries to store what it decided last.
const lastStep = time.Second

// Run schedules until the context ends. Tasks go on running.
func (m *Machine) Run(ctx context.Context) error {
	if m.opt.Devices != nil {
		m.runners.Add(2)
		go m.watchHealth()
		go func() {
			defer m.runners.Done()
			m.mps.Tend(devices.HealthEvery)
		}()
		if m.opt.SampleEvery > 0 {
			m.runners.Add(1)
			go m.sample()
		}
	}
	m.runners.Add(1)
	go m.carryTreatments()
	go m.series.Keep(m.running, m.present)
	m.keeper.Reserve.Keep()
	ended := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		select {
		case <-ended:
		case <-time.After(lastStep): // it cannot be stored
			m.stopped()
		}
	})()
	err := m.schedule(ctx)
	close(ended)
	m.stopped()
	m.runners.Wait()
	m.keeper.Reserve.End()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, m.store.Close())
}

// Close closes a machine that was never run.
func (m *Machine) Close() error {
	m.stopped()
	m.runners.Wait()
	m.policy.Release()
	return m.store.Close()
}

// restore builds the engine from what is stored, and begins a new segment of
// the journal.
func (m *Machine) restore(ctx context.Context) error {
	seq, last, err := m.store.Last(ctx)
	if err != nil {
		return err
	}
	m.seq, m.next = seq, cluster.JobID(max(0, last)+1)
	held, err := record.AnyHeld(ctx, m.store)
	if err != nil {
		return err
	}
	if err := m.gpus.Restore(ctx, m.store, held, &m.opt.Rules.Spec); err != nil {
		return err
	}
	snap, err := m.snapshot(ctx)
	if err != nil {
		return err
	}
	if err := m.known.Restore(ctx, m.store, m.opt.Now(), m.opt.Rules.Policy, m.liveJobs()); err != nil {
		return err
	}
	m.clock.Start(snap.Now)
	if snap.Next == 0 {
		snap.Now = m.clock.Now()
	}
	snap.Next = m.next
	m.renewed = m.clock.Now()
	rules := m.rules()
	if m.eng, err = m.restored(&rules, snap); err != nil {
		return err
	}
	if err := m.begin(ctx, &rules, snap, nil); err != nil {
		return err
	}
	if err := errors.Join(m.endHomeless(ctx), m.noteCold(ctx)); err != nil {
		return err
	}
	return m.adopt()
}

// watchHealth reports unhealthy devices to the engine, until the daemon ends.
func (m *Machine) watchHealth() {
	defer m.runners.Done()
	m.gpus.WatchHealth(m.running, m.opt.Rules.Spec.MIG, func(faults []string) {
		m.inbox.Put(func(cluster.Time) (events []engine.Event, _ func(error)) {
			bad := m.gpus.SetFaults(faults, m.opt.Log)
			n := m.eng.Nodes()[0]
			if more := bad &^ n.Bad; more != 0 {
				events = append(events, engine.Event{Type: engine.GPUBad, Node: n.Name, GPUs: more})
			}
			if good := n.Bad &^ bad; good != 0 {
				events = append(events, engine.Event{Type: engine.GPUBad, Node: n.Name, GPUs: good, Undo: true})
			}
			return events, nil
		})
	})
}

// endHomeless ends the jobs whose queue was removed while the daemon was down.
func (m *Machine) endHomeless(ctx context.Context) error {
	for _, j := range m.sorted() {
		if rec := m.eng.Record(j.ID); rec.State != engine.Done || j.Info.Record.State == engine.Done {
			continue
		}
		j.Own().Text = fmt.Sprintf("queue %q was removed while the job waited", j.Spec.Queue)
		m.opt.Log.Warn("a waiting job ends", "job", j.ID, "reason", j.Info.Text)
		if err := m.storeNow(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// config is the engine's, which explains itself in local time.
func (m *Machine) config(rules *config.Rules) (engine.Config, error) {
	cfg, err := rules.Config()
	cfg.Clock = func(t cluster.Time) string {
		at := time.Unix(0, int64(t))
		if at.Sub(m.opt.Now()).Abs() < 12*time.Hour {
			return at.Format("15:04:05")
		}
		return at.Format("15:04 Mon 2 Jan 2006")
	}
	return cfg, err
}

// snapshot collects what the engine knew from the stored jobs.
func (m *Machine) snapshot(ctx context.Context) (*engine.Snapshot, error) {
	snap := &engine.Snapshot{Nodes: slices.Clone(m.opt.Rules.Spec.Nodes), Queues: m.opt.Rules.Spec.Queues}
	text, err := m.store.Meta(ctx, "engine")
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		snap = &engine.Snapshot{}
		if err := json.Unmarshal(text, snap); err != nil {
			return nil, fmt.Errorf("the stored state of the engine: %w", err)
		}
		// else the state is of a version that kept it in the engine's
		if text, err = m.store.Meta(ctx, "past"); err == nil {
			err = json.Unmarshal(text, &snap.Past)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("the stored completed jobs: %w", err)
		}
	}
	list, err := record.Load(ctx, m.store)
	if err != nil {
		return nil, err
	}
	known := map[cluster.JobID]bool{}
	for _, stored := range list {
		j := &job{Job: *stored}
		m.jobs[j.ID], known[j.ID] = j, true
		j.count(m.tally)
		snap.Jobs = append(snap.Jobs, j.Whole().Record)
	}
	return snap, m.doneBefore(ctx, snap, known)
}

func sortJobs(snap *engine.Snapshot) {
	slices.SortFunc(snap.Jobs, func(a, b engine.JobRecord) int { return int(a.Spec.ID) - int(b.Spec.ID) })
}

// Next waits until something happened or the engine wants to be woken. It
// returns with the state locked; Apply unlocks it.
func (m *Machine) Next(ctx context.Context) (engine.Batch, error) {
	if len(m.turns) > 0 || m.stale(m.clock.Now()) {
		return engine.Batch{}, errRenew
	}
	for {
		wait := time.Duration(1<<62 - 1)
		if m.wake != cluster.Never {
			wait = max(0, m.wake.Sub(m.clock.Now()))
		}
		if err := m.inbox.Wait(ctx, wait); err != nil {
			return engine.Batch{}, err
		}
		items := m.inbox.Take()
		m.mu.Lock()
		b := engine.Batch{Now: m.clock.Now()}
		for _, it := range items {
			events, ack := it(b.Now)
			if b.Events == nil {
				b.Events = events
			} else {
				b.Events = append(b.Events, events...)
			}
			if ack != nil {
				m.step.acks = append(m.step.acks, ack)
			}
		}
		if len(b.Events) > 0 || b.Now >= m.wake || len(m.step.acks) > 0 {
			m.seq++
			b.Seq = m.seq
			m.step.began = m.opt.Now()
			return b, nil
		}
		m.mu.Unlock()
		if len(m.turns) > 0 {
			return engine.Batch{}, errRenew
		}
	}
}

// Record stores the step and every job that it changed (driver.Journal). While
// the store cannot be written, nothing is decided: it is tried again until it
// can, or the daemon ends.
func (m *Machine) Record(b *engine.Batch, d *engine.Decision) error {
	decided := m.opt.Now()
	arrays := make([]segment.Array, len(m.step.arrived))
	for i, a := range m.step.arrived {
		arrays[i] = a.Segment()
	}
	batch, err := segment.EncodeBatch(b, arrays)
	if err != nil {
		return err
	}
	m.observe(b, d)
	m.noteActions(b, d)
	m.crash("before-commit")
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		err := m.store.Write(m.running, func(t *store.Tx) error { return m.write(t, b, batch, d) })
		if err == nil {
			break
		}
		m.ready.Store(false)
		m.stuck.Store(true)
		m.opt.Observe.NotStored()
		m.opt.Log.Error("the state cannot be written; nothing is decided until it can", "error", err)
		m.mu.Unlock() // readers meanwhile see what will be, as soon as it is stored
		select {
		case <-m.running.Done():
			return err
		case <-time.After(delay):
		}
		m.mu.Lock()
	}
	m.past = m.pastNow()
	if found := m.eng.Moved(); found != nil {
		m.moved = driver.Moves(found, sameNumber)
	}
	m.opt.Observe.Stepped(decided.Sub(m.step.began), m.opt.Now().Sub(decided))
	m.crash("after-commit")
	m.ready.Store(true)
	m.stuck.Store(false)
	for _, ack := range m.step.acks {
		ack(nil)
	}
	m.step = step{}
	return nil
}

// pastAt says which state of an engine's completed jobs is meant.
type pastAt struct {
	of       *engine.Engine
	revision int64
}

func (m *Machine) pastNow() pastAt { return pastAt{m.eng, m.eng.PastRevision()} }

func (m *Machine) write(t *store.Tx, b *engine.Batch, batch []byte, d *engine.Decision) error {
	for _, a := range m.step.arrived {
		if err := a.Put(t, known{m, m.eng, m.keeper.Places}, m.eng.Now()); err != nil {
			return err
		}
	}
	var changed []*record.Job
	for _, id := range m.eng.Changed() {
		if j := m.jobs[id]; j != nil && !j.JoinsArray() { // else it is done, and stored as such
			changed = append(changed, &j.Job)
		}
	}
	if err := record.CloseArrays(t, changed); err != nil {
		return err
	}
	for _, j := range changed {
		if err := j.Put(t, m.eng.Record(j.ID), m.eng.Now()); err != nil {
			return err
		}
	}
	for _, k := range m.step.keys {
		ids, err := json.Marshal(k.ids)
		if err != nil {
			return err
		}
		if err := t.PutKey(k.user, k.key, string(ids), int64(b.Now)); err != nil {
			return err
		}
	}
	for _, a := range m.step.trail {
		if err := t.PutAudit(a); err != nil {
			return err
		}
	}
	if err := t.PutStep(b.Seq, batch, strconv.FormatUint(d.Hash, 16)); err != nil {
		return err
	}
	text, err := json.Marshal(m.eng.Common()) // jobs have rows of their own
	if err != nil {
		return err
	}
	if err := t.PutMeta("engine", text); err != nil {
		return err
	}
	if m.past != m.pastNow() {
		if text, err = json.Marshal(m.eng.Past()); err != nil {
			return err
		}
		if err := t.PutMeta("past", text); err != nil {
			return err
		}
	}
	m.crash("in-commit")
	return nil
}

// Stuck reports that the state cannot be written: nothing is decided, and what
// is asked of the machine has to wait.
func (m *Machine) Stuck() bool { return m.stuck.Load() }

// Ready reports whether the last step could be stored.
func (m *Machine) Ready() bool { return m.ready.Load() }

// Apply carries out what was decided and unlocks the state.
func (m *Machine) Apply(_ context.Context, d engine.Decision) error {
	defer m.mu.Unlock()
	m.wake = d.WakeAt
	for i := range d.Actions {
		m.act(&d.Actions[i])
	}
	for _, id := range m.eng.Changed() {
		m.jobStored(id)
	}
	m.watch.Publish(m.eng.Changed())
	m.crash("applied")
	return nil
}
