package sim

import (
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/forward"
)

// Starts asks in a replay when waiting jobs will start, some at submission and some later, and
// scores the answers by what happens. Answers are made as in a daemon: a copy of the engine runs
// ahead in virtual time with run times drawn from completed jobs, and the errors of earlier answers
// give the interval. What only the replay knows is not used.
type Starts struct {
	Every   int                        // jobs that have to wait between two questions; 0: ask for each
	Answers []Answer                   // scored answers, in order of the starts
	Asked   int                        // number of questions
	Unknown int                        // ... about jobs that had not started at the end of the replay
	Late    int                        // ... whose prediction run was cut short
	quotes  forward.Quotes             // errors of earlier answers
	runs    forward.Runs               // run times of completed jobs
	recent  forward.Recent             // recent submissions
	asked   map[cluster.JobID][]Answer // open questions by job; looked up, never iterated
	waited  int                        // number of jobs that had to wait
	last    cluster.Time
}

// Answer is a predicted start and the actual one.
type Answer struct {
	Job   cluster.JobID
	At    cluster.Time // when the question was asked
	Later bool         // asked after the submission
	Ahead cluster.Time // the raw prediction; Never: no start in sight
	Quote forward.Quote
	Start cluster.Time // the actual start
}

const (
	lookSteps = 20_000 // maximum steps of a prediction run
	alsoAsked = 3      // waiting jobs that are also asked about at a submission
)

