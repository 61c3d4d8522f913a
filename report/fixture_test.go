package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// hostile is a name that would break out of a careless page.
const hostile = `</script><img src=x onerror="window.hacked=1">`

// fixture is a run of 24 jobs on two nodes of four GPUs, each placed as early as possible in the
// order given by less.
func fixture(policy string, less func(a, b *cluster.Job) bool) Run {
	const nodes, per = 2, 4
	r := Run{Policy: policy, Placer: "best-fit", Backfill: "none", Cluster: "2x4xV100", Trace: "made up",
		Capacity: nodes * per * cluster.Whole,
		Nodes:    []string{"n0", "n1"}, GPUs: []int{per, per}, Queues: []string{"vision", hostile},
		Owed:   []cluster.Milli{4000, 2000},
		Series: NewSeries(), Hash: 0xfeed, Wall: time.Second, Decided: 1000}
	for i := range 24 {
		j := &cluster.Job{ID: cluster.JobID(i), Name: fmt.Sprintf("train-%02d", i), User: "ada", Queue: r.Queues[i%2],
			Submit:   cluster.Time(time.Duration(i) * 4 * time.Minute),
			Tasks:    []cluster.TaskSet{{Count: 1, Request: cluster.Request{GPUs: []int{1, 2, 1, 4}[i%4]}}},
			Estimate: time.Duration(3+i*7%29) * 5 * time.Minute}
		if i == 5 {
			j.Name = hostile
		}
		r.Jobs, r.Ideal, r.Active = append(r.Jobs, j), append(r.Ideal, j.Estimate), append(r.Active, 4)
	}
	order := slices.Clone(r.Jobs)
	slices.SortStableFunc(order, func(a, b *cluster.Job) int {
		if less(a, b) {
			return -1
		}
		return 1
	})
	r.Records = make([]Record, len(r.Jobs))
	free := [nodes][per]cluster.Time{}
	for _, j := range order {
		r.place(j, free[:])
	}
	unfinished := &r.Records[23]
	unfinished.Outcome, unfinished.End = Unfinished, cluster.Never
	r.Records[3].Preemptions, r.Records[3].Lost = 2, 90_000_000
	r.integrate()
	return r
}

func (r *Run) place(j *cluster.Job, free [][4]cluster.Time) {
	n := j.Tasks[0].Request.GPUs
	node, start := 0, cluster.Never
	for k := range free {
		t := slices.Clone(free[k][:])
		slices.Sort(t)
		if at := max(t[n-1], j.Submit); at < start {
			node, start = k, at
		}
	}
	var mask uint64
	for g, left := 0, n; g < 4 && left > 0; g++ {
		if free[node][g] <= start {
			free[node][g] = start.Add(j.Estimate)
			mask |= 1 << g
			left--
		}
	}
	end := start.Add(j.Estimate)
	gpu := int64(n) * 1000 * j.Estimate.Milliseconds()
	r.Records[j.ID] = Record{Submit: j.Submit, FirstStart: start, End: end, Outcome: Completed,
		Waited: start.Sub(j.Submit), Ran: j.Estimate,
		Busy: gpu * 9 / 10, Held: gpu, GPUs: int32(n), Queue: int32(j.ID % 2)}
	r.Spans = append(r.Spans, Span{Job: j.ID, Node: int32(node), GPUs: mask, From: start, To: end})
	r.Last = max(r.Last, end)
}

// integrate fills the series in steps of half a minute.
func (r *Run) integrate() {
	const step = 30 * time.Second
	for t := r.First; t < r.Last; t = t.Add(step) {
		var s Sample
		queues, used := make([]cluster.Milli, 2), [2]cluster.Milli{}
		for i := range r.Records {
			rec := &r.Records[i]
			m := cluster.Milli(rec.GPUs) * 1000
			if rec.Submit <= t && t < rec.FirstStart {
				s.Pending, s.Demand = s.Pending+1, s.Demand+m
			}
			if sp := r.span(cluster.JobID(i)); sp.From <= t && t < sp.To {
				s.Running, s.Alloc, s.Busy = s.Running+1, s.Alloc+m, s.Busy+m*9/10
				queues[rec.Queue] += m
				used[sp.Node] += m
			}
		}
		for _, u := range used {
			s.Free += 4000 - u
			if u > 0 {
				s.Split += 4000 - u
				s.Useless += (4000 - u) / 2
			}
		}
		r.Series.Add(t, min(t.Add(step), r.Last), s, queues)
	}
}

func (r *Run) span(id cluster.JobID) Span {
	for _, s := range r.Spans {
		if s.Job == id {
			return s
		}
	}
	return Span{From: cluster.Never}
}

// fixtures returns three runs of one list of jobs, and their figures.
func fixtures() ([]Run, []Summary) {
	runs := []Run{
		fixture("fifo", func(a, b *cluster.Job) bool { return a.Submit < b.Submit }),
		fixture("sjf", func(a, b *cluster.Job) bool { return a.Estimate < b.Estimate }),
		fixture("largest(knob=2)", func(a, b *cluster.Job) bool { return a.GPUs() > b.GPUs() }),
	}
	sums := make([]Summary, len(runs))
	for i := range runs {
		sums[i] = runs[i].Summarise()
	}
	return runs, sums
}
