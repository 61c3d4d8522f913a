package sim

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/search"
	"github.com/muster-gpu/muster/trace"
)

// Curves is a synthetic model of trials' losses; it is not a measurement. Each parameter has an
// optimum, drawn from the seed, and a weight. A trial at a weighted mean square distance d from the
// optimum converges to a loss of 0.1 + 2d. The loss falls from 2.5 as a power of the steps, with an
// exponent between 0.5 and 1.5 drawn for each trial, so curves cross. Reported values have a
// relative error. A model of 1/S of the width ends 10 % higher for each halving, and is 5 % (one
// standard deviation) wrong about which configuration is better.
type Curves struct {
	Params []search.Parameter
	Seed   uint64
	Unit   int64         // steps at which the loss begins to fall: the first rung's
	Step   time.Duration // of a trial with mean speed at full size
	Spread float64       // standard deviation of the logarithm of the trials' speeds
	Noise  float64       // relative standard deviation of reported values
	Scaled float64       // time of a step of the narrower model, relative to full size
	Fused  float64       // relative time that each further trial in a process adds to a step
}

const (
	lossAtFirst = 2.5
	lossAtBest  = 0.1
)

// limit is the loss to which a trial's configuration converges.
func (c *Curves) limit(trial int) float64 {
	sum, all := 0.0, 0.0
	values := search.Config(c.Params, c.Seed, trial)
	for i := range c.Params {
		p := &c.Params[i]
		place := search.Draw(c.Seed, trial, p.Name)
		if p.Kind == search.Grid || p.Kind == search.Choice {
			place = float64(slices.Index(p.Values, values[i].V)) / float64(max(1, len(p.Values)-1))
		}
		d := place - search.Draw(c.Seed, 0, p.Name+"/best")
		w := 0.1 + search.Draw(c.Seed, 0, p.Name+"/weight")
		sum, all = sum+w*d*d, all+w
	}
	return lossAtBest + 2*sum/all
}

// Loss is the loss of a trial's model after a number of steps, without the reporting error.
func (c *Curves) Loss(trial int, steps int64, scale int) float64 {
	limit := c.limit(trial)
	if scale > 1 {
		limit *= (1 + 0.1*math.Log2(float64(scale))) * math.Exp(0.05*search.Normal(c.Seed, trial, "narrow"))
	}
	power := 0.5 + search.Draw(c.Seed, trial, "exponent")
	return limit + max(0, lossAtFirst-limit)*math.Pow(1+float64(steps)/float64(max(1, c.Unit)), -power)
}

// reported is the value that a trial reports.
func (c *Curves) reported(trial int, steps int64, scale int) float64 {
	draw := "noise/" + strconv.FormatInt(steps, 10) + "/" + strconv.Itoa(scale)
	return c.Loss(trial, steps, scale) * (1 + c.Noise*search.Normal(c.Seed, trial, draw))
}

// step is the time of a step of a run: that of its slowest trial.
func (c *Curves) step(d *search.Decision, scale int) time.Duration {
	slowest := 0.0
	for _, t := range d.Trials {
		slowest = max(slowest, math.Exp(c.Spread*search.Normal(c.Seed, t, "speed")))
	}
	if scale > 1 {
		slowest *= c.Scaled
	}
	return max(1, time.Duration(float64(c.Step)*slowest*(1+c.Fused*float64(len(d.Trials)-1))))
}

// Searching is a search that is simulated in a world: its trials are submitted, promoted and
// stopped by the same state machine as under muster serve.
type Searching struct {
	Search  *search.Search
	Scale   int
	AtOnce  int
	Job     cluster.Job // what a run requests
	Curves  Curves
	After   time.Duration // delay from the first job of the workload to the start of the search
	Unknown bool          // the scheduler does not know how long runs take
	Found   Found

	begun  bool
	live   int
	events []search.Event
	runs   []cluster.JobID
	last   map[[2]int]cluster.JobID // last run by trial number and 0, or 1 at full size; looked up, never iterated
}

// Found is the result of a search.
type Found struct {
	Runs       int
	Refused    int // runs that the cluster can never run
	Begin, End cluster.Time
	Steps      int64 // steps computed, counted for each trial of a fused run
	GPUHours   float64
	Best       search.Result
	Known      bool    // whether Best is valid
	Loss       float64 // loss of the best trial at full size after the whole budget, without error
	Optimum    float64 // the minimum of that over all configurations
	Done       bool
}

// trialRun is a job that is a run of trials.
type trialRun struct {
	d     search.Decision
	scale int
	marks int // number of marks reported
	step  time.Duration
}

// tuneAt is when the search is to be stepped next; Never: when one of its trials reports or ends.
func (w *World) tuneAt() cluster.Time {
	s := w.opt.Search
	switch {
	case s == nil:
	case !s.begun && w.recorded > 0:
		return max(w.now, w.jobs[0].entry.Job.Submit.Add(s.After))
	case !s.begun || len(s.events) > 0:
		return w.now
	}
	return cluster.Never
}

