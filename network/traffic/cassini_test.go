package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network/flow"
)

// TestUndone: the first and the third job would fit on their link if they began at once. The shift that the third one
// needs beside the second would undo that, so both links count.
func TestUndone(t *testing.T) {
	links := &unitLinks{}
	first := links.job(timed{C: 4, M: 2, S: 0, G: 1}, [][]string{{"a"}}) // it transmits first, then computes
	second := links.job(timed{C: 2, M: 2, S: 1, G: 1}, [][]string{{"b"}})
	third := links.job(timed{C: 2, M: 2, S: 1, G: 1}, [][]string{{"a", "b"}})
	jobs := []Job{first, second, third}
	ts := (&cassini{}).Treat(Fabric{Links: links}, jobs)
	var list []flow.Job
	for i := range jobs {
		list = append(list, jobs[i].As(&ts[i]))
	}
	for i, takes := range flow.Steady(links, list) {
		if ts[i].Period != 4*time.Second || takes > 4*time.Second {
			t.Errorf("job %d: %+v, an iteration takes %v instead of 4s", i, ts[i], takes)
		}
	}
}

// TestRoom: jobs whose iterations were measured get periods with room, and a place beside them is rated by the same.
func TestRoom(t *testing.T) {
	links := &unitLinks{}
	job := func(varies bool) Job {
		j := links.job(timed{C: 1.5, M: .5, S: 1, G: 1}, [][]string{{"a"}})
		j.Varies = varies
		return j
	}
	for _, varies := range []bool{false, true} {
		want := 2 * time.Second
		if varies {
			want += want / room
		}
		ts := (&cassini{}).Treat(Fabric{Links: links}, []Job{job(varies), job(varies)})
		if ts[0].Period < want || ts[0].Period > want+want/100 {
			t.Errorf("varies %v: the period is %v, want %v", varies, ts[0].Period, want)
		}
		j := job(varies)
		if r := ringOf(Fabric{Links: links}, &j, j.Demand.On(&cluster.Treatment{})); r.Iteration != want {
			t.Errorf("varies %v: a place is rated by %v, want %v", varies, r.Iteration, want)
		}
	}
}

// TestHeld: jobs that do not fit beside each other are held to slots only as published, and real ones have classes
// instead; those that fit are always held, and real ones although they would not meet by when they began.
func TestHeld(t *testing.T) {
	links := &unitLinks{}
	job := func(c, m number, real bool, began time.Duration) Job {
		j := links.job(timed{C: c, M: m, S: 1, G: 1}, [][]string{{"a"}})
		j.Demand.Real, j.Began = real, began
		return j
	}
	for _, c := range []struct {
		name    string
		jobs    []Job
		hold    string
		periods int // jobs that have one
		classes int // ... a class
	}{
		{"misfit", []Job{job(1.4, .6, false, 0), job(2, 2, false, 0)}, "gains", 0, 0},
		{"misfit, as published", []Job{job(1.4, .6, false, 0), job(2, 2, false, 0)}, "all", 2, 0},
		{"fit", []Job{job(1, 1, false, 0), job(1, 1, false, 0)}, "gains", 2, 0},
		{"real, apart", []Job{job(1.5001, .5, true, 0), job(1.5001, .5, true, time.Second)}, "gains", 2, 0},
		{"real misfit", []Job{job(1.4, .6, true, 0), job(2, 2, true, 0)}, "gains", 0, 2},
	} {
		p, err := New("cassini:hold=" + c.hold)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := New(p.Name()); err != nil || again.Name() != p.Name() {
			t.Errorf("%s is not found by its name: %v", p.Name(), err)
		}
		held, classed := 0, 0
		for _, tr := range p.Treat(Fabric{Links: links, Classes: 8}, c.jobs) {
			if tr.Period > 0 {
				held++
			}
			classed += min(tr.Class, 1)
		}
		if held != c.periods || classed != c.classes {
			t.Errorf("%s: %d jobs are held and %d have a class, want %d and %d", c.name, held, classed, c.periods,
				c.classes)
		}
	}
	for text, want := range map[string]string{"cassini:keep=all": `unknown knob "keep"`, "crux:k=1": "has no knobs",
		"cassini:hold=some": `unknown hold "some"`} {
		if _, err := New(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
