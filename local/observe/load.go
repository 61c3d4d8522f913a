//go:build linux

package observe

import (
	"context"
	"time"

	"github.com/muster-gpu/muster/show"
	"github.com/muster-gpu/muster/store"
)

// daily is the length of a report from which on its load is listed day by day.
const daily = 14 * 24 * time.Hour

const weekHours = 7 * 24

// addHours adds what became of the machine's GPUs hour by hour, the hours of the
// week, and those in which the machine stands empty.
func addHours(ctx context.Context, st *store.Store, out *show.Usage) error {
	hours, err := st.Hours(ctx, out.Since.Truncate(time.Hour).Unix())
	if err != nil {
		return err
	}
	out.Daily = out.Until.Sub(out.Since) > daily
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
	out.Waste = append(out.Waste, emptyHours(out.Week)...)
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
		l.Busy = plus(l.Busy, &busy)
	}
}
