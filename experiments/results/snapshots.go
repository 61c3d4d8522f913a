package results

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/experiments/compat"
	"github.com/muster-gpu/muster/network"
	"github.com/muster-gpu/muster/network/flow"
	"github.com/muster-gpu/muster/network/traffic"
)

// snapshots are jobs that share a link, as computing and transmission in milliseconds: two and three of them, whose
// iterations are in several ratios.
var snapshots = []struct {
	ratio string
	jobs  [][2]int64
}{
	{"1:1", [][2]int64{{150, 100}, {150, 100}}},
	{"1:1", [][2]int64{{125, 125}, {180, 70}}},
	{"1:1", [][2]int64{{80, 170}, {150, 100}}},
	{"1:1:1", [][2]int64{{200, 100}, {210, 90}, {200, 100}}},
	{"1:2", [][2]int64{{140, 60}, {280, 120}}},
	{"1:2", [][2]int64{{140, 60}, {200, 200}}},
	{"2:3", [][2]int64{{150, 50}, {250, 50}}},
	{"2:3", [][2]int64{{100, 100}, {200, 100}}},
	{"1:2:4", [][2]int64{{140, 60}, {300, 100}, {700, 100}}},
	{"100:137", [][2]int64{{60, 40}, {82, 55}}},
}

// snapshot plays the jobs of a snapshot: how long iterations take of that alone, in the mean over jobs, if all begin at
// the same time, and under a policy.
func snapshot(jobs [][2]int64, policy string) (m mix, aligned, treated float64, ts []cluster.Treatment, err error) {
	m.f = traffic.Fabric{Links: compat.Unit{}, Classes: 8}
	for i, j := range jobs {
		compute := time.Duration(j[0]) * time.Millisecond
		m.jobs = append(m.jobs, traffic.Job{ID: cluster.JobID(i), GPUs: 1, Compute: compute, Release: compute,
			Demand: network.Demand{Parts: []network.Part{{Bytes: j[1] * 1e6, Paths: []network.Path{{0}}}}}})
	}
	p, err := traffic.New(policy)
	if err != nil {
		return m, 0, 0, nil, err
	}
	played := func(ts []cluster.Treatment) (sum float64) {
		var list []flow.Job
		for i := range m.jobs {
			list = append(list, m.jobs[i].As(&ts[i]))
		}
		for i, t := range flow.Steady(m.f, list) {
			alone := m.jobs[i].As(&cluster.Treatment{})
			sum += float64(t) / float64(alone.Alone(m.f)) / float64(len(list))
		}
		return sum
	}
	ts = p.Treat(m.f, m.jobs)
	return m, played(make([]cluster.Treatment, len(jobs))), played(ts), ts, nil
}

// cassini shows what shifts gain where jobs share a link.
func (t *Table) cassini() error {
	s := Section{Title: "CASSINI: what shifts gain", About: "Two and three jobs that share a link, whose iterations are in several ratios. Score: by the publication's equation 3, with all jobs at 0 and with the best shifts, on the iterations as the policy rounds them. " +
		"Slowdown is an iteration against one alone, in the mean over the jobs: without shifts, all starting at once (equal shares of the link); under `cassini:hold=all`, which holds all jobs to their slots, as published; under `cassini`; and under `crux`, by classes without shifts. Gain: aligned by `cassini`. " +
		"Rounded: by how much the policy lengthens iterations so that their least common multiple is small, in the mean; that much of the slowdown is paid for rounding. " +
		"The publication's shape: jobs whose best score is 1 gain up to all that they lose aligned; where it is lower, the gain is, too. In three rows holding all jobs costs more than it gains: no shift raises the score (by more than 0.03), so one delays the other all the same; the delayed one is more than 5 % of its period off its slot and waits for most of an iteration until the next one, which untreated it would not. `cassini` plays both on the model and does not hold jobs that are slower so. " +
		"Of several best shifts those in the middle are taken, so that a job that is a little late disturbs none. What is left in the row of three jobs, which fill the link, is from shifts rounded to steps of a 72nd of the circle or less: a transmission may end up to a step after the next one has begun, and the delay adds up until a job waits for its next slot.",
		Head: []string{"iterations", "computes + transmits, ms", "score aligned", "score shifted", "slowdown aligned",
			"`hold=all`", "`cassini`", "gain", "rounded", "`crux`"}}
	for _, c := range snapshots {
		m, aligned, held, ts, err := snapshot(c.jobs, "cassini:hold=all")
		if err != nil {
			return err
		}
		_, _, shifted, _, err := snapshot(c.jobs, "cassini")
		if err != nil {
			return err
		}
		_, _, classed, _, err := snapshot(c.jobs, "crux")
		if err != nil {
			return err
		}
		var rings []traffic.Ring
		var words []string
		rounded := 0.0
		for i, j := range c.jobs {
			compute, send := time.Duration(j[0])*time.Millisecond, time.Duration(j[1])*time.Millisecond
			period := max(compute+send, ts[i].Period)
			rings = append(rings, traffic.Ring{Iteration: period, From: compute, To: compute + send,
				Rate: m.f.Capacity(0)})
			rounded += (float64(period)/float64(compute+send) - 1) / float64(len(c.jobs))
			words = append(words, fmt.Sprintf("%d + %d", j[0], j[1]))
		}
		before, after := "-", "-"
		if circle := traffic.NewCircle(m.f.Capacity(0), rings, 0); circle != nil {
			_, best := circle.Best()
			before, after = fmt.Sprintf("%.2f", circle.Score(make([]int, len(rings)))), fmt.Sprintf("%.2f", best)
		}
		s.Cells = append(s.Cells, []string{c.ratio, strings.Join(words, ", "), before, after,
			fmt.Sprintf("%.3f", aligned), fmt.Sprintf("%.3f", held), fmt.Sprintf("%.3f", shifted),
			fmt.Sprintf("%.2f", aligned/shifted),
			fmt.Sprintf("%.1f %%", 100*rounded), fmt.Sprintf("%.3f", classed)})
	}
	t.Sections = append(t.Sections, s)
	return nil
}
