// Package control runs services on a scheduler: it asks each service's policy how many replicas are needed, submits and
// cancels the jobs that are replicas, finds out which of them answer, and tells the gateway. Which replicas
// there are it learns from the scheduler's jobs, so it may end at any moment and be started again.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/gateway"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/serving/tally"
	"github.com/muster-gpu/muster/show"
)

// Scheduler runs the jobs that are replicas.
type Scheduler interface {
	// Submit submits a job of the service's owner for a replica that answers at a port.
	// In the place of a job that is moved, it runs where that is to go; 0: of none.
	Submit(ctx context.Context, s *Service, k scale.Kind, port, inPlaceOf int) (job int, err error)
	Cancel(ctx context.Context, job int) error
	// Test reports as an error why replicas of a service could never be submitted by a user.
	Test(s *service.Service, by Caller) error
	// Replicas lists the jobs of all services that are not over.
	Replicas(ctx context.Context) ([]Job, error)
	Replica(ctx context.Context, job int) (Job, error) // over or not
	// Check reports as an error that what listens at a job's port is not the job.
	Check(j *Job) error
	GPUs() []scale.GPUs
	// Lent lists the jobs that would make room if so many more replicas of a service came now.
	Lent(s *Service, k scale.Kind, replicas int) ([]int, error)
	// SetLenders says which services lend what they do not run.
	SetLenders(list []Lender) error
	// Slowed says what is left of a replica's speed beside those on its GPUs, as it was measured.
	Slowed(job int, part float64)
	// SetLent says in words, by job, which service lends it what it holds.
	SetLent(by map[int]string)
}

// Lender is a service that lends what it does not run: of so many replicas, where the next is of a kind.
type Lender struct {
	Service  *Service
	Kind     scale.Kind
	Replicas int
}

// Store keeps the services.
type Store interface {
	Services(ctx context.Context) ([]Service, error)
	PutService(ctx context.Context, s *Service) error
	PutKnown(ctx context.Context, service string, k *Known) error
	DeleteService(ctx context.Context, name string) error
}

// Gateway is told where replicas are, and counts what becomes of requests.
type Gateway interface {
	// Counts are those since the gateway began. It returns as soon as a request waits for a service without replicas,
	// at the latest after a while.
	Counts(ctx context.Context) (*gateway.Report, error)
	Write(c *gateway.Config) error
	// Former is what was last written, by whichever controller; nil: nothing.
	Former() (*gateway.Config, error)
}

// Service is a service that was applied.
type Service struct {
	service.Service
	File       ask.ServiceFile
	Owner      string // user
	Trusted    bool   // an operator applied it: its replicas may have what users' jobs may not
	Applied    time.Time
	Generation string            // of what its replicas run: they are replaced when it changes
	Scaled     *service.Replicas // instead of those of the text; nil: none
	Known      Known
}

// bounds are how many replicas there may be.
func (s *Service) bounds() service.Replicas {
	if s.Scaled != nil {
		return *s.Scaled
	}
	return s.Replicas
}

// State is how far a replica is.
type State string

// States of a replica.
const (
	Waits    State = "waits"    // for GPUs
	Starts   State = "starts"   // it runs and does not answer yet
	Answers  State = "answers"  // and gets requests
	Hangs    State = "hangs"    // it has answered, but does not now
	Leaves   State = "leaves"   // it finishes what it has
	Over     State = "over"     // the job has ended
	Suspends State = "suspends" // the scheduler takes its GPUs
)

// Job is a job that is a replica.
type Job struct {
	ID         int
	Service    string
	Variant    string
	Share      cluster.Milli // of a GPU; Whole: all, or several
	Generation string
	Port       int
	User       string
	State      State     // Waits, Starts (it runs), Suspends or Over
	Moves      bool      // it runs until another that comes in its place answers
	InPlaceOf  int       // the job in whose place it came; 0: none
	Submitted  time.Time // the job
	Started    time.Time // its present run
	Outcome    string    // of one that is over
	Failed     bool      // it ended by itself
	Devices    []string  // for people
	GPUs       []string  // that it is on
	Beside     []string  // models of the other jobs in shares of these that are no replicas; "": one states none
	Loan       *show.Loan
}

// Options are what a controller needs. Ports are those of replicas, from First to Last.
type Options struct {
	Scheduler   Scheduler
	Store       Store
	Gateway     Gateway
	First, Last int
	Period      time.Duration // between decisions about a service; 0: 5 s
	Whole       bool          // nothing keeps replicas apart on parts of a GPU: policies leave their sizes as they are
	Log         *slog.Logger
	Now         func() time.Time
}

