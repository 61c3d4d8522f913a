package progress

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/show"
)

// Keep adds the metrics that a job reported to those that are kept: the last, and the first at or after each mark that
// have the metric by which trials are compared. What a run that went back to a checkpoint repeats changes no mark. The
// list that was kept is not changed.
func Keep(list []show.Metrics, s *ask.Trial, said []Measure, now time.Time) []show.Metrics {
	for _, n := range said {
		of := bounded(s, n.Of)
		if s == nil || !slices.ContainsFunc(s.Fused, func(f ask.FusedTrial) bool { return f.Number == n.Trial }) {
			if n.Trial = 0; s != nil && len(s.Fused) > 0 {
				continue // of a trial that is not of the group
			}
		}
		_, counts := of[metricOf(s)]
		last := of
		if old := lastOf(list, n.Trial); !counts && metricOf(s) != "" && old != nil {
			if v, ok := old.Of[s.Metric]; ok { // it stands on a line of its own
				last = maps.Clone(of)
				last[s.Metric] = v
			}
		}
		list = keep(list, show.Metrics{Trial: n.Trial, Step: n.Step, At: now, Of: last})
		if s == nil || !counts && s.Metric != "" {
			continue
		}
		for _, mark := range s.Marks {
			if n.Step >= float64(mark) {
				list = keep(list, show.Metrics{Trial: n.Trial, Mark: mark, Step: n.Step, At: now, Of: of})
			}
		}
	}
	return list
}

// metricOf is the metric by which a search compares trials; "": none.
func metricOf(s *ask.Trial) string {
	if s == nil {
		return ""
	}
	return s.Metric
}

// bounded are the first metrics by name, no more than are kept; the one by which
// trials are compared is always among them.
func bounded(s *ask.Trial, of map[string]*float64) map[string]*float64 {
	kept, most := map[string]*float64{}, show.MaxMetrics
	if v, ok := of[metricOf(s)]; ok && len(metricOf(s)) <= show.MaxMetric {
		kept[s.Metric] = v
	} else if metricOf(s) != "" {
		most-- // its place is kept: it may stand on a line of its own
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(kept) < most && len(name) <= show.MaxMetric {
			kept[name] = of[name]
		}
	}
	return kept
}

// lastOf are the last metrics of a trial; nil: there are none.
func lastOf(list []show.Metrics, trial int) *show.Metrics {
	k := slices.IndexFunc(list, func(o show.Metrics) bool { return o.Trial == trial && o.Mark == 0 })
	if k < 0 {
		return nil
	}
	return &list[k]
}

// keep adds metrics, over the last ones of the trial; those of a mark stay.
func keep(list []show.Metrics, v show.Metrics) []show.Metrics {
	k := slices.IndexFunc(list, func(o show.Metrics) bool { return o.Trial == v.Trial && o.Mark == v.Mark })
	switch {
	case k < 0:
		return append(slices.Clip(list), v)
	case v.Mark == 0:
		list = slices.Clone(list) // the old ones may be shown at this moment
		list[k] = v
	}
	return list
}
