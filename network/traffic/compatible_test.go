package traffic

import (
	"math"
	"testing"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/network"
)

// halfDuty is a job that computes and transmits for as long, over some links of a byte per nanosecond.
func halfDuty(links *unitLinks, names ...string) Job {
	return links.job(timed{C: 1, M: 1, S: 1, G: 1}, [][]string{names})
}

func rated(links *unitLinks, shifts bool, j Job, running ...Job) Compatibility {
	var on [][]network.Bytes
	for i := range running {
		on = append(on, running[i].Demand.On(&cluster.Treatment{}))
	}
	c := NewCompany(Fabric{Links: links}, running, on, &Scores{Shifted: shifts})
	return c.Rate(&j, j.Demand.On(&cluster.Treatment{}))
}

// TestCompany: jobs of half duty fit on a link if they are shifted, and miss a quarter of it on average if they are
// not; three never fit; a link for itself is no link that counts.
func TestCompany(t *testing.T) {
	links := &unitLinks{}
	for _, c := range []struct {
		name    string
		shifts  bool
		running int
		want    float64
	}{{"shifted", true, 1, 1}, {"not shifted", false, 1, 3. / 4}, {"three, shifted", true, 2, 1. / 2},
		{"three, not shifted", false, 2, 1 - (3./8 + 2./8)}} {
		var running []Job
		for range c.running {
			running = append(running, halfDuty(links, "a"))
		}
		got := rated(links, c.shifts, halfDuty(links, "a"), running...)
		if len(got.Links) != 1 || math.Abs(got.Links[0]-c.want) > 1e-9 || got.Loop {
			t.Errorf("%s: %+v, want %g", c.name, got, c.want)
		}
	}
	if got := rated(links, true, halfDuty(links, "b"), halfDuty(links, "a")); len(got.Links) != 0 {
		t.Errorf("apart: %+v", got)
	}
	light := func(own string) Job { // it puts little on c, as it waits for a link of its own
		return Job{Compute: time.Second, Release: time.Second, Demand: network.Demand{Parts: []network.Part{
			{Bytes: 4e8, Paths: []network.Path{{links.id("c")}}},
			{Bytes: 1e9, Paths: []network.Path{{links.id(own)}}}}}}
	}
	if got := rated(links, false, light("d"), light("e")); len(got.Links) != 1 || got.Links[0] != 1 {
		t.Errorf("two light ones: %+v", got)
	}
}

// TestCompanyLoop: a job closes a loop if two of its links join jobs that links join already; the same jobs on two
// links are none, as one shift is right for both; and without shifts nothing is.
func TestCompanyLoop(t *testing.T) {
	links := &unitLinks{}
	a, b := halfDuty(links, "l1", "l2", "l4"), halfDuty(links, "l1", "l3")
	for _, c := range []struct {
		name   string
		shifts bool
		on     []string
		loop   bool
	}{{"triangle", true, []string{"l2", "l3"}, true}, {"chain", true, []string{"l2"}, false},
		{"twice the same", true, []string{"l2", "l4"}, false}, {"without shifts", false, []string{"l2", "l3"}, false}} {
		if got := rated(links, c.shifts, halfDuty(links, c.on...), a, b); got.Loop != c.loop {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
