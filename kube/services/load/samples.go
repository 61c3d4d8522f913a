// Package load finds out what the replicas of a service have to do, from the metrics that their model servers publish:
// asked directly, or as Prometheus keeps them. What a replica says is a claim: it is bounded, and never trusted to be
// well-formed. A model server is a file and a line in the list.
package load

import (
	"errors"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// samples are the metrics of one replica, over all of their labels.
type samples struct {
	sum     map[string]float64             // by name; of histograms NAME_sum and NAME_count
	most    map[string]float64             // the highest of a name
	buckets map[string]map[float64]float64 // of histograms: counts up to a bound
}

func newSamples() *samples {
	return &samples{sum: map[string]float64{}, most: map[string]float64{}, buckets: map[string]map[float64]float64{}}
}

// mostValue is the largest number that is believed.
const mostValue = 1e15

func (s *samples) add(name string, value float64) {
	if value >= 0 && value <= mostValue { // neither is NaN
		s.sum[name] += value
		s.most[name] = max(s.most[name], value)
	}
}

// bucket adds the count of a histogram's observations up to a bound.
func (s *samples) bucket(name string, bound, count float64) {
	if !(bound >= 0) || !(count >= 0 && count <= mostValue) {
		return
	}
	if s.buckets[name] == nil {
		s.buckets[name] = map[float64]float64{}
	}
	s.buckets[name][bound] += count
}

// errText is all that is said about metrics that cannot be read: what a replica sends is not repeated to others.
var errText = errors.New("what it answers is not in Prometheus' text format")

// partLabel is the label that says of which of the things that a replica runs a metric is: Ray Serve's.
const partLabel = "deployment"

// other reports whether metrics of a deployment are none of those of a part.
func other(deployment, part string) bool { return part != "" && deployment != "" && deployment != part }

// parse reads metrics in Prometheus' text format, those of one part of what a replica runs.
func parse(r io.Reader, part string) (*samples, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(r)
	if err != nil {
		return nil, errText
	}
	s := newSamples()
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == partLabel && other(l.GetValue(), part)
			}) {
				continue
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				s.add(name+"_sum", h.GetSampleSum())
				s.add(name+"_count", float64(h.GetSampleCount()))
				for _, b := range h.GetBucket() {
					s.bucket(name, b.GetUpperBound(), float64(b.GetCumulativeCount()))
				}
			case dto.MetricType_SUMMARY:
				s.add(name+"_sum", m.GetSummary().GetSampleSum())
				s.add(name+"_count", float64(m.GetSummary().GetSampleCount()))
			default:
				s.add(name, m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue())
			}
		}
	}
	return s, nil
}