const (
	stepEvery   = 200 * time.Millisecond
	periodUsual = 5 * time.Second
	grace       = 30 * time.Second // in which a replica that leaves finishes what it has
	seenFor     = time.Minute      // of figures that people are shown
)

// Controller runs services.
type Controller struct {
	opt  Options
	poke chan struct{}

	mu       sync.Mutex
	services map[string]*running
	replicas map[int]*replica // by job
	report   *gateway.Report  // the last
	silent   error            // why there is none now
	wrote    *gateway.Config
	keys     keys
	bookedAt time.Time      // when batches were last booked to neighbours
	lent     map[int]string // as the scheduler was last told
	lenders  []Lender       // likewise
	told     bool           // the scheduler knows which services lend
}

// running is a service with what is known of it.
type running struct {
	Service
	policy      scale.Policy
	want        []scale.Want     // as last decided
	times       []times          // of batches, by variant
	beside      []besides        // ... by what computed on the same GPU
	slower      []float64        // by what factor batches take longer now than alone, by variant
	routes      *gateway.Service // as the gateway has it, but for its replicas; nil: that has changed
	refused     error            // why the gateway would not take it
	lent        []int            // jobs that would make room for as many more replicas as there may be
	lentNext    time.Time        // when that is asked again
	keptAt      time.Time        // when what is known was last stored, with as many returns
	keptReturns int
	decided     time.Time
	waits       time.Time   // since when a replica waits for GPUs; zero: none does
	stuck       bool        // one has waited for long, which the policy knows
	was         tally.Tally // as of the last decision
	seen        []seen      // the last minute
	prompt      float64     // tokens, in the mean
	output      float64
	failed      int       // replicas that ended or never answered, in a row
	again       time.Time // none is submitted before
	failedAt    time.Time // the last
	trouble     string    // of the last that failed, or why none can be submitted
	deleted     bool
}

// seen is what became of the requests of a period.
type seen struct {
	at   time.Time
	span time.Duration
	tally.Tally
}

// replica is a job with what is known of it besides.
type replica struct {
	Job
	found   time.Time // when its present run was first seen: a restarted controller does not know yet what answers
	answers bool      // it has answered in its present run
	since   time.Time // when it first did
	hangs   bool      // and failed as many probes in a row since as its service allows
	fails   int       // probes in a row
	failing time.Time // since when
	asked   time.Time // the last probe
	asking  bool
	problem string         // what the last probe came to
	memory  float64        // part of its memory for keys and values that is in use, as of the last probe
	tells   bool           // it says so
	leaves  time.Time      // since when; zero: it stays
	sizes   []gateway.Size // batches, as last counted
	booked  []gateway.Size // ... as last booked to its neighbours
	ended   time.Time      // when it was found to be over
}

// state of a replica for people and for the gateway.
func (r *replica) state() State {
	switch {
	case r.State == Over || r.State == Suspends || r.State == Waits:
		return r.State
	case !r.leaves.IsZero():
		return Leaves
	case r.answers && r.hangs:
		return Hangs
	case r.answers:
		return Answers
	}
	return Starts
}

// New makes a controller of the services in the store.
func New(ctx context.Context, opt Options) (*Controller, error) {
	if opt.Period == 0 {
		opt.Period = periodUsual
	}
	c := &Controller{opt: opt, poke: make(chan struct{}, 1), services: map[string]*running{},
		replicas: map[int]*replica{},
		silent:   errors.New("the gateway was not heard of yet")}
	list, err := opt.Store.Services(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if err := c.take(&list[i]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// take begins to run a service, or goes on with it in a new form.
func (c *Controller) take(s *Service) error {
	p, err := scale.New(s.Scaling)
	if err != nil {
		return err
	}
	r := &running{Service: *s, policy: p, want: scale.None(p, &s.Service), times: make([]times, len(s.Variants)),
		keptAt: c.opt.Now()}
	for i := range r.times {
		name := s.Variants[i].Name
		r.times[i] = timesOf(s.Known.Times[name])
		r.beside, r.slower = append(r.beside, s.Known.besides(name)), append(r.slower, 1)
	}
	if old := c.services[s.Name]; old != nil {
		r.was, r.seen, r.decided = old.was, old.seen, old.decided
		r.Known.Returns, r.keptReturns = old.Known.Returns, old.keptReturns
		if old.Generation == s.Generation {
			r.times, r.beside = old.times, old.beside
		}
		if old.Scaling == s.Scaling {
			r.policy = old.policy
		}
	}
	if _, ok := p.(scale.Planner); ok {
		for _, o := range c.services { // it decides for them together
			if o.Scaling == s.Scaling && o.Name != s.Name {
				r.policy = o.policy
			}
		}
	}
	c.services[s.Name] = r
	return nil
}

// Run runs services until the context ends. Their replicas go on.
func (c *Controller) Run(ctx context.Context) {
	go c.listen(ctx)
	t := time.NewTicker(stepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-c.poke:
		}
		if err := c.guarded(ctx); err != nil && ctx.Err() == nil {
			c.opt.Log.Error("services", "error", err)
		}
	}
}

// guarded is step for a daemon that schedules jobs, too: a fault in the services must not end it.
func (c *Controller) guarded(ctx context.Context) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("a fault of Muster: %v\n%s", fault, debug.Stack())
		}
	}()
	return c.step(ctx)
}

