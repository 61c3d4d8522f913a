package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/requests"
	"github.com/muster-gpu/muster/service"
	"github.com/muster-gpu/muster/serving/fleet"
	"github.com/muster-gpu/muster/serving/scale"
	"github.com/muster-gpu/muster/serving/tally"
	"github.com/muster-gpu/muster/trace"
)

// Serving is online services that are played in a world: their replicas are jobs of the engine, and their requests
// are played one by one between its decisions.
type Serving struct {
	Services []service.Service
	Scaling  []scale.Policy // of each service
	Period   time.Duration  // between decisions; 0: 15 s
	After    time.Duration  // from the first job of the workload until the first request
	Stream   requests.Stream
	Served   []Served // the result, by service

	fleet    *fleet.Fleet
	begun    bool
	tick     cluster.Time // of the next decision
	computed cluster.Time // of the last look at which requests came or were computed
	last     cluster.Time // of the last
	states   []serviceState
	gpus     []scale.GPUs
	kept     residency
	lend     bool // the engine knows what services lend
	err      error
}

// Served is what became of a service.
type Served struct {
	tally.Tally
	GPUHours float64
	Accuracy float64 // of the answers, in the mean; 0: the variants state none
	Cost     float64 // of the replicas' hours
	Peak     int     // most replicas at once that answered
	Started  int     // replicas
	Warm     int     // starts that found the weights in the node's memory
	Stopped  int     // because fewer were needed
	Evicted  int     // preempted, or lost with a node
	Canary   *Served // of these what its canary did; nil: it has none

	answers int // replicas now
}

// serviceState is a service in the world.
type serviceState struct {
	replicas       []cluster.JobID // not gone, the oldest first
	all            []cluster.JobID
	waits          cluster.Time // since when one waits for devices; cluster.Never: none does
	prompt, output float64      // tokens in the mean, as last seen
}

// replicaRun is a job that is a replica of a service.
type replicaRun struct {
	service int
	scale.Kind
	number  int    // in the fleet; -1: it does not answer yet
	starts  uint32 // how often it left its devices: what was scheduled before is void
	leaving bool   // it is drained, to be cancelled when it is idle
	moves   bool   // it goes on until another has come in its place,
	place   bool   // ... which was submitted
}

const servePeriod = 15 * time.Second

// givesUpAfter is how long what waits is waited for after the last request has come and the last one was computed,
// where there are no GPUs for a replica that it needs: 1 h.
const givesUpAfter = time.Hour

// givesUp reports whether what waits is never answered.
func (s *Serving) givesUp(now cluster.Time) bool { return now.Sub(s.computed) >= givesUpAfter }

// waits reports whether requests of a service wait that may still be answered.
func (s *Serving) waits(k int, now cluster.Time) bool {
	return s.fleet.Waiting(k) > 0 && !s.givesUp(now)
}

// busy reports whether requests are still to come, or are computed.
func (s *Serving) busy() bool { return !s.fleet.Ended() || s.fleet.Next() != cluster.Never }

// begin prepares the services at the start of the world.
func (s *Serving) begin(spec *cluster.Spec) error {
	if s.Period == 0 {
		s.Period = servePeriod
	}
	f, err := fleet.New(s.Services, s.Stream)
	s.fleet, s.begun = f, true
	for i, p := range s.Scaling {
		if b, ok := p.(scale.Batcher); ok {
			f.Batching(i, b.Batching())
		}
		if e, ok := p.(scale.Ensembler); ok {
			f.Ensemble(i, func(voted uint64) float64 { return e.Accuracy(&s.Services[i], voted) })
		}
	}
	for i := range spec.Nodes {
		n := &spec.Nodes[i]
		k := slices.IndexFunc(s.gpus, func(g scale.GPUs) bool { return g.Model == n.Model })
		switch {
		case n.Model == "":
		case k < 0:
			s.gpus = append(s.gpus, scale.GPUs{Model: n.Model, Number: n.GPUs, Server: n.GPUs})
		default:
			s.gpus[k].Number += n.GPUs
			s.gpus[k].Server = min(s.gpus[k].Server, n.GPUs)
		}
	}
	s.kept = make(residency, len(spec.Nodes))
	s.states, s.Served = make([]serviceState, len(s.Services)), make([]Served, len(s.Services))
	for k := range s.states {
		s.states[k].waits = cluster.Never
		if s.Services[k].Canary > 0 {
			s.Served[k].Canary = &Served{}
		}
	}
	return err
}

