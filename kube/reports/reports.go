// Package reports books what the pods of a running gang tell of themselves (muster-kube report).
package reports

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/progress"
	"github.com/muster-gpu/muster/show"
)

// Telling is what the pods of a running gang told of themselves.
type Telling struct {
	Pace    progress.Pace
	pod     types.UID         // whose reports count
	Worked  time.Duration     // what its work was said to be in runs before; 0: nothing was
	lines   int               // of it that are booked
	falling *progress.Falling // the metric by which it converges
	saved   *float64          // step at the last checkpoint that is booked; nil: none is
	Last    *show.Progress    // never changed in place
	Metrics []show.Metrics    // never changed in place
}

// HasToken reports whether a pod has a token to report with.
func HasToken(obj *v1.Pod) bool {
	for i := range obj.Spec.Volumes {
		if p := obj.Spec.Volumes[i].Projected; p != nil {
			for k := range p.Sources {
				if t := p.Sources[k].ServiceAccountToken; t != nil && t.Audience == show.ReportAudience {
					return true
				}
			}
		}
	}
	return false
}

// Report is what a pod told.
type Report struct {
	*show.Report
	Pod types.UID
	At  cluster.Time
	Run int // of its gang
}

// Hear is what the engine is to know of a report, if that is new; converge is how the metric of the gang converges.
func (t *Telling) Hear(r *Report, converge string, rec *engine.JobRecord, now cluster.Time) []engine.Event {
	if r.Pod == t.pod && r.Lines == t.lines {
		return nil
	}
	said := r.Progress
	// a prediction is not the pod's to make
	said.At, said.Steps, said.Predicted = time.Unix(0, int64(r.At)).UTC(), max(0, said.Steps), false
	t.falling = progress.Converges(converge, t.falling, t.news(r.Report), &said)
	ran := progress.RanAt(rec, now)
	age := min(max(0, now.Sub(r.At)), ran)
	h := progress.Heard{Now: now, Job: rec}
	if h.Left, h.Paced = t.Pace.Hear(r.Run, ran-age, &said, false); h.Paced {
		h.Left = max(0, h.Left-age)
	}
	if at := r.SavedAt; at != nil && (t.saved == nil || *t.saved != *at || r.Pod != t.pod) {
		h.Saved, h.Since = true, said.Step-*at
		if t.Pace.Rate > 0 {
			h.Since += t.Pace.Rate * age.Seconds()
		}
	}
	if r.Finished { // nothing of it is done again
		h.Saved, h.Since = true, 0
	}
	t.pod, t.lines, t.saved, t.Last = r.Pod, r.Lines, r.SavedAt, &said
	if len(r.Metrics) > 0 {
		t.Metrics = make([]show.Metrics, len(r.Metrics))
		for i, m := range r.Metrics {
			m.At, m.Mark = said.At, 0
			t.Metrics[i] = m
		}
	}
	ev := t.Pace.Event(&h, &said)
	if rec.Spec.Shares() { // beside which pods it is, the device plugin chose: that says nothing of its model
		ev.Pace = 0
	}
	return []engine.Event{ev}
}

// news are the metrics that are of another step than those that are booked.
func (t *Telling) news(r *show.Report) (list []progress.Measure) {
	for i := range r.Metrics {
		m := &r.Metrics[i]
		if !slices.ContainsFunc(t.Metrics, func(o show.Metrics) bool {
			return o.Trial == m.Trial && o.Step == m.Step
		}) {
			list = append(list, progress.Measure{Trial: m.Trial, Step: m.Step, Of: m.Of})
		}
	}
	return list
}

// known reports whether what was told says how much work there is, and how fast it goes.
func (t *Telling) known() bool { return t.Last != nil && t.Last.Steps > 0 && t.Pace.Rate > 0 }

// Work is all of the gang's work, as its progress told; 0: that did not tell, or it goes by what was stated.
func (t *Telling) Work(rec *engine.JobRecord) time.Duration {
	if !t.known() {
		return t.Worked
	}
	return rec.Spec.Estimate
}

// End is when the gang is expected to end by what it reports; Never: that does not tell.
func (t *Telling) End(rec *engine.JobRecord, now cluster.Time) cluster.Time {
	if !t.known() || rec == nil || rec.EndKey <= 0 {
		return cluster.Never
	}
	if end := cluster.Time(rec.EndKey); end > now {
		return end
	}
	return now.Add(max(time.Minute, progress.RanAt(rec, now)/20)) // it was expected earlier: as the engine does
}
