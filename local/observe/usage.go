//go:build linux

package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// By are the ways to add up usage.
var By = []string{"user", "queue", "job", "model"}

// keyOf is what the usage of a job is added up under.
func keyOf(j *show.Job, by string) string {
	switch by {
	case "queue":
		return cmp.Or(j.Submission.Queue, "default")
	case "job":
		return cmp.Or(j.Submission.Name, "unnamed")
	case "model":
		return cmp.Or(j.Submission.Model, "none stated")
	}
	return j.User
}

// costOf is what hours cost; nil: the price is not known.
func costOf(hours, each float64) *float64 {
	if each == 0 {
		return nil
	}
	v := hours * each
	return &v
}

// sum adds jobs up.
type sum struct {
	out                  show.UsageRow
	util, gpu            float64
	waited               time.Duration
	energy               *float64
	samples, sampleHours float64
}

// add adds a job with what was measured of it.
func (s *sum) add(j *show.Job, v *Meter) {
	s.out.Jobs++
	s.out.GPUHours += j.GPUHours
	s.out.CPUHours += time.Duration(j.CPUTime).Hours()
	s.out.Preemptions += j.Preemptions
	s.out.LostHours += j.LostGPUHours
	s.out.SwitchHours += j.SwitchGPUHours
	s.waited += time.Duration(j.Waited)
	s.util, s.gpu, s.energy = s.util+v.Util, s.gpu+v.GPU, plus(s.energy, v.Energy)
	if j.SampleRate != nil {
		s.samples += *j.SampleRate * j.GPUHours
		s.sampleHours += j.GPUHours
	}
}

// row is the sum as it is shown; each is the price of a GPU-hour.
func (s *sum) row(key string, each float64) show.UsageRow {
	r := s.out
	r.Key, r.Cost = key, costOf(r.GPUHours, each)
	if r.Jobs > 0 {
		r.Waited = ask.Duration(s.waited / time.Duration(r.Jobs))
	}
	if s.gpu > 0 {
		mean := s.util / s.gpu
		r.Utilisation = &mean
	}
	if s.energy != nil {
		kwh := *s.energy / 3.6e6
		r.KWh = &kwh
	}
	if s.sampleHours > 0 {
		rate := s.samples / s.sampleHours
		r.Samples = &rate
	}
	return r
}

// measured reports whether the utilisation of any GPU was measured, of jobs that used one.
func (s *sum) measured() bool { return s.gpu > 0 || s.out.GPUHours == 0 }

// What counts as waste. Short jobs and small amounts are not worth a person's time.
const (
	leastWaste  = 0.1 // GPU-hours
	leastLimit  = 4   // times the run time
	leastUnused = 10 * time.Minute
)

// wasteOf lists what a job held and did not need; model is that of the GPUs, nil: it is not known.
func wasteOf(j *show.Job, v *Meter, model *cluster.GPUModel) (list []show.Waste) {
	add := func(kind string, hours float64, format string, args ...any) {
		list = append(list, show.Waste{Kind: kind, Job: j.ID, User: j.User, Name: j.Submission.Name, GPUHours: hours,
			Text: fmt.Sprintf(format, args...)})
	}
	ran := time.Duration(j.Ran)
	gpus := len(j.Devices)
	seen := v.Measured()
	if idle := (v.Idle - v.Holding) / 3600; idle >= leastWaste {
		add("idle", idle, "its GPUs did nothing for %.1f of %.1f GPU-hours", idle, v.GPU/3600)
	}
	if hold := v.Holding / 3600; hold >= leastWaste {
		add("memory-only", hold, "it held GPU memory for %.1f GPU-hours without computing", hold)
	}
	if seen.Unused > 0 && seen.Unused < gpus && ran >= leastUnused {
		add("unused-gpus", j.GPUHours*float64(seen.Unused)/float64(gpus), "it never used %d of its %d GPUs: ask for %d",
			seen.Unused, gpus, gpus-seen.Unused)
	} else if less := smaller(j, v, &seen, model); less != "" && ran >= leastUnused {
		add("fits-less", j.GPUHours*(1-*seen.Utilisation/100), "%s", less)
	}
	if l := time.Duration(j.Submission.Limit); j.State == show.StateCompleted && l > leastLimit*ran &&
		l-ran > time.Hour {
		add("long-limit", 0,
			"its time limit was %s and it ran %s: with a nearer limit it would have been backfilled sooner",
			cluster.FormatDuration(l), spanOf(ran))
	}
	return list
}

