package show

import (
	"fmt"
	"math"

	"github.com/muster-gpu/muster/ask"
)

// Report is what a pod of a cluster tells of itself: the last of everything, each time, so
// that it makes no difference whether the one before arrived.
type Report struct {
	Progress Progress  `json:"progress"`           // At does not count
	Lines    int       `json:"lines"`              // of its progress file that were understood so far; 0: none was
	Age      int64     `json:"age_ms"`             // how long ago the last of them was written
	SavedAt  *float64  `json:"saved_at,omitempty"` // step at which it reported the last checkpoint; nil: it reported none
	Finished bool      `json:"finished,omitempty"`
	Metrics  []Metrics `json:"metrics,omitempty"` // the last value of each name of each trial, by the step of which it is; At and Mark do not count
}

// ReportAudience is for whom the tokens are made with which pods report.
const ReportAudience = "muster"

// What a pod can make the scheduler keep is bounded; of metrics, what any job can.
const (
	MaxReport        = 1 << 20 // bytes: a report at all of the limits below fits
	MaxTrials        = 64
	MaxMetrics       = 16 // of a trial
	MaxMetric        = 64 // bytes of a name
	maxValues        = MaxTrials * MaxMetrics
	maxCheckpointRef = 1024
	maxStep          = 1e15
)

// Check says which field of a report makes no sense (*FieldError); nil: all do. Steps of 0 or less are
// not known, as those who mean -1 by that have it.
func (r *Report) Check() error {
	wrong := func(field, format string, args ...any) error {
		return &ask.FieldError{Field: field, Text: fmt.Sprintf(format, args...)}
	}
	number := func(v float64) bool { return v >= 0 && v <= maxStep }
	p := &r.Progress
	for _, f := range []struct {
		name string
		v    float64
	}{{"progress.step", p.Step}, {"progress.steps", max(0, p.Steps)}, {"progress.epoch", p.Epoch}, {"progress.samples_per_s", p.SamplesPerSec}} {
		if !number(f.v) {
			return wrong(f.name, "%v is not between 0 and %v", f.v, maxStep)
		}
	}
	switch {
	case r.SavedAt != nil && !number(*r.SavedAt):
		return wrong("saved_at", "%v is not between 0 and %v", *r.SavedAt, maxStep)
	case len(p.Checkpoint) > maxCheckpointRef:
		return wrong("progress.checkpoint", "it is %d bytes long, and %d are the most", len(p.Checkpoint), maxCheckpointRef)
	case r.Lines < 0 || int64(r.Lines) > maxStep:
		return wrong("lines", "%d is not between 0 and %v", r.Lines, maxStep)
	case r.Age < 0 || r.Age > math.MaxInt64/1_000_000:
		return wrong("age_ms", "%d milliseconds are no age", r.Age)
	case len(r.Metrics) > maxValues:
		return wrong("metrics", "there are %d, and %d are the most", len(r.Metrics), maxValues)
	}
	values := 0
	for i := range r.Metrics {
		m := &r.Metrics[i]
		values += len(m.Of)
		switch {
		case values > maxValues:
			return wrong(fmt.Sprintf("metrics[%d].of", i), "with it there are more than %d metrics of all trials", maxValues)
		case len(m.Of) > MaxMetrics:
			return wrong(fmt.Sprintf("metrics[%d].of", i), "it has %d metrics, and %d are the most", len(m.Of), MaxMetrics)
		case !number(m.Step):
			return wrong(fmt.Sprintf("metrics[%d].step", i), "%v is not between 0 and %v", m.Step, maxStep)
		}
		for name := range m.Of {
			if len(name) > MaxMetric {
				return wrong(fmt.Sprintf("metrics[%d].of", i), "a name is %d bytes long, and %d are the most", len(name), MaxMetric)
			}
		}
	}
	return nil
}

// Unplaced is progress without where the last checkpoint is, which not everybody sees; nil stays nil.
func (p *Progress) Unplaced() *Progress {
	if p == nil || p.Checkpoint == "" {
		return p
	}
	q := *p
	q.Checkpoint = ""
	return &q
}