// wake lets the next step come at once.
func (c *Controller) wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// listen reads the gateway's counts.
func (c *Controller) listen(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := c.opt.Gateway.Counts(ctx)
		if err == nil {
			fold(r)
		}
		c.mu.Lock()
		c.silent = err
		if err == nil {
			c.report = r
		}
		wakes := err == nil && slices.ContainsFunc(r.Services, func(s gateway.Served) bool {
			return s.Waiting > 0 && s.Replicas == 0
		})
		c.mu.Unlock()
		if wakes {
			c.wake()
		}
		select { // the gateway answers at once where a request waits for a first replica
		case <-ctx.Done():
		case <-time.After(stepEvery):
		}
	}
}

// step looks at everything once.
func (c *Controller) step(ctx context.Context) error {
	jobs, err := c.opt.Scheduler.Replicas(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.opt.Now()
	c.see(ctx, now, jobs)
	c.probe(ctx, now)
	c.book(now)
	var errs []error
	for _, name := range c.names() {
		s := c.services[name]
		if !s.deleted {
			c.decide(s, now)
		}
		errs = append(errs, c.reconcile(ctx, s, now))
		if s.deleted && len(c.of(s)) == 0 {
			delete(c.services, name)
		}
	}
	c.lend(now)
	errs = append(errs, c.cancelUnknown(ctx), c.tell(), c.keep(ctx, now))
	return errors.Join(errs...)
}

func (c *Controller) names() (list []string) {
	for name := range c.services {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// steady is how long a replica answers until those that failed before it are forgotten.
const steady = time.Minute

// quarantine is how long the port of a job that is over is not given to another: the gateway may not know yet.
const quarantine = 30 * time.Second

// see takes over the scheduler's jobs.
func (c *Controller) see(ctx context.Context, now time.Time, jobs []Job) {
	there := map[int]bool{}
	slices.SortFunc(jobs, func(a, b Job) int { return back(&a).Compare(back(&b)) })
	for _, j := range jobs {
		there[j.ID] = true
		if s := c.services[j.Service]; s != nil && !back(&j).IsZero() {
			s.Known.Returns.add(j.Loan, j.ID)
		}
		r := c.replicas[j.ID]
		if r == nil {
			r = &replica{}
			c.replicas[j.ID] = r
		}
		if r.Started != j.Started || j.State != Starts { // another run begins from nothing
			r.found, r.answers, r.hangs, r.fails, r.problem = now, false, false, 0, ""
		}
		r.Job = j
		if s := c.services[j.Service]; s != nil && r.state() == Answers && now.Sub(r.since) > steady &&
			r.since.After(s.failedAt) {
			s.failed, s.trouble = 0, ""
		}
	}
	for id, r := range c.replicas {
		switch {
		case there[id]:
		case r.State == Over:
			if now.Sub(r.ended) > quarantine {
				delete(c.replicas, id)
			}
		default:
			j, err := c.opt.Scheduler.Replica(ctx, id)
			if err != nil || j.State != Over {
				continue // it was submitted a moment ago
			}
			r.Job, r.ended = j, now
			if s := c.services[j.Service]; s != nil && r.leaves.IsZero() && j.Failed {
				const text = "job %d: %s; muster service logs %s shows what it printed"
				s.fail(now, fmt.Sprintf(text, j.ID, j.Outcome, s.Name))
			}
		}
	}
}

// fail puts off the next replica, the longer the more have failed in a row.
func (s *running) fail(now time.Time, why string) {
	const longest = time.Minute
	s.failed++
	wait := longest
	if s.failed < 7 {
		wait = time.Second << (s.failed - 1)
	}
	s.again, s.trouble, s.failedAt = now.Add(wait), why, now
}

// of lists the replicas of a service that are not over, the oldest first.
func (c *Controller) of(s *running) (list []*replica) {
	for _, r := range c.replicas {
		if r.Service == s.Name && r.State != Over {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *replica) int { return a.ID - b.ID })
	return list
}

// variant is the number of the variant that a replica is; -1: of a former form of the service.
func (s *running) variant(r *replica) int {
	return slices.IndexFunc(s.Variants, func(v service.Variant) bool { return v.Name == r.Variant })
}

// served is what the gateway last counted of a service; nil: nothing.
func (c *Controller) served(name string) *gateway.Served {
	if c.report == nil || c.silent != nil {
		return nil
	}
	i := slices.IndexFunc(c.report.Services, func(s gateway.Served) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.report.Services[i]
}

// decide asks a service's policy where it is time: each period, and at once where a request waits for a first replica
// or a replica has waited in vain for GPUs. A planner is asked about all its services that something is known of.
func (c *Controller) decide(s *running, now time.Time) {
	b := s.bounds()
	count := s.wanted()
	served := c.served(s.Name)
	if served == nil { // nothing is known of its requests: what there is stays
		if count < b.Min || count > b.Max {
			s.want = only(s.want, min(max(count, b.Min), b.Max))
			scale.BothPhases(&s.Service.Service, s.want)
		}
		return
	}
	c.measure(s, served)
	have := s.states(c.of(s), now)
	waits := (served.Waiting > 0 || needed(served) > 0) && len(have) == 0 && count == 0
	stuck := slices.ContainsFunc(have, func(r scale.Replica) bool { return r.Stuck && !r.Leaves })
	news := stuck && !s.stuck // before replicas make room for those that wait
	if s.stuck = stuck; now.Sub(s.decided) < c.opt.Period && !waits && !news && count >= b.Min && count <= b.Max {
		return
	}
	var asked []*running
	var views []*scale.View
	for _, name := range c.names() {
		if o := c.services[name]; o.policy == s.policy && !o.deleted && c.served(name) != nil {
			asked, views = append(asked, o), append(views, c.view(o, now))
		}
	}
	for i, want := range scale.Decide(s.policy, views) {
		asked[i].want = want
	}
}

// needed is the requests per second that files with a deadline need.
func needed(s *gateway.Served) float64 {
	if s.Bulk == nil {
		return 0
	}
	return s.Bulk.Needed
}

// wanted is how many replicas of all kinds are wanted.
func (s *running) wanted() (n int) {
	for _, w := range s.want {
		n += w.Replicas
	}
	return n
}

// view is what a policy is shown of a service that it decides about now.
func (c *Controller) view(s *running, now time.Time) *scale.View {
	served := c.served(s.Name)
	spec := s.slowed()
	spec.Replicas = s.bounds()
	v := &scale.View{Now: cluster.Time(now.UnixNano()), Service: &spec, Waiting: served.Waiting,
		GPUs: c.opt.Scheduler.GPUs(), Fixed: c.opt.Whole, Prompt: s.prompt, Output: s.output}
	was := &s.was
	if served.Arrived < was.Arrived { // it has begun again
		was = &tally.Tally{}
	}
	t := served.Since(was)
	if !s.decided.IsZero() {
		v.Period = now.Sub(s.decided)
		s.seen = append(slices.DeleteFunc(s.seen, func(x seen) bool { return now.Sub(x.at) >= seenFor }),
			seen{now, v.Period, t})
	}
	v.See(&t)
	for _, r := range c.of(s) {
		if r.tells && r.state() == Answers {
			v.Tell++
			v.Memory += (r.memory - v.Memory) / float64(v.Tell)
		}
	}
	v.Arrived += int64(math.Ceil(needed(served) * v.Period.Seconds()))
	s.prompt, s.output, s.was, s.decided = v.Prompt, v.Output, served.Tally, now
	v.Count(s.states(c.of(s), now))
	return v
}

// only wants a number of replicas: of the kinds that were wanted, else of the first.
func only(want []scale.Want, n int) []scale.Want {
	list := slices.Clone(want)
	for i := range list {
		list[i].Replicas = min(list[i].Replicas, n)
		n -= list[i].Replicas
	}
	list[0].Replicas += n
	return list
}

// states are the replicas as policies look at them; those of a former form of the service leave.
func (s *running) states(have []*replica, now time.Time) []scale.Replica {
	waits := slices.ContainsFunc(have, func(r *replica) bool { return r.State == Waits && r.leaves.IsZero() })
	if !waits || s.waits.IsZero() {
		if s.waits = now; !waits {
			s.waits = time.Time{}
		}
	}
	list := make([]scale.Replica, len(have))
	for i, r := range have {
		k := s.variant(r)
		list[i] = scale.Replica{Kind: scale.Kind{Variant: max(k, 0), Share: r.Share}, Answers: r.state() == Answers,
			Leaves: !r.leaves.IsZero() || k < 0 || r.Generation != s.Generation,
			Moves:  r.Moves,
			Stuck:  r.State == Waits && now.Sub(s.waits) > scale.StuckAfter}
	}
	return list
}
