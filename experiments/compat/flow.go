package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/policy"
)

// Flow is a replay in the world of ElasticFlow's simulator (ASPLOS'23). There is a world per
// policy; they differ in what jobs are and in the cost of moving. Without a policy of ours the
// simulator's own rules decide, which cannot be expressed as a policy: the engine books the GPUs of
// each job.
type Flow struct {
	Trace    string // a deadline trace
	Profiles string // folder with iterations per second of each model
	Nodes    int    // number of nodes with 8 GPUs, which are only counted
	From, To int    // jobs of the trace, counted from 0 by submission, To excluded; 0 and 0: all
	World    string // one of FlowWorlds
	Policy   string // one of our policies
	Largest  bool   // jobs are gangs of their largest size instead of elastic, under Policy
}

// FlowWorlds are the policies that have a world there. The rules of the last two cannot be
// reproduced without the solvers that they use.
var FlowWorlds = []string{"edf", "gandiva", "elasticflow", "themis", "chronus"}

// flowLevels is the number of job sizes there: powers of two up to 64.
const flowLevels = 7

// flowJob is a job in that world. Times are in seconds.
type flowJob struct {
	spec                       cluster.Job
	submit, deadline, duration int
	gpus                       int // as requested in the trace
	model                      string
	batch                      int
	speed                      [flowLevels]float64 // iterations per second on 1, 2, 4, ... GPUs
	most                       int                 // maximum number of GPUs
	left                       float64             // iterations
	want, given                int                 // GPUs by the rules, and as the engine decided
	moved                      int                 // time of its end event
	lost                       int                 // seconds from now that do not count
	started, over              bool
	flowFit
	fixed  bool // it has the trace's size and run time
	waited bool // it was not placed at its arrival
}

// rate is the job's speed on a number of GPUs; between two sizes, that of the smaller one.
func (j *flowJob) rate(gpus int) float64 {
	if j.fixed {
		return 1
	}
	return j.speed[bits.Len(uint(gpus))-1]
}

// flowRules makes the decisions in that world.
type flowRules interface {
	next() bool    // advances to the next event; false: there is none
	decide()       // sets the number of GPUs of all jobs from now on
	settle() error // computes the consequences
}

// FlowWorld is a driver.
type FlowWorld struct {
	rules   flowRules
	total   int // GPUs
	jobs    []flowJob
	events  agenda
	come    []int // jobs that arrive in this event
	known   []int // jobs that have arrived and not ended, in the rules' order
	now     int
	span    int // seconds since the previous event
	clock   cluster.Time
	stirs   int
	reports []engine.Event
	pending bool         // the consequences of the last decision are not computed yet
	wake    cluster.Time // when the policy wants to run
	met     int
}

// NewFlowWorld reads a workload.
func NewFlowWorld(x Flow) (*FlowWorld, error) {
	w := &FlowWorld{total: x.Nodes * slotNode}
	rows, err := table(x.Trace, 2, "job_id", "model_name", "submission_time", "deadline", "num_gpu", "duration",
		"batch_size", "num_iteration")
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b record) int { return int(a.n[2] - b.n[2]) })
	if x.To > 0 {
		rows = rows[min(x.From, len(rows)):min(x.To, len(rows))]
	}
	speeds := map[string][]record{}
	for i, r := range rows {
		j := flowJob{model: r.text[1], submit: int(r.n[2]), deadline: int(r.n[3]), gpus: int(r.n[4]),
			duration: int(r.n[5]), batch: int(r.n[6]), left: r.n[7]}
		if j.gpus < 1 || j.gpus > w.total || j.duration < 1 || j.left <= 0 {
			return nil, fmt.Errorf("%s: job %s: %d GPUs, %d s, %g iterations; this world knows jobs of 1 to %d GPUs that take their time", x.Trace, r.text[0], j.gpus, j.duration, j.left, w.total)
		}
		if j.speed, err = flowSpeed(x.Profiles, speeds, &j); err != nil {
			return nil, err
		}
		j.spec = cluster.Job{ID: cluster.JobID(i), Name: r.text[0],
			Submit: cluster.Time(j.submit) * cluster.Time(time.Second), Tier: cluster.Standard}
		w.jobs = append(w.jobs, j)
		w.events.arrive(j.submit, i)
	}
	return w, nil
}

// flowSpeed looks up a job's speeds; known caches files.
func flowSpeed(dir string, known map[string][]record, j *flowJob) (speed [flowLevels]float64, err error) {
	rows, ok := known[j.model]
	if !ok {
		path := filepath.Join(dir, j.model+".csv")
		// empty: not measured
		if rows, err = table(path, 8, "1", "2", "4", "8", "16", "32", "64", "global_batch_size"); err != nil {
			return speed, err
		}
		known[j.model] = rows
	}
	for _, r := range rows {
		if int(r.n[flowLevels]) == j.batch {
			copy(speed[:], r.n)
			return speed, nil
		}
	}
	return speed, fmt.Errorf("%s: no speeds of %s with a batch of %d", dir, j.model, j.batch)
}

