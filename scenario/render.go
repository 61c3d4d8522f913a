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

// A run's output has a summary line for each variant and, below it, a line for each job, or for
// each series if there are more than manyJobs jobs.
const manyJobs = 12

// maxPlaces is the number of nodes that a line lists before it summarizes them.
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

// sums formats the variant's figures.
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

// jobLine describes where and when a job ran, and other notable facts.
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

// tally accumulates the figures of a series line.
type tally struct {
	first, last                    cluster.Time
	wait, most, jct                duration
	started, done, preempted, lost int
	running, waiting               int
	outcomes                       [report.Lost + 1]int
}

func (p *played) tally(jobs []int) tally {
	t := tally{first: cluster.Never}
	for _, i := range jobs {
		rec, st := &p.run.Records[p.ids[i]], &p.stories[p.ids[i]]
		t.outcomes[rec.Outcome]++
		t.preempted += int(rec.Preemptions)
		t.lost += int(rec.Losses)
		if rec.Outcome == report.Unfinished {
			t.waiting++
			if n := len(st.stays); n > 0 && st.stays[n-1].to == cluster.Never {
				t.waiting--
				t.running++
			}
		}
		if rec.FirstStart != cluster.Never {
			t.started++
			t.first, t.last = min(t.first, rec.FirstStart), max(t.last, rec.FirstStart)
			t.wait += rec.Waited
			t.most = max(t.most, rec.Waited)
		}
		if rec.Outcome == report.Completed {
			t.done++
			t.jct += rec.End.Sub(rec.Submit)
		}
	}
	return t
}

// seriesLine summarizes a series.
func (p *played) seriesLine(base string) string {
	jobs, err := p.set.lookup(base)
	if err != nil {
		panic("scenario: a series is lost: " + err.Error())
	}
	t := p.tally(jobs)
	f := []string{}
	for o := report.Completed; o <= report.Lost; o++ {
		if t.outcomes[o] > 0 {
			f = append(f, fmt.Sprintf("%d %s", t.outcomes[o], o))
		}
	}
	if t.running > 0 {
		f = append(f, fmt.Sprintf("%d running", t.running))
	}
	if t.waiting > 0 {
		f = append(f, fmt.Sprintf("%d waiting", t.waiting))
	}
	if t.started > 0 {
		f = append(f, fmt.Sprintf("first starts %s-%s", clock(t.first), clock(t.last)),
			fmt.Sprintf("mean wait %s, most %s", human(t.wait/duration(t.started)), human(t.most)))
	}
	if t.done > 0 {
		f = append(f, "mean jct "+human(t.jct/duration(t.done)))
	}
	if t.preempted > 0 {
		f = append(f, fmt.Sprintf("preempted %d", t.preempted))
	}
	if t.lost > 0 {
		f = append(f, fmt.Sprintf("lost their devices %d", t.lost))
	}
	last := strings.TrimPrefix(p.set.names[jobs[len(jobs)-1]], base+"[")
	first := strings.TrimSuffix(strings.TrimPrefix(p.set.names[jobs[0]], base+"["), "]")
	return fmt.Sprintf("%s[%s..%s: %s", base, first, last, strings.Join(f, "; "))
}

// where formats nodes and devices: "n1:0-3 n2:0", "n1:0 (0.5)", "n1:0 (slots 4-7)".
func (p *played) where(allocs []engine.Alloc) string {
	nodes := p.nodesOf(allocs)
	if len(nodes) > maxPlaces {
		n := 0
		for i := range allocs {
			n += bits.OnesCount64(allocs[i].GPUs)
		}
		return fmt.Sprintf("%s..%s (%d GPUs on %d nodes)", nodes[0], nodes[len(nodes)-1], n, len(nodes))
	}
	var f []string
	for _, n := range nodes {
		var whole uint64
		parts, bare := len(f), false
		for i := range allocs {
			a := &allocs[i]
			switch {
			case p.set.nodeName(a.Node) != n:
			case a.Slots != 0:
				f = append(f, fmt.Sprintf("%s:%s (slots %s)", n, devices(a.GPUs), devices(uint64(a.Slots))))
			case a.Share != 0:
				f = append(f, fmt.Sprintf("%s:%s (%g)", n, devices(a.GPUs), float64(a.Share)/1000))
			default:
				whole |= a.GPUs
				bare = true
			}
		}
		if whole != 0 {
			f = append(f, n+":"+devices(whole))
		} else if bare && len(f) == parts {
			f = append(f, n)
		}
	}
	return strings.Join(f, " ")
}

// nodesOf lists the names of an allocation's nodes, each once.
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

// devices formats a mask: "0-3,7".
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

// human rounds a duration to the precision that matters to a reader.
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

// gpuTime converts milli-GPU-milliseconds to the time of one GPU.
func gpuTime(v int64) duration { return duration(v) * time.Microsecond }
