package trace

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
)

// Summary describes a trace.
type Summary struct {
	Name       string          `json:"name"`
	Format     string          `json:"format"`
	Jobs       int             `json:"jobs"`
	Users      int             `json:"users"`
	Queues     int             `json:"queues"`
	Nodes      int             `json:"nodes,omitempty"`
	NodeGPUs   int             `json:"node_gpus,omitempty"`   // GPUs of the trace's own nodes
	From       string          `json:"from,omitempty"`        // first submission, UTC, if there is a calendar
	To         string          `json:"to,omitempty"`          // last submission
	Span       float64         `json:"span_s"`                // seconds from the first to the last submission
	GPUHours   float64         `json:"gpu_hours"`             // useful work; shared GPUs count by their share
	CPUOnly    int             `json:"cpu_only"`              // jobs without GPUs
	Fractional int             `json:"fractional"`            // jobs that share GPUs
	Deadlines  int             `json:"deadlines,omitempty"`   // jobs with one
	Limits     int             `json:"limits,omitempty"`      // jobs with a time limit
	Gangs      []Share         `json:"gangs"`                 // by requested GPUs
	Kinds      []Share         `json:"kinds"`                 //
	Tiers      []Share         `json:"tiers"`                 //
	Outcomes   []Share         `json:"outcomes"`              //
	TopQueues  []Share         `json:"top_queues"`            // by GPU time, at most 5
	TopUsers   []Share         `json:"top_users"`             // by GPU time, at most 5
	Run        DurationSummary `json:"run"`                   // of the jobs that end by themselves, seconds
	Arrivals   ArrivalSummary  `json:"arrivals"`              //
	FullLoad   float64         `json:"gpus_for_load_1"`       // GPU-seconds / span
	Top1       float64         `json:"top_1_percent_share"`   // share of the GPU time in the largest 1 % of jobs
	Oddities   []string        `json:"oddities,omitempty"`    //
	Bad        int             `json:"bad_rows,omitempty"`    // rows skipped
	BadReasons []RowError      `json:"bad_reasons,omitempty"` // the first of them
}

// Share is a group of the jobs.
type Share struct {
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	JobShare float64 `json:"job_share"` // of all jobs, 0 to 1
	GPUHours float64 `json:"gpu_hours"`
	GPUShare float64 `json:"gpu_share"` // of all GPU-hours, 0 to 1
}

// DurationSummary describes run times in seconds.
type DurationSummary struct {
	Mean float64 `json:"mean_s"`
	P50  float64 `json:"p50_s"`
	P95  float64 `json:"p95_s"`
	P99  float64 `json:"p99_s"`
	Max  float64 `json:"max_s"`
}

// ArrivalSummary describes how jobs arrive. Hours and days are those of the
// trace's calendar (UTC, or local where the trace has no zone).
type ArrivalSummary struct {
	MeanGap     float64  `json:"mean_gap_s"`       // seconds between submissions
	CV          float64  `json:"cv"`               // coefficient of variation of the gaps
	LongestGap  float64  `json:"longest_gap_s"`    //
	BusiestHour float64  `json:"busiest_hour_s"`   // its start, seconds since Time 0
	BusiestJobs int      `json:"busiest_jobs"`     // jobs submitted in it
	ByHour      *[24]int `json:"by_hour,omitzero"` // of the day; nil without a calendar
	ByDay       *[7]int  `json:"by_day,omitzero"`  // of the week from Monday; nil without a calendar
}

// Load returns the offered load on a number of GPUs: GPU-seconds / (GPUs x span). It is 0 if the
// trace has no span.
func (s Summary) Load(gpus int) float64 {
	if gpus < 1 {
		return 0
	}
	return s.FullLoad / float64(gpus)
}

// tally sums jobs and GPU time by name.
type tally struct {
	order []string
	jobs  map[string]int
	work  map[string]float64
}

func newTally(order ...string) *tally {
	t := &tally{order, map[string]int{}, map[string]float64{}}
	for _, name := range order {
		t.jobs[name] = 0
	}
	return t
}

func (t *tally) add(name string, work float64) {
	if _, ok := t.jobs[name]; !ok {
		t.order = append(t.order, name)
	}
	t.jobs[name]++
	t.work[name] += work
}

// shares returns the non-empty groups in order of first occurrence (or as given); total is the
// GPU-seconds of the whole.
func (t *tally) shares(jobs int, total float64) []Share {
	var out []Share
	for _, name := range t.order {
		if t.jobs[name] == 0 {
			continue
		}
		s := Share{Name: name, Jobs: t.jobs[name], JobShare: float64(t.jobs[name]) / float64(jobs),
			GPUHours: t.work[name] / 3600}
		if total > 0 {
			s.GPUShare = t.work[name] / total
		}
		out = append(out, s)
	}
	return out
}

