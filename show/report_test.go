package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/ask"
)

// A report at all limits is not too large, however its names are encoded, and one more metric is refused.
func TestReportAtLimits(t *testing.T) {
	far, v := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.FixedZone("", 3600)), -math.SmallestNonzeroFloat64
	step := 1e15 - 0.125
	r := Report{Lines: 1e15, Age: math.MaxInt64 / 1_000_000, SavedAt: &step, Finished: true,
		Progress: Progress{At: far, Step: step, Steps: step, Epoch: step, SamplesPerSec: step, Predicted: true,
			Checkpoint: strings.Repeat("\x01", maxCheckpointRef)}}
	for range maxValues {
		name := strings.Repeat("\x01", MaxMetric) // six bytes each
		r.Metrics = append(r.Metrics,
			Metrics{Trial: math.MinInt64, Mark: math.MinInt64, Step: step, At: far, Of: map[string]*float64{name: &v}})
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(&r); err != nil || len(text) > MaxReport {
		t.Errorf("it is %d bytes long, and %d may be: %v", len(text), MaxReport, err)
	}
	r.Metrics[5].Of = map[string]*float64{"a": &v, "b": &v}
	var field *ask.FieldError
	if err := r.Check(); !errors.As(err, &field) || field.Field != fmt.Sprintf("metrics[%d].of", maxValues-1) {
		t.Errorf("one more: %v", err)
	}
}

// Unknown steps are valid.
func TestReportStepsUnknown(t *testing.T) {
	for _, steps := range []float64{0, -1} {
		if err := (&Report{Lines: 1, Progress: Progress{Step: 3, Steps: steps}}).Check(); err != nil {
			t.Errorf("%v steps: %v", steps, err)
		}
	}
	if err := (&Report{Lines: 1, Progress: Progress{Step: 3, Steps: 1e16}}).Check(); err == nil {
		t.Error("too many steps are taken")
	}
}
