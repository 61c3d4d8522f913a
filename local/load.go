//go:build linux

package local

import (
	"context"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/local/foresight"
	"github.com/muster-gpu/muster/local/observe"
	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// daily is the length of a report from which on its load is told day by day.
const daily = 14 * 24 * time.Hour

const weekHours = 7 * 24

// load adds what became of the machine's GPUs hour by hour, the hours of the
// week, and those in which the machine stands empty.
func (m *Machine) load(ctx context.Context, since time.Time, out *show.Usage) error {
	hours, err := m.store.Hours(ctx, since.Truncate(time.Hour).Unix())
	if err != nil {
		return err
	}
	out.Daily = out.Until.Sub(since) > daily
	out.Load, out.Week = []show.Load{}, make([]show.WeekHour, weekHours)
	for i := range hours {
		h := &hours[i]
		at := time.Unix(h.At, 0).Local()
		w := &out.Week[int(at.Weekday())*24+at.Hour()]
		w.Total += h.Total / 3600
		w.Held += h.Held / 3600
		if out.Daily {
			at = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, at.Location())
		}
		addLoad(out, at.Unix(), h)
	}
	out.Waste = append(out.Waste, observe.EmptyHours(out.Week)...)
	return nil
}

// addLoad adds an hour to the span that begins at a time.
func addLoad(out *show.Usage, at int64, h *store.Hour) {
	if n := len(out.Load); n == 0 || out.Load[n-1].At != at {
		out.Load = append(out.Load, show.Load{At: at})
	}
	l := &out.Load[len(out.Load)-1]
	l.Total += h.Total / 3600
	l.Held += h.Held / 3600
	if h.Measured > 0 {
		busy := h.Busy / 3600
		l.Busy = observe.Plus(l.Busy, &busy)
	}
}

// Told remembers when a waiting job was told that it would start, unless it was
// told about the same before.
func (m *Machine) Told(ctx context.Context, j *show.Job) error {
	if j.Expected == nil || j.State != show.StatePending || !m.news(j) {
		return nil
	}
	p := store.Prediction{Job: j.ID, At: m.opt.Now().UnixNano(), Expected: j.Expected.UnixNano()}
	if j.Earliest != nil && j.Latest != nil {
		p.Low, p.High = j.Earliest.UnixNano(), j.Latest.UnixNano()
	}
	m.mu.Lock()
	var row *store.Asked
	if l := m.jobs[cluster.JobID(j.ID)]; l != nil && l.lastForecast.Now != 0 {
		row = m.known.Tell(&l.lastForecast, m.opt.Rules.Policy)
	}
	m.mu.Unlock()
	return m.store.Write(ctx, func(t *store.Tx) error {
		if row != nil {
			if err := t.PutAsked(row); err != nil {
				return err
			}
		}
		return t.PutPrediction(p)
	})
}

// news reports whether an expected start differs from the one that the job was
// told last: by more than a second and a hundredth of what it still has to wait.
func (m *Machine) news(v *show.Job) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[cluster.JobID(v.ID)]
	if j == nil {
		return true
	}
	if off := v.Expected.Sub(j.lastQuote).Abs(); off <= max(time.Second, v.Expected.Sub(m.opt.Now())/100) {
		return false
	}
	j.lastQuote = *v.Expected
	return true
}

// score compares what jobs were told since a time with what happened.
func (m *Machine) score(ctx context.Context, since time.Time) (show.Score, error) {
	starts, err := m.store.Predictions(ctx, since.UnixNano())
	if err != nil {
		return show.Score{}, err
	}
	ends, err := m.store.Ends(ctx, since.UnixNano())
	return foresight.Score(starts, ends), err
}
