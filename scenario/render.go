package scenario

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/report"
)

// A run's output has a line of sums for each variant and below it a line for
// each job, or for each series where there are more than manyJobs jobs.
const manyJobs = 12

// maxPlaces is how many nodes a line lists before it sums them up.
const maxPlaces = 4

func (r *runCmd) render(all []*played) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.label+": "+p.sums())
		if r.showJobs == "sums" {
			continue
		}
		series := r.showJobs == "series" || r.showJobs == "auto" && len(r.set.jobs) > manyJobs
		done := map[string]bool{}
		for i := range r.set.jobs {
			switch b := r.set.jobs[i].series; {
			case b == "" || !series:
				out = append(out, "  "+p.jobLine(i))
			case !done[b]:
				done[b] = true
				out = append(out, "  "+p.seriesLine(b))
			}
		}
	}
	return out
}

// sums is the variant's figures.
func (p *played) sums() string {
	s := &p.sum
	f := []string{}
	if s.JCT.N > 0 {
		f = append(f, "mean jct "+seconds(s.JCT.Mean))
	}
	if s.Delay.N > 0 {
		f = append(f, "mean wait "+seconds(s.Delay.Mean))
	}
	f = append(f, "makespan "+seconds(s.Makespan), fmt.Sprintf("util %.2f", s.Utilisation))
	for _, c := range []struct {
		n    int
		what string
	}{{s.Preemptions, "preempted"}, {s.Failed, "failed"}, {s.Cancelled, "cancelled"}, {s.TimedOut, "timed out"},
		{s.Rejected, "rejected"}, {s.Lost, "lost"}, {s.Unfinished, "unfinished"}} {
		if c.n > 0 {
			f = append(f, fmt.Sprintf("%s %d", c.what, c.n))
		}
	}
	return strings.Join(f, ", ")
}

// jobLine says where a job was and when, and what else there is to say.
func (p *played) jobLine(i int) string {
	id := p.ids[i]
	rec, st := &p.run.Records[id], &p.stories[id]
	var stays, notes []string
	for k := range st.stays {
		s := &st.stays[k]
		to := ""
		if s.to != cluster.Never {
			to = clock(s.to)
		}
		stays = append(stays, fmt.Sprintf("%s-%s on %s", clock(s.from), to, p.where(s.allocs)))
	}
	if stays == nil && rec.Outcome != report.Rejected {
		stays = []string{"never started"}
	}
	if rec.Waited > 0 {
		notes = append(notes, "waited "+human(rec.Waited))
	}
	if rec.Preemptions > 0 {
		notes = append(notes, fmt.Sprintf("preempted %d", rec.Preemptions))
	}
	if rec.Losses > 0 {
		notes = append(notes, fmt.Sprintf("lost its devices %d", rec.Losses))
	}
	if rec.Lost > 0 {
		notes = append(notes, "lost work "+human(gpuTime(rec.Lost)))
	}
	switch rec.Outcome {
	case report.Completed, report.Unfinished:
	case report.Rejected:
		text := "rejected"
		if st.text != "" {
			text += ": " + st.text
		}
		notes = append(notes, text)
	default:
		notes = append(notes, rec.Outcome.String())
	}
	if stays != nil {
		notes = append([]string{strings.Join(stays, ", ")}, notes...)
	}
	return p.set.names[i] + ": " + strings.Join(notes, "; ")
}

// seriesLine sums up a series.
func (p *played) seriesLine(base string) string {
	jobs, err := p.set.lookup(base)
	if err != nil {
		panic("scenario: a series is lost: " + err.Error())
	}
	count := map[report.Outcome]int{}
	first, last := cluster.Never, cluster.Time(0)
	var wait, most, jct duration
	started, done, preempted := 0, 0, 0
	for _, i := range jobs {
		rec := &p.run.Records[p.ids[i]]
		count[rec.Outcome]++
		preempted += int(rec.Preemptions)
		if rec.FirstStart != cluster.Never {
			started++
			first, last = min(first, rec.FirstStart), max(last, rec.FirstStart)
			wait += rec.Waited
			most = max(most, rec.Waited)
		}
		if rec.Outcome == report.Completed {
			done++
			jct += rec.End.Sub(rec.Submit)
		}
	}
	f := []string{}
	for o := report.Unfinished; o <= report.Lost; o++ {
		if count[o] > 0 {
			f = append(f, fmt.Sprintf("%d %s", count[o], o))
		}
	}
	if started > 0 {
		f = append(f, fmt.Sprintf("started %s-%s", clock(first), clock(last)),
			fmt.Sprintf("mean wait %s, most %s", human(wait/duration(started)), human(most)))
	}
	if done > 0 {
		f = append(f, "mean jct "+human(jct/duration(done)))
	}
	if preempted > 0 {
		f = append(f, fmt.Sprintf("preempted %d", preempted))
	}
	return fmt.Sprintf("%s[%d]: %s", base, len(jobs), strings.Join(f, "; "))
}

// where names nodes and devices: "n1:0-3 n2:0", "n1:0 (0.5)", "n1:0 (slots 4-7)".
func (p *played) where(allocs []engine.Alloc) string {
	var f []string
	gpus, last := 0, int32(-1)
	nodes := p.nodesOf(allocs)
	for i := 0; i < len(allocs); i++ {
		a := &allocs[i]
		gpus += bits.OnesCount64(a.GPUs)
		mask := a.GPUs
		for a.Share == 0 && i+1 < len(allocs) && allocs[i+1].Node == a.Node && allocs[i+1].Share == 0 {
			i++
			mask |= allocs[i].GPUs
			gpus += bits.OnesCount64(allocs[i].GPUs)
		}
		s := p.set.nodeName(a.Node)
		if mask != 0 {
			s += ":" + devices(mask)
		}
		switch {
		case a.Slots != 0:
			s += fmt.Sprintf(" (slots %s)", devices(uint64(a.Slots)))
		case a.Share != 0:
			s += fmt.Sprintf(" (%g)", float64(a.Share)/1000)
		}
		f = append(f, s)
		last = a.Node
	}
	if len(nodes) > maxPlaces {
		return fmt.Sprintf("%s..%s (%d GPUs on %d nodes)", p.set.nodeName(allocs[0].Node), p.set.nodeName(last), gpus, len(nodes))
	}
	return strings.Join(f, " ")
}

// nodesOf lists the names of the nodes of an allocation, each once.
func (p *played) nodesOf(allocs []engine.Alloc) []string {
	var out []string
	for i := range allocs {
		if n := p.set.nodeName(allocs[i].Node); !within(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func (s *setup) nodeName(i int32) string { return s.spec.Nodes[i].Name }

// devices prints a mask: "0-3,7".
func devices(mask uint64) string {
	var f []string
	for i := 0; i < 64; i++ {
		if mask>>i&1 == 0 {
			continue
		}
		from := i
		for i+1 < 64 && mask>>(i+1)&1 == 1 {
			i++
		}
		if from == i {
			f = append(f, fmt.Sprint(i))
		} else {
			f = append(f, fmt.Sprintf("%d-%d", from, i))
		}
	}
	return strings.Join(f, ",")
}

// human rounds a duration to what a reader wants to know.
func human(d duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Second)
	case d >= time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Millisecond)
	}
	return cluster.FormatDuration(d)
}

func clock(t cluster.Time) string { return human(duration(t)) }

func seconds(s float64) string { return human(duration(s * float64(time.Second))) }

// gpuTime turns milli-GPU-milliseconds into the time of one GPU.
func gpuTime(v int64) duration { return duration(v) * time.Microsecond }
