package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for machines and containers without time zone files

	"github.com/muster-gpu/muster/cluster"
)

// ParseWeekly reads times of the week, each such as "mon-fri 08:00-18:00", "22:00-06:00" (every day; a night
// belongs to the day on which it begins) or "sat,sun" (from midnight to midnight), on the clock of a zone: see
// ParseZone. None: nil.
func ParseWeekly(times []string, zone string) (*cluster.Weekly, error) {
	if len(times) == 0 {
		if zone != "" {
			return nil, fmt.Errorf("zone: %s is the zone of protected times, and there are none", zone)
		}
		return nil, nil
	}
	w, err := ParseZone(zone)
	if err != nil {
		return nil, fmt.Errorf("zone: %w", err)
	}
	for i, text := range times {
		h, err := parseHours(text)
		if err != nil {
			return nil, fmt.Errorf("protected[%d]: %w", i, err)
		}
		w.Hours = append(w.Hours, h)
	}
	if w.Always() {
		return nil, errors.New("protected: these times are the whole week; mode: off keeps all jobs in place")
	}
	return w, nil
}

// parseHours reads hours of some days.
func parseHours(text string) (h cluster.Hours, err error) {
	wrong := fmt.Errorf("%q are not times of the week such as mon-fri 08:00-18:00, 22:00-06:00 or sat,sun", text)
	days, hours := "", ""
	for f := range strings.FieldsSeq(text) {
		if isHours := strings.ContainsAny(f, "0123456789"); isHours && hours == "" {
			hours = f
		} else if !isHours && hours == "" && days == "" {
			days = f
		} else {
			return h, wrong
		}
	}
	if days == "" && hours == "" {
		return h, wrong
	}
	if days != "" {
		var d Days
		if err := d.UnmarshalText([]byte(strings.ToLower(days))); err != nil {
			return h, fmt.Errorf("%q: %w", text, err)
		}
		h.Days = uint8(d)
	}
	if h.To = 24 * time.Hour; hours == "" {
		return h, nil
	}
	from, to, ok := strings.Cut(hours, "-")
	if !ok || !strings.Contains(from, ":") || !strings.Contains(to, ":") {
		return h, wrong
	}
	var ends [2]Clock
	for i, end := range []string{from, to} {
		if err := ends[i].UnmarshalText([]byte(end)); err != nil {
			return h, fmt.Errorf("%q: %w", text, err)
		}
	}
	switch h.From, h.To = time.Duration(ends[0]), time.Duration(ends[1]); {
	case h.From == 24*time.Hour:
		return h, fmt.Errorf("%q: a day has no 24:00 to begin at; 00:00 is the beginning of the next", text)
	case h.From == h.To:
		return h, fmt.Errorf("%q: begins when it ends; 00:00-24:00 is a whole day", text)
	}
	return h, nil
}

// The years for which changes to and from summer time are computed: those that Muster accepts in traces.
const firstYear, lastYear = 1970, 2070

// ParseZone reads a time zone without hours: a name of the time zone database such as Europe/Berlin, an offset
// such as +01:00, or "" for this machine's. Its changes to and from summer time are stored, so that later
// versions of the database change nothing.
func ParseZone(text string) (*cluster.Weekly, error) {
	if seconds, err := parseZone(text); err == nil {
		return &cluster.Weekly{Zone: text, Ahead: seconds}, nil
	}
	loc := time.Local
	if text != "" {
		var err error
		if loc, err = time.LoadLocation(text); err != nil || text == "Local" {
			return nil, fmt.Errorf("%q is neither a time zone such as Europe/Berlin nor an offset such as +01:00", text)
		}
	}
	w := &cluster.Weekly{Zone: cmp.Or(text, "this machine's time")}
	at := time.Date(firstYear, 1, 1, 0, 0, 0, 0, time.UTC).In(loc)
	_, w.Ahead = at.Zone()
	for ahead := w.Ahead; ; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.Year() >= lastYear {
			return w, nil
		}
		if !end.After(at) {
			end = at.AddDate(0, 0, 1) // the library stops on the last day of a leap year
		}
		if _, next := end.Zone(); next != ahead {
			w.Shifts = append(w.Shifts, cluster.Offset{Since: end.Unix(), Ahead: next})
			ahead = next
		}
		at = end
	}
}

// weeklyText formats such times as ParseWeekly reads them.
func weeklyText(w *cluster.Weekly) string {
	var list []string
	for i := range w.Hours {
		h, days := &w.Hours[i], ""
		for k, name := range dayNames {
			if h.Days>>k&1 == 1 {
				days += "," + name
			}
		}
		list = append(list, strings.TrimSpace(strings.TrimPrefix(days, ",")+" "+clockText(h.From)+"-"+clockText(h.To)))
	}
	return strings.Join(list, "; ") + " " + w.Zone
}
