package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/policy"
)

// Gavel is an experiment in the world of Gavel's simulator (OSDI'20): 36 each of K80, P100 and
// V100; jobs are drawn at random; in rounds of at most 360 s (Round) every job makes whole steps,
// arrivals and ends are processed when the slowest job has made its steps; moving is free. Jobs
// 4000 to 4999 are measured.
type Gavel struct {
	Seed    uint32
	Rate    float64 // jobs per hour
	Several bool    // GPUs per job: 1, 2, 4 or 8; otherwise 1
	// Policy is one of ours. "": one of that simulator's own: Own.
	Policy string
	// Own is allox, fifo-packed, gandiva, isolated or las as that simulator has them (gavelRules).
	// "": FIFO without heterogeneity, which is a defect rather than a useful rule (gavelFIFO).
	Own string
	// Static, if not 0, is the number of jobs that all arrive at 0: the makespan is measured. Rate,
	// From and To are ignored.
	Static int
	// Round is the maximum length of a round in seconds. 0: 360, as in all published experiments
	// except those of the makespan, which have 1920.
	Round float64
	// Tells makes jobs report their progress each round, for policies that use the remaining work.
	Tells bool
	// From and To bound the measured jobs; both 0: 4000 and 5000.
	From, To int
}

const (
	gavelReset = 1920.0 // minimum seconds between two solutions
	gavelGPUs  = 36     // of each model

	// gavelRounds exceeds the rounds of any published experiment: a job that never gets a GPU would
	// never end.
	gavelRounds = 1_000_000
)

// gavelJob is a job in the world.
type gavelJob struct {
	gavelDraw
	spec     cluster.Job
	rate     [3]float64 // steps per second
	total    float64    // steps
	left     float64
	admitted cluster.Time // in the engine's time
	on       int          // index in gavelModels while it runs; -1
	devices  uint64       // ... and its devices there
	mate     *gavelJob    // the job on the same GPUs in this round
	steps    float64      // in this round
	end      float64      // end of those steps
	got      [3]float64   // seconds on each model since its arrival
	done     bool
	alone    *gavelEntry // of that simulator's own policy, if known
	known    bool        // ... and its last solution includes the job
}

// GavelWorld is a driver whose world is that of Gavel's simulator.
type GavelWorld struct {
	x        Gavel
	table    *Throughputs
	draw     *gavelGenerator
	upcoming gavelDraw
	jobs     []*gavelJob
	live     []*gavelJob // admitted and not over, by number
	clock    float64
	roundEnd float64
	now      cluster.Time // in the engine's time
	reports  []engine.Event
	left     int       // measured jobs that have not ended
	took     []float64 // seconds from arrival to end
	drawn    int
	rounds   int
	solved   cluster.Time   // when the policy last solved
	planned  map[int]string // the policy's targets in this round: models by job
	company  map[int]int    // ... and the planned partners

	// emptied, if set, is called when the last job has ended: there a solution without jobs counts
	// as one, so a job that arrives within gavelReset of it waits for the next solution.
	emptied func()

	book func(j *gavelJob, seconds float64) // called with what a job, or a pair, received in a round
}

// NewGavel makes the world of an experiment.
func NewGavel(x Gavel, table *Throughputs) (*GavelWorld, error) {
	if x.Static > 0 {
		x.Rate, x.From, x.To = 1, 0, x.Static
	}
	if x.From == 0 && x.To == 0 {
		x.From, x.To = 4000, 5000
	}
	if x.Round == 0 {
		x.Round = 360
	}
	if !(x.Round > 0) {
		return nil, fmt.Errorf("compat: rounds of %g seconds; more than 0 are possible", x.Round)
	}
	if !(x.Rate > 0) || x.From < 0 || x.To <= x.From {
		return nil, fmt.Errorf("compat: %g jobs per hour, of which %d to %d are measured; more than 0 are possible",
			x.Rate, x.From, x.To)
	}
	w := &GavelWorld{x: x, table: table, draw: newGavelGenerator(x.Seed, x.Several, x.Rate), left: x.To - x.From,
		took: make([]float64, x.To-x.From), now: -1, solved: -1}
	w.upcoming = w.arrive()
	return w, nil
}

// arrive draws the next job.
func (w *GavelWorld) arrive() gavelDraw {
	d := w.draw.next()
	if w.x.Static > 0 {
		if d.arrival = 0; w.drawn >= w.x.Static {
			d.arrival = math.Inf(1)
		}
		w.drawn++
	}
	return d
}

