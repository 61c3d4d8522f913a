package compat

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/policy"
)

// The world of Pollux' simulator (OSDI'21) under its Tiresias, its Optimus and Pollux: the
// scheduler runs at the end of each one-minute round; step times are measured; progress is in steps
// of the smallest batch, which are worth less as batches grow; every start costs half a minute;
// epochs end at whole seconds. The scheduler decides which jobs run and on how many GPUs; placement
// is the world's own rule, which leaves jobs of unchanged size in place.
const (
	polluxNodes   = 16
	polluxPerNode = 4
	polluxRound   = 60
	polluxHold    = 30
)

// PolluxLimit is the GPU-seconds at which a job moves down to the second level.
const PolluxLimit = 16 * 3600

type polluxJob struct {
	name     string
	app      *polluxApp
	spec     cluster.Job
	gpus     int
	batch    int
	submit   int
	known    bool // submitted
	given    int  // GPUs that the engine assigned; 0: it waits
	executed int  // seconds since it got GPUs, over all runs
	level    int
	place    int64
	where    []int // nodes, one entry per GPU
	shape    []int // ... as GPUs per node
	atomic   int
	more     int // accumulation steps
	hold     int
	speeds   []int64       // by GPUs, elastic
	told     time.Duration // virtual work that counts as done: reported work overrides the engine's estimate
	progress float64
	epoch    int
	finish   int           // 0: not yet
	learnt   polluxLearner // for a job with an adaptive batch size
}

// PolluxWorld is a driver. In an elastic one jobs may have any number of GPUs, not only the
// workload's, and report how many steps they have left.
type PolluxWorld struct {
	jobs    []polluxJob
	elastic bool
	learns  bool // batch sizes adapt, and speeds are learned
	queues  [2][]int
	now     int
	left    int // number of jobs that have not finished
	reports []engine.Event
	rounds  int
	policy  string
}

// NewPolluxWorld reads a workload (name, time in s, application, num_replicas,
// batch_size, by time) for one of the artifact's schedulers: tiresias, optimus or pollux.
func NewPolluxWorld(apps PolluxApps, path, theirs string) (*PolluxWorld, error) {
	if known := []string{"tiresias", "optimus", "pollux"}; !slices.Contains(known, theirs) {
		return nil, cluster.Unknown("scheduler", theirs, known)
	}
	rows, err := table(path, 2, "name", "application", "time", "num_replicas", "batch_size")
	if err != nil {
		return nil, err
	}
	w := &PolluxWorld{left: len(rows), elastic: theirs != "tiresias", learns: theirs == "pollux"}
	for i, r := range rows {
		j := polluxJob{name: r.text[0], app: apps[r.text[1]], submit: int(r.n[2]), gpus: int(r.n[3]),
			batch: int(r.n[4])}
		if j.app == nil {
			return nil, fmt.Errorf("%s: line %d: unknown application %q", path, i+2, r.text[1])
		}
		j.spec = cluster.Job{ID: cluster.JobID(i), Name: j.name,
			Submit: cluster.Time(0).Add(time.Duration(j.submit) * time.Second), Tier: cluster.Standard,
			Tasks: []cluster.TaskSet{{Count: j.gpus, Request: cluster.Request{GPUs: 1}}}}
		if w.elastic {
			if err := j.stretch(r.text[1] == "ncf", w.learns); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", path, i+2, err)
			}
		}
		w.jobs = append(w.jobs, j)
	}
	return w, nil
}

// stretch makes a job run on any number of GPUs; one that learns has no fixed batch size.
func (j *polluxJob) stretch(single, learns bool) error {
	batch := j.batch
	if learns {
		batch, j.batch = j.app.max, 0
	}
	most := min(batch/j.app.leastLocal, polluxNodes*polluxPerNode)
	if single {
		most = 1
		if learns {
			j.batch = batch
		}
	}
	j.spec.Tasks[0].Count, j.spec.Elastic = 1, cluster.Elastic{Min: 1, Max: most}
	j.spec.Submit += cluster.Time(j.spec.ID) // in file order if several arrive at once
	if learns {
		return nil
	}
	_, j.spec.Estimate = j.steps()
	for n := 1; n <= most; n++ {
		p, err := j.app.predicted(batch, n, polluxPerNode)
		if err != nil {
			return err
		}
		j.speeds = append(j.speeds, int64(math.Round(stepsPerSecond/p)))
	}
	return nil
}

// The engine's work is scaled as if a step took a thousand seconds at the reference speed, so that
// whole numbers are precise enough.
const (
	stepTimeTold   = 1000 * time.Second
	stepsPerSecond = 1e6 * 1000
)