// begin advances to the next event.
func (w *FlowWorld) begin() bool {
	if len(w.events) == 0 {
		return false
	}
	at := w.events[0].at
	if w.stirs > 0 {
		w.span = at - w.now
	}
	w.now = at
	return true
}

// elastic makes jobs elastic: any of the world's sizes up to their maximum.
func (w *FlowWorld) elastic(most func(*flowJob) int) {
	for i := range w.jobs {
		j := &w.jobs[i]
		j.most = most(j)
		j.spec.Tasks = []cluster.TaskSet{{Count: j.most, Request: cluster.Request{GPUs: 1}}}
		j.spec.Elastic = cluster.Elastic{Min: 1, Max: j.most}
	}
}

// gangs gives jobs the sizes and run times of the trace.
func (w *FlowWorld) gangs() {
	for i := range w.jobs {
		j := &w.jobs[i]
		j.fixed, j.most, j.left = true, j.gpus, float64(j.duration)
		j.spec.Tasks = []cluster.TaskSet{{Count: j.gpus, Request: cluster.Request{GPUs: 1}}}
	}
}

// restarts reports whether all jobs are restarted at this event.
func (w *FlowWorld) restarts() bool { return w.stirs > 1 && (w.stirs-1)%slot == 0 }

// Next returns the next cluster event.
func (w *FlowWorld) Next(ctx context.Context) (engine.Batch, error) {
	if len(w.reports) == 0 && w.pending {
		w.pending = false
		if err := w.rules.settle(); err != nil {
			return engine.Batch{}, err
		}
	}
	if len(w.reports) == 0 {
		if ctx.Err() != nil || !w.rules.next() {
			return engine.Batch{}, io.EOF
		}
		w.stirs++
		w.pending = true
		w.clock = max(w.clock+1, cluster.Time(w.now)*cluster.Time(time.Second))
	}
	b := engine.Batch{Seq: int64(w.stirs), Now: w.clock, Events: w.reports}
	w.reports = nil
	return b, nil
}

// arrive submits a job to the engine.
func (w *FlowWorld) arrive(i int) {
	w.reports = append(w.reports, engine.Event{Type: engine.Submitted, Job: cluster.JobID(i), Spec: &w.jobs[i].spec})
}

// finish ends a job that completed at an earlier time. It may have lost its GPUs since.
func (w *FlowWorld) finish(i, at int) {
	j := &w.jobs[i]
	if j.over {
		return
	}
	j.over = true
	if at <= j.deadline {
		w.met++
	}
	if k := slices.Index(w.known, i); k >= 0 {
		w.known = slices.Delete(w.known, k, k+1)
	}
	e := engine.Event{Type: engine.Stopped, Job: j.spec.ID, Reason: engine.Completed, Done: j.spec.Estimate}
	if j.given == 0 {
		e = engine.Event{Type: engine.Cancelled, Job: j.spec.ID}
	}
	j.given, j.want = 0, 0
	w.reports = append(w.reports, e)
}

// Apply carries out a decision.
func (w *FlowWorld) Apply(_ context.Context, d engine.Decision) error {
	w.wake = d.WakeAt
	for i := range d.Actions {
		a := &d.Actions[i]
		j := &w.jobs[a.Job]
		switch a.Type {
		case engine.Start, engine.Resize:
			j.given = 0
			for k := range a.Allocs {
				j.given += bits.OnesCount64(a.Allocs[k].GPUs)
			}
			t := engine.Started
			if a.Type == engine.Resize {
				t = engine.Resized
			}
			w.reports = append(w.reports, engine.Event{Type: t, Job: a.Job, Rate: j.ppm(j.given)})
		case engine.Preempt:
			j.given = 0
			w.reports = append(w.reports,
				engine.Event{Type: engine.Stopped, Job: a.Job, Reason: a.Reason, Done: j.done()})
		case engine.Reject:
			return fmt.Errorf("compat: job %s can never run: %s", j.spec.Name, a.Text)
		default:
			return errors.New("compat: a decision that this world does not know")
		}
	}
	return nil
}

// carried checks that the engine did what the rules say.
func (w *FlowWorld) carried() error {
	for _, i := range w.known {
		if j := &w.jobs[i]; j.given != j.want {
			return fmt.Errorf("compat: job %s has %d GPUs at %d s; the rules say %d", j.spec.Name, j.given, w.now,
				j.want)
		}
	}
	return nil
}

// Met returns the number of jobs that met their deadlines, and of all jobs.
func (w *FlowWorld) Met() (met, jobs int) { return w.met, len(w.jobs) }

// flowBooks makes the engine book what a world's rules decide.
type flowBooks struct{ w *FlowWorld }

func (flowBooks) Name() string { return "elasticflow-simulator" }

// Traits makes it plan once at every instant.
func (flowBooks) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: engine.Skip, Round: 1, Gated: true}
}

