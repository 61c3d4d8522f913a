package forward

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

const (
	// RecentKept is how many submissions are remembered, to expect more like them, and at most so many are expected.
	RecentKept = 4000
	// LikeBefore is how long ago was submitted what is expected to be submitted now.
	LikeBefore = 24 * time.Hour
	// Draws is how many looks ahead there are, each with other run times, where run times are guessed.
	Draws = 5
	// leastSpan is the least time over which submissions must be known for more like them to be expected.
	leastSpan = time.Hour
)

// Recent is the latest submissions, from which those to come are expected. The zero value knows none.
type Recent struct {
	list []*cluster.Job // the latest last; up to twice as many as are remembered, so that forgetting costs little
}

// Add takes note of a submission.
func (r *Recent) Add(spec *cluster.Job) {
	if len(r.list) >= 2*RecentKept {
		r.list = slices.Delete(r.list, 0, RecentKept)
	}
	job := *spec
	r.list = append(r.list, &job)
}

// latest are the submissions that are remembered.
func (r *Recent) latest() []*cluster.Job { return r.list[max(0, len(r.list)-RecentKept):] }

// Clone is a copy that later submissions do not change.
func (r *Recent) Clone() Recent { return Recent{list: slices.Clone(r.latest())} }

// Arrivals are the submissions that are expected: those of the last day once more, or of as much of it as is known, again and
// again. Their numbers begin with next.
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
	first, _ := slices.BinarySearchFunc(latest, from, func(j *cluster.Job, t cluster.Time) int { return cmp.Compare(j.Submit, t) })
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

// Work says how much work a job is, of which done is done; 0: unknown.
type Work func(r *engine.JobRecord, done time.Duration) time.Duration

// Outlook is several looks ahead from one state, each with other run times; one, where none are guessed.
type Outlook []*Result

// Look looks ahead up to most times. restore makes an engine in the state from which it is looked; work is what jobs are
// believed to be in a draw, and sets guessed in draw 0 if other draws may give other run times (Runs.Draw). Draws after the
// first that were stopped count for nothing, and are the last.
func Look(restore func() (*engine.Engine, error), opt Options, most int, work func(draw int, guessed *bool) Work) (Outlook, error) {
	var list Outlook
	guessed := false
	for draw := range most {
		if draw > 0 && !guessed {
			break // the others would be the same
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

// starts are when a job starts in each of the looks, in order; Never: none is in sight.
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

// Start is when a job starts in the middle one of the looks; Never: no start is in sight.
func (o Outlook) Start(id cluster.JobID) cluster.Time {
	list := o.starts(id)
	if len(list) == 0 {
		return cluster.Never
	}
	return list[len(list)/2]
}

// Span is between when and when a job starts in the looks; false: they do not differ, or no start is in sight in one of them.
func (o Outlook) Span(id cluster.JobID) (first, last cluster.Time, ok bool) {
	list := o.starts(id)
	if len(list) == 0 {
		return 0, 0, false
	}
	first, last = list[0], list[len(list)-1]
	return first, last, last != cluster.Never && first < last
}
