package report

// Power is the record of a group of nodes that may sleep. Node-seconds exclude nodes that were
// down.
type Power struct {
	Partition           string
	Used, Active, Total float64 // node-seconds: with jobs; awake or waking; total
	Wakes, Woken, Slept int     // number of wake-ups; nodes woken; nodes put to sleep
	Joules, Saved       float64 // drawn; saved compared with all nodes awake
	Watts               bool    // whether the nodes' power draw is known
	Forecasts           int64   // forecasts of mean use that can be judged
	Off, OffNaive       float64 // sums of their errors, in nodes; those of a no-change forecast
}

// PowerSummary sums up all groups.
type PowerSummary struct {
	Utilisation float64 `json:"node_utilisation"`           // nodes with jobs, of those awake or waking
	AllAwake    float64 `json:"node_utilisation_all_awake"` // ... of all
	Active      float64 `json:"nodes_awake"`                // mean
	Total       float64 `json:"nodes"`                      // mean
	Wakes       float64 `json:"wakes_per_day"`              // number of wake-ups
	Woken       float64 `json:"nodes_woken_per_day"`        // number of nodes woken
	KWh         float64 `json:"energy_kwh,omitempty"`       // if the cluster file states the nodes' power draw
	SavedKWh    float64 `json:"energy_saved_kwh,omitempty"` // compared with all nodes awake
	// mean of |forecast - actual|, both means over the time ahead
	Off      float64 `json:"forecast_error_nodes"`
	OffNaive float64 `json:"forecast_error_nodes_no_change"` // of a no-change forecast
}

// powerSummary sums up the groups; nil: no node may sleep.
func (r *Run) powerSummary() *PowerSummary {
	if len(r.Power) == 0 {
		return nil
	}
	var s PowerSummary
	var all Power
	for i := range r.Power {
		p := &r.Power[i]
		all.Used, all.Active, all.Total = all.Used+p.Used, all.Active+p.Active, all.Total+p.Total
		all.Wakes, all.Woken = all.Wakes+p.Wakes, all.Woken+p.Woken
		all.Forecasts, all.Off, all.OffNaive = all.Forecasts+p.Forecasts, all.Off+p.Off, all.OffNaive+p.OffNaive
		const kwh = 3_600_000
		s.KWh, s.SavedKWh = s.KWh+p.Joules/kwh, s.SavedKWh+p.Saved/kwh
	}
	if all.Active > 0 {
		s.Utilisation, s.AllAwake = all.Used/all.Active, all.Used/all.Total
	}
	if end := r.Last.Sub(0).Seconds(); end > 0 {
		s.Active, s.Total = all.Active/end, all.Total/end
		days := end / 86400
		s.Wakes, s.Woken = float64(all.Wakes)/days, float64(all.Woken)/days
	}
	if n := float64(all.Forecasts); n > 0 {
		s.Off, s.OffNaive = all.Off/n, all.OffNaive/n
	}
	return &s
}

// powerFigures are shown if nodes may sleep.
func powerFigures() []figure {
	of := func(get func(*PowerSummary) float64, drawn bool) func(*Summary) (float64, bool) {
		return func(s *Summary) (float64, bool) {
			if s.Power == nil || drawn && s.Power.KWh == 0 {
				return 0, false
			}
			return get(s.Power), true
		}
	}
	return []figure{
		{key: "power.node_utilisation", group: groupPower, label: "nodes in use, of those awake", short: "in use",
			unit: unitShare, better: 1,
			help: "node time with jobs, of node time awake or waking",
			get:  of(func(p *PowerSummary) float64 { return p.Utilisation }, false)},
		{key: "power.node_utilisation_all_awake", group: groupPower, label: "nodes in use, of all", short: "of all",
			unit: unitShare,
			help: "node time with jobs, of all node time",
			get:  of(func(p *PowerSummary) float64 { return p.AllAwake }, false)},
		{key: "power.nodes_awake", group: groupPower, label: "nodes awake, mean", short: "awake", unit: unitRatio,
			better: -1,
			help:   "awake or waking", get: of(func(p *PowerSummary) float64 { return p.Active }, false)},
		{key: "power.wakes_per_day", group: groupPower, label: "wake-ups per day", short: "wakes/d", unit: unitRatio,
			better: -1,
			help:   "how often a day nodes were woken",
			get:    of(func(p *PowerSummary) float64 { return p.Wakes }, false)},
		{key: "power.nodes_woken_per_day", group: groupPower, label: "nodes woken per day", short: "woken/d",
			unit: unitRatio, better: -1,
			help: "how many nodes a day were woken", get: of(func(p *PowerSummary) float64 { return p.Woken }, false)},
		{key: "power.energy_kwh", group: groupPower, label: "energy, kWh", short: "kWh", unit: unitCount, better: -1,
			help: "drawn by nodes that may sleep, by the cluster file's watts",
			get:  of(func(p *PowerSummary) float64 { return p.KWh }, true)},
		{key: "power.energy_saved_kwh", group: groupPower, label: "energy saved, kWh", short: "saved", unit: unitCount,
			better: 1,
			help:   "against all of these nodes being awake all the time, with the same jobs",
			get:    of(func(p *PowerSummary) float64 { return p.SavedKWh }, true)},
		{key: "power.forecast_error_nodes", group: groupPower, label: "forecast off by, nodes", short: "off by",
			unit: unitRatio,
			help: "mean difference between the mean use that was expected of the time ahead and what came",
			get:  of(func(p *PowerSummary) float64 { return p.Off }, false)},
		{key: "power.forecast_error_nodes_no_change", group: groupPower, label: "no change off by, nodes",
			short: "no change", unit: unitRatio,
			help: "the same, had use been expected to stay as it was",
			get:  of(func(p *PowerSummary) float64 { return p.OffNaive }, false)},
	}
}

// powerFields are the CSV columns for runs in which nodes may sleep.
func powerFields() (list []field) {
	for _, f := range powerFigures() {
		get := f.get
		list = append(list, field{f.key, func(s *Summary) string {
			v, ok := get(s)
			if !ok {
				return ""
			}
			return number(v)
		}})
	}
	return list
}
