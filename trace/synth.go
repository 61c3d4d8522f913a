package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/internal/random"
)

// SynthSpec describes a synthetic workload. Start from a preset (SynthPreset) or fill it in; Synth
// reports what is missing.
type SynthSpec struct {
	Name string
	Seed uint64
	Jobs int
	// The arrival rate is Rate (jobs per hour) or, if that is 0, follows from
	// the offered Load on GPUs: GPU-seconds = Load x GPUs x span.
	Rate float64
	Load float64
	GPUs int

	CV      float64 // coefficient of variation of the gaps; 1: Poisson
	Daily   float64 // strength of the daily cycle, 0 to 1
	Peak    float64 // hour of the day (UTC) at which it is highest
	Weekend float64 // arrivals on Saturday and Sunday relative to other days; 1: no difference
	Epoch   int64   // Unix seconds of Time 0

	Durations Dist
	Max       time.Duration // longest run
	Stretch   float64       // a gang of g runs g^Stretch times as long
	Gangs     []Weighted[int]
	Fraction  float64         // share of the one-GPU jobs that request a part of it
	Shares    []Weighted[int] // milli-GPU of those
	CPU       cluster.Milli   // milli-cores per GPU
	RAM       cluster.MiB     // MiB per GPU

	Users     int
	UserSkew  float64 // Zipf exponent
	Queues    int
	QueueSkew float64 // Zipf exponent
	Kinds     []Weighted[cluster.Kind]
	Tiers     []Weighted[cluster.Tier]
	Models    []Weighted[string] // computation models; none: no name

	Estimates  float64 // share of jobs with an estimate
	Error      float64 // sigma of ln(estimate / run)
	Limits     float64 // share of jobs with a time limit
	Deadlines  float64 // share of jobs with a deadline
	Slack      float64 // deadline = submit + run x (1 + slack x U(0.5, 1.5))
	Elastic    float64 // share of gangs that can run with a quarter of their tasks
	Checkpoint cluster.Checkpoint
	NoState    float64 // share of jobs that cannot checkpoint
	Failed     float64 // share of jobs that fail at their end
	Cancelled  float64 // share of jobs that are cancelled at their end
}

// Weighted is a value with its relative weight.
type Weighted[T any] struct {
	Value  T
	Weight float64
}

// pickWeighted draws a value; an empty list gives the zero value.
func pickWeighted[T any](r *rand.Rand, list []Weighted[T]) T {
	var zero T
	total := 0.0
	for _, w := range list {
		total += w.Weight
	}
	u := r.Float64() * total
	for i, w := range list {
		if u -= w.Weight; u < 0 || i == len(list)-1 {
			return w.Value
		}
	}
	return zero
}

// zipf returns cumulative weights 1/rank^s.
func zipf(n int, s float64) []float64 {
	cum := make([]float64, n)
	sum := 0.0
	for i := range cum {
		sum += math.Pow(float64(i+1), -s)
		cum[i] = sum
	}
	return cum
}

func pickZipf(r *rand.Rand, cum []float64) int {
	i, _ := slices.BinarySearch(cum, r.Float64()*cum[len(cum)-1])
	return min(i, len(cum)-1)
}

