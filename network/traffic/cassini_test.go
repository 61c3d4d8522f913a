package traffic

import (
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
	ts := cassini{}.Treat(Fabric{Links: links}, jobs)
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
		ts := cassini{}.Treat(Fabric{Links: links}, []Job{job(varies), job(varies)})
		if ts[0].Period < want || ts[0].Period > want+want/100 {
			t.Errorf("varies %v: the period is %v, want %v", varies, ts[0].Period, want)
		}
		j := job(varies)
		if r := ringOf(Fabric{Links: links}, &j, j.Demand.On(&cluster.Treatment{})); r.Iteration != want {
			t.Errorf("varies %v: a place is rated by %v, want %v", varies, r.Iteration, want)
		}
	}
}
