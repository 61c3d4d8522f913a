package report

import "strings"

// figure describes one line of a report: its name, format and direction.
type figure struct {
	key    string // as in JSON, joined by dots
	group  string
	label  string // in full
	short  string // column header under its group
	unit   unit
	better int8 // -1: lower is better, 1: higher, 0: neither
	ended  bool // over jobs that ended: runs in which fewer ended do not compete
	always bool // shown even if it is empty in every run
	get    func(*Summary) (float64, bool)
	text   func(*Summary) string // replaces the unit's format
	help   string
}

func (f *figure) show(s *Summary) string {
	v, ok := f.get(s)
	switch {
	case !ok:
		return "–"
	case f.text != nil:
		return f.text(s)
	}
	return f.unit.human(v)
}

const (
	groupJCT   = "Job completion time"
	groupDelay = "Queueing delay"
	groupSlow  = "Slowdown"
	groupUse   = "Cluster"
	groupFair  = "Fairness"
	groupPower = "Power"
	groupStops = "Stops"
	groupJobs  = "Jobs"
	groupSpeed = "Muster itself"
)

// figures lists all reported figures, in order.
func figures() []figure {
	all := distFigures("jct", groupJCT, unitSeconds, "from submission to end, of jobs that completed or failed",
		func(s *Summary) *Dist { return &s.JCT })
	all = append(all, distFigures("queueing_delay", groupDelay, unitSeconds,
		"time pending, over all waits, of jobs that started", func(s *Summary) *Dist { return &s.Delay })...)
	all = append(all, distFigures("slowdown", groupSlow, unitRatio,
		"completion time over run time alone, both at least 10 s", func(s *Summary) *Dist { return &s.Slowdown })...)
	all = append(all, useFigures()...)
	all = append(all, fairFigures()...)
	all = append(all, powerFigures()...)
	all = append(all, stopFigures()...)
	all = append(all, jobFigures()...)
	return append(all, speedFigures()...)
}

func distFigures(key, group string, u unit, help string, of func(*Summary) *Dist) []figure {
	one := func(sub, short string, get func(*Dist) float64) figure {
		return figure{key: key + "." + sub, group: group, label: short, short: short, unit: u, better: -1, ended: true,
			help: short + " " + help,
			get:  func(s *Summary) (float64, bool) { d := of(s); return get(d), d.N > 0 }}
	}
	return []figure{
		one("mean", "mean", func(d *Dist) float64 { return d.Mean }),
		one("p50", "median", func(d *Dist) float64 { return d.P50 }),
		one("p95", "p95", func(d *Dist) float64 { return d.P95 }),
		one("p99", "p99", func(d *Dist) float64 { return d.P99 }),
	}
}

func useFigures() []figure {
	of := func(get func(*Summary) float64) func(*Summary) (float64, bool) {
		return func(s *Summary) (float64, bool) { return get(s), s.Makespan > 0 }
	}
	return []figure{
		{key: "makespan", group: groupUse, label: "makespan", short: "makespan", unit: unitSeconds, better: -1,
			ended: true,
			help:  "from the first submission to the last end",
			get:   of(func(s *Summary) float64 { return s.Makespan })},
		// allocated, whether or not the work is lost later
		{key: "gpu_allocation", group: groupUse, label: "GPUs allocated", short: "alloc", unit: unitShare,
			help: "GPU time held by jobs, of capacity over the makespan",
			get:  of(func(s *Summary) float64 { return s.Allocation })},
		{key: "gpu_utilisation", group: groupUse, label: "GPUs computing", short: "computing", unit: unitShare,
			better: 1,
			help:   "GPU time of jobs that compute, of capacity over the makespan",
			get:    of(func(s *Summary) float64 { return s.Utilisation })},
		{key: "goodput", group: groupUse, label: "goodput", short: "goodput", unit: unitShare, better: 1,
			help: "computing GPU time whose work was kept, of capacity over the makespan",
			get:  of(func(s *Summary) float64 { return s.Goodput })},
		{key: "fragmentation", group: groupUse, label: "fragmentation", short: "frag", unit: unitShare, better: -1,
			help: "idle GPU time on partly used nodes, of all idle GPU time",
			get:  of(func(s *Summary) float64 { return s.Fragmentation })},
		{key: "unusable", group: groupUse, label: "idle, but unusable", short: "unusable", unit: unitShare, better: -1,
			help: "idle GPU time that the tasks submitted last could not use on average: too small, too few, no CPU or RAM beside it, another model; of all idle GPU time", get: of(func(s *Summary) float64 { return s.Unusable })},
	}
}