// check reports missing or invalid fields.
func (s *SynthSpec) check() error {
	share := func(name string, v float64) error {
		if !(v >= 0 && v <= 1) {
			return fmt.Errorf("synth: %s=%g: must be between 0 and 1", name, v)
		}
		return nil
	}
	switch {
	case s.Jobs < 1 || s.Jobs > 1<<24:
		return fmt.Errorf("synth: jobs=%d: must be 1 to %d", s.Jobs, 1<<24)
	case s.Rate == 0 && (s.Load == 0 || s.GPUs == 0):
		return fmt.Errorf("synth: give rate (jobs per hour), or load and gpus")
	case !(s.Rate >= 0 && s.Rate <= 1e9):
		return fmt.Errorf("synth: rate=%g: must be a number of jobs per hour above 0", s.Rate)
	case !(s.Load >= 0 && s.Load <= 1000):
		return fmt.Errorf("synth: load=%g: must be above 0, for example 0.9", s.Load)
	case s.GPUs < 0 || s.GPUs > 1<<24:
		return fmt.Errorf("synth: gpus=%d: must be 1 to %d", s.GPUs, 1<<24)
	case !(s.CV >= 0.05 && s.CV <= 50):
		return fmt.Errorf("synth: cv=%g: must be between 0.05 and 50; 1 is Poisson", s.CV)
	case !(s.Peak >= 0 && s.Peak < 24):
		return fmt.Errorf("synth: peak=%g: must be an hour from 0 to below 24", s.Peak)
	case !(s.Weekend > 0 && s.Weekend <= 10):
		return fmt.Errorf("synth: weekend=%g: must be above 0 and at most 10; 1 is like any day", s.Weekend)
	case !(s.Stretch >= -3 && s.Stretch <= 3):
		return fmt.Errorf("synth: stretch=%g: must be between -3 and 3", s.Stretch)
	case s.Max < time.Second || s.Max > cluster.MaxDuration:
		return fmt.Errorf("synth: max=%s: must be 1s to 100 years", s.Max)
	case s.Users < 1 || s.Users > 1<<20 || s.Queues < 1 || s.Queues > s.Users:
		return fmt.Errorf("synth: users=%d, queues=%d: must be at least 1, and no more queues than users", s.Users,
			s.Queues)
	case !(s.UserSkew >= 0 && s.UserSkew <= 5) || !(s.QueueSkew >= 0 && s.QueueSkew <= 5):
		return fmt.Errorf("synth: userskew=%g, queueskew=%g: must be between 0 and 5", s.UserSkew, s.QueueSkew)
	case !(s.Error >= 0 && s.Error <= 5):
		return fmt.Errorf("synth: error=%g: must be between 0 and 5", s.Error)
	case !(s.Slack >= 0 && s.Slack <= 1000):
		return fmt.Errorf("synth: slack=%g: must be between 0 and 1000", s.Slack)
	case s.Epoch < 0 || s.Epoch > int64(cluster.MaxDuration/time.Second):
		return fmt.Errorf("synth: epoch=%d: must be Unix seconds between 1970 and 2069", s.Epoch)
	}
	for _, g := range s.Gangs {
		if g.Value < 0 || g.Value > cluster.MaxTasks {
			return fmt.Errorf("synth: a gang of %d GPUs: must be 0 to %d", g.Value, cluster.MaxTasks)
		}
	}
	for _, p := range []struct {
		name string
		v    float64
	}{{"daily", s.Daily}, {"fraction", s.Fraction}, {"estimates", s.Estimates}, {"limits", s.Limits},
		{"deadlines", s.Deadlines},
		{"elastic", s.Elastic}, {"nostate", s.NoState}, {"failed", s.Failed}, {"cancelled", s.Cancelled},
		{"failed+cancelled", s.Failed + s.Cancelled}} {
		if err := share(p.name, p.v); err != nil {
			return err
		}
	}
	if len(s.Gangs) == 0 {
		return fmt.Errorf("synth: no gang sizes; write for example gangs=1:7/2:1/4:1/8:1")
	}
	return s.Durations.check()
}

// workday is the longest run of an interactive job: a notebook has at most one GPU, and a person in
// front of it.
const workday = 8 * time.Hour

// stream gives every aspect of the workload its own random numbers, so that changing one (say,
// deadlines) does not change the others.
func (s *SynthSpec) stream(aspect uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.Seed, aspect))
}

const (
	streamArrivals = iota + 1
	streamSizes
	streamOwners
	streamExtras
)

