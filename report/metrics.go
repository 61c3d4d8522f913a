package report

import (
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Dist is the distribution of a figure over jobs. Percentiles are by nearest rank over the jobs
// that have the figure.
type Dist struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func distOf(v []float64) Dist {
	d := Dist{N: len(v)}
	if len(v) == 0 {
		return d
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	rank := func(p float64) float64 { return v[max(0, int(math.Ceil(p*float64(len(v))))-1)] }
	d.Mean, d.P50, d.P95, d.P99, d.Max = sum/float64(len(v)), rank(.50), rank(.95), rank(.99), v[len(v)-1]
	return d
}

// Summary holds the figures of one run. Times are seconds, shares are 0..1.
type Summary struct {
	Policy   string `json:"policy"`
	Placer   string `json:"placer"`
	Backfill string `json:"backfill"`
	Traffic  string `json:"traffic"`
	Hash     string `json:"hash"`
	Partial  bool   `json:"partial,omitempty"`

	Jobs       int `json:"jobs"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	TimedOut   int `json:"timed_out"`
	Rejected   int `json:"rejected"`
	Lost       int `json:"lost"`
	Unfinished int `json:"unfinished"` // never counted in JCT, always shown

	JCT      Dist `json:"jct"`
	Delay    Dist `json:"queueing_delay"`
	Slowdown Dist `json:"slowdown"` // bounded at 10 s

	Makespan    float64 `json:"makespan"`
	Allocation  float64 `json:"gpu_allocation"`  // held GPU time / capacity over the makespan
	Utilisation float64 `json:"gpu_utilisation"` // computing GPU time / capacity over the makespan
	// computing GPU time whose work was kept / capacity over the makespan
	Goodput       float64 `json:"goodput"`
	Fragmentation float64 `json:"fragmentation"` // share of idle GPU time on partly used nodes
	// share of idle GPU time that recently submitted tasks cannot use (FGD, ATC'23)
	Unusable float64 `json:"unusable"`
	FTF      Dist    `json:"finish_time_ratio"`  // rho: JCT / JCT alone on a 1/N share
	FTFOver  float64 `json:"finish_time_unfair"` // share of jobs with rho > 1
	Jain     float64 `json:"jain_queues"`        // Jain's index over queues' mean speed (ideal run time / JCT)

	LongTerm float64 `json:"long_term_gpu_time"` // of the tenant with the smallest ratio: held / deserved GPU time

	Preemptions int     `json:"preemptions"`
	Failures    int     `json:"failures"`
	LostHours   float64 `json:"gpu_hours_lost"` // work thrown away
	// held but not computing: start-up, checkpoint, restart
	OverheadHours float64 `json:"gpu_hours_overhead"`
	SendingHours  float64 `json:"gpu_hours_sending"` // running jobs waited for traffic
	// of these, because of other jobs
	ContendedHours float64       `json:"gpu_hours_contended"`
	Links          []LinkLoad    `json:"links,omitempty"` // the busiest
	Deadlines      int           `json:"deadlines"`
	DeadlinesMet   int           `json:"deadlines_met"`
	Accepted       int           `json:"deadlines_accepted"` // by a policy that answers deadlines
	Declined       int           `json:"deadlines_declined"`
	AcceptedLate   int           `json:"accepted_late"`   // accepted, and not over by then
	Power          *PowerSummary `json:"power,omitempty"` // where nodes may sleep
	WallSeconds    float64       `json:"wall_seconds,omitempty"`
	DecisionMicros float64       `json:"decision_us,omitempty"` // wall time per step, including the simulated world
}

// slowdownBound is tau, the bound of the bounded slowdown.
const slowdownBound = 10 * time.Second

// Summarise computes the figures of a run.
func (r *Run) Summarise() Summary {
	s := Summary{Policy: r.Policy, Placer: r.Placer, Backfill: r.Backfill, Traffic: r.Traffic, Hash: hex(r.Hash),
		Partial: r.Partial,
		Jobs:    len(r.Records), Failures: r.Failures, WallSeconds: r.Wall.Seconds()}
	var jct, delay, slow, rho []float64
	var held, busy, lost, sending, contended int64
	speed, count := make([]float64, len(r.Queues)), make([]int, len(r.Queues))
	for i := range r.Records {
		rec := &r.Records[i]
		s.count(rec.Outcome)
		held, busy, lost = held+rec.Held, busy+rec.Busy, lost+rec.Lost
		sending, contended = sending+rec.Sending, contended+rec.Contended
		s.Preemptions += int(rec.Preemptions)
		s.deadline(r.Jobs[i], rec, r.Last)
		if rec.Outcome == Rejected {
			continue
		}
		if rec.FirstStart != cluster.Never {
			delay = append(delay, rec.Waited.Seconds())
		}
		if rec.Outcome != Completed && rec.Outcome != Failed {
			continue
		}
		t := rec.End.Sub(rec.Submit)
		jct = append(jct, t.Seconds())
		slow = append(slow, float64(max(t, slowdownBound))/float64(max(r.Ideal[i], slowdownBound)))
		rho = append(rho, r.rho(i, t))
		if t > 0 {
			speed[rec.Queue] += float64(r.Ideal[i]) / float64(t)
			count[rec.Queue]++
		}
	}
	s.JCT, s.Delay, s.Slowdown, s.FTF = distOf(jct), distOf(delay), distOf(slow), distOf(rho)
	over := 0
	for _, v := range rho {
		if v > 1 {
			over++
		}
	}
	if len(rho) > 0 {
		s.FTFOver = float64(over) / float64(len(rho))
	}
	s.Jain, s.LongTerm = jain(speed, count), r.longTerm()
	r.shares(&s, held, busy, lost)
	s.SendingHours, s.ContendedHours = float64(sending)/milliHour, float64(contended)/milliHour
	s.Links = r.Links[:min(len(r.Links), shownLinks)]
	s.Power = r.powerSummary()
	return s
}

func (s *Summary) count(o Outcome) {
	switch o {
	case Completed:
		s.Completed++
	case Failed:
		s.Failed++
	case Cancelled:
		s.Cancelled++
	case TimedOut:
		s.TimedOut++
	case Rejected:
		s.Rejected++
	case Lost:
		s.Lost++
	default:
		s.Unfinished++
	}
}

func (s *Summary) deadline(j *cluster.Job, rec *Record, last cluster.Time) {
	if j.Deadline == 0 {
		return
	}
	s.Deadlines++
	if rec.met(j) {
		s.DeadlinesMet++
	}
	switch rec.Answer {
	case Accepted:
		if s.Accepted++; rec.late(j, last) {
			s.AcceptedLate++
		}
	case Declined:
		s.Declined++
	}
}

// met reports whether a job with a deadline completed by then.
func (r *Record) met(j *cluster.Job) bool { return r.Outcome == Completed && r.End <= j.Deadline }

// late reports whether a job was lost or had not ended by its deadline, in a run that ended at
// last. If the deadline was accepted, the policy broke its promise.
func (r *Record) late(j *cluster.Job, last cluster.Time) bool {
	return r.Outcome == Lost || min(r.End, last) > j.Deadline
}

// rho is Themis' finish-time fairness: JCT over the JCT alone on a 1/N share of the cluster, N
// being the mean number of active jobs over its life. A share smaller than the gang stretches the
// run in proportion.
func (r *Run) rho(i int, jct time.Duration) float64 {
	n := max(1, r.Active[i])
	share := float64(r.Capacity) / n
	alone := float64(r.Ideal[i]) * max(1, float64(r.Jobs[i].GPUMilli())/share)
	return float64(jct) / max(alone, float64(time.Second))
}

// FinishTimeRatio is the job's finish-time fairness (see rho); false: it did not end by itself
// (completed or failed).
func (r *Run) FinishTimeRatio(i int) (float64, bool) {
	rec := &r.Records[i]
	if rec.Outcome != Completed && rec.Outcome != Failed {
		return 0, false
	}
	return r.rho(i, rec.End.Sub(rec.Submit)), true
}

// jain is Jain's index over the means of the queues that completed jobs.
func jain(sum []float64, n []int) float64 {
	var s, sq, k float64
	for i := range sum {
		if n[i] > 0 {
			x := sum[i] / float64(n[i])
			s, sq, k = s+x, sq+x*x, k+1
		}
	}
	if sq == 0 {
		return 0
	}
	return s * s / (k * sq)
}

const (
	milliHour  = 1000 * 3600 * 1000 // milli-GPU-milliseconds in a GPU-hour
	shownLinks = 10
)

func (r *Run) shares(s *Summary, held, busy, lost int64) {
	if r.Last > r.First {
		s.Makespan = r.Last.Sub(r.First).Seconds()
	}
	s.LostHours, s.OverheadHours = float64(lost)/milliHour, float64(held-busy)/milliHour
	if total := s.Makespan * float64(r.Capacity) * 1000; total > 0 {
		s.Allocation, s.Utilisation, s.Goodput = float64(held)/total, float64(busy)/total, float64(busy-lost)/total
	}
	var split, useless, free float64
	for i := range r.Series.Bins {
		split += r.Series.Bins[i].Split
		useless += r.Series.Bins[i].Useless
		free += r.Series.Bins[i].Free
	}
	if free > 0 {
		s.Fragmentation, s.Unusable = split/free, useless/free
	}
	if r.Decided > 0 {
		s.DecisionMicros = r.Wall.Seconds() * 1e6 / float64(r.Decided)
	}
}

func hex(v uint64) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 16)
	for i := range b {
		b[15-i] = digits[v>>(4*i)&15]
	}
	return string(b)
}
