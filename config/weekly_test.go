package config

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

func TestParseWeekly(t *testing.T) {
	at := func(text string) int64 {
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return v.Unix()
	}
	for _, c := range []struct{ times, zone, at, says string }{ // 2026-11-16 is a Monday
		{"mon-fri 08:00-18:00", "Europe/Berlin", "2026-11-16T07:00:00Z", "protected until 18:00 (Europe/Berlin)"},
		{"mon-fri 08:00-18:00", "Europe/Berlin", "2026-11-16T06:59:59Z", ""},
		{"mon-fri 08:00-18:00", "Europe/Berlin", "2026-11-16T17:00:00Z", ""},
		// summer
		{"mon-fri 08:00-18:00", "Europe/Berlin", "2026-07-13T06:00:00Z", "protected until 18:00 (Europe/Berlin)"},
		{"mon-fri 08:00-18:00", "+01:00", "2026-07-13T06:30:00Z", ""},
		{"mon-fri 08:00-18:00", "UTC", "2026-11-15T12:00:00Z", ""},
		{"Monday 8:00-18:00", "UTC", "2026-11-16T12:00:00Z", "protected until 18:00 (UTC)"},
		{"sat,sun", "UTC", "2026-11-14T12:00:00Z", "protected until mon 00:00 (UTC)"},
		{"fri 22:00-06:00", "UTC", "2026-11-14T05:00:00Z", "protected until 06:00 (UTC)"},
		{"fri 22:00-06:00", "UTC", "2026-11-13T23:00:00Z", "protected until sat 06:00 (UTC)"},
		{"fri 22:00-06:00", "UTC", "2026-11-13T05:00:00Z", ""},
		{"22:00-24:00; daily 00:00-01:00", "UTC", "2026-11-13T23:00:00Z", "protected until sat 01:00 (UTC)"},
		{"fri-mon 10:00-11:00", "UTC", "2026-11-15T10:59:59Z", "protected until 11:00 (UTC)"},
		// The hour from 02:00 exists twice in autumn, and not at all in spring.
		{"02:00-02:30", "Europe/Berlin", "2026-10-25T00:10:00Z", "protected until 02:30 (Europe/Berlin)"},
		{"02:00-02:30", "Europe/Berlin", "2026-10-25T00:40:00Z", ""},
		{"02:00-02:30", "Europe/Berlin", "2026-10-25T01:10:00Z", "protected until 02:30 (Europe/Berlin)"},
		{"01:00-02:30", "Europe/Berlin", "2026-03-29T00:10:00Z", "protected until 03:00 (Europe/Berlin)"},
		{"01:00-03:30", "Europe/Berlin", "2026-03-29T00:10:00Z", "protected until 03:30 (Europe/Berlin)"},
	} {
		w, err := ParseWeekly(strings.Split(c.times, ";"), c.zone)
		if err != nil {
			t.Errorf("%s: %v", c.times, err)
		} else if got := w.Says(at(c.at)); got != c.says {
			t.Errorf("%s %s at %s: %q, want %q", c.times, c.zone, c.at, got, c.says)
		}
	}
	if w, err := ParseWeekly(nil, ""); w != nil || err != nil {
		t.Errorf("%v %v", w, err)
	}
}

func TestParseWeeklyErrors(t *testing.T) {
	for _, c := range []struct{ times, zone, want string }{
		{"mon-fri 08:00", "", `protected[0]: "mon-fri 08:00" are not times of the week such as mon-fri 08:00-18:00`},
		{"mon-fri 8-18", "", `protected[0]: "mon-fri 8-18" are not times`},
		{"mon;mon-fri 08:00-25:00", "", `protected[1]: "mon-fri 08:00-25:00": "25:00" is not a time of day`},
		{"mon fri 08:00-18:00", "", "are not times of the week"},
		{"08:00-18:00 mon", "", "are not times of the week"},
		{"monkey 08:00-18:00", "", "is not a set of weekdays"},
		{"mon-x", "", "is not a set of weekdays"},
		{"", "", "are not times of the week"},
		{"mon 08:00-08:00", "", "00:00-24:00 is a whole day"},
		{"mon 24:00-08:00", "", "24:00 to begin at"},
		{"mon-fri;sat-sun 00:00-24:00", "", "the whole week"},
		{"sun 08:00-18:00", "Europe/Muster",
			`zone: "Europe/Muster" is neither a time zone such as Europe/Berlin nor an offset such as +01:00`},
		{"sun 08:00-18:00", "+1", "zone:"},
		{"sun 08:00-18:00", "Local", "zone:"},
	} {
		if _, err := ParseWeekly(strings.Split(c.times, ";"), c.zone); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.times, c.zone, err, c.want)
		}
	}
	if _, err := ParseWeekly(nil, "UTC"); err == nil {
		t.Error("a zone of nothing")
	}
}

