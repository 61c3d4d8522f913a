package forward

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

const (
	// RecentKept is the number of submissions that are remembered, and the maximum number of
	// expected ones.
	RecentKept = 4000
	// LikeBefore is the period after which submissions are expected to repeat.
	LikeBefore = 24 * time.Hour
	// Draws is the number of runs ahead, each with other run times, where run times are guessed.
	Draws = 5
	// leastSpan is the shortest history from which further submissions are expected.
	leastSpan = time.Hour
)

// Recent holds the latest submissions, from which future ones are expected. The zero value is
// empty.
type Recent struct {
	list []*cluster.Job // the latest last; up to twice RecentKept, so that trimming is cheap
}

// Add records a submission.
func (r *Recent) Add(spec *cluster.Job) {
	if len(r.list) >= 2*RecentKept {
		r.list = slices.Delete(r.list, 0, RecentKept)
	}
	job := *spec
	r.list = append(r.list, &job)
}

// latest returns the submissions that are remembered.
func (r *Recent) latest() []*cluster.Job { return r.list[max(0, len(r.list)-RecentKept):] }

// Clone returns a copy that later submissions do not change.
func (r *Recent) Clone() Recent { return Recent{list: slices.Clone(r.latest())} }

// Arrivals returns the expected submissions: those of the last day repeated once, or of the known
// part of it, repeated to fill a day. Their numbers begin with next.
func (r *Recent) Arrivals(next cluster.JobID, now cluster.Time) (list []cluster.Job) {
	latest := r.latest()
	if len(latest) == 0 {
		return nil
	}
	from := max(now.Add(-LikeBefore), latest[0].Submit)
	span := now.Sub(from)
	if span < leastSpan || latest[len(latest)-1].Submit < from {
		return nil
	}
	first, _ := slices.BinarySearchFunc(latest, from, func(j *cluster.Job, t cluster.Time) int {
		return cmp.Compare(j.Submit, t)
	})
	for round := 1; len(list) < RecentKept; round++ {
		for _, known := range latest[first:] {
			j := *known
			j.ID = next + cluster.JobID(len(list))
			j.Submit = j.Submit.Add(time.Duration(round) * span)
			j.After, j.Array, j.Deadline, j.Begin = nil, nil, 0, 0
			list = append(list, j)
		}
	}
	return list
}

// Work returns the total work of a job, of which done is complete; 0: unknown.
type Work func(r *engine.JobRecord, done time.Duration) time.Duration

// Outlook holds the results of several runs ahead from one state, each with other run times; only
// one if no run time is guessed.
type Outlook []*Result

// Look runs ahead up to most times. restore makes an engine in the initial state; work gives the
// jobs' work in a draw, and sets guessed in draw 0 if other draws may give other run times
// (Runs.Draw). A draw after the first that is stopped is discarded and is the last.
func Look(restore func() (*engine.Engine, error), opt Options, most int,
	work func(draw int, guessed *bool) Work) (Outlook, error) {
	var list Outlook
	guessed := false
	for draw := range most {
		if draw > 0 && !guessed {
			break // the others would be equal
		}
		e, err := restore()
		if err != nil {
			return nil, err
		}
		opt.Work = work(draw, &guessed)
		r := Run(e, opt)
		if draw > 0 && r.End == Stopped {
			break
		}
		list = append(list, r)
	}
	return list, nil
}

// starts returns a job's start in each run, sorted; Never: none is in sight.
func (o Outlook) starts(id cluster.JobID) []cluster.Time {
	list := make([]cluster.Time, len(o))
	for i, r := range o {
		at, ok := r.Starts[id]
		if !ok {
			at = cluster.Never
		}
		list[i] = at
	}
	slices.Sort(list)
	return list
}

// Start is the median of a job's starts over the runs; Never: no start is in sight.
func (o Outlook) Start(id cluster.JobID) cluster.Time {
	list := o.starts(id)
	if len(list) == 0 {
		return cluster.Never
	}
	return list[len(list)/2]
}

// Span is the range of a job's starts over the runs; false: they do not differ, or some run has no
// start in sight.
func (o Outlook) Span(id cluster.JobID) (first, last cluster.Time, ok bool) {
	list := o.starts(id)
	if len(list) == 0 {
		return 0, 0, false
	}
	first, last = list[0], list[len(list)-1]
	return first, last, last != cluster.Never && first < last
}