// count changes what is counted of a service for one of its replicas, and of its canary if the replica is one.
func (s *Serving) count(r *replicaRun, change func(t *Served)) {
	t := &s.Served[r.service]
	change(t)
	if t.Canary != nil && r.Variant == len(s.Services[r.service].Variants)-1 {
		change(t.Canary)
	}
}

// serveAt is when services are looked at next; Never: not again.
func (w *World) serveAt() cluster.Time {
	s := w.opt.Serving
	switch {
	case s == nil:
		return cluster.Never
	case !s.begun:
		return w.now
	case s.over():
		return cluster.Never
	}
	at := s.tick
	for i := range s.states {
		st := &s.states[i]
		if len(st.replicas) == 0 {
			at = min(at, s.fleet.Arrival())
		}
		for _, id := range st.replicas {
			if r := w.jobs[id].replica; r.leaving && r.number >= 0 {
				at = min(at, s.fleet.IdleAt(r.number))
			}
		}
	}
	return max(at, w.now)
}

// over reports whether all requests have come and gone, and no replica is left.
func (s *Serving) over() bool {
	if s.busy() {
		return false
	}
	for i := range s.states {
		if len(s.states[i].replicas) > 0 {
			return false
		}
	}
	return true
}

// playRequests plays what happened to requests until now.
func (w *World) playRequests() error {
	s := w.opt.Serving
	if s == nil || !s.begun {
		return nil
	}
	return s.fleet.Advance(w.now)
}

// serve decides about replicas if it is time, and submits and cancels them.
func (w *World) serve(evs []engine.Event) ([]engine.Event, error) {
	s := w.opt.Serving
	if s == nil {
		return evs, nil
	}
	if !s.begun {
		if err := s.begin(w.spec); err != nil {
			return evs, err
		}
		s.tick = w.now
		if list := s.lenders(); len(list) > 0 {
			evs, s.lend = append(evs, engine.Event{Type: engine.LendersChanged, Lenders: list}), true
		}
	}
	if s.lend && s.over() {
		evs, s.lend = append(evs, engine.Event{Type: engine.LendersChanged}), false
	}
	if s.busy() {
		s.computed = w.now
	}
	for i := range s.states {
		evs = w.cancelDrained(evs, &s.states[i])
	}
	woken := false
	for i := range s.states {
		woken = woken || len(s.states[i].replicas) == 0 && s.waits(i, w.now)
	}
	if s.tick > w.now && !woken {
		return evs, s.err
	}
	for i := range s.states {
		if slices.Index(s.Scaling, s.Scaling[i]) == i { // a planner decides for its services together
			evs = w.scale(evs, s.Scaling[i])
		}
	}
	s.last, s.tick = w.now, w.now.Add(s.Period)
	return evs, s.err
}

// lenders are the services that lend what they do not run.
func (s *Serving) lenders() (list []cluster.Lender) {
	for k := range s.Services {
		spec := &s.Services[k]
		if spec.Lend.Within == 0 {
			continue
		}
		replica := replicaOf(spec, scale.None(s.Scaling[k], spec)[0].Kind)
		list = append(list, cluster.Lender{Service: spec.Name, Replica: &replica, Replicas: spec.Replicas.Max,
			Servers: scale.LendsServers(s.Scaling[k], s.gpus)})
	}
	return list
}

// replicaOf is the job of a replica.
func replicaOf(spec *service.Service, kind scale.Kind) cluster.Job {
	v := &spec.Variants[kind.Variant]
	j := cluster.Job{Name: spec.Name, User: "services", Queue: spec.Queue, Tier: spec.Tier, Kind: cluster.Service,
		Model: v.Name, GPUTypes: v.GPUTypes, Tasks: []cluster.TaskSet{{Count: 1, Request: v.Sized(kind.Share)}},
		Replace: v.ReplacedWithin()}
	if spec.Lend.Within > 0 {
		j.Service = spec.Name
	}
	return j
}

// cancelDrained cancels the replicas that have finished what they computed.
func (w *World) cancelDrained(evs []engine.Event, st *serviceState) []engine.Event {
	for _, id := range append([]cluster.JobID(nil), st.replicas...) {
		r := w.jobs[id].replica
		if s := w.opt.Serving; r.leaving && (r.number < 0 || s.fleet.Idle(r.number) || s.givesUp(w.now)) {
			if ev, ok := w.cancel(id); ok {
				evs = append(evs, ev)
			}
		}
	}
	return evs
}