func fairFigures() []figure {
	return []figure{
		{key: "finish_time_ratio.mean", group: groupFair, label: "finish-time ratio, mean", short: "ρ mean",
			unit: unitRatio, better: -1, ended: true,
			help: "completion time over that on an equal share of the cluster", get: func(s *Summary) (float64, bool) {
				return s.FTF.Mean, s.FTF.N > 0
			}},
		{key: "finish_time_ratio.p95", group: groupFair, label: "finish-time ratio, p95", short: "ρ p95",
			unit: unitRatio, better: -1, ended: true,
			help: "95th percentile of the finish-time ratio", get: func(s *Summary) (float64, bool) {
				return s.FTF.P95, s.FTF.N > 0
			}},
		{key: "finish_time_unfair", group: groupFair, label: "jobs with ratio over 1", short: "ρ > 1", unit: unitShare,
			better: -1, ended: true,
			help: "share of jobs worse off than on an equal share", get: func(s *Summary) (float64, bool) {
				return s.FTFOver, s.FTF.N > 0
			}},
		{key: "jain_queues", group: groupFair, label: "Jain's index of queues", short: "Jain", unit: unitRatio,
			better: 1, ended: true,
			help: "1: all queues' jobs run at the same mean speed; 1/n: one queue alone is served",
			get:  func(s *Summary) (float64, bool) { return s.Jain, s.Jain > 0 }},
		{key: "long_term_gpu_time", group: groupFair, label: "Long-term GPU time, least", short: "GPU time",
			unit: unitRatio, better: 1, ended: true,
			help: "of the queue (the user, where there is one queue) that had the least of its share: GPU time held over that deserved, by the weights of GPU models, below 1 it lost by sharing", get: func(s *Summary) (float64, bool) { return s.LongTerm, s.LongTerm > 0 }},
	}
}

func stopFigures() []figure {
	some := func(get func(*Summary) float64) func(*Summary) (float64, bool) {
		return func(s *Summary) (float64, bool) { return get(s), true }
	}
	return []figure{
		{key: "preemptions", group: groupStops, label: "preemptions", short: "preempt", unit: unitCount, better: -1,
			help: "times that a running job was stopped for another",
			get:  some(func(s *Summary) float64 { return float64(s.Preemptions) })},
		{key: "gpu_hours_lost", group: groupStops, label: "GPU-hours lost", short: "lost GPUh", unit: unitHours,
			better: -1,
			help:   "computing time whose work was thrown away",
			get:    some(func(s *Summary) float64 { return s.LostHours })},
		{key: "gpu_hours_sending", group: groupStops, label: "GPU-hours of transmission", short: "send GPUh",
			unit:   unitHours,
			better: -1,
			help:   "GPU time in which running jobs did not compute, as they waited for their own traffic or that of others",
			get:    func(s *Summary) (float64, bool) { return s.SendingHours, len(s.Links) > 0 }},
		{key: "gpu_hours_contended", group: groupStops, label: "GPU-hours of contention", short: "net GPUh",
			unit:   unitHours,
			better: -1,
			help:   "GPU time in which running jobs waited for the network because of other jobs",
			get:    func(s *Summary) (float64, bool) { return s.ContendedHours, len(s.Links) > 0 }},
		{key: "gpu_hours_overhead", group: groupStops, label: "GPU-hours of overhead", short: "over GPUh",
			unit: unitHours, better: -1,
			help: "GPUs held but not computing: start-up, checkpoint, restart",
			get:  some(func(s *Summary) float64 { return s.OverheadHours })},
		{key: "failures", group: groupStops, label: "node and GPU failures", short: "failures", unit: unitCount,
			help: "of hardware, as the scenario asked for",
			get:  some(func(s *Summary) float64 { return float64(s.Failures) })},
	}
}

