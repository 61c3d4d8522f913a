//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/gpu"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// setSeen keeps the last sample for whoever lists the GPUs.
func (m *Machine) setSeen(values []gpu.Sample) {
	seen := map[string]gpu.Sample{}
	for i, d := range m.opt.Devices.Devices() {
		seen[d.UUID] = values[i]
	}
	m.seen.Store(&seen)
}

// show fills in what a GPU did when it was last looked at.
func (m *Machine) show(g *show.GPU) {
	if seen := m.seen.Load(); seen != nil {
		v := (*seen)[g.UUID]
		g.Utilisation, g.MemoryUsed, g.Power, g.Temperature = v.Utilisation, v.MemoryUsed, v.Power, v.Temperature
	}
}

// Samples returns what was measured of a job.
func (m *Machine) Samples(ctx context.Context, id int) (show.Samples, error) {
	j, err := m.Job(ctx, id)
	if err != nil {
		return show.Samples{}, err
	}
	v := m.meterNow(id)
	if v == nil {
		if v, err = m.meterOf(ctx, id); err != nil {
			return show.Samples{}, err
		}
	}
	s := show.Samples{Measured: v.measured(), Every: max(1, v.Every), Points: v.Points, Cost: cost(j.GPUHours, m.opt.HourCost)}
	s.Measured.CPU, s.Measured.RAM = j.CPUTime, j.RAMPeak
	if s.Points == nil {
		s.Points = []show.Point{}
	}
	for i := range s.Points {
		s.Measured.RAM = max(s.Measured.RAM, s.Points[i].RAM)
	}
	return s, nil
}

func (m *Machine) meterOf(ctx context.Context, id int) (*meter, error) {
	v := &meter{}
	text, err := m.store.Usage(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(text, v)
}

// measured is a meter as the interface shows it.
func (v *meter) measured() show.Measured {
	out := show.Measured{Samples: v.Samples, Seconds: v.Seconds, MemoryMost: v.Memory, Energy: v.Energy, Idle: v.Idle, Holding: v.Holding}
	if v.GPU > 0 {
		mean := v.Util / v.GPU
		out.Utilisation = &mean
	}
	for _, most := range v.Most {
		if out.Most == nil || most > *out.Most {
			out.Most = &most
		}
		if most < idleBelow {
			out.Unused++
		}
	}
	return out
}

// UsageBy are the ways to add up usage.
var UsageBy = []string{"user", "queue", "job", "model"}

func usageKey(j *show.Job, by string) string {
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

// Usage reports what was used since a time, by user, queue, job (its name) or
// model (what it computes).
func (m *Machine) Usage(ctx context.Context, by string, since time.Time) (show.Usage, error) {
	hourly := m.settings().HourCost
	out := show.Usage{Since: since.UTC(), Until: m.opt.Now().UTC(), By: by, HourCost: hourly, Rows: []show.UsageRow{}, Waste: []show.Waste{}}
	if !slices.Contains(UsageBy, by) {
		return out, &ask.FieldError{Field: "by", Text: cluster.Unknown("way to add up", by, UsageBy).Error()}
	}
	list, err := m.asStored(ctx, store.Filter{Since: since.UnixNano()})
	if err != nil {
		return out, err
	}
	sums, total := map[string]*sum{}, &sum{}
	for i := range list {
		j, v := list[i], &meter{}
		if j.FirstStart != nil { // of what never ran nothing was measured
			if v, err = m.meterOf(ctx, j.ID); err != nil {
				return out, err
			}
		}
		key := usageKey(&j, by)
		if sums[key] == nil {
			sums[key] = &sum{}
		}
		sums[key].add(&j, v)
		total.add(&j, v)
		out.Waste = append(out.Waste, m.wasteOf(&j, v)...)
	}
	for key, s := range sums {
		out.Rows = append(out.Rows, s.row(key, hourly))
	}
	slices.SortFunc(out.Rows, func(a, b show.UsageRow) int {
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(a.Key, b.Key))
	})
	out.Total = total.row("all", hourly)
	if total.gpu == 0 && total.out.GPUHours > 0 {
		out.Notes = append(out.Notes, "utilisation was not measured: simulated GPUs have none, and idle time, unused GPUs and jobs that would fit less cannot be told")
	}
	if err := m.load(ctx, since, &out); err != nil {
		return out, err
	}
	slices.SortStableFunc(out.Waste, func(a, b show.Waste) int { return cmp.Compare(b.GPUHours, a.GPUHours) })
	for i := range out.Waste {
		out.Waste[i].Cost = cost(out.Waste[i].GPUHours, hourly)
	}
	out.Score, err = m.score(ctx, since)
	return out, err
}

func cost(hours, each float64) *float64 {
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

func (s *sum) add(j *show.Job, v *meter) {
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

func (s *sum) row(key string, each float64) show.UsageRow {
	r := s.out
	r.Key, r.Cost = key, cost(r.GPUHours, each)
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

// What counts as waste. Short jobs and small amounts are not worth a person's time.
const (
	leastWaste  = 0.1 // GPU-hours
	leastLimit  = 4   // times the run time
	leastUnused = 10 * time.Minute
)

// wasteOf lists what a job held and did not need.
func (m *Machine) wasteOf(j *show.Job, v *meter) (list []show.Waste) {
	add := func(kind string, hours float64, format string, args ...any) {
		list = append(list, show.Waste{Kind: kind, Job: j.ID, User: j.User, Name: j.Submission.Name, GPUHours: hours, Text: fmt.Sprintf(format, args...)})
	}
	ran := time.Duration(j.Ran)
	gpus := len(j.Devices)
	seen := v.measured()
	if idle := (v.Idle - v.Holding) / 3600; idle >= leastWaste {
		add("idle", idle, "its GPUs did nothing for %.1f of %.1f GPU-hours", idle, v.GPU/3600)
	}
	if hold := v.Holding / 3600; hold >= leastWaste {
		add("memory-only", hold, "it held GPU memory for %.1f GPU-hours without computing", hold)
	}
	if seen.Unused > 0 && seen.Unused < gpus && ran >= leastUnused {
		add("unused-gpus", j.GPUHours*float64(seen.Unused)/float64(gpus), "it never used %d of its %d GPUs: ask for %d", seen.Unused, gpus, gpus-seen.Unused)
	} else if less := m.smaller(j, v, &seen); less != "" && ran >= leastUnused {
		add("fits-less", j.GPUHours*(1-*seen.Utilisation/100), "%s", less)
	}
	if l := time.Duration(j.Submission.Limit); j.State == show.StateCompleted && l > leastLimit*ran && l-ran > time.Hour {
		add("long-limit", 0, "its time limit was %s and it ran %s: with a nearer limit it would have been backfilled sooner", cluster.FormatDuration(l), spanOf(ran))
	}
	return list
}

func spanOf(d time.Duration) string { return cluster.FormatDuration(d.Round(time.Second)) }

// smaller says which slice or share would have done for a job of whole GPUs.
func (m *Machine) smaller(j *show.Job, v *meter, seen *show.Measured) string {
	if len(j.Devices) != 1 || j.Devices[0].Share > 0 || seen.Most == nil || v.Memory == nil || seen.Utilisation == nil {
		return ""
	}
	rules := m.rules()
	model, ok := rules.Spec.Model(rules.Spec.Nodes[0].Model)
	if !ok || model.Memory == 0 || *seen.Utilisation > 45 {
		return ""
	}
	needs := *v.Memory + *v.Memory/5 // with a fifth to spare
	used := fmt.Sprintf("it used %.0f %% of its GPU and at most %d of %d MiB", *seen.Utilisation, *v.Memory, model.Memory)
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