// instant is the world's time as the engine sees it. The simulator gives the first jobs a solution
// at every round, because it takes "last solved at 0" for "never solved": so all times except 0 are
// later by the minimum distance of two solutions. (The engine takes "last planned at 0" for "in
// this instant": so 0 becomes one nanosecond.)
func (w *GavelWorld) instant(seconds float64) cluster.Time {
	if seconds == 0 {
		return 1
	}
	return cluster.Time(nanos(seconds+gavelReset)) + 1
}

// Next ends the round, or returns further events at the same instant.
func (w *GavelWorld) Next(ctx context.Context) (engine.Batch, error) {
	if len(w.reports) == 0 {
		if err := w.launch(); err != nil {
			return engine.Batch{}, err
		}
		w.endRound()
		if w.left == 0 || ctx.Err() != nil {
			return engine.Batch{}, io.EOF
		}
		if w.rounds++; w.rounds > gavelRounds {
			return engine.Batch{},
				fmt.Errorf("compat: %d measured jobs are not over after %d rounds", w.left, gavelRounds)
		}
		w.admit()
		if len(w.live) == 0 && w.emptied != nil {
			w.emptied()
		}
		w.now = max(w.now+1, w.instant(w.clock))
	}
	b := engine.Batch{Seq: int64(w.rounds), Now: w.now, Events: w.reports}
	w.reports = nil
	return b, nil
}

// launch begins a round: whole steps only, except for a job's last ones. The policy's plan must be
// what runs: nothing in this world prevents it. A pair on the same GPUs ends with the slower job's
// steps.
func (w *GavelWorld) launch() error {
	if err := w.settle(); err != nil {
		return err
	}
	for _, j := range w.live {
		if j.on >= 0 {
			v := w.stepsPerSecond(j)
			j.steps, j.end = 0, w.clock+w.x.Round
			if v > 0 { // 0: the two do not fit on the GPU
				j.steps = min(math.Floor(v*w.x.Round), j.left)
				j.end = w.clock + j.steps/v
			}
		}
	}
	for _, j := range w.live {
		if j.on >= 0 && j.mate != nil {
			j.end = max(j.end, j.mate.end)
		}
	}
	return nil
}

// settle finds pairs on the same GPUs, and compares with the plan.
func (w *GavelWorld) settle() error {
	type place struct {
		on      int
		devices uint64
	}
	first := map[place]*gavelJob{}
	for _, j := range w.live {
		j.mate = nil
		want, has := w.planned[int(j.spec.ID)], ""
		if j.on >= 0 {
			has = gavelModels[j.on].ours
			if o := first[place{j.on, j.devices}]; o != nil {
				j.mate, o.mate = o, j
			}
			first[place{j.on, j.devices}] = j
		}
		if w.planned != nil && want != has {
			return fmt.Errorf("compat: job %d is planned on %q and runs on %q", j.spec.ID, want, has)
		}
	}
	for _, j := range w.live {
		want, planned := w.company[int(j.spec.ID)]
		if w.planned != nil && (planned != (j.mate != nil) || planned && want != int(j.mate.spec.ID)) {
			return fmt.Errorf("compat: job %d does not share GPUs with its planned partner", j.spec.ID)
		}
	}
	return nil
}

// stepsPerSecond is the job's speed in its place.
func (w *GavelWorld) stepsPerSecond(j *gavelJob) float64 {
	if j.mate == nil {
		return j.rate[j.on]
	}
	return w.table.beside[gavelPair{j.model, j.mate.model, j.gpus}][j.on]
}

// endRound books the steps of the running jobs, and sets the clock to the end of the slowest or, if
// none runs, to the next arrival.
func (w *GavelWorld) endRound() {
	began, last := w.roundEnd, -1.0
	for _, j := range w.live {
		if j.on >= 0 {
			last = max(last, j.end)
		}
	}
	if last < 0 {
		w.clock = w.upcoming.arrival
		return
	}
	w.clock, w.roundEnd = last, last
	for _, j := range w.live {
		if j.on < 0 {
			continue
		}
		j.left -= j.steps
		j.got[j.on] += j.end - began
		if w.book != nil && (j.mate == nil || j.spec.ID < j.mate.spec.ID) {
			w.book(j, j.end-began)
		}
		if j.left > 0 {
			if w.x.Tells {
				w.report(engine.Event{Type: engine.Progress, Job: j.spec.ID, Done: j.believed(),
					Rate: max(1, int64(math.Round(1e6*w.stepsPerSecond(j)/j.rate[gavelV100])))})
			}
			continue
		}
		j.done = true
		w.report(engine.Event{Type: engine.Stopped, Job: j.spec.ID, Reason: engine.Completed, Done: j.spec.Estimate})
		if id := int(j.spec.ID); id >= w.x.From && id < w.x.To {
			w.took[id-w.x.From] = j.end - j.arrival
			w.left--
		}
	}
	w.live = slices.DeleteFunc(w.live, func(j *gavelJob) bool { return j.done })
}

