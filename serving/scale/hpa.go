package scale

import (
	"math"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/knobs"
)

var hpaKind = kind{knobs.Kind{Name: "hpa",
	About: "Kubernetes' horizontal autoscaler: replicas in proportion to a measured load over its target",
	Knobs: []knobs.Knob{
		{Name: "metric", Default: "busy", About: "busy (part of the time) or waiting (requests for each)"},
		{Name: "target", Default: "0", About: "what the metric should be; 0: 0.7 busy, or 5 waiting"},
		{Name: "tolerance", Default: "0.1", About: "relative difference from it at which nothing is done"},
		{Name: "window", Default: "5m", About: "how long it was to be less before there is less"}}}, newHPA}

// hpa is the rule of Kubernetes' HorizontalPodAutoscaler: ceil(replicas x metric / target), nothing within the
// tolerance, and downwards only to the highest count that was computed within the stabilisation window. The metric is
// the part of the time that replicas compute, or what waits for each.
type hpa struct {
	target, tolerance float64
	waiting           bool
	window            time.Duration
	recent            []recommended
}

// recommended is what was computed at a time.
type recommended struct {
	at       cluster.Time
	replicas int
}

func newHPA(k *knobs.Set) (Policy, error) {
	h := &hpa{waiting: k.Text("metric") == "waiting"}
	if m := k.Text("metric"); m != "busy" && !h.waiting {
		return nil, cluster.Unknown("metric", m, []string{"busy", "waiting"})
	}
	var err error
	if h.target, err = k.Number("target", 0, 1e6); err != nil {
		return nil, err
	}
	if h.target == 0 {
		h.target = 0.7
		if h.waiting {
			h.target = 5
		}
	}
	if h.tolerance, err = k.Number("tolerance", 0, 1); err != nil {
		return nil, err
	}
	h.window, err = k.Duration("window")
	return h, err
}

func (h *hpa) Decide(v *View) []int {
	now := v.Replicas()
	want := now
	metric := 0.0
	ready := 0
	for _, n := range v.Ready {
		ready += n
	}
	switch {
	case ready == 0: // nothing to measure
		if v.Arrived > 0 || v.Waiting > 0 {
			want = max(1, now)
		}
	case h.waiting:
		metric = float64(v.Waiting) / float64(ready)
	case v.Period > 0:
		metric = v.Busy.Seconds() / (v.Period.Seconds() * float64(ready))
	}
	if ratio := metric / h.target; ready > 0 && math.Abs(ratio-1) > h.tolerance {
		want = int(math.Ceil(float64(ready) * ratio))
	}
	return only(v, 0, h.stable(v.Now, want, now))
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
