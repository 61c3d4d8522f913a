package quota

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/cluster"
)

func TestCalendar(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		wall := rapid.Int64Range(-1<<40, 1<<40).Draw(r, "wall")
		weekday, tod := cluster.Calendar(wall)
		std := time.Unix(wall, 0).UTC()
		if weekday != int(std.Weekday()) || tod != int64(std.Hour()*3600+std.Minute()*60+std.Second()) {
			r.Fatalf("%s: weekday %d, second %d", std, weekday, tod)
		}
	})
}

// local returns local seconds; 2026-03-01 is a Sunday.
func local(day, hour, minute int) int64 {
	return time.Date(2026, 3, day, hour, minute, 0, 0, time.UTC).Unix()
}

const weekend = 1<<time.Sunday | 1<<time.Saturday

// Training may use the serving reserve at night and on weekends, given back by 07:00: serving then
// keeps 2 of its 6 GPUs, and all of them on Monday.
func nightAndWeekend() []cluster.Queue {
	windows := func(g Milli) func(*cluster.Queue) {
		return func(q *cluster.Queue) {
			q.Windows = []cluster.Window{
				{From: 22 * time.Hour, To: 7 * time.Hour, Guarantee: g * gpu, Limit: cluster.Unlimited},
				{Days: weekend, From: 0, To: 24 * time.Hour, Guarantee: g * gpu, Limit: cluster.Unlimited}}
		}
	}
	return []cluster.Queue{queue("serving", "", 6, reserve(6), windows(2)), queue("training", "", 2, windows(6))}
}

func TestWindows(t *testing.T) {
	tree, err := New(nightAndWeekend(), 8*gpu)
	if err != nil {
		t.Fatal(err)
	}
	serving, training := at(t, tree, "serving"), at(t, tree, "training")
	for _, c := range []struct {
		what            string
		wall            int64
		serving         Milli // guarantee
		canTrain        Milli
		day, hour, then int
	}{
		{"Monday noon", local(2, 12, 0), 6, 2, 2, 22, 0},
		{"Monday 21:59", local(2, 21, 59), 6, 2, 2, 22, 0},
		{"Monday night", local(2, 22, 0), 2, 6, 3, 7, 0},
		{"after midnight", local(3, 3, 0), 2, 6, 3, 7, 0},
		{"Tuesday 07:00", local(3, 7, 0), 6, 2, 3, 22, 0},
		{"Friday night runs into the weekend", local(6, 23, 0), 2, 6, 9, 7, 0},
		{"Saturday noon", local(7, 12, 0), 2, 6, 9, 7, 0},
		{"Sunday night lasts until Monday 07:00", local(8, 23, 30), 2, 6, 9, 7, 0},
	} {
		next := tree.Apply(c.wall)
		if got := tree.Guarantee(serving); got != c.serving*gpu {
			t.Errorf("%s: serving is guaranteed %d", c.what, got)
		}
		if got := tree.Available(training); got != c.canTrain*gpu {
			t.Errorf("%s: training may use %d", c.what, got)
		}
		if want := local(c.day, c.hour, 0); next != want {
			t.Errorf("%s: next change at %s, want %s", c.what, time.Unix(next, 0).UTC(), time.Unix(want, 0).UTC())
		}
	}
	tree.Apply(local(3, 3, 0))
	tree.Charge(training, 6*gpu, false)
	tree.Apply(local(3, 7, 0))
	if got := tree.Available(Root); got != -4*gpu {
		t.Errorf("at 07:00 training owes 4 GPUs: available %d", got)
	}
	if got := tree.Borrowed(training); got != 4*gpu {
		t.Errorf("borrowed %d", got)
	}
}