// top returns the largest groups by GPU time, then jobs, then name.
func (t *tally) top(n, jobs int, total float64) []Share {
	all := t.shares(jobs, total)
	slices.SortFunc(all, func(x, y Share) int {
		return cmp.Or(cmp.Compare(y.GPUHours, x.GPUHours), cmp.Compare(y.Jobs, x.Jobs), cmp.Compare(x.Name, y.Name))
	})
	return all[:min(n, len(all))]
}

// Inspect measures a workload.
func Inspect(wl *Workload) Summary {
	s := Summary{Name: wl.Name, Format: wl.Format, Jobs: len(wl.Jobs), Nodes: len(wl.Nodes),
		Bad: wl.BadAll, BadReasons: wl.Bad[:min(len(wl.Bad), 10)]}
	for i := range wl.Nodes {
		s.NodeGPUs += wl.Nodes[i].GPUs
	}
	if len(wl.Jobs) == 0 {
		s.Oddities = append(slices.Clone(wl.Notes), "no jobs")
		return s
	}
	var order []string
	for k := range cluster.Trial + 1 {
		order = append(order, k.String())
	}
	kinds, tiers, outcomes := newTally(order...), newTally("critical", "standard", "best-effort"),
		newTally(outcomeNames...)
	users, queues, gangs := newTally(), newTally(), newTally()
	works := make([]float64, 0, len(wl.Jobs))
	var runs []float64
	var total float64
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		w := e.GPUTime()
		total += w
		works = append(works, w)
		kinds.add(e.Job.Kind.String(), w)
		tiers.add(e.Job.Tier.String(), w)
		outcomes.add(e.Outcome.String(), w)
		users.add(e.Job.User, w)
		queues.add(e.Job.Queue, w)
		gangs.add(gangBucket(&e.Job), w)
		if e.Job.Kind != cluster.Service {
			runs = append(runs, e.Run.Seconds())
		}
		s.count(&e.Job)
	}
	first, last := wl.Jobs[0].Job.Submit, wl.Jobs[len(wl.Jobs)-1].Job.Submit
	s.Span = last.Sub(first).Seconds()
	s.GPUHours = total / 3600
	if s.Span > 0 {
		s.FullLoad = total / s.Span
	}
	if wl.Epoch != 0 {
		s.From, s.To = calendar(wl.Epoch, first), calendar(wl.Epoch, last)
	}
	n := len(wl.Jobs)
	s.Users, s.Queues = named(users), named(queues)
	s.Kinds, s.Tiers, s.Outcomes = kinds.shares(n, total), tiers.shares(n, total), outcomes.shares(n, total)
	s.Gangs = gangs.shares(n, total)
	slices.SortFunc(s.Gangs, func(x, y Share) int { return cmp.Compare(bucketRank(x.Name), bucketRank(y.Name)) })
	s.TopQueues, s.TopUsers = queues.top(5, n, total), users.top(5, n, total)
	s.Run = describe(runs)
	s.Top1 = topShare(works, total)
	s.Arrivals = arrivals(wl)
	s.Oddities = oddities(wl, &s)
	return s
}

func (s *Summary) count(j *cluster.Job) {
	if gangBucket(j) == "none" {
		s.CPUOnly++
	}
	if slices.ContainsFunc(j.Tasks, func(t cluster.TaskSet) bool { return t.Request.Fractional() }) {
		s.Fractional++
	}
	if j.Deadline > 0 {
		s.Deadlines++
	}
	if j.Limit > 0 {
		s.Limits++
	}
}

// named counts the names except the empty one.
func named(t *tally) int {
	n := len(t.jobs)
	if _, ok := t.jobs[""]; ok {
		n--
	}
	return n
}

func calendar(epoch int64, t cluster.Time) string {
	return time.Unix(epoch, int64(t)).UTC().Format(time.RFC3339)
}

// gangBucket names the size class of a job: "none", "part", "1", "2", "3-4",
// "5-8" and so on.
func gangBucket(j *cluster.Job) string {
	n := j.GPUs()
	switch {
	case n == 0 && len(j.Tasks) > 0 && j.Tasks[0].Request.Profile != "":
		return "slice"
	case n == 0:
		return "none"
	case n == 1 && j.GPUMilli() < cluster.Whole:
		return "part"
	case n <= 2:
		return strconv.Itoa(n)
	}
	top := 4
	for top < n {
		top *= 2
	}
	return fmt.Sprintf("%d-%d", top/2+1, top)
}

func bucketRank(name string) int {
	switch name {
	case "none":
		return -3
	case "slice":
		return -2
	case "part":
		return -1
	}
	return digits([]byte(name[:max(0, prefixDigits(name))]))
}

func prefixDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// describe sorts the values. Percentiles are the value at index floor(n*p).
func describe(v []float64) DurationSummary {
	if len(v) == 0 {
		return DurationSummary{}
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	at := func(p float64) float64 { return v[min(int(float64(len(v))*p), len(v)-1)] }
	return DurationSummary{Mean: sum / float64(len(v)), P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: v[len(v)-1]}
}

// topShare returns the share of the work in the largest 1 % of jobs.
func topShare(works []float64, total float64) float64 {
	if total == 0 {
		return 0
	}
	slices.Sort(works)
	sum := 0.0
	for _, w := range works[len(works)-max(1, len(works)/100):] {
		sum += w
	}
	return sum / total
}

func arrivals(wl *Workload) ArrivalSummary {
	var a ArrivalSummary
	var sum, square float64
	if wl.Epoch != 0 {
		a.ByHour, a.ByDay = new([24]int), new([7]int)
	}
	const hour = cluster.Time(time.Hour)
	current, inHour := cluster.Time(-1), 0
	for i := range wl.Jobs {
		at := wl.Jobs[i].Job.Submit
		if i > 0 {
			gap := at.Sub(wl.Jobs[i-1].Job.Submit).Seconds()
			sum += gap
			square += gap * gap
			a.LongestGap = max(a.LongestGap, gap)
		}
		if a.ByHour != nil {
			h := (wl.Epoch + int64(at)/int64(time.Second)) / 3600
			a.ByHour[h%24]++
			a.ByDay[(h/24+3)%7]++ // 1 January 1970 was a Thursday
		}
		if at/hour != current {
			current, inHour = at/hour, 0
		}
		if inHour++; inHour > a.BusiestJobs {
			a.BusiestJobs, a.BusiestHour = inHour, float64(current)*3600
		}
	}
	if n := float64(len(wl.Jobs) - 1); n > 0 && sum > 0 {
		a.MeanGap = sum / n
		a.CV = math.Sqrt(max(square/n-a.MeanGap*a.MeanGap, 0)) / a.MeanGap
	}
	return a
}

// oddities lists caveats that a reader should know before trusting a figure.
func oddities(wl *Workload, s *Summary) []string {
	out := slices.Clone(wl.Notes)
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	type key struct {
		name, user, queue string
		submit            cluster.Time
		run               time.Duration
		milli             cluster.Milli
	}
	seen, names := make(map[key]bool, len(wl.Jobs)), make(map[string]int, len(wl.Jobs))
	twins, long, limit, late, largest := 0, 0, 0, 0, 0
	for i := range wl.Jobs {
		e := &wl.Jobs[i]
		k := key{e.Job.Name, e.Job.User, e.Job.Queue, e.Job.Submit, e.Run, e.Job.GPUMilli()}
		if seen[k] {
			twins++
		}
		seen[k] = true
		names[e.Job.Name]++
		if e.Run.Seconds() > s.Span && s.Span > 0 {
			long++
		}
		if e.Job.Limit > 0 && e.Run >= e.Job.Limit {
			limit++
		}
		if e.Job.Deadline > 0 && e.Job.Submit.Add(e.Run) > e.Job.Deadline {
			late++
		}
		largest = max(largest, e.Job.GPUs())
	}
	for _, c := range []struct {
		n    int
		what string
	}{{twins, "rows that equal another row"}, {long, "jobs that run longer than the whole span of submissions"},
		{limit, "jobs that ran into their time limit"}, {late, "deadlines that cannot be met even without waiting"}} {
		if c.n > 0 {
			say("%d %s", c.n, c.what)
		}
	}
	if text := sharedNames(names); text != "" {
		say("%s", text)
	}
	if len(s.TopUsers) > 1 && s.TopUsers[0].GPUShare > 0.25 && s.TopUsers[0].Name != "" {
		say("user %s has %.0f %% of the GPU time", s.TopUsers[0].Name, 100*s.TopUsers[0].GPUShare)
	}
	if s.NodeGPUs > 0 && largest > s.NodeGPUs {
		say("the largest job asks for %d GPUs, the trace's nodes have %d", largest, s.NodeGPUs)
	}
	if s.Jobs > 1 && s.Span == 0 {
		say("all jobs are submitted at the same time")
	}
	if g := s.Arrivals.LongestGap; g > 24*3600 && g > s.Span/10 {
		say("nothing is submitted for %s", clockText(g))
	}
	return out
}

// sharedNames says that several jobs share a name, and which name is most frequent; "": no two do.
func sharedNames(names map[string]int) string {
	jobs, most := 0, ""
	for name, n := range names {
		if name == "" || n < 2 {
			continue
		}
		jobs += n
		if n > names[most] || most == "" || n == names[most] && name < most {
			most = name
		}
	}
	if most == "" {
		return ""
	}
	return fmt.Sprintf("%d jobs share their name with another; %d are called %s", jobs, names[most], most)
}