// someHours are hours of the week, in quarters of an hour.
func someHours(r *rapid.T) cluster.Hours {
	quarter := func(n string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(r, n)) * 15 * time.Minute
	}
	return cluster.Hours{Days: rapid.Uint8Range(0, 127).Draw(r, "days"), From: quarter("from", 95),
		To: quarter("to", 96)}
}

// someMinute is an instant, in Unix seconds: half of the time near a change of the clocks.
func someMinute(r *rapid.T, w *cluster.Weekly) int64 {
	if len(w.Shifts) > 0 && rapid.Bool().Draw(r, "near") {
		return w.Shifts[rapid.IntRange(0, len(w.Shifts)-1).Draw(r, "shift")].Since +
			rapid.Int64Range(-2000, 300).Draw(r, "off")*60
	}
	return rapid.Int64Range(0, 3_100_000_000/60).Draw(r, "minute") * 60
}

// someZone is one of some zones, as the standard library has it and as windows have it.
func someZone(r *rapid.T, zones []string) (*time.Location, *cluster.Weekly) {
	name := rapid.SampledFrom(zones).Draw(r, "zone")
	loc, err := time.LoadLocation(name)
	if err != nil {
		r.Fatal(err)
	}
	w, err := ParseZone(name)
	if err != nil {
		r.Fatal(err)
	}
	return loc, w
}

// The naive twin asks the standard library for the local time, minute by minute.
func TestWeeklyTwin(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca",
		"UTC"}
	rapid.Check(t, func(r *rapid.T) {
		loc, w := someZone(r, zones)
		w.Hours = rapid.SliceOfN(rapid.Custom(someHours), 1, 3).Draw(r, "hours")
		if w.Always() {
			r.Skip()
		}
		unix := someMinute(r, w)
		end, within := w.Until(unix)
		if twin := open(w, unix, loc); within != twin {
			r.Fatalf("%s: %v, the twin says %v", time.Unix(unix, 0).In(loc), within, twin)
		}
		if !within {
			return
		}
		at := unix
		for at += 60; open(w, at, loc); at += 60 {
		}
		if at != end {
			r.Fatalf("%s: until %s, the twin says %s", time.Unix(unix, 0).In(loc), time.Unix(end, 0).In(loc),
				time.Unix(at, 0).In(loc))
		}
	})
}

// A loan wants nodes back exactly in the hours that the standard library finds open, minute by minute, and
// changes only at the instants that it announces.
func TestLoanTwin(t *testing.T) {
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"}
	rapid.Check(t, func(r *rapid.T) {
		loc, w := someZone(r, zones)
		l := cluster.Loan{Clock: *w, Back: rapid.SliceOfN(rapid.Custom(func(r *rapid.T) cluster.Back {
			return cluster.Back{Hours: someHours(r), Nodes: rapid.IntRange(1, 4).Draw(r, "nodes")}
		}), 1, 3).Draw(r, "back")}
		unix := someMinute(r, w)
		wanted := func(at int64) (n int) {
			for i := range l.Back {
				if open(&cluster.Weekly{Hours: []cluster.Hours{l.Back[i].Hours}}, at, loc) {
					n = max(n, l.Back[i].Nodes)
				}
			}
			return n
		}
		next := l.Next(unix)
		if next <= unix {
			r.Fatalf("at %d: next %d", unix, next)
		}
		for at := unix; at < min(next, unix+9*86400); at += 60 {
			if n := wanted(at); n != l.Wanted(at) || n != wanted(unix) {
				r.Fatalf("%s: %d nodes, the twin says %d; next change %s", time.Unix(at, 0).In(loc), l.Wanted(at), n,
					time.Unix(next, 0).In(loc))
			}
		}
		if text := l.Says(unix, wanted(unix)); (text == "") != (wanted(unix) == 0) {
			r.Fatalf("%q of %d nodes", text, wanted(unix))
		}
	})
}

// open reports whether the wall clock shows a time within the hours.
func open(w *cluster.Weekly, unix int64, loc *time.Location) bool {
	v := time.Unix(unix, 0).In(loc)
	tod := time.Duration(v.Hour())*time.Hour + time.Duration(v.Minute())*time.Minute
	for i := range w.Hours {
		h, to := &w.Hours[i], w.Hours[i].To
		if to <= h.From {
			to += 24 * time.Hour
		}
		begins := func(d time.Weekday) bool { return h.Days == 0 || h.Days>>d&1 == 1 }
		if begins(v.Weekday()) && h.From <= tod && tod < to || begins((v.Weekday()+6)%7) && tod+24*time.Hour < to {
			return true
		}
	}
	return false
}