func (w *GavelWorld) report(e engine.Event) { w.reports = append(w.reports, e) }

// believed is the completed work, as run time on V100.
func (j *gavelJob) believed() time.Duration {
	return time.Duration(float64(j.spec.Estimate) * (1 - j.left/j.total))
}

// ppm is the job's speed on a model, relative to V100.
func (j *gavelJob) ppm(model int) int64 {
	return int64(math.Round(1e6 * j.rate[model] / j.rate[gavelV100]))
}

// admit submits all jobs that have arrived by now.
func (w *GavelWorld) admit() {
	for w.upcoming.arrival <= w.clock {
		d := w.upcoming
		w.upcoming = w.arrive()
		j := &gavelJob{gavelDraw: d, rate: w.table.rate[d.model][d.gpus], on: -1,
			admitted: max(w.now+1, w.instant(w.clock))}
		j.total = d.duration * j.rate[gavelV100]
		j.left = j.total
		j.spec = cluster.Job{ID: cluster.JobID(len(w.jobs)), Model: d.model, Tier: cluster.Standard,
			Submit:   w.instant(d.arrival),
			Estimate: nanos(d.duration), Tasks: []cluster.TaskSet{{Count: d.gpus, Request: cluster.Request{GPUs: 1}}}}
		for k, m := range gavelModels {
			if j.rate[k] > 0 {
				j.spec.GPUTypes = append(j.spec.GPUTypes, m.ours)
			}
		}
		w.jobs, w.live = append(w.jobs, j), append(w.live, j)
		w.report(engine.Event{Type: engine.Submitted, Job: j.spec.ID, Spec: &j.spec})
	}
}

// Apply carries out a decision, without delay or loss.
func (w *GavelWorld) Apply(_ context.Context, d engine.Decision) error {
	for i := range d.Actions {
		a := &d.Actions[i]
		j := w.jobs[a.Job]
		switch a.Type {
		case engine.Start:
			j.on, j.devices = int(a.Allocs[0].Node), 0 // one node per model
			for i := range a.Allocs {
				j.devices |= a.Allocs[i].GPUs
			}
			w.report(engine.Event{Type: engine.Started, Job: a.Job, Rate: j.ppm(j.on)})
		case engine.Preempt:
			j.on = -1
			w.report(engine.Event{Type: engine.Stopped, Job: a.Job, Reason: a.Reason, Done: j.believed()})
		case engine.Reject, engine.Resize:
			return fmt.Errorf("compat: job %d is to be resized or rejected (%s)", a.Job, a.Text)
		}
	}
	return nil
}

// Speed is the scheduler's knowledge of speeds: the table.
func (w *GavelWorld) Speed(j *cluster.Job, gpu string, _ int) int64 {
	return w.jobs[j.ID].ppm(gavelModel(gpu))
}

// Beside is the scheduler's knowledge of pairs on the same GPUs: the table.
func (w *GavelWorld) Beside(j *cluster.Job, gpu string, others []*cluster.Job) int64 {
	k, job := gavelModel(gpu), w.jobs[j.ID]
	if len(others) != 1 || job.rate[k] == 0 {
		return 0
	}
	return int64(math.Round(1e6 * w.table.beside[gavelPair{job.model, others[0].Model, job.gpus}][k] / job.rate[k]))
}

// Slice is never called: GPUs are not divided in this world.
func (w *GavelWorld) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

// gavelModel is the index of a model in gavelModels.
func gavelModel(gpu string) int {
	k := 0
	for gavelModels[k].ours != gpu {
		k++
	}
	return k
}

