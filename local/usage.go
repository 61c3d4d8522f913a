//go:build linux

package local

import (
	"context"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/foresight"
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
	var v *observe.Meter // so far, of a job that is measured now
	if s := m.sampler.Load(); s != nil {
		v = s.Meter(cluster.JobID(id))
	}
	if v == nil {
		if v, err = observe.MeterOf(ctx, m.store, id); err != nil {
			return show.Samples{}, err
		}
	}
	return v.Show(&j, m.opt.HourCost), nil
}

// Usage reports what was used since a time, by user, queue, job (its name) or model (what it computes).
func (m *Machine) Usage(ctx context.Context, by string, since time.Time) (show.Usage, error) {
	rules := m.settings()
	out := show.Usage{Since: since.UTC(), Until: m.opt.Now().UTC(), By: by, HourCost: rules.HourCost,
		Rows: []show.UsageRow{}, Waste: []show.Waste{}}
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
	if err := observe.Usage(ctx, m.store, list, model, &out); err != nil {
		return out, err
	}
	out.Score, err = foresight.ScoreSince(ctx, m.store, since)
	return out, err
}
