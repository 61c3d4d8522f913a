//go:build linux

package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

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
	s := show.Samples{Measured: v.Measured(), Every: max(1, v.Every), Points: v.Points,
		Cost: observe.Cost(j.GPUHours, m.opt.HourCost)}
	s.Measured.CPU, s.Measured.RAM = j.CPUTime, j.RAMPeak
	if s.Points == nil {
		s.Points = []show.Point{}
	}
	for i := range s.Points {
		s.Measured.RAM = max(s.Measured.RAM, s.Points[i].RAM)
	}
	return s, nil
}

func (m *Machine) meterOf(ctx context.Context, id int) (*observe.Meter, error) {
	v := &observe.Meter{}
	text, err := m.store.Usage(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(text, v)
}

// Usage reports what was used since a time, by user, queue, job (its name) or
// model (what it computes).
func (m *Machine) Usage(ctx context.Context, by string, since time.Time) (show.Usage, error) {
	hourly := m.settings().HourCost
	out := show.Usage{Since: since.UTC(), Until: m.opt.Now().UTC(), By: by, HourCost: hourly, Rows: []show.UsageRow{},
		Waste: []show.Waste{}}
	if !slices.Contains(observe.By, by) {
		return out, &ask.FieldError{Field: "by", Text: cluster.Unknown("way to add up", by, observe.By).Error()}
	}
	list, err := m.asStored(ctx, store.Filter{Since: since.UnixNano()})
	if err != nil {
		return out, err
	}
	var model *cluster.GPUModel
	if spec := m.rules().Spec; len(spec.Nodes) > 0 {
		if found, ok := spec.Model(spec.Nodes[0].Model); ok {
			model = &found
		}
	}
	sums, total := map[string]*observe.Sum{}, &observe.Sum{}
	for i := range list {
		j, v := list[i], &observe.Meter{}
		if j.FirstStart != nil { // of what never ran nothing was measured
			if v, err = m.meterOf(ctx, j.ID); err != nil {
				return out, err
			}
		}
		key := observe.Key(&j, by)
		if sums[key] == nil {
			sums[key] = &observe.Sum{}
		}
		sums[key].Add(&j, v)
		total.Add(&j, v)
		out.Waste = append(out.Waste, observe.WasteOf(&j, v, model)...)
	}
	for key, s := range sums {
		out.Rows = append(out.Rows, s.Row(key, hourly))
	}
	slices.SortFunc(out.Rows, func(a, b show.UsageRow) int {
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(a.Key, b.Key))
	})
	out.Total = total.Row("all", hourly)
	if !total.Measured() {
		out.Notes = append(out.Notes,
			"utilisation was not measured: simulated GPUs have none, and idle time, unused GPUs and jobs that would fit less cannot be told")
	}
	if err := m.load(ctx, since, &out); err != nil {
		return out, err
	}
	slices.SortStableFunc(out.Waste, func(a, b show.Waste) int { return cmp.Compare(b.GPUHours, a.GPUHours) })
	for i := range out.Waste {
		out.Waste[i].Cost = observe.Cost(out.Waste[i].GPUHours, hourly)
	}
	out.Score, err = m.score(ctx, since)
	return out, err
}
