package cluster

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

const daySeconds = 24 * 60 * 60

// Calendar splits local seconds since 1970-01-01, a Thursday, into the weekday (0: Sunday) and the
// seconds since midnight.
func Calendar(wall int64) (weekday int, tod int64) {
	days := wall / daySeconds
	if tod = wall % daySeconds; tod < 0 {
		tod += daySeconds
		days--
	}
	return int(((days+4)%7 + 7) % 7), tod
}

// Hours are hours of some days of the week.
type Hours struct {
	Days uint8         `json:"days,omitempty"` // on which they begin: bit 0: Sunday ... bit 6: Saturday; 0: every day
	From time.Duration `json:"from"`           // since midnight
	To   time.Duration `json:"to"`             // since midnight; at or before From: the next day
}

// Begins reports whether the hours begin on a weekday.
func (h *Hours) Begins(weekday int) bool { return h.Days == 0 || h.Days>>weekday&1 == 1 }

// Bounds returns both ends in seconds since the midnight of the day on which the hours begin; to is
// above from, and beyond a day's length if they cross midnight.
func (h *Hours) Bounds() (from, to int64) {
	from, to = int64(h.From/time.Second), int64(h.To/time.Second)
	if to <= from {
		to += daySeconds
	}
	return from, to
}

// Open reports whether wall (local seconds) is within the hours. The days are those on which they
// begin: a Saturday night extends into Sunday.
func (h *Hours) Open(wall int64) bool {
	_, open := h.end(wall)
	return open
}

// end is when the hours that are open at wall end, in local seconds.
func (h *Hours) end(wall int64) (at int64, open bool) {
	weekday, tod := Calendar(wall)
	from, to := h.Bounds()
	if h.Begins(weekday) && from <= tod && tod < to {
		at, open = wall-tod+to, true
	}
	if h.Begins((weekday+6)%7) && tod+daySeconds < to {
		// local seconds can be negative west of Greenwich, at the very beginning
		if last := wall - tod - daySeconds + to; !open || last > at {
			at, open = last, true
		}
	}
	return at, open
}

// Weekly is times that recur each week, by the clock of a zone including its summer time. Whether
// an instant is among them depends on nothing else.
type Weekly struct {
	Hours  []Hours  `json:"hours"`
	Zone   string   `json:"zone"`             // name of the zone, for people
	Ahead  int      `json:"ahead"`            // of UTC, in seconds, until the first shift
	Shifts []Offset `json:"shifts,omitempty"` // changes of Ahead, in order of time
}

// Offset is how far a zone's clock is ahead of UTC from an instant on.
type Offset struct {
	Since int64 `json:"since"` // Unix seconds
	Ahead int   `json:"ahead"` // seconds
}

// local returns the local seconds at an instant, and the next shift of the clock in Unix seconds
// (false: there is none).
func (w *Weekly) local(unix int64) (wall, next int64, ok bool) {
	i := sort.Search(len(w.Shifts), func(i int) bool { return w.Shifts[i].Since > unix })
	ahead := w.Ahead
	if i > 0 {
		ahead = w.Shifts[i-1].Ahead
	}
	if i < len(w.Shifts) {
		return unix + int64(ahead), w.Shifts[i].Since, true
	}
	return unix + int64(ahead), 0, false
}

// Until returns the end of the times that contain an instant, both in Unix seconds; false: none do.
// Times that never end are cut after a week.
func (w *Weekly) Until(unix int64) (end int64, within bool) {
	if w == nil {
		return 0, false
	}
	for at := unix; ; {
		wall, set, changes := w.local(at)
		closes := w.closes(wall)
		if closes == wall || at-unix > 7*daySeconds {
			return at, at > unix
		}
		at += closes - wall
		if changes && set < at {
			at = set // the clock shifts then
		}
	}
}

// closes is when the hours that are open at wall have all ended, in local seconds; wall: none are
// open. It searches at most a week ahead.
func (w *Weekly) closes(wall int64) int64 {
	for at, limit := wall, wall+7*daySeconds; ; {
		last := at
		for i := range w.Hours {
			if end, open := w.Hours[i].end(at); open {
				last = max(last, end)
			}
		}
		if last == at || last > limit {
			return last
		}
		at = last
	}
}

// Always reports whether the whole week is among the times.
func (w *Weekly) Always() bool {
	return len(w.Hours) > 0 && w.closes(0) > 7*daySeconds
}

// Says formats, for people who want to do something at a protected instant (Unix seconds), until
// when the times last, by the zone's clock, with the day if it is another one; "": the instant is
// not protected.
func (w *Weekly) Says(unix int64) string {
	if text := w.until(unix); text != "" {
		return "protected " + text
	}
	return ""
}

// until formats "until 18:00 (UTC)", or with the day.
func (w *Weekly) until(unix int64) string {
	end, within := w.Until(unix)
	if !within {
		return ""
	}
	from, _, _ := w.local(unix)
	to, _, _ := w.local(end)
	day, tod := Calendar(to)
	text := fmt.Sprintf("%02d:%02d (%s)", tod/3600, tod/60%60, w.Zone)
	if _, begun := Calendar(from); from-begun != to-tod {
		text = strings.ToLower(time.Weekday(day).String()[:3]) + " " + text
	}
	return "until " + text
}
