package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/trace"
)

// Candidate is a policy with knobs that is tried.
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

// Parse reads POLICY[:KNOBS][+BACKFILL]; whether there are such is not looked at.
func Parse(text string) Candidate {
	p, b, _ := strings.Cut(text, "+")
	return Candidate{p, b}
}

// need is what a candidate must find in a history, else it is left out: judged
// without that, it would be judged as something else.
type need uint16

const (
	estimates need = 1 << iota // run times stated by jobs
	deadlines
	queues  // two at least
	tenants // two queues or users at least
	names   // users, and job names that come back
	elastic // jobs with a range of sizes
	speeds  // several GPU models and a table of speeds
	light   // it plans at every event: minutes for a long history
)

// listed is a candidate with what it needs.
type listed struct {
	Candidate
	needs need
}

// candidates is what muster tune tries, the simplest first: among equals the
// first one wins.
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
	{Candidate{"gavel", ""}, speeds | light},
	{Candidate{"gandiva-fair", ""}, speeds | tenants | light},
	{Candidate{"allox", ""}, speeds | estimates | light},
	{Candidate{"elasticflow", ""}, deadlines | estimates | light},
	{Candidate{"chronus", ""}, deadlines | estimates | light},
	{Candidate{"hypersched", ""}, deadlines | elastic | light},
}

// mostPlanned is the longest history, in jobs, over which policies that plan
// at every event are tried unasked.
const mostPlanned = 5000

// known is the part of the jobs of which something must be known.
const known = 0.9

// Facts is what a history holds.
type Facts struct {
	Jobs                        int
	Estimates                   int // jobs that state a run time
	Deadlines                   int
	Elastic                     int
	Repeats                     int // jobs whose user and name came before
	Users, Queues, Models       int
	Table                       bool // a table of speeds was given
	userSet, queueSet, modelSet map[string]bool
}

// Look says what the entries hold, as the scheduler will be told of them.
func Look(entries []trace.Entry, spec *cluster.Spec, table bool) Facts {
	f := Facts{Jobs: len(entries), Table: table, userSet: map[string]bool{}, queueSet: map[string]bool{}, modelSet: map[string]bool{}}
	type job struct{ user, name string }
	seen := map[job]bool{}
	for i := range entries {
		j := &entries[i].Job
		f.Estimates += one(j.Estimate > 0)
		f.Deadlines += one(j.Deadline > 0)
		f.Elastic += one(j.Elastic.Max > j.Elastic.Min)
		k := job{j.User, j.Name}
		f.Repeats += one(j.User != "" && j.Name != "" && seen[k])
		seen[k] = true
		f.userSet[j.User], f.queueSet[j.Queue] = true, true
	}
	for i := range spec.Nodes {
		if spec.Nodes[i].GPUs > 0 {
			f.modelSet[spec.Nodes[i].Model] = true
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

// lacks says why a need is not met; "": it is.
func (f *Facts) lacks(n need) string {
	share := func(of int) string { return fmt.Sprintf("%d of %d", of, f.Jobs) }
	switch {
	case n&estimates != 0 && float64(f.Estimates) < known*float64(f.Jobs):
		return "they need run times, which " + share(f.Estimates) + " jobs state (--estimates noise:0.5 invents them)"
	case n&deadlines != 0 && f.Deadlines == 0:
		return "they need deadlines: no job has one"
	case n&elastic != 0 && f.Elastic == 0:
		return "they need elastic jobs: none has a range of sizes"
	case n&speeds != 0 && f.Models < 2:
		return "they are for GPUs of several models: the cluster has one"
	case n&speeds != 0 && !f.Table:
		return "they need speeds per GPU model (--perf)"
	case n&queues != 0 && f.Queues < 2:
		return "they are for several queues: the history names one"
	case n&tenants != 0 && f.Queues < 2 && f.Users < 2:
		return "they are for several users or queues: the history names one"
	case n&names != 0 && 2*f.Repeats < f.Jobs:
		return "they need users and job names that come back: " + share(f.Repeats) + " jobs are such"
	case n&light != 0 && f.Jobs > mostPlanned:
		return fmt.Sprintf("they plan at every event: too slow for more than %d jobs (name one in --policies, or --limit the history)", mostPlanned)
	}
	return ""
}

// Left is candidates that are not tried, and why.
type Left struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Candidates are those to try on a history, and those that it holds too little
// for. policies are the names of all that there are.
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