func TestWindowDetails(t *testing.T) {
	q := queue("q", "", 4, limit(8))
	set := func(ws ...cluster.Window) { q.Windows = ws }
	const same = cluster.Unlimited
	check := func(what string, wall int64, guarantee, limit Milli, next int64) {
		t.Helper()
		if g, l, n := Effective(&q, wall); g != guarantee || l != limit || n != next {
			t.Errorf("%s: guarantee %d limit %d next %s", what, g, l, time.Unix(n, 0).UTC())
		}
	}
	check("none", 0, 4000, 8000, math.MaxInt64)
	// The last applicable window wins, separately for each amount.
	set(cluster.Window{From: 8 * time.Hour, To: 12 * time.Hour, Guarantee: 1000, Limit: 2000},
		cluster.Window{From: 10 * time.Hour, To: 11 * time.Hour, Guarantee: 3000, Limit: same})
	check("first", local(2, 9, 0), 1000, 2000, local(2, 10, 0))
	check("both", local(2, 10, 0), 3000, 2000, local(2, 11, 0))
	// An edge that changes nothing is not a change.
	set(cluster.Window{From: 8 * time.Hour, To: 12 * time.Hour, Guarantee: 1000, Limit: same},
		cluster.Window{From: 12 * time.Hour, To: 13 * time.Hour, Guarantee: 1000, Limit: same})
	check("seamless", local(2, 9, 0), 1000, 8000, local(2, 13, 0))
	// From equal to To is a whole day, and every day is always.
	set(cluster.Window{From: 6 * time.Hour, To: 6 * time.Hour, Guarantee: 1000, Limit: same})
	check("always", local(2, 5, 0), 1000, 8000, math.MaxInt64)
	set(cluster.Window{Days: 1 << time.Saturday, From: 6 * time.Hour, To: 6 * time.Hour, Guarantee: 1000, Limit: same})
	check("Sunday morning belongs to Saturday", local(8, 5, 59), 1000, 8000, local(8, 6, 0))
	check("a week ahead", local(8, 6, 0), 4000, 8000, local(14, 6, 0))
	// Before 1970, too.
	check("long ago", -1, 4000, 8000, 2*daySeconds+6*3600)
}

// The naive twin goes hour by hour.
func TestWindowsTwin(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := queue("q", "", 4)
		window := rapid.Custom(func(r *rapid.T) cluster.Window {
			return cluster.Window{Days: rapid.Uint8Range(0, 127).Draw(r, "days"),
				From:      time.Duration(rapid.IntRange(0, 23).Draw(r, "from")) * time.Hour,
				To:        time.Duration(rapid.IntRange(0, 24).Draw(r, "to")) * time.Hour,
				Guarantee: rapid.Int64Range(-1, 3).Draw(r, "guarantee"),
				Limit:     rapid.Int64Range(-1, 3).Draw(r, "limit")}
		})
		q.Windows = rapid.SliceOfN(window, 0, 3).Draw(r, "windows")
		start := local(1, 0, 0) + rapid.Int64Range(0, 167).Draw(r, "hour")*3600
		twin := func(wall int64) (g, l Milli) {
			g, l = q.Guarantee, q.Limit
			for _, w := range q.Windows {
				// A window that starts on some day covers this many hours from then.
				length := (int(w.To/time.Hour) - int(w.From/time.Hour) + 24) % 24
				if w.To == 24*time.Hour {
					length = 24 - int(w.From/time.Hour)
				} else if length == 0 {
					length = 24
				}
				for back := range length {
					at := time.Unix(wall-int64(back)*3600, 0).UTC()
					if at.Hour() == int(w.From/time.Hour) && (w.Days == 0 || w.Days>>at.Weekday()&1 == 1) {
						if w.Guarantee >= 0 {
							g = w.Guarantee
						}
						if w.Limit >= 0 {
							l = w.Limit
						}
						break
					}
				}
			}
			return g, l
		}
		g0, l0 := twin(start)
		want := int64(math.MaxInt64)
		for h := int64(1); h <= 168; h++ {
			if g, l := twin(start + h*3600); g != g0 || l != l0 {
				want = start + h*3600
				break
			}
		}
		if g, l, next := Effective(&q, start); g != g0 || l != l0 || next != want {
			r.Fatalf("%s: %d %d until %d, want %d %d until %d", time.Unix(start, 0).UTC(), g, l, next, g0, l0, want)
		}
	})
}
