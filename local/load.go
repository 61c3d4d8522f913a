//go:build linux

package local

import (
	"context"
	"slices"
	"time"

	"github.com/muster-gpu/muster/ask"
	"github.com/muster-gpu/muster/cluster"
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
		said := m.quotes.Told(&l.lastForecast)
		row = askedRow(&l.lastForecast, &said, m.opt.Rules.Policy)
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

// offUpTo are the steps in which a report counts how far expected starts were off.
var offUpTo = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 0}

// score compares what jobs were told with what happened.
func (m *Machine) score(ctx context.Context, since time.Time) (s show.Score, err error) {
	s.Off = []show.Off{}
	for _, d := range offUpTo {
		s.Off = append(s.Off, show.Off{UpTo: ask.Duration(d)})
	}
	list, err := m.store.Predictions(ctx, since.UnixNano())
	if err != nil {
		return s, err
	}
	var errs, later []int64
	for _, p := range list {
		off := p.Happened - p.Expected
		if p.Later {
			if s.Later++; p.Happened != 0 {
				later = append(later, max(off, -off))
			}
			continue
		}
		s.Told++
		if p.Happened == 0 {
			continue
		}
		s.Started++
		if off < 0 {
			s.Early++
		}
		off = max(off, -off)
		errs = append(errs, off)
		s.Off[slices.IndexFunc(offUpTo, func(d time.Duration) bool { return d == 0 || off <= int64(d) })].Jobs++
		if p.High > 0 {
			s.Intervals++
			if p.Low <= p.Happened && p.Happened <= p.High {
				s.Within++
			}
		}
	}
	s.Median, s.Ninety = spread(errs)
	s.LaterMedian, s.LaterNinety = spread(later)
	return s, m.scoreEnds(ctx, since, &s)
}

// scoreEnds compares when jobs were to end by their own account with when they did.
func (m *Machine) scoreEnds(ctx context.Context, since time.Time, s *show.Score) error {
	list, err := m.store.Ends(ctx, since.UnixNano())
	if err != nil {
		return err
	}
	var errs []int64
	for _, p := range list {
		s.EndsTold++
		if p.Happened != 0 {
			s.Ended++
			errs = append(errs, max(p.Happened-p.Expected, p.Expected-p.Happened))
		}
	}
	s.EndMedian, s.EndNinety = spread(errs)
	return nil
}

// spread is the median of errors, and what nine of ten are not beyond.
func spread(errs []int64) (median, ninety ask.Duration) {
	if slices.Sort(errs); len(errs) == 0 {
		return 0, 0
	}
	return ask.Duration(errs[len(errs)/2]), ask.Duration(errs[len(errs)*9/10])
}
