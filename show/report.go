package show

import (
	"fmt"
	"math"

	"github.com/muster-gpu/muster/ask"
)

// Report is a report of a pod of a cluster: always complete, so that a lost one does not matter.
type Report struct {
	Progress Progress `json:"progress"` // At is ignored
	Lines    int      `json:"lines"`    // lines of its progress file that were valid so far; 0: none
	Age      int64    `json:"age_ms"`   // age of the last of them
	// step at which it reported the last checkpoint; nil: it reported none
	SavedAt  *float64 `json:"saved_at,omitempty"`
	Finished bool     `json:"finished,omitempty"`
	// the last value of each name of each trial, by its step; At and Mark are ignored
	Metrics []Metrics `json:"metrics,omitempty"`
}

// ReportAudience is the audience of the tokens with which pods report.
const ReportAudience = "muster"

// Bounds of what a pod can make the scheduler keep; for metrics, those of any job.
const (
	MaxReport        = 1 << 20 // bytes: a report at all of the limits below fits
	MaxTrials        = 64
	MaxMetrics       = 16 // of a trial
	MaxMetric        = 64 // bytes of a name
	maxValues        = MaxTrials * MaxMetrics
	maxCheckpointRef = 1024
	maxStep          = 1e15
)

// Check says which field of a report is invalid (*FieldError); nil: none. Steps of 0 or less count as unknown,
// because some programs report -1 for that.
func (r *Report) Check() error {
	wrong := func(field, format string, args ...any) error {
		return &ask.FieldError{Field: field, Text: fmt.Sprintf(format, args...)}
	}
	number := func(v float64) bool { return v >= 0 && v <= maxStep }
	p := &r.Progress
	for _, f := range []struct {
		name string
		v    float64
	}{{"progress.step", p.Step}, {"progress.steps", max(0, p.Steps)}, {"progress.epoch", p.Epoch},
		{"progress.samples_per_s", p.SamplesPerSec}} {
		if !number(f.v) {
			return wrong(f.name, "%v is not between 0 and %v", f.v, maxStep)
		}
	}
	switch {
	case r.SavedAt != nil && !number(*r.SavedAt):
		return wrong("saved_at", "%v is not between 0 and %v", *r.SavedAt, maxStep)
	case len(p.Checkpoint) > maxCheckpointRef:
		return wrong("progress.checkpoint", "it is %d bytes long, and %d are the most", len(p.Checkpoint),
			maxCheckpointRef)
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
			return wrong(fmt.Sprintf("metrics[%d].of", i), "with it there are more than %d metrics of all trials",
				maxValues)
		case len(m.Of) > MaxMetrics:
			return wrong(fmt.Sprintf("metrics[%d].of", i), "it has %d metrics, and %d are the most", len(m.Of),
				MaxMetrics)
		case !number(m.Step):
			return wrong(fmt.Sprintf("metrics[%d].step", i), "%v is not between 0 and %v", m.Step, maxStep)
		}
		for name := range m.Of {
			if len(name) > MaxMetric {
				return wrong(fmt.Sprintf("metrics[%d].of", i), "a name is %d bytes long, and %d are the most",
					len(name), MaxMetric)
			}
		}
	}
	return nil
}

// Unplaced is progress without the place of the last checkpoint, which not everybody may see; nil stays nil.
func (p *Progress) Unplaced() *Progress {
	if p == nil || p.Checkpoint == "" {
		return p
	}
	q := *p
	q.Checkpoint = ""
	return &q
}
