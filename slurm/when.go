package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseWhen reads an instant as --begin, --deadline, -S and -E take it: now+2hours, HH:MM[:SS] [AM|PM], noon,
// fika, teatime, midnight, today, tomorrow, MMDD[YY], MM/DD[/YY], DD.MM.[YY], YYYY-MM-DD[THH:MM[:SS]], and a
// time and a date together. An hour that has passed is tomorrow's.
func ParseWhen(s string, now time.Time) (time.Time, error) {
	bad := fmt.Errorf("%q is not a time: write HH:MM, YYYY-MM-DDTHH:MM, tomorrow, noon or now+30minutes", s)
	text := strings.ToLower(strings.TrimSpace(s))
	if rest, ok := strings.CutPrefix(text, "now"); ok {
		return nowPlus(strings.TrimSpace(rest), now, bad)
	}
	if secs, ok := strings.CutPrefix(text, "uts"); ok {
		n, ok := number(secs, 1<<40)
		if !ok {
			return time.Time{}, bad
		}
		return time.Unix(n, 0).In(now.Location()), nil
	}
	var w when
	if date, clock, ok := strings.Cut(text, "t"); ok && len(date) == 10 && date[4] == '-' {
		text = date + " " + clock
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return time.Time{}, bad
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		if i+1 < len(words) && (words[i+1] == "am" || words[i+1] == "pm") {
			word += words[i+1]
			i++
		}
		if !w.word(word, now) {
			return time.Time{}, bad
		}
	}
	return w.instant(now), nil
}

func nowPlus(s string, now time.Time, bad error) (time.Time, error) {
	now = now.Truncate(time.Second)
	if s == "" {
		return now, nil
	}
	sign := time.Duration(1)
	switch s[0] {
	case '+':
	case '-':
		sign = -1
	default:
		return time.Time{}, bad
	}
	s = strings.TrimSpace(s[1:])
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, ok := number(s[:digits], 1<<30)
	if !ok {
		return time.Time{}, bad
	}
	unit := strings.TrimSpace(s[digits:])
	size := time.Second
	full := ""
	switch {
	case unit == "":
		full = "s"
	case strings.HasPrefix("seconds", unit):
		full = "seconds"
	case strings.HasPrefix("minutes", unit):
		full, size = "minutes", time.Minute
	case strings.HasPrefix("hours", unit):
		full, size = "hours", time.Hour
	case strings.HasPrefix("days", unit):
		full, size = "days", 24*time.Hour
	case strings.HasPrefix("weeks", unit):
		full, size = "weeks", 7*24*time.Hour
	}
	if full == "" || time.Duration(n) > 100*365*24*time.Hour/size {
		return time.Time{}, bad
	}
	return now.Add(sign * time.Duration(n) * size), nil
}

// when collects the parts of an instant.
type when struct {
	hasDate, hasClock bool
	year, month, day  int
	h, m, s           int
}

// word takes one word as a date or as a time of day, each at most once.
func (w *when) word(s string, now time.Time) bool {
	if !w.hasDate && w.date(s, now) {
		w.hasDate = true
		return true
	}
	if !w.hasClock && w.clock(s) {
		w.hasClock = true
		return true
	}
	return false
}

func (w *when) clock(s string) bool {
	for _, k := range []struct {
		name string
		hour int
	}{{"midnight", 0}, {"noon", 12}, {"fika", 15}, {"teatime", 16}} {
		if s == k.name {
			w.h = k.hour
			return true
		}
	}
	half := ""
	if n := len(s) - 2; n > 0 && (s[n:] == "am" || s[n:] == "pm") {
		s, half = s[:n], s[n:]
	}
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return false
	}
	var v [3]int64
	for i, p := range parts {
		n, ok := number(p, 59)
		if !ok || len(p) > 2 {
			return false
		}
		v[i] = n
	}
	h := int(v[0])
	if half != "" {
		if h < 1 || h > 12 {
			return false
		}
		h %= 12
		if half == "pm" {
			h += 12
		}
	}
	w.h, w.m, w.s = h, int(v[1]), int(v[2])
	return h < 24
}

func (w *when) date(s string, now time.Time) bool {
	switch s {
	case "today":
		w.year, w.month, w.day = now.Year(), int(now.Month()), now.Day()
		return true
	case "tomorrow":
		t := now.AddDate(0, 0, 1)
		w.year, w.month, w.day = t.Year(), int(t.Month()), t.Day()
		return true
	}
	var year, month, day string
	switch {
	case strings.Count(s, "-") == 2:
		p := strings.Split(s, "-")
		if len(p[0]) != 4 {
			return false
		}
		year, month, day = p[0], p[1], p[2]
	case strings.Contains(s, "/"):
		p := strings.Split(s+"/", "/")
		month, day, year = p[0], p[1], p[2]
		if len(p) > 4 || len(p) == 4 && year == "" {
			return false
		}
	case strings.Contains(s, "."): // Slurm reads MM.DD.YY
		p := strings.Split(s+".", ".")
		month, day, year = p[0], p[1], p[2]
		if len(p) > 4 || len(p) == 4 && year == "" {
			return false
		}
	case len(s) == 4 || len(s) == 6:
		month, day, year = s[:2], s[2:4], s[4:]
	default:
		return false
	}
	return w.set(year, month, day, now)
}

func (w *when) set(year, month, day string, now time.Time) bool {
	m, ok1 := number(month, 12)
	d, ok2 := number(day, 31)
	if !ok1 || !ok2 || m == 0 || d == 0 || len(month) > 2 || len(day) > 2 {
		return false
	}
	y := now.Year()
	if year != "" {
		n, ok := number(year, 9999)
		if !ok || len(year) != 2 && len(year) != 4 {
			return false
		}
		if y = int(n); len(year) == 2 {
			y += 2000
		}
	} else if t := time.Date(y, time.Month(m), int(d), 23, 59, 59, 0, now.Location()); t.Before(now) {
		y++ // a date that has passed is next year's
	}
	if t := time.Date(y, time.Month(m), int(d), 0, 0, 0, 0, time.UTC); t.Day() != int(d) {
		return false // 30 February
	}
	w.year, w.month, w.day = y, int(m), int(d)
	return true
}

func (w *when) instant(now time.Time) time.Time {
	if w.hasDate {
		return time.Date(w.year, time.Month(w.month), w.day, w.h, w.m, w.s, 0, now.Location())
	}
	t := time.Date(now.Year(), now.Month(), now.Day(), w.h, w.m, w.s, 0, now.Location())
	if !t.After(now) {
		t = t.AddDate(0, 0, 1)
	}
	return t
}

// clockText formats a span like squeue: 0:15, 1:02:03, 2-03:04:05.
func clockText(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	days, h, m, sec := s/86400, s/3600%24, s/60%60, s%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, h, m, sec)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, sec)
	}
	return strconv.FormatInt(m, 10) + fmt.Sprintf(":%02d", sec)
}

// longClock formats a span like scontrol and sacct: 00:00:15, 2-03:04:05.
func longClock(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if s >= 86400 {
		text = fmt.Sprintf("%d-%s", s/86400, text)
	}
	return text
}

// stamp formats an instant like Slurm, in local time and without a zone.
func stamp(t *time.Time, none string) string {
	if t == nil || t.IsZero() {
		return none
	}
	return t.Local().Format("2006-01-02T15:04:05")
}