func jobFigures() []figure {
	n := func(key, label, help string, better int8, get func(*Summary) int) figure {
		return figure{key: key, group: groupJobs, label: label, short: label, unit: unitCount, better: better,
			help: help,
			get:  func(s *Summary) (float64, bool) { return float64(get(s)), true }}
	}
	all := []figure{
		n("jobs", "submitted", "jobs of the trace that reached the queue", 0, func(s *Summary) int { return s.Jobs }),
		n("completed", "completed", "ran to their end", 0, func(s *Summary) int { return s.Completed }),
		n("failed", "failed", "ended with an error of their own", 0, func(s *Summary) int { return s.Failed }),
		n("cancelled", "cancelled", "by their owner", 0, func(s *Summary) int { return s.Cancelled }),
		n("timed_out", "timed out", "stopped at their time limit", 0, func(s *Summary) int { return s.TimedOut }),
		n("rejected", "rejected", "could never run on this cluster", 0, func(s *Summary) int { return s.Rejected }),
		n("lost", "lost", "not requeued after a stop", 0, func(s *Summary) int { return s.Lost }),
		n("unfinished", "unfinished", "pending or running when the run ended", -1, func(s *Summary) int {
			return s.Unfinished
		}),
		{key: "deadlines_met", group: groupJobs, label: "deadlines met", short: "deadlines", unit: unitShare, better: 1,
			help: "jobs that completed by their deadline, of those that have one",
			get: func(s *Summary) (float64, bool) {
				return float64(s.DeadlinesMet) / float64(max(1, s.Deadlines)), s.Deadlines > 0
			},
			text: func(s *Summary) string {
				return outOf(s.DeadlinesMet, s.Deadlines)
			}},
		{key: "deadlines_accepted", group: groupJobs, label: "deadlines accepted", short: "accepted", unit: unitShare,
			help: "deadlines that the policy accepted, of those that it answered",
			get: func(s *Summary) (float64, bool) {
				return float64(s.Accepted) / float64(max(1, s.Accepted+s.Declined)), s.Accepted+s.Declined > 0
			},
			text: func(s *Summary) string { return outOf(s.Accepted, s.Accepted+s.Declined) }},
		{key: "accepted_late", group: groupJobs, label: "accepted, but late", short: "late", unit: unitShare,
			better: -1,
			help:   "jobs that were not over by their deadline, of those whose deadline was accepted",
			get: func(s *Summary) (float64, bool) {
				return float64(s.AcceptedLate) / float64(max(1, s.Accepted)), s.Accepted > 0
			},
			text: func(s *Summary) string { return outOf(s.AcceptedLate, s.Accepted) }},
	}
	for i := range all {
		k := all[i].key
		all[i].always = k == "completed" || k == "unfinished"
	}
	return all
}

// outOf formats a count out of a total.
func outOf(n, of int) string { return humanCount(float64(n)) + "/" + humanCount(float64(of)) }

func speedFigures() []figure {
	return []figure{
		{key: "wall_seconds", group: groupSpeed, label: "wall time", short: "wall", unit: unitSeconds,
			help: "of the machine, for the whole run", get: func(s *Summary) (float64, bool) {
				return s.WallSeconds, s.WallSeconds > 0
			}},
		{key: "decision_us", group: groupSpeed, label: "time per step", short: "per step", unit: unitMicros,
			help: "wall time over steps of the engine, the simulated world's included",
			get:  func(s *Summary) (float64, bool) { return s.DecisionMicros, s.DecisionMicros > 0 }},
	}
}

