package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// Candidate is a policy, with knobs and backfill, that is tried.
type Candidate struct {
	Policy   string
	Backfill string // "": the policy's own
}

func (c Candidate) String() string {
	if c.Backfill == "" {
		return c.Policy
	}
	return c.Policy + "+" + c.Backfill
}

// Parse reads POLICY[:KNOBS][+BACKFILL] without checking that they exist.
func Parse(text string) Candidate {
	p, b, _ := strings.Cut(text, "+")
	return Candidate{p, b}
}

// need is what a history must contain for a candidate to be tried: without it the candidate would
// be judged as something else.
type need uint16

const (
	estimates need = 1 << iota // run times stated by jobs
	deadlines
	queues  // at least two
	tenants // at least two queues or users
	names   // users, and recurring job names
	elastic // jobs with a range of sizes
	speeds  // several GPU models and a table of speeds
	light   // short history: it plans at every event, which takes minutes for a long one
	pairs   // a table with speeds of jobs next to others
	stages  // ... or with the stages of their iterations
	divided // GPUs that can be divided, and a table with speeds on instances
	memory  // jobs that state how much GPU memory they need, and how much stays resident
	tiers   // best-effort jobs as well as others
)

// listed is a candidate with its needs.
type listed struct {
	Candidate
	needs need
}

// candidates is what muster tune tries, the simplest first: among equals the first one wins.
var candidates = []listed{
	{Candidate{"fifo", ""}, 0},
	{Candidate{"fifo", "skip"}, 0},
	{Candidate{"fifo", "easy"}, estimates},
	{Candidate{"fifo", "conservative"}, estimates},
	{Candidate{"yarn-cs", ""}, queues},
	{Candidate{"sjf", ""}, estimates},
	{Candidate{"sjf", "easy"}, estimates},
	{Candidate{"ssf", ""}, estimates},
	{Candidate{"srtf", ""}, estimates},
	{Candidate{"srsf", ""}, estimates},
	{Candidate{"sjf-gpu", ""}, 0},
	{Candidate{"sjf-gpu:preempt=true", ""}, 0},
	{Candidate{"las", ""}, 0},
	{Candidate{"las:base=5m", ""}, 0},
	{Candidate{"las:base=8h,levels=8", ""}, 0},
	{Candidate{"las:dimension=time", ""}, 0},
	{Candidate{"tiresias-l", ""}, 0},
	{Candidate{"tiresias-l:thresholds=3250/7200/18000", ""}, 0},
	{Candidate{"tiresias-l:thresholds=3600/36000/360000", ""}, 0},
	{Candidate{"tiresias-l:promote=4", ""}, 0},
	{Candidate{"tiresias-g", ""}, 0},
	{Candidate{"tiresias-g:thresholds=3600/36000/360000", ""}, 0},
	{Candidate{"gittins", ""}, 0},
	{Candidate{"e-las", ""}, estimates},
	{Candidate{"qssf", ""}, names},
	{Candidate{"qssf:strict=false", ""}, names},
	{Candidate{"edf", ""}, deadlines},
	{Candidate{"sched2", ""}, 0},
	{Candidate{"multifactor", ""}, tenants},
	{Candidate{"multifactor:size=5000,small=true", ""}, tenants},
	{Candidate{"drf", ""}, queues},
	{Candidate{"proportional", ""}, queues},
	{Candidate{"afs", ""}, elastic | light},
	{Candidate{"optimus", ""}, elastic | estimates | light},
	{Candidate{"lyra", ""}, elastic | estimates | light},
	{Candidate{"pollux", ""}, elastic | light},
	{Candidate{"sia", ""}, elastic | speeds | light},
	{Candidate{"themis", ""}, estimates | light},
	{Candidate{"themis:fairness=0.5", ""}, estimates | light},
	{Candidate{"astraea", ""}, tenants | light},
	{Candidate{"gandiva", ""}, light},
	{Candidate{"lucid", ""}, names | pairs | light},
	{Candidate{"antman", ""}, tiers | pairs | light},
	{Candidate{"salus", ""}, memory | light},
	{Candidate{"muri", ""}, stages | light},
	{Candidate{"miso", ""}, divided | light},
	{Candidate{"gavel", ""}, speeds | light},
	{Candidate{"gandiva-fair", ""}, speeds | tenants | light},
	{Candidate{"allox", ""}, speeds | estimates | light},
	{Candidate{"elasticflow", ""}, deadlines | estimates | light},
	{Candidate{"chronus", ""}, deadlines | estimates | light},
	{Candidate{"hypersched", ""}, deadlines | elastic | light},
}

// statedNeeds are the needs that a history or a table must state of jobs.
const statedNeeds = estimates | deadlines | names | elastic | speeds | pairs | stages | divided | memory

// usesStated reports whether a candidate uses what is stated of jobs.
func usesStated(name string) bool {
	i := slices.IndexFunc(candidates, func(c listed) bool { return c.String() == name })
	return i >= 0 && candidates[i].needs&statedNeeds != 0
}

// mostPlanned is the longest history, in jobs, on which policies that plan at every event are tried
// by default.
const mostPlanned = 5000

// statedPart is the part of the jobs that must state a fact.
const statedPart = 0.9