// Synth generates a workload. The same spec gives the same workload.
func Synth(s SynthSpec) (*Workload, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(s.Tiers) == 0 {
		s.Tiers = []Weighted[cluster.Tier]{{cluster.Standard, 1}} // not the zero value
	}
	wl := &Workload{Name: s.Name, Format: "synth", Epoch: s.Epoch, Jobs: make([]Entry, s.Jobs)}
	sizes, owners, extras := s.stream(streamSizes), s.stream(streamOwners), s.stream(streamExtras)
	who := newOwners(&s)
	var work float64 // GPU-seconds
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		e.Job.ID = cluster.JobID(i)
		e.Job.Name = "j" + strconv.Itoa(i)
		s.size(sizes, e)
		e.Job.Queue, e.Job.User = who.draw(owners)
		e.Job.Model = pickWeighted(owners, s.Models)
		work += e.GPUTime()
	}
	span := float64(s.Jobs) / s.Rate * 3600
	exact := s.Rate == 0
	if exact {
		if span = work / (s.Load * float64(s.GPUs)); work == 0 {
			return nil, fmt.Errorf("synth: the jobs use no GPUs, so there is no load; give rate instead")
		}
	}
	if span > cluster.MaxDuration.Seconds()/2 {
		return nil, fmt.Errorf(
			"synth: the workload would last %.0f years; raise the rate or the load, or ask for fewer jobs",
			span/3600/24/365)
	}
	for i, at := range s.arrivals(span, exact) {
		e := &wl.Jobs[i]
		e.Job.Submit = cluster.Time(asDuration(at))
		if e.Job.Kind == cluster.Service {
			e.End, e.Run = e.Job.Submit.Add(e.Run), 0
		}
		s.extra(extras, e)
	}
	return wl, nil
}

// size draws kind, tier, gang and run time.
func (s *SynthSpec) size(r *rand.Rand, e *Entry) {
	e.Job.Kind = pickWeighted(r, s.Kinds)
	e.Job.Tier = pickWeighted(r, s.Tiers)
	gang := pickWeighted(r, s.Gangs)
	part, share := r.Float64() < s.Fraction, pickWeighted(r, s.Shares)
	run := s.Durations.sample(r)
	run *= math.Pow(float64(max(gang, 1)), s.Stretch)
	longest := s.Max
	if e.Job.Kind == cluster.Interactive {
		gang, longest = min(gang, 1), min(longest, workday)
	}
	// Whole seconds, as in accounting, and at least one.
	e.Run = min(max(asDuration(run).Round(time.Second), time.Second), longest)
	req := cluster.Request{GPUs: 1, CPU: s.CPU, RAM: s.RAM}
	switch {
	case gang == 0:
		req.GPUs, gang = 0, 1
	case gang == 1 && part && share > 0:
		req.Share = cluster.Milli(share)
	default:
		e.Flexible = true
	}
	e.Job.Tasks = []cluster.TaskSet{{Count: gang, Request: req}}
}

// owners draws queues and users. A user belongs to one queue.
type owners struct {
	queues []float64   // cumulative Zipf weights
	users  [][]float64 // per queue
}

func newOwners(s *SynthSpec) owners {
	o := owners{queues: zipf(s.Queues, s.QueueSkew)}
	for q := range s.Queues {
		// User u belongs to queue u mod Queues.
		n := (s.Users - q + s.Queues - 1) / s.Queues
		o.users = append(o.users, zipf(n, s.UserSkew))
	}
	return o
}

func (o owners) draw(r *rand.Rand) (queue, user string) {
	q := pickZipf(r, o.queues)
	u := pickZipf(r, o.users[q])*len(o.queues) + q
	return "q" + strconv.Itoa(q+1), "u" + strconv.Itoa(u+1)
}

// arrivals returns submission times in seconds, ascending. Gaps are gamma distributed on a time
// axis with a constant rate; the weekly curve then maps that axis to real time. The first arrival
// is at 0. If exact, the last is at span; otherwise span is where the mean number of arrivals
// reaches the number of jobs.
func (s *SynthSpec) arrivals(span float64, exact bool) []float64 {
	r := s.stream(streamArrivals)
	at := make([]float64, s.Jobs)
	for i := 1; i < len(at); i++ {
		at[i] = at[i-1] + random.Gamma(r, s.CV)
	}
	curve := s.week()
	total := curve.even(span)
	scale := total / float64(s.Jobs)
	if last := at[len(at)-1]; exact && last > 0 {
		scale = total / last
	}
	for i := range at {
		at[i] = curve.real(at[i] * scale)
	}
	return at
}