// scale asks a policy about its services and carries out what it says.
func (w *World) scale(evs []engine.Event, p scale.Policy) []engine.Event {
	s := w.opt.Serving
	var views []*scale.View
	var asked []int
	have := make([][]scale.Replica, len(s.states))
	want := make([][]scale.Want, len(s.states)) // nothing, once all requests have come and gone
	for k := range s.states {
		if s.Scaling[k] != p {
			continue
		}
		st := &s.states[k]
		want[k] = scale.Wants(&s.Services[k], make([]int, len(s.Services[k].Variants)))
		spec := w.besideOthers(k)
		v := &scale.View{Now: w.now, Epoch: w.spec.Epoch, Period: w.now.Sub(s.last), Service: &spec,
			Waiting: s.fleet.Waiting(k), Prompt: st.prompt, Output: st.output, GPUs: s.gpus}
		v.See(s.fleet.Observe(k))
		v.Memory, v.Tell = s.fleet.Memory(k)
		st.prompt, st.output = v.Prompt, v.Output
		waits := false
		for _, id := range st.replicas {
			j := &w.jobs[id]
			r := j.replica
			have[k] = append(have[k], scale.Replica{Kind: r.Kind, Answers: r.number >= 0, Leaves: r.leaving,
				Moves: r.moves,
				Stuck: j.phase == waiting && st.waits < w.now.Add(-scale.StuckAfter)})
			waits = waits || j.phase == waiting && !r.leaving
		}
		if st.waits = min(st.waits, w.now); !waits {
			st.waits = cluster.Never
		}
		v.Count(have[k])
		if s.busy() || s.waits(k, w.now) {
			views, asked = append(views, v), append(asked, k)
		}
	}
	for i, list := range scale.Decide(p, views) {
		want[asked[i]] = list
	}
	for k := range s.states {
		if s.Scaling[k] != p {
			continue
		}
		st := &s.states[k]
		add, leave := scale.Change(want[k], have[k])
		for _, more := range add {
			for range more.Replicas {
				evs = append(evs, w.addReplica(k, more.Kind))
			}
		}
		for _, i := range leave {
			w.drainReplica(st.replicas[i])
		}
		evs = w.cancelDrained(evs, st)
	}
	return evs
}

// besideOthers is a service whose batches take as long as they do beside the neighbours that its replicas have.
func (w *World) besideOthers(k int) service.Service {
	s := w.opt.Serving
	factors := make([]float64, len(s.Services[k].Variants))
	for i := range factors {
		var by service.Slowdown
		for _, id := range s.states[k].replicas {
			if j := &w.jobs[id]; j.replica.Variant == i && j.replica.number >= 0 {
				by.Add(slowed(j.rate))
			}
		}
		factors[i] = by.Mean()
	}
	return s.Services[k].Slowed(factors)
}

// moving finds a replica of a kind that is moved and in whose place none has come yet; 0: there is none.
func (w *World) moving(st *serviceState, kind scale.Kind) cluster.JobID {
	for _, id := range st.replicas {
		if r := w.jobs[id].replica; r.moves && !r.leaving && !r.place && r.Kind == kind {
			r.place = true
			return id
		}
	}
	return 0
}

// addReplica submits a job for another replica.
func (w *World) addReplica(k int, kind scale.Kind) engine.Event {
	s := w.opt.Serving
	id := cluster.JobID(len(w.jobs))
	job := replicaOf(&s.Services[k], kind)
	job.ID, job.Submit, job.Replaces = id, w.now, w.moving(&s.states[k], kind)
	w.jobs = append(w.jobs, jobRun{entry: &trace.Entry{Job: job},
		replica: &replicaRun{service: k, Kind: kind, number: -1}})
	w.book.grow()
	s.states[k].replicas = append(s.states[k].replicas, id)
	s.states[k].all = append(s.states[k].all, id)
	s.count(w.jobs[id].replica, func(t *Served) { t.Started++ })
	return w.arrive(&w.jobs[id])
}

// drainReplica lets a replica leave once it has finished what it computes.
func (w *World) drainReplica(id cluster.JobID) {
	s, r := w.opt.Serving, w.jobs[id].replica
	r.leaving = true
	s.count(r, func(t *Served) { t.Stopped++ })
	if r.number >= 0 {
		s.fleet.Drain(r.number)
	}
}

// replicaStarted schedules when a replica that has started answers.
func (w *World) replicaStarted(j *jobRun) {
	if r := j.replica; r != nil {
		startup := w.startup(r, int(j.allocs[0].Node))
		w.push(worldEvent{at: w.now.Add(startup), kind: evAnswers, id: int32(j.entry.Job.ID), gen: r.starts})
	}
}

// slowed is the factor by which a replica at a speed (ppm) takes longer than alone.
func slowed(rate int64) float64 { return 1e6 / float64(max(1, rate)) }

// residentPart is the part of a node's host memory that weights of models may stay in: 1/2.
const residentPart = 2