// tune reports the trials' events to the search and starts and stops trials as it decides.
func (w *World) tune(evs []engine.Event) ([]engine.Event, error) {
	s := w.opt.Search
	if s == nil || !s.begun && w.tuneAt() > w.now {
		return evs, nil
	}
	if !s.begun {
		s.begun, s.last, s.Found.Begin = true, map[[2]int]cluster.JobID{}, w.now
	}
	for {
		told := s.events
		s.events = nil
		list, err := s.Search.Step(told, s.AtOnce-s.live)
		if err != nil {
			return nil, err
		}
		for i := range list {
			d := &list[i]
			if d.Type == search.Start {
				evs = append(evs, w.submit(d))
			} else if ev, ok := w.cancel(s.last[lastRun(d.Trials[0], d.Target)]); ok {
				evs = append(evs, ev)
			}
		}
		if len(s.events) == 0 {
			return evs, nil
		}
	}
}

func lastRun(trial int, target bool) [2]int {
	if target {
		return [2]int{trial, 1}
	}
	return [2]int{trial, 0}
}

// submit turns a decision into a job.
func (w *World) submit(d *search.Decision) engine.Event {
	s := w.opt.Search
	run := &trialRun{d: *d, scale: max(1, s.Scale)}
	if d.Target {
		run.scale = 1
	}
	run.step = s.Curves.step(d, run.scale)
	id := cluster.JobID(len(w.jobs))
	job := s.Job
	job.ID, job.Submit = id, w.now
	job.Name = "trial-" + strconv.Itoa(d.Trials[0])
	e := &trace.Entry{Job: job, Run: time.Duration(d.Budget-d.From) * run.step}
	if job.Estimate == 0 && !s.Unknown {
		e.Job.Estimate = e.Run
	}
	w.jobs = append(w.jobs, jobRun{entry: e, left: e.Run, trial: run})
	w.book.grow()
	for _, t := range d.Trials {
		s.last[lastRun(t, d.Target)] = id
	}
	s.live++
	s.runs = append(s.runs, id)
	return w.arrive(&w.jobs[id])
}

// toMark is the work left until a run's next report; false: it reports no more before its end.
func (w *World) toMark(j *jobRun) (time.Duration, bool) {
	r := j.trial
	if r == nil || r.marks >= len(r.d.Marks)-1 {
		return 0, false
	}
	at := time.Duration(r.d.Marks[r.marks]-r.d.From) * r.step
	return max(0, at-(j.entry.Run-w.leftNow(j))), true
}

// reportMark reports a run's metrics at its next mark to the search.
func (w *World) reportMark(j *jobRun) {
	s, r := w.opt.Search, j.trial
	if r.marks >= len(r.d.Marks) {
		return
	}
	for _, t := range r.d.Trials {
		s.events = append(s.events,
			search.Event{Type: search.Reported, Trial: t, Rung: r.d.Rung + r.marks, Target: r.d.Target,
				Metric: s.Curves.reported(t, r.d.Marks[r.marks], r.scale)})
	}
	r.marks++
}

// trialEnded reports the end of a run to the search.
func (w *World) trialEnded(j *jobRun, reason engine.StopReason) {
	s, r := w.opt.Search, j.trial
	s.live--
	s.Found.End = w.now
	if reason == engine.Impossible {
		s.Found.Refused++
	}
	if reason == engine.Completed {
		w.reportMark(j)
		return
	}
	if r.d.Target && reason == engine.WasCancelled {
		if t := r.d.Trials[0]; s.last[lastRun(t, true)] == j.entry.Job.ID {
			s.events = append(s.events, search.Event{Type: search.Left, Trial: t, Rung: r.d.Rung, Target: true})
		}
		return
	}
	for _, t := range r.d.Trials {
		s.events = append(s.events,
			search.Event{Type: search.Failed, Trial: t, Rung: min(r.d.Rung+r.marks, r.d.Rung+len(r.d.Marks)-1),
				Target: r.d.Target})
	}
}

// conclude totals what the search used and found.
func (s *Searching) conclude(w *World) {
	f := &s.Found
	f.Runs = len(s.runs)
	for _, id := range s.runs {
		j := &w.jobs[id]
		steps := int64((j.entry.Run - j.left) / j.trial.step)
		if r := &w.book.Records[id]; r.GPUs > 0 { // a stopped run lost its work, but did compute it
			steps = max(steps, r.Busy/(int64(r.GPUs)*cluster.Whole)/max(1, j.trial.step.Milliseconds()))
		}
		f.Steps += steps * int64(len(j.trial.d.Trials))
		f.GPUHours += float64(w.book.Records[id].Held) / float64(cluster.Whole) / 3.6e6
	}
	f.Best, f.Known = s.Search.Best()
	f.Done = s.Search.Done() && s.live == 0
	f.Optimum = math.Inf(1)
	top := int64(0)
	for t := range s.Search.Trials() {
		for _, b := range s.Search.Brackets() {
			top = max(top, b.Rungs[len(b.Rungs)-1].Budget)
		}
		f.Optimum = min(f.Optimum, s.Curves.Loss(t, top, 1))
	}
	if f.Known {
		f.Loss = s.Curves.Loss(f.Best.Trial, top, 1)
	}
}

// markAhead schedules a running trial's next report before its end.
func (w *World) markAhead(j *jobRun) {
	if ahead, ok := w.toMark(j); ok {
		w.push(worldEvent{at: w.now.Add(stretch(ahead, j.rate)), kind: evMark, id: int32(j.entry.Job.ID), gen: j.gen})
	}
}