// Watch returns the function to call after each step of an engine; restore makes further engines in
// the same state. Call Close after the last step.
func (s *Starts) Watch(e *engine.Engine, restore func(*engine.Snapshot) (*engine.Engine, error)) func(*engine.Batch,
	*engine.Decision) error {
	s.asked = map[cluster.JobID][]Answer{}
	return func(b *engine.Batch, d *engine.Decision) error {
		for i := range d.Actions {
			if a := &d.Actions[i]; a.Type == engine.Start {
				s.started(a.Job, b.Now)
			}
		}
		var arrived []*cluster.Job
		for i := range b.Events {
			switch ev := &b.Events[i]; ev.Type {
			case engine.Submitted:
				arrived = append(arrived, ev.Spec)
				s.recent.Add(ev.Spec)
			case engine.Stopped:
				if j := e.Spec(ev.Job); j != nil && ev.Reason == engine.Completed {
					s.runs.Add(j, ev.Done)
				}
			case engine.Cancelled:
				s.quotes.Gone(ev.Job)
			}
		}
		s.last = b.Now
		for _, j := range arrived {
			if r := e.Record(j.ID); r == nil || !r.AwaitsTurn() {
				continue
			}
			if s.waited++; (s.waited-1)%max(1, s.Every) == 0 {
				if err := s.ask(e, restore, j, b.Now); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func (s *Starts) started(id cluster.JobID, at cluster.Time) {
	list, ok := s.asked[id]
	if !ok {
		return
	}
	delete(s.asked, id)
	for i := range list {
		list[i].Start = at
		s.Answers = append(s.Answers, list[i])
	}
	s.quotes.Started(id, at)
}

// ask asks about a job that was just submitted, and about some other waiting jobs.
func (s *Starts) ask(e *engine.Engine, restore func(*engine.Snapshot) (*engine.Engine, error), j *cluster.Job,
	now cluster.Time) error {
	ids := []cluster.JobID{j.ID}
	others := slices.DeleteFunc(e.Waiting(), func(id cluster.JobID) bool {
		r := e.Record(id)
		return id == j.ID || !r.AwaitsTurn() ||
			r.FirstStart != cluster.Never || e.Spec(id).Submit == now
	})
	for i := range min(alsoAsked, len(others)) {
		ids = append(ids, others[(s.Asked*7919+i*len(others)/alsoAsked)%len(others)])
	}
	snap := e.Snapshot()
	seen, err := s.ahead(restore, &snap, ids, now)
	if err != nil {
		return err
	}
	for i, id := range ids {
		spec := e.Spec(id)
		a := forward.Asked{Job: id, Now: now, Start: seen[i], Waited: now.Sub(spec.Submit), Milli: spec.GPUMilli(),
			Tier: spec.Tier}
		q := s.quotes.Quote(&a)
		s.quotes.Record(&a)
		s.Asked++
		s.asked[id] = append(s.asked[id], Answer{Job: id, At: now, Later: i > 0, Ahead: seen[i], Quote: q})
	}
	return nil
}

// ahead runs several predictions, each with other run times, and returns the median start of each
// job.
func (s *Starts) ahead(restore func(*engine.Snapshot) (*engine.Engine, error), snap *engine.Snapshot,
	ids []cluster.JobID, now cluster.Time) ([]cluster.Time, error) {
	opt := forward.Options{Now: now, For: ids, Steps: lookSteps}
	opt.Arrivals = s.recent.Arrivals(snap.Next, now)
	snap.Next += cluster.JobID(len(opt.Arrivals))
	work := func(draw int, guessed *bool) forward.Work {
		of := s.runs.Draw(draw, guessed)
		return func(r *engine.JobRecord, done time.Duration) time.Duration { return of(r.Spec.ID, r.Spec, done) }
	}
	seen, err := forward.Look(func() (*engine.Engine, error) { return restore(snap) }, opt, forward.Draws, work)
	if err != nil {
		return nil, err
	}
	for _, r := range seen {
		if !r.Complete() {
			s.Late++
		}
	}
	out := make([]cluster.Time, len(ids))
	for i, id := range ids {
		out[i] = seen.Start(id)
	}
	return out, nil
}

// StartScore summarizes answers.
type StartScore struct {
	Answers  int
	Within   float64       // share of the actual starts inside the interval, of answers with an interval
	Bounded  int           // answers with an interval
	Error    float64       // median error of the best single answer, relative to the actual wait (at least Floor)
	Dated    int           // answers with a date
	DatedErr float64       // ... the median of their errors
	Open     int           // answers that said "at the earliest"
	AheadErr float64       // median error of the raw prediction
	Early    float64       // share of the raw predictions that were early by more than Floor
	Wait     time.Duration // median of the actual waits from the question on
	Width    float64       // median ratio of the interval's ends
}

// Score summarizes the answers that a filter accepts; nil: all.
func (s *Starts) Score(take func(*Answer) bool) (v StartScore) {
	var errs, dated, ahead, waits, widths []float64
	early, within := 0, 0
	for i := range s.Answers {
		a := &s.Answers[i]
		if take != nil && !take(a) {
			continue
		}
		v.Answers++
		waits = append(waits, a.Start.Sub(a.At).Seconds())
		if a.Ahead != cluster.Never {
			ahead = append(ahead, a.off(a.Ahead))
			if a.Ahead.Add(forward.Floor) < a.Start {
				early++
			}
		}
		if a.Quote.High != cluster.Never {
			v.Bounded++
			if a.Quote.Low <= a.Start && a.Start <= a.Quote.High {
				within++
			}
			errs = append(errs, a.off(a.Quote.Start))
			widths = append(widths,
				(a.Quote.High.Sub(a.At)+forward.Floor).Seconds()/(a.Quote.Low.Sub(a.At)+forward.Floor).Seconds())
		}
		if a.Quote.Open {
			v.Open++
		} else {
			v.Dated++
			dated = append(dated, a.off(a.Quote.Start))
		}
	}
	v.Within, v.Early = float64(within)/float64(max(1, v.Bounded)), float64(early)/float64(max(1, len(ahead)))
	v.Error, v.DatedErr, v.AheadErr, v.Width = middle(errs), middle(dated), middle(ahead), middle(widths)
	v.Wait = time.Duration(middle(waits) * float64(time.Second))
	return v
}

// off is the error of an answer, relative to the actual wait.
func (a *Answer) off(said cluster.Time) float64 {
	return math.Abs(said.Sub(a.Start).Seconds()) / max(forward.Floor, a.Start.Sub(a.At)).Seconds()
}

func middle(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// Close counts the questions about jobs that have not started.
func (s *Starts) Close() {
	for _, list := range s.asked {
		s.Unknown += len(list)
	}
}