func (flowBooks) Key(sched.View, sched.JobView) engine.Key { return engine.Key{} }

func (f flowBooks) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	f.w.rules.decide()
	plan := sched.Plan{Targets: v.Targets(len(jobs)), Next: v.Now() + 1}
	for i, j := range jobs {
		n := f.w.jobs[j.Spec().ID].want
		plan.Targets[i] = engine.Target{Tasks: n, Least: n, Idle: n == 0}
	}
	return plan
}

// RunFlow replays a deadline trace.
func RunFlow(ctx context.Context, x Flow) (*FlowWorld, error) {
	w, err := NewFlowWorld(x)
	if err != nil {
		return nil, err
	}
	cfg := engine.Config{Spec: counted(w.total), Policy: flowBooks{w}}
	switch {
	case !slices.Contains(FlowWorlds, x.World):
		return nil, cluster.Unknown("world", x.World, FlowWorlds)
	case x.Policy != "":
		if cfg.Policy, err = policy.New(x.Policy); err != nil {
			return nil, err
		}
		w.rules, cfg.Speeds = newFlowOurs(w, x), flowSpeeds{w}
	case x.World == "gandiva":
		if w.rules, err = newFlowGandiva(w); err != nil {
			return nil, err
		}
	case x.World == "edf":
		w.rules = newFlowEDF(w)
	case x.World == "elasticflow":
		w.rules = newFlowElastic(w)
	default:
		return nil, fmt.Errorf("compat: world %s has no rules here: it needs a policy", x.World)
	}
	return w, play(ctx, cfg, w)
}

// counted is a cluster whose GPUs are only counted.
func counted(gpus int) (spec cluster.Spec) {
	for i := range (gpus + 63) / 64 { // a node has at most 64 GPUs
		spec.Nodes = append(spec.Nodes,
			cluster.Node{Name: "n" + strconv.Itoa(i+1), Model: "A100-80GB", GPUs: min(64, gpus-64*i)})
	}
	return spec
}

// agenda is the future events by time (section 3).
type agenda []meeting

// meeting is all events at one time.
type meeting struct {
	at         int
	come, ends []int
}

// find returns the index of a time, or its insertion point.
func (a agenda) find(t int) (int, bool) {
	return slices.BinarySearchFunc(a, t, func(m meeting, t int) int { return cmp.Compare(m.at, t) })
}

// at returns the meeting at a time, and inserts it if necessary.
func (a *agenda) at(t int) *meeting {
	k, ok := a.find(t)
	if !ok {
		*a = slices.Insert(*a, k, meeting{at: t})
	}
	return &(*a)[k]
}

func (a *agenda) arrive(t, job int) {
	m := a.at(t)
	m.come = append(m.come, job)
}

// end schedules a job's end.
func (a *agenda) end(t, job int) {
	if m := a.at(t); !slices.Contains(m.ends, job) {
		m.ends = append(m.ends, job)
	}
}

// drop removes a job's end.
func (a *agenda) drop(at, job int) {
	k, ok := a.find(at)
	if !ok {
		return
	}
	m := &(*a)[k]
	m.ends = slices.DeleteFunc(m.ends, func(i int) bool { return i == job })
	if len(m.come) == 0 && len(m.ends) == 0 {
		*a = slices.Delete(*a, k, k+1)
	}
}

// move reschedules a job's end. If its event was merged with others, it is not found, and is next
// anyway.
func (a *agenda) move(from, to, job int) {
	if from == to {
		return
	}
	a.drop(from, job)
	a.end(to, job)
}

// gather merges everything within a slot from now into the slot's end.
func (a *agenda) gather(now int) {
	for l := *a; len(l) >= 2 && l[0].at-now <= slot; l = *a {
		l[0].at = now + slot
		if l[1].at-now > slot {
			return
		}
		l[0].come, l[0].ends = append(l[0].come, l[1].come...), append(l[0].ends, l[1].ends...)
		*a = slices.Delete(l, 1, 2)
	}
}

// slotUp is the first slot boundary, counted from now, that is not before a time.
func slotUp(now, t int) int { return now + slot*int(math.Ceil(float64(t-now)/slot)) }

// timeline is a number over time; each value holds until the next entry.
type timeline []struct{ at, n int }

// find returns the index of a time, or its insertion point.
func (l timeline) find(t int) (int, bool) {
	lo, hi := 0, len(l)
	for lo < hi {
		if mid := (lo + hi) / 2; l[mid].at < t {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(l) && l[lo].at == t
}

// set sets the value at a time.
func (l *timeline) set(t, n int) {
	k, ok := l.find(t)
	if !ok {
		*l = slices.Insert(*l, k, struct{ at, n int }{at: t})
	}
	(*l)[k].n = n
}

// squeeze removes entries that do not change the value.
func (l timeline) squeeze() timeline {
	out := l[:0]
	for _, p := range l {
		if len(out) == 0 || out[len(out)-1].n != p.n {
			out = append(out, p)
		}
	}
	return out
}