// steps is the completed and the total work, counted from the end of the first epoch, as the
// published Optimus does.
func (j *polluxJob) steps() (done, all time.Duration) {
	last := j.app.epochs - 1
	from, total := j.app.iterations(j.batch, 0), j.app.iterations(j.batch, last)
	left := 1.0
	if j.epoch < last {
		left = total - j.app.iterations(j.batch, j.epoch)
	}
	all = time.Duration((total - from) * float64(stepTimeTold))
	return j.told + max(0, all-time.Duration(left*float64(stepTimeTold))), j.told + all
}

// Beside is never called: GPUs are not shared in this profile.
func (w *PolluxWorld) Beside(*cluster.Job, string, []*cluster.Job) int64 { return 1_000_000 }

// Slice is never called: GPUs are not divided in this world.
func (w *PolluxWorld) Slice(*cluster.Job, string, string, int64) int64 { return 1_000_000 }

// Speed implements sched.Speeds.
func (w *PolluxWorld) Speed(j *cluster.Job, _ string, tasks int) int64 {
	if w.learns {
		return w.jobs[j.ID].learnt.speed(w.jobs[j.ID].app, tasks)
	}
	return w.jobs[j.ID].speeds[tasks-1]
}

// Next returns the engine's events at the end of a round.
func (w *PolluxWorld) Next(ctx context.Context) (engine.Batch, error) {
	for again := true; again && len(w.reports) == 0; {
		if w.left == 0 || ctx.Err() != nil {
			return engine.Batch{}, io.EOF
		}
		w.settle()
		for i := range w.jobs {
			if err := w.jobs[i].advance(w.now, polluxRound, w.learns); err != nil {
				return engine.Batch{}, fmt.Errorf("job %s: %w", w.jobs[i].name, err)
			}
		}
		w.now += polluxRound
		w.rounds++
		again = w.look() == 0
	}
	b := engine.Batch{Seq: int64(w.rounds), Now: w.clock(), Events: w.reports}
	w.reports = nil
	return b, nil
}

func (w *PolluxWorld) clock() cluster.Time {
	return cluster.Time(0).Add(time.Duration(w.now) * time.Second)
}

// settle places running jobs without GPUs: as many GPUs as possible on the node with the most free
// ones, and so on (section 6). Jobs that continue keep theirs. Jobs that learn are arranged
// differently.
func (w *PolluxWorld) settle() {
	if w.learns {
		w.arrange()
		return
	}
	free := [polluxNodes]int{}
	for n := range free {
		free[n] = polluxPerNode
	}
	var put []*polluxJob
	for i := range w.jobs {
		j := &w.jobs[i]
		if len(j.where) != j.given {
			j.where, j.shape = nil, nil
		}
		for _, n := range j.where {
			free[n]--
		}
		if w.elastic && j.given > 0 && j.where == nil {
			put = append(put, j)
		}
	}
	slices.SortStableFunc(put, func(a, b *polluxJob) int { return a.given - b.given })
	for _, q := range w.queues {
		for _, id := range q {
			if j := &w.jobs[id]; !w.elastic && j.given > 0 && j.where == nil {
				put = append(put, j)
			}
		}
	}
	for _, j := range put {
		j.put(&free)
	}
}

func (j *polluxJob) put(free *[polluxNodes]int) {
	for need := j.given; need > 0; {
		most := 0
		for n := range free {
			if free[n] > free[most] {
				most = n
			}
		}
		take := min(free[most], need)
		if take == 0 {
			panic("compat: more GPUs are given than there are")
		}
		for range take {
			j.where = append(j.where, most)
		}
		j.shape = append(j.shape, take)
		free[most] -= take
		need -= take
	}
	j.tune()
	j.hold = polluxHold
}

// advance runs a job for some seconds (section 5).
func (j *polluxJob) advance(now, seconds int, learns bool) error {
	if j.shape == nil || j.finish > 0 {
		return nil
	}
	d := min(j.hold, seconds)
	now, j.hold, seconds = now+d, j.hold-d, seconds-d
	for seconds > 0 && j.finish == 0 {
		step, sync, err := j.app.timing(j.shape, j.atomic)
		if err != nil {
			return err
		}
		batch := len(j.where) * j.atomic * (j.more + 1)
		sqr, variance, err := j.app.grad(batch, j.epoch)
		if err != nil {
			return err
		}
		if learns {
			j.learnt.see(polluxSeen{nodes: len(j.shape), gpus: len(j.where), local: j.atomic, step: step,
				compute: step - sync}, sqr, variance)
		}
		v := gainOf(sqr, variance, float64(batch)/float64(j.app.first)) / (step + (step-sync)*float64(j.more))
		need := j.app.need(j.epoch + 1)
		if j.progress+v*float64(seconds) < need {
			j.progress += v * float64(seconds)
			return nil
		}
		d := int(math.RoundToEven((need - j.progress) / v))
		if j.epoch++; j.epoch > j.app.epochs-1 {
			j.finish = now + d
		}
		j.progress = need
		now, seconds = now+d, seconds-d
		if learns {
			j.tune()
		}
	}
	return nil
}