// gavelTurns makes a policy plan at the ends of the world's rounds, which are slightly shorter than
// nominal, and runs only selected jobs: a job that arrived since the last solution may be selected
// for the remaining GPUs, and then keeps other jobs off them, but does not run.
type gavelTurns struct {
	sched.Planner
	w     *GavelWorld
	empty float64 // time of the last solution if it was without jobs; -1: it was not
}

// emptied records a solution without jobs.
func (t *gavelTurns) emptied() {
	if t.w.instant(t.w.clock)-t.w.solved >= cluster.Time(nanos(gavelReset)) {
		t.empty = t.w.clock
	}
}

func (t *gavelTurns) Traits() sched.Traits {
	traits := t.Planner.Traits()
	traits.Round = 1
	return traits
}

// Plan is the policy's plan as this world carries it out.
func (t *gavelTurns) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	if t.empty >= 0 && t.w.clock-t.empty < gavelReset {
		t.w.planned, t.w.company = map[int]string{}, map[int]int{}
		plan := sched.Plan{Targets: make([]engine.Target, len(jobs)), Memo: slices.Clone(v.Memo()), Next: v.Now() + 1}
		for i := range plan.Targets {
			plan.Targets[i].Idle = true
		}
		return plan
	}
	t.empty = -1
	plan := t.Planner.Plan(v, jobs)
	if since := cluster.Time(plan.Memo[0]); since == v.Now() { // gavel's first memory value: when it last solved
		t.w.solved = since
	}
	if plan.Next != cluster.Never {
		plan.Next = max(v.Now()+1, plan.Next-cluster.Time(nanos(t.w.x.Round)))
	}
	t.w.planned, t.w.company = map[int]string{}, map[int]int{}
	for i := range plan.Targets {
		to, id := &plan.Targets[i], int(jobs[i].Spec().ID)
		j := t.w.jobs[id]
		if to.GPU == "" || j.admitted > t.w.solved {
			to.Idle = true
		} else {
			t.w.planned[id] = to.GPU
			if to.Beside > 0 {
				t.w.company[id], t.w.company[int(to.Beside)-1] = int(to.Beside)-1, id
			}
		}
	}
	return plan
}

// gavelPlans makes another policy plan at the ends of the world's rounds, and runs the jobs that it
// selects.
type gavelPlans struct{ sched.Planner }

func (p *gavelPlans) Traits() sched.Traits {
	traits := p.Planner.Traits()
	traits.Round = 1
	return traits
}

func (p *gavelPlans) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	plan := p.Planner.Plan(v, jobs)
	plan.Next = v.Now() + 1
	return plan
}

// GavelFigures are the results of an experiment.
type GavelFigures struct {
	Hours  float64   // mean completion time of the measured jobs
	Took   []float64 // completion time of each, in seconds
	Span   float64   // end of the last of them, in hours
	Jobs   int       // number of arrivals until the last measured job ended
	Rounds int
}

// RunGavel replays an experiment.
func RunGavel(ctx context.Context, x Gavel, table *Throughputs) (GavelFigures, error) {
	w, err := NewGavel(x, table)
	if err != nil {
		return GavelFigures{}, err
	}
	cfg := engine.Config{Speeds: w}
	for _, m := range gavelModels {
		cfg.Spec.Nodes = append(cfg.Spec.Nodes, cluster.Node{Name: m.theirs, Model: m.ours, GPUs: gavelGPUs})
	}
	if cfg.Policy, err = w.policy(); err != nil {
		return GavelFigures{}, err
	}
	if err := play(ctx, cfg, w); err != nil {
		return GavelFigures{}, err
	}
	sum := 0.0
	for _, seconds := range w.took {
		sum += seconds
	}
	return GavelFigures{Hours: sum / float64(len(w.took)) / 3600, Took: w.took, Span: w.clock / 3600, Jobs: len(w.jobs),
		Rounds: w.rounds}, nil
}

func (w *GavelWorld) policy() (sched.Policy, error) {
	if w.x.Policy == "" {
		return w.ownPolicy()
	}
	pol, err := policy.New(w.x.Policy)
	if err != nil {
		return nil, err
	}
	planner, ok := pol.(sched.Planner)
	switch {
	case !ok:
		return nil, errors.New("compat: Gavel's world goes with a policy that plans, not with " + w.x.Policy)
	case strings.HasPrefix(w.x.Policy, "gavel"):
		t := &gavelTurns{planner, w, -1}
		w.emptied = t.emptied
		return t, nil
	}
	return &gavelPlans{planner}, nil
}