// weekCurve is the relative arrival rate of each hour of the week, from the hour of the epoch on,
// with mean 1, and its running sum.
type weekCurve struct {
	cum   [169]float64 // hours of even time before each hour of real time
	start float64      // seconds between the start of its first hour and Time 0
}

func (s *SynthSpec) week() weekCurve {
	var c weekCurve
	first := s.Epoch / 3600 // hours since the Unix epoch, a Thursday
	c.start = float64(s.Epoch % 3600)
	var rate [168]float64
	sum := 0.0
	for i := range rate {
		h := first + int64(i)
		day := (h/24 + 4) % 7 // 0: Sunday
		rate[i] = 1 + s.Daily*math.Cos(2*math.Pi*(float64(h%24)+0.5-s.Peak)/24)
		if day == 0 || day == 6 {
			rate[i] *= s.Weekend
		}
		sum += rate[i]
	}
	for i := range rate {
		c.cum[i+1] = c.cum[i] + rate[i]*168/sum
	}
	return c
}

// even returns the even time (seconds) that passes in the first t seconds.
func (c *weekCurve) even(t float64) float64 {
	at := func(t float64) float64 {
		h := t / 3600
		weeks := math.Floor(h / 168)
		h -= weeks * 168
		i := min(int(h), 167)
		return 3600 * (weeks*168 + c.cum[i] + (c.cum[i+1]-c.cum[i])*(h-float64(i)))
	}
	return at(t+c.start) - at(c.start)
}

// real is the inverse of even.
func (c *weekCurve) real(u float64) float64 {
	u += c.evenStart()
	h := u / 3600
	weeks := math.Floor(h / 168)
	h -= weeks * 168
	i, _ := slices.BinarySearch(c.cum[:], h)
	i = min(max(i-1, 0), 167)
	// A daily cycle of strength 1 has hours with almost no arrivals, but never none.
	in := (h - c.cum[i]) / (c.cum[i+1] - c.cum[i])
	return max(3600*(weeks*168+float64(i)+in)-c.start, 0)
}

// evenStart is the even time before Time 0 in the curve's first hour.
func (c *weekCurve) evenStart() float64 { return c.start * c.cum[1] }

// extra draws what a user states about a job, and its outcome.
func (s *SynthSpec) extra(r *rand.Rand, e *Entry) {
	// All numbers are drawn for every job, so that a changed share affects nothing else.
	est, z := r.Float64(), r.NormFloat64()
	lim, over := r.Float64(), r.ExpFloat64()
	dead, tight := r.Float64(), r.Float64()
	elastic, state, end := r.Float64(), r.Float64(), r.Float64()
	j := &e.Job
	if j.Kind == cluster.Service {
		j.Checkpoint.None = true
		return
	}
	run := e.Run.Seconds()
	if est < s.Estimates {
		j.Estimate = max(asDuration(run*math.Exp(s.Error*z)).Round(time.Second), time.Second)
	}
	if lim < s.Limits {
		j.Limit = niceLimit(asDuration(run * (1 + over)))
	}
	if dead < s.Deadlines {
		j.Deadline = j.Submit.Add(asDuration(run * (1 + s.Slack*(0.5+tight))).Round(time.Second))
	}
	if n := j.Tasks[0].Count; n > 1 && elastic < s.Elastic {
		j.Elastic = cluster.Elastic{Min: max(n/4, 1), Max: n}
	}
	j.Checkpoint = s.Checkpoint
	if state < s.NoState {
		j.Checkpoint = cluster.Checkpoint{None: true}
	}
	switch {
	case end < s.Failed:
		e.Outcome = Failed
	case end < s.Failed+s.Cancelled:
		e.Outcome = Cancelled
	}
}

// niceLimit rounds up to limits that people use.
func niceLimit(d time.Duration) time.Duration {
	const h = time.Hour
	for _, n := range []time.Duration{h / 4, h / 2, h, 2 * h, 4 * h, 8 * h, 12 * h, 24 * h, 48 * h, 72 * h, 7 * 24 * h,
		14 * 24 * h, 30 * 24 * h} {
		if d <= n {
			return n
		}
	}
	return min(d, cluster.MaxDuration)
}