// Facts is what a history contains.
type Facts struct {
	Jobs                        int
	Estimates                   int // jobs that state a run time
	Deadlines                   int
	Elastic                     int
	Repeats                     int // jobs with the user and name of an earlier job
	Users, Queues, Models       int
	BestEffort, Resident        int // jobs of that tier; jobs that state resident GPU memory
	Divisible                   int // GPUs that can be divided
	Table                       Table
	userSet, queueSet, modelSet map[string]bool
}

// Table says what a performance table contains.
type Table struct {
	Speeds bool // the table exists
	Pairs  bool // speeds of jobs next to others
	Stages bool // times of the stages of iterations
	Slices bool // speeds on MIG instances
}

// Look collects the facts that the scheduler will know of the entries.
func Look(entries []trace.Entry, spec *cluster.Spec, table Table) Facts {
	f := Facts{Jobs: len(entries), Table: table, userSet: map[string]bool{}, queueSet: map[string]bool{},
		modelSet: map[string]bool{}}
	type job struct{ user, name string }
	seen := map[job]bool{}
	for i := range entries {
		j := &entries[i].Job
		f.Estimates += one(j.Estimate > 0)
		f.Deadlines += one(j.Deadline > 0)
		f.Elastic += one(j.Elastic.Max > j.Elastic.Min)
		f.BestEffort += one(j.Tier == cluster.BestEffort)
		f.Resident += one(slices.ContainsFunc(j.Tasks, func(s cluster.TaskSet) bool { return s.Request.Resident > 0 }))
		k := job{j.User, j.Name}
		f.Repeats += one(j.User != "" && j.Name != "" && seen[k])
		seen[k] = true
		f.userSet[j.User], f.queueSet[j.Queue] = true, true
	}
	for i := range spec.Nodes {
		if spec.Nodes[i].GPUs > 0 {
			f.modelSet[spec.Nodes[i].Model] = true
			if m, ok := cluster.FindModel(spec.Nodes[i].Model); ok && len(m.Profiles) > 0 {
				f.Divisible += spec.Nodes[i].GPUs
			}
		}
	}
	f.Users, f.Queues, f.Models = len(f.userSet), len(f.queueSet), len(f.modelSet)
	return f
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lacks says why a need is not met; "": it is met.
func (f *Facts) lacks(n need) string {
	share := func(of int) string { return fmt.Sprintf("%d of %d", of, f.Jobs) }
	switch {
	case n&estimates != 0 && float64(f.Estimates) < statedPart*float64(f.Jobs):
		return "they need run times, which " + share(f.Estimates) + " jobs state (--estimates noise:0.5 invents them)"
	case n&deadlines != 0 && f.Deadlines == 0:
		return "they need deadlines: no job has one"
	case n&elastic != 0 && f.Elastic == 0:
		return "they need elastic jobs: none has a range of sizes"
	case n&speeds != 0 && f.Models < 2:
		return "they are for GPUs of several models: the cluster has one"
	case n&speeds != 0 && !f.Table.Speeds:
		return "they need speeds per GPU model (--perf)"
	case n&queues != 0 && f.Queues < 2:
		return "they are for several queues: the history names one"
	case n&tenants != 0 && f.Queues < 2 && f.Users < 2:
		return "they are for several users or queues: the history names one"
	case n&names != 0 && 2*f.Repeats < f.Jobs:
		return "they need users and job names that come back: " + share(f.Repeats) + " jobs are such"
	case n&tiers != 0 && (f.BestEffort == 0 || f.BestEffort == f.Jobs):
		return "they are for best-effort jobs beside others: " + share(f.BestEffort) + " jobs are best-effort"
	case n&memory != 0 && f.Resident == 0:
		return "they need the GPU memory that jobs need, and what of it stays between iterations: no job states it (--gpu-mem, --gpu-mem-resident)"
	case n&divided != 0 && f.Divisible == 0:
		return "they divide GPUs: none of the cluster can be divided (MIG)"
	case n&divided != 0 && !f.Table.Slices:
		return "they need speeds on MIG instances (speed: in --perf)"
	case n&pairs != 0 && !f.Table.Pairs:
		return "they need speeds of jobs beside others (pairs: in --perf)"
	case n&stages != 0 && !f.Table.Stages && !f.Table.Pairs:
		return "they need times of the stages of iterations, or speeds of jobs beside others (stages:, pairs: in --perf)"
	case n&light != 0 && f.Jobs > mostPlanned:
		return fmt.Sprintf("they plan at every event: too slow for more than %d jobs (name one in --policies, or --limit the history)", mostPlanned)
	}
	return ""
}

// Left is a group of candidates that are not tried, with the reason.
type Left struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Candidates lists those to try on a history, and those for which it contains too little. policies
// are the names of all existing policies.
func Candidates(f Facts, policies []string) (try []Candidate, left []Left) {
	for _, c := range candidates {
		why := f.lacks(c.needs)
		if why == "" {
			try = append(try, c.Candidate)
			continue
		}
		left = append(left, Left{c.String(), why})
	}
	for _, p := range policies {
		if !slices.ContainsFunc(candidates, func(c listed) bool { return strings.HasPrefix(c.Policy+":", p+":") }) {
			left = append(left, Left{p, "not in the list of candidates yet (name it in --policies)"})
		}
	}
	return try, left
}
