// Package tune chooses a policy for a cluster from replays of its own history: which candidate was
// best by a stated objective, how certain that is, and what it would have changed for which users.
// It only evaluates; the caller replays.
package tune

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-gpu/muster/cluster"
)

// Metric is a figure of a replay; less is better.
type Metric uint8

// The metrics. A percentile is by nearest rank.
const (
	MeanJCT Metric = iota // mean time from submission to end, seconds
	P95Wait               // 95th percentile of the time spent pending, seconds
	// 95th percentile of Themis' finish-time ratio: JCT / JCT alone on an equal part of the cluster
	Fairness
	Deadlines // share of missed deadlines
	metrics
)

var metricNames = [metrics]string{"mean-jct", "p95-wait", "fairness", "deadlines"}

// floors are the smallest divisors in a weighted objective: differences below them mean nothing (a
// second; a tenth of a ratio; one in a hundred).
var floors = [metrics]float64{1, 1, 0.1, 0.01}

func (m Metric) String() string { return metricNames[m] }

// Objective is what is minimized: a metric, or a weighted sum of several, each divided by its value
// under the current policy.
type Objective struct {
	text    string
	weights [metrics]float64
	single  bool
}

func (o Objective) String() string { return o.text }

// Uses reports whether the metric counts.
func (o *Objective) Uses(m Metric) bool { return o.weights[m] > 0 }

// ParseObjective reads a metric's name, or weighted:NAME=WEIGHT,...
func ParseObjective(text string) (Objective, error) {
	o := Objective{text: text}
	list, weighted := strings.CutPrefix(text, "weighted:")
	if !weighted {
		i := slices.Index(metricNames[:], text)
		if i < 0 {
			return o, cluster.Unknown("--objective", text,
				append(slices.Clone(metricNames[:]), "weighted:NAME=WEIGHT,..."))
		}
		o.weights[i], o.single = 1, true
		return o, nil
	}
	sum := 0.0
	for part := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return o, fmt.Errorf(
				"--objective %s: %q is not NAME=WEIGHT (for example weighted:mean-jct=0.7,p95-wait=0.3)", text, part)
		}
		i := slices.Index(metricNames[:], name)
		if i < 0 {
			return o, fmt.Errorf("--objective %s: %w", text, cluster.Unknown("metric", name, metricNames[:]))
		}
		w, err := strconv.ParseFloat(value, 64)
		if err != nil || !(w > 0) || w > 1e6 {
			return o, fmt.Errorf("--objective %s: weight %s=%q: want a number above 0 and at most 1000000", text, name,
				value)
		}
		if o.weights[i] > 0 {
			return o, fmt.Errorf("--objective %s: %s is given twice", text, name)
		}
		o.weights[i] = w
		sum += w
	}
	for i := range o.weights {
		o.weights[i] /= sum
	}
	return o, nil
}

// figures are the metrics of one candidate over some blocks; NaN: no job has the figure.
type figures [metrics]float64

// cost is the objective's value for a candidate's figures, given those of the current policy. NaN:
// the blocks contain nothing to judge by.
func (o *Objective) cost(own, force *figures) float64 {
	sum := 0.0
	for m := range metrics {
		switch {
		case o.weights[m] == 0:
		case o.single:
			return own[m]
		default:
			// A metric below its floor counts as the floor: 0.2 s of wait is not half of 0.4 s.
			sum += o.weights[m] * max(own[m], floors[m]) / max(force[m], floors[m])
		}
	}
	return sum
}

// gain is the relative saving over the current policy's cost; NaN if either is unknown, 0 if both
// are zero.
func gain(cost, force float64) float64 {
	if cost == force {
		return 0
	}
	if force == 0 {
		return math.Inf(-1)
	}
	return 1 - cost/force
}