func spanOf(d time.Duration) string { return cluster.FormatDuration(d.Round(time.Second)) }

// smaller says which slice or share would have done for a job of whole GPUs.
func smaller(j *show.Job, v *Meter, seen *show.Measured, model *cluster.GPUModel) string {
	if len(j.Devices) != 1 || j.Devices[0].Share > 0 || seen.Most == nil || v.Memory == nil || seen.Utilisation == nil {
		return ""
	}
	if model == nil || model.Memory == 0 || *seen.Utilisation > 45 {
		return ""
	}
	needs := *v.Memory + *v.Memory/5 // with a fifth to spare
	used := fmt.Sprintf("it used %.0f %% of its GPU and at most %d of %d MiB", *seen.Utilisation, *v.Memory,
		model.Memory)
	for _, p := range model.Profiles {
		if p.Memory >= needs && float64(p.Compute)*100/float64(model.Compute) >= *seen.Most && !p.Media() {
			return used + ": a MIG slice " + p.Name + " would do"
		}
	}
	if needs <= model.Memory/2 {
		return used + ": half a GPU (--gpus 0.5) would do"
	}
	return ""
}

// emptyHours lists the hours of the week in which the machine stands empty.
func emptyHours(week []show.WeekHour) (list []show.Waste) {
	empty := func(i int) bool { return week[i].Total > 0 && week[i].Held < week[i].Total/10 }
	for i := 0; i < len(week); {
		if !empty(i) {
			i++
			continue
		}
		from, free := i, 0.0
		for ; i < len(week) && empty(i); i++ {
			free += week[i].Total - week[i].Held
		}
		if free >= leastWaste {
			list = append(list, show.Waste{Kind: "empty-hours", GPUHours: free,
				Text: fmt.Sprintf("%s to %s: nine tenths of the GPUs and more are free", hourOf(from), hourOf(i))})
		}
	}
	return list
}

func hourOf(i int) string {
	return fmt.Sprintf("%s %02d:00", time.Weekday(i / 24 % 7).String()[:3], i%24)
}

// Usage adds up what jobs used, and lists what they wasted; model is that of the GPUs, nil: it is not known.
func Usage(ctx context.Context, st *store.Store, list []show.Job, model *cluster.GPUModel,
	out *show.Usage) (err error) {
	sums, total := map[string]*sum{}, &sum{}
	for i := range list {
		j, v := &list[i], &Meter{}
		if j.FirstStart != nil { // of what never ran nothing was measured
			if v, err = MeterOf(ctx, st, j.ID); err != nil {
				return err
			}
		}
		key := keyOf(j, out.By)
		if sums[key] == nil {
			sums[key] = &sum{}
		}
		sums[key].add(j, v)
		total.add(j, v)
		out.Waste = append(out.Waste, wasteOf(j, v, model)...)
	}
	for key, s := range sums {
		out.Rows = append(out.Rows, s.row(key, out.HourCost))
	}
	slices.SortFunc(out.Rows, func(a, b show.UsageRow) int {
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(a.Key, b.Key))
	})
	out.Total = total.row("all", out.HourCost)
	if !total.measured() {
		out.Notes = append(out.Notes,
			"utilisation was not measured: simulated GPUs have none, and idle time, unused GPUs and jobs that would fit less are not known")
	}
	if err := addHours(ctx, st, out); err != nil {
		return err
	}
	slices.SortStableFunc(out.Waste, func(a, b show.Waste) int { return cmp.Compare(b.GPUHours, a.GPUHours) })
	for i := range out.Waste {
		out.Waste[i].Cost = costOf(out.Waste[i].GPUHours, out.HourCost)
	}
	return nil
}
