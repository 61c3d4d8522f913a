package scale

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
	"github.com/muster-gpu/muster/service"
)

var hpaKind = kind{knobs.Kind{Name: "hpa",
	About: "Kubernetes' horizontal autoscaler: replicas in proportion to a measured load over its target",
	Knobs: []knobs.Knob{
		{Name: "metric", Default: "busy",
			About: "busy (part of the time), waiting (requests for each), rate (requests a second for each), kv (part of " +
				"a language model's KV memory that is in use), or several such as kv/waiting: the one that needs most counts"},
		{Name: "target", Default: "0",
			About: "what the metric should be, of several such as 0.8/5; 0: 0.7 busy, 5 waiting, 0.8 kv; rate has no default"},
		{Name: "tolerance", Default: "0.1", About: "relative difference from it at which nothing is done"},
		{Name: "window", Default: "5m", About: "how long it was to be less before there is less"}}}, newHPA}

// hpa is the rule of Kubernetes' HorizontalPodAutoscaler: ceil(replicas x metric / target), nothing within the
// tolerance, the highest of several metrics, and downwards only to the highest count that was computed within the
// stabilisation window. A metric that no replica publishes says nothing, and then there are not fewer.
type hpa struct {
	metrics   []hpaMetric
	tolerance float64
	window    time.Duration
	recent    []recommended
	blind     bool // no replica said how full its memory is
}

// hpaMetric is what is measured, for each replica in the mean.
type hpaMetric struct {
	*hpaKnown
	target float64
}

// hpaKnown is a metric that there is; target is used where the text has none, 0: it must have one.
type hpaKnown struct {
	name   string
	target float64
	of     func(v *View, ready, target float64) float64
}

// memoryMetric is the name of the metric that only language models have.
const memoryMetric = "kv"

var hpaMetrics = []hpaKnown{
	{"busy", 0.7, func(v *View, ready, _ float64) float64 {
		if v.Period <= 0 {
			return 0
		}
		return v.Busy.Seconds() / (v.Period.Seconds() * ready)
	}},
	{"waiting", 5, func(v *View, ready, _ float64) float64 { return float64(v.Waiting) / ready }},
	{"rate", 0, func(v *View, ready, _ float64) float64 { return v.Rate() / ready }},
	{memoryMetric, 0.8, memoryUse},
}

// memoryUse is the part of their memory that replicas use in the mean. As in Kubernetes, those that do not say it use
// none where there would be more replicas, and as much as they should where there would be fewer.
func memoryUse(v *View, ready, target float64) float64 {
	tell := min(float64(v.Tell), ready)
	used := v.Memory * tell
	if v.Memory > target {
		return max(target, used/ready)
	}
	return min(target, (used+target*(ready-tell))/ready)
}

func newHPA(k *knobs.Set) (Policy, error) {
	h := &hpa{}
	names, targets := strings.Split(k.Text("metric"), "/"), strings.Split(k.Text("target"), "/")
	if len(targets) == 1 && targets[0] == "0" {
		targets = make([]string, len(names))
	}
	if len(targets) != len(names) {
		return nil, fmt.Errorf("target=%s: want a number for each of %s", k.Text("target"), k.Text("metric"))
	}
	for i, name := range names {
		m, err := hpaMetricOf(name, targets[i])
		if err != nil {
			return nil, err
		}
		h.metrics = append(h.metrics, m)
	}
	var err error
	if h.tolerance, err = k.Number("tolerance", 0, 1); err != nil {
		return nil, err
	}
	h.window, err = k.Duration("window")
	return h, err
}

// hpaMetricOf reads a metric and its target; "" and 0 are the metric's own.
func hpaMetricOf(name, target string) (m hpaMetric, err error) {
	var names []string
	for i := range hpaMetrics {
		if names = append(names, hpaMetrics[i].name); hpaMetrics[i].name == name {
			m.hpaKnown = &hpaMetrics[i]
		}
	}
	if m.hpaKnown == nil {
		return m, cluster.Unknown("metric", name, names)
	}
	if target != "" {
		const most = 1e6
		if m.target, err = strconv.ParseFloat(target, 64); err != nil || !(m.target >= 0 && m.target <= most) {
			return m, fmt.Errorf("target=%s: want a number from 0 to 1e+06", target)
		}
	}
	if m.target == 0 {
		m.target = m.hpaKnown.target
	}
	if m.target == 0 {
		return m, fmt.Errorf("metric=%s: say with target what it should be for each replica, such as target=20", name)
	}
	if name == memoryMetric && m.target > 1 {
		return m, fmt.Errorf("target=%s: of %s it is a part, such as 0.8", target, memoryMetric)
	}
	return m, nil
}

// has reports whether a metric is measured.
func (h *hpa) has(name string) bool {
	for _, m := range h.metrics {
		if m.name == name {
			return true
		}
	}
	return false
}

// Check reports as an error that a service's models have no memory that could be measured.
func (h *hpa) Check(s *service.Service) error {
	switch {
	case s.Phased():
		return errPhased
	case h.has(memoryMetric) && !s.Language():
		return errors.New("hpa: metric=kv is for language models (variants with model); others have busy, waiting and rate")
	}
	return nil
}

// NeedsMemory reports whether a policy looks at how full the memory of replicas is.
func NeedsMemory(p Policy) bool {
	h, ok := p.(*hpa)
	return ok && h.has(memoryMetric)
}

// Says says that what it is to look at is not known.
func (h *hpa) Says() string {
	if h.blind {
		return "no replica says how full its KV memory is (/metrics), so there are not fewer"
	}
	return ""
}

func (h *hpa) Decide(v *View) []int {
	now := v.Replicas()
	want := now
	ready := 0
	for _, n := range v.Ready {
		ready += n
	}
	if h.blind = false; ready == 0 { // nothing to measure
		if v.Arrived > 0 || v.Waiting > 0 {
			want = max(1, now)
		}
	} else {
		want = h.most(v, ready, now)
	}
	return only(v, 0, h.stable(v.Now, want, now))
}

// most is the highest number of replicas that a metric needs.
func (h *hpa) most(v *View, ready, now int) (want int) {
	for _, m := range h.metrics {
		n := now
		if m.name == memoryMetric && v.Tell == 0 {
			h.blind = true
		} else if ratio := m.of(v, float64(ready), m.target) / m.target; math.Abs(ratio-1) > h.tolerance {
			n = int(math.Ceil(float64(ready)*ratio - 1e-9)) // what is whole but for rounding stays whole
		}
		want = max(want, n)
	}
	return want
}

// recommended is what was computed at a time.
type recommended struct {
	at       cluster.Time
	replicas int
}

// stable is the highest recommendation of the window if that is below what runs, else the newest.
func (h *hpa) stable(at cluster.Time, want, now int) int {
	keep := h.recent[:0]
	highest := want
	for _, r := range h.recent {
		if at.Sub(r.at) < h.window {
			keep = append(keep, r)
			highest = max(highest, r.replicas)
		}
	}
	h.recent = append(keep, recommended{at, want})
	if want < now {
		return min(highest, now)
	}
	return want
}