// startup is how long a replica that starts on a node takes until it answers.
func (w *World) startup(r *replicaRun, node int) time.Duration {
	s := w.opt.Serving
	v := &s.Services[r.service].Variants[r.Variant]
	if v.Warm == 0 {
		return v.Startup
	}
	if !s.kept.use(node, weights{r.service, r.Variant, v.Weights()}, w.spec.Nodes[node].RAM/residentPart) {
		return v.Startup
	}
	s.count(r, func(t *Served) { t.Warm++ })
	return v.Warm
}

// replicaAnswers lets a replica take requests, unless it has left its devices since that was scheduled.
func (w *World) replicaAnswers(j *jobRun, starts uint32) {
	s, r := w.opt.Serving, j.replica
	if r.leaving || r.starts != starts || j.phase != running {
		return
	}
	n, err := s.fleet.Add(r.service, r.Variant, fleet.Place{GPU: w.spec.Nodes[j.allocs[0].Node].Model,
		Slower: slowed(j.rate), Share: r.Share})
	if err != nil {
		s.err = fmt.Errorf("service %s: %w", s.Services[r.service].Name, err)
		return
	}
	r.number = n
	s.count(r, func(t *Served) {
		t.answers++
		t.Peak = max(t.Peak, t.answers)
	})
}

// replicaStays stops a replica that is moved and in whose place none has come, unless it has left its devices since.
func (w *World) replicaStays(j *jobRun, starts uint32) {
	if r := j.replica; r.moves && r.starts == starts {
		w.evict(j, &engine.Action{Job: j.entry.Job.ID, How: engine.Kill, Reason: engine.Preempted, For: cluster.NoJob})
	}
}

// replicaLeaves lets a replica that has to stop finish what it computes, as far as its grace allows; it returns
// how long that takes.
func (w *World) replicaLeaves(j *jobRun, grace time.Duration) time.Duration {
	r := j.replica
	if r == nil || r.number < 0 {
		return 0
	}
	f := w.opt.Serving.fleet
	f.Drain(r.number)
	return min(grace, f.DoneBy(r.number).Sub(w.now))
}

// graceFor is how long a job has to make room: as its tier has, but no longer than a service, one of whose replicas
// gets its place, has to wait for what it lent.
func (w *World) graceFor(a *engine.Action) time.Duration {
	if a.For == cluster.NoJob || w.jobs[a.For].replica == nil {
		return a.Grace
	}
	if within := w.opt.Serving.Services[w.jobs[a.For].replica.service].Lend.Within; within > 0 {
		return min(a.Grace, within)
	}
	return a.Grace
}

// replicaGoes takes a replica that leaves its devices out of service.
func (w *World) replicaGoes(j *jobRun, reason engine.StopReason) {
	r := j.replica
	if r == nil {
		return
	}
	s := w.opt.Serving
	if reason == engine.Preempted || reason == engine.NodeLost {
		s.count(r, func(t *Served) { t.Evicted++ })
	}
	if r.number >= 0 {
		s.fleet.Remove(r.number)
		s.count(r, func(t *Served) { t.answers-- })
		r.number = -1
	}
	r.starts++
	r.moves, r.place = false, false
}

// replicaEnded forgets a replica that is gone for good.
func (w *World) replicaEnded(j *jobRun, reason engine.StopReason) {
	s, r := w.opt.Serving, j.replica
	st := &s.states[r.service]
	for i, id := range st.replicas {
		if id == j.entry.Job.ID {
			st.replicas = append(st.replicas[:i], st.replicas[i+1:]...)
			break
		}
	}
	if reason == engine.Impossible {
		s.err = fmt.Errorf("service %s: the cluster can never run a replica: %s", s.Services[r.service].Name,
			w.book.Records[j.entry.Job.ID].Why)
	}
}

// conclude totals what the services held.
func (s *Serving) conclude(w *World) {
	for k := range s.states {
		t := &s.Served[k]
		t.Tally, t.Accuracy = *s.fleet.Total(k), s.fleet.Accuracy(k)
		if of, accuracy := s.fleet.Canary(k); of != nil {
			t.Canary.Tally, t.Canary.Accuracy = *of, accuracy
		}
		for _, id := range s.states[k].all {
			rec, r := &w.book.Records[id], w.jobs[id].replica
			s.count(r, func(t *Served) {
				t.GPUHours += float64(rec.Held) / float64(cluster.Whole) / 3.6e6
				t.Cost += rec.Ran.Hours() * s.Services[k].Variants[r.Variant].PerHourOf(r.Share)
			})
		}
	}
}