// look collects the scheduler's events at the end of a round: ends, arrivals, jobs whose service
// moves them down a level, or remaining work. It returns the number of jobs that wait or run.
func (w *PolluxWorld) look() (active int) {
	for i := range w.jobs {
		j := &w.jobs[i]
		switch {
		case j.given > 0 && j.finish > 0:
			j.given = 0
			w.left--
			w.queues[j.level] = slices.DeleteFunc(w.queues[j.level], func(id int) bool { return id == i })
			w.reports = append(w.reports, engine.Event{Type: engine.Stopped, Job: j.spec.ID, Reason: engine.Completed})
		case !j.known && j.submit <= w.now:
			j.known = true
			w.queues[0] = append(w.queues[0], i)
			w.reports = append(w.reports, engine.Event{Type: engine.Submitted, Job: j.spec.ID, Spec: &j.spec})
		case j.given > 0 && w.learns: // no report: the remaining time is unknown
		case j.given > 0 && w.elastic:
			j.told += time.Second
			done, all := j.steps()
			w.reports = append(w.reports,
				engine.Event{Type: engine.Progress, Job: j.spec.ID, Done: done, Estimate: all})
		case j.given > 0:
			if j.executed += polluxRound; j.level == 0 && j.executed*j.gpus >= PolluxLimit {
				w.queues[0] = slices.DeleteFunc(w.queues[0], func(id int) bool { return id == i })
				w.queues[1], j.level = append(w.queues[1], i), 1
				// makes the engine run a pass
				w.reports = append(w.reports, engine.Event{Type: engine.Progress, Job: j.spec.ID})
			}
		}
		active += count(j.known && j.finish == 0)
	}
	for _, q := range w.queues {
		for k, id := range q {
			w.jobs[id].place = int64(k)
		}
	}
	return active
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Apply carries out a decision; places are assigned once everything is decided.
func (w *PolluxWorld) Apply(_ context.Context, d engine.Decision) error {
	for i := range d.Actions {
		a := &d.Actions[i]
		j := &w.jobs[a.Job]
		switch a.Type {
		case engine.Start:
			j.given = tasks(a.Allocs)
			// work is reported, not derived from the clock
			w.reports = append(w.reports, engine.Event{Type: engine.Started, Job: a.Job, Rate: 1})
		case engine.Preempt:
			j.given = 0
			done := time.Duration(0)
			if !w.learns {
				done, _ = j.steps()
			}
			w.reports = append(w.reports, engine.Event{Type: engine.Stopped, Job: a.Job, Reason: a.Reason, Done: done})
		case engine.Reject:
			return fmt.Errorf("compat: job %s can never run: %s", j.name, a.Text)
		case engine.Resize:
			j.given = tasks(a.Allocs)
			w.reports = append(w.reports, engine.Event{Type: engine.Resized, Job: a.Job, Rate: 1})
		}
	}
	return nil
}

func tasks(allocs []engine.Alloc) (n int) {
	for i := range allocs {
		n += int(allocs[i].Tasks)
	}
	return n
}

// JCT returns the completion times in seconds, in the order of the workload.
func (w *PolluxWorld) JCT() []int {
	list := make([]int, len(w.jobs))
	for i := range w.jobs {
		list[i] = w.jobs[i].finish - w.jobs[i].submit
	}
	return list
}

// Policy returns our deciding policy.
func (w *PolluxWorld) Policy() string { return w.policy }

// Names returns the jobs' names, in the order of the workload.
func (w *PolluxWorld) Names() []string {
	list := make([]string, len(w.jobs))
	for i := range w.jobs {
		list[i] = w.jobs[i].name
	}
	return list
}

// RunPollux replays a workload in the world of Pollux' simulator: under our tiresias-l with its two
// levels, with the world's order within a level, first come, first served; or elastic, under our
// optimus or pollux. theirs is tiresias, optimus or pollux.
func RunPollux(ctx context.Context, apps PolluxApps, path, theirs string) (*PolluxWorld, error) {
	w, err := NewPolluxWorld(apps, path, theirs)
	if err != nil {
		return nil, err
	}
	spec, err := cluster.ParseShort(fmt.Sprintf("1x%d", polluxNodes*polluxPerNode)) // GPUs are counted only
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("tiresias-l:thresholds=%d", PolluxLimit)
	switch theirs {
	case "optimus":
		name = fmt.Sprintf("optimus:round=%ds", polluxRound)
	case "pollux":
		name = "pollux"
	}
	cfg := engine.Config{Spec: *spec}
	if cfg.Policy, err = policy.New(name); err != nil {
		return nil, err
	}
	w.policy = name
	if w.elastic {
		cfg.Speeds = w
	} else {
		cfg.Policy = &listed{leveller: cfg.Policy.(leveller), place: func(id cluster.JobID) int64 {
			return w.jobs[id].place
		}}
	}
	return w, play(ctx, cfg, w)
}