// shown drops the figures that are empty in every run.
func shown(all []figure, sums []Summary) []figure {
	var out []figure
	for _, f := range all {
		keep := f.always
		for i := range sums {
			v, ok := f.get(&sums[i])
			// empty is no value, or a zero where zero is the usual case
			keep = keep || ok && (v != 0 || f.unit == unitShare || f.group != groupStops && f.group != groupJobs)
		}
		if keep {
			out = append(out, f)
		}
	}
	return out
}

// best marks the runs with the best displayed value of a figure; none if there is nothing to choose
// between or most runs share it. Interrupted runs do not compete, nor, in figures over ended jobs,
// runs in which less than 99 % of the most jobs ended.
func best(f *figure, sums []Summary) []bool {
	out := make([]bool, len(sums))
	differ := false
	for i := range sums {
		if _, ok := f.get(&sums[i]); ok && f.better != 0 {
			differ = differ || f.show(&sums[i]) != f.show(&sums[0])
		}
	}
	top := leader(f, sums, nil)
	if top < 0 || !differ {
		return out
	}
	marked := 0
	for i := range sums {
		if contends(f, sums, i) && f.show(&sums[i]) == f.show(&sums[top]) {
			out[i] = true
			marked++
		}
	}
	if len(sums) > 3 && 2*marked > len(sums) {
		clear(out)
	}
	return out
}

// contends reports whether a run's figure may be the best.
func contends(f *figure, sums []Summary, i int) bool {
	_, ok := f.get(&sums[i])
	return ok && !sums[i].Partial && !(f.ended && !competes(&sums[i], sums))
}

// leader is the first run with the best figure, except those excluded by but; -1: none.
func leader(f *figure, sums []Summary, but func(i int) bool) int {
	top, most := -1, 0.0
	for i := range sums {
		if f.better == 0 || !contends(f, sums, i) || but != nil && but(i) {
			continue
		}
		if v, _ := f.get(&sums[i]); top < 0 || (v-most)*float64(f.better) > 0 {
			top, most = i, v
		}
	}
	return top
}

// competes reports whether enough of a run's jobs ended to compare its times.
func competes(s *Summary, sums []Summary) bool {
	most := 0
	for i := range sums {
		if !sums[i].Partial {
			most = max(most, sums[i].JCT.N)
		}
	}
	return float64(s.JCT.N) >= 0.99*float64(most)
}

// labels names the runs: by policy; if one policy ran several times, also by placer, backfill and traffic policy;
// equal names get a number.
func labels(sums []Summary) []string {
	out := make([]string, len(sums))
	seen := map[string]int{}
	for i := range sums {
		placer, backfill, traffic := false, false, false
		for k := range sums {
			if sums[k].Policy == sums[i].Policy {
				placer = placer || sums[k].Placer != sums[i].Placer
				backfill = backfill || sums[k].Backfill != sums[i].Backfill
				traffic = traffic || sums[k].Traffic != sums[i].Traffic
			}
		}
		parts := []string{sums[i].Policy}
		if placer && sums[i].Placer != "" {
			parts = append(parts, sums[i].Placer)
		}
		if backfill && sums[i].Backfill != "" {
			parts = append(parts, "backfill "+sums[i].Backfill)
		}
		if traffic && sums[i].Traffic != "" {
			parts = append(parts, "traffic "+sums[i].Traffic)
		}
		name := clean(strings.Join(parts, " "))
		if name == "" {
			name = "run"
		}
		seen[name]++
		if n := seen[name]; n > 1 {
			name += " #" + humanCount(float64(n))
		}
		out[i] = name
	}
	return out
}

// clean replaces characters that would disturb a terminal: names come from traces.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '·'
		}
		return r
	}, s)
}
