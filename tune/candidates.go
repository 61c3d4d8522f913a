package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/perf"
	"github.com/muster-gpu/muster/policy"
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

// Check checks that a candidate exists, and writes it as the policy itself does, so that two ways to write it are one.
func (c *Candidate) Check() error {
	p, err := policy.New(c.Policy)
	if err != nil {
		return err
	}
	c.Policy = p.Name()
	if c.Backfill != "" {
		if _, err := engine.ParseBackfill(c.Backfill); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// With checks candidates, and adds the policy in force if it is not among them. It returns where that stands.
func With(list []Candidate, force Candidate) (try []Candidate, current int, err error) {
	for i := range list {
		if err := list[i].Check(); err != nil {
			return nil, 0, err
		}
	}
	if current = slices.Index(list, force); current >= 0 {
		return list, current, nil
	}
	return append([]Candidate{force}, list...), 0, nil
}

// listed is a candidate with what a history must contain for it to be tried.
type listed struct {
	Candidate
	given policy.Fact
}

// candidates is what muster tune tries: among equals the first one wins.
func candidates() (list []listed) {
	for _, p := range policy.List() {
		for _, t := range p.Trials {
			name := p.Name
			if t.Knobs != "" {
				name += ":" + t.Knobs
			}
			list = append(list, listed{Candidate{name, t.Backfill}, t.Given})
		}
	}
	return list
}

// usesStated reports whether a candidate uses what is stated of jobs.
func usesStated(name string) bool {
	return slices.ContainsFunc(candidates(), func(c listed) bool {
		return c.String() == name && c.given&policy.Stated != 0
	})
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

// TableOf is what a performance table contains.
func TableOf(m perf.Model) Table {
	t, ok := m.(*perf.Table)
	if !ok {
		return Table{Speeds: m != nil}
	}
	f := Table{Speeds: true, Pairs: len(t.Pairs) > 0, Stages: len(t.Stages) > 0}
	for _, row := range t.Speed { // order does not matter
		for gpu := range row {
			f.Slices = f.Slices || strings.Contains(gpu, "/")
		}
	}
	return f
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

// lacks says which of the facts is missing; "": none.
func (f *Facts) lacks(n policy.Fact) string {
	share := func(of int) string { return fmt.Sprintf("%d of %d", of, f.Jobs) }
	switch {
	case n&policy.Estimates != 0 && float64(f.Estimates) < statedPart*float64(f.Jobs):
		return "they need run times, which " + share(f.Estimates) + " jobs state (--estimates noise:0.5 invents them)"
	case n&policy.Deadlines != 0 && f.Deadlines == 0:
		return "they need deadlines: no job has one"
	case n&policy.Elastic != 0 && f.Elastic == 0:
		return "they need elastic jobs: none has a range of sizes"
	case n&policy.Speeds != 0 && f.Models < 2:
		return "they are for GPUs of several models: the cluster has one"
	case n&policy.Speeds != 0 && !f.Table.Speeds:
		return "they need speeds per GPU model (--perf)"
	case n&policy.Queues != 0 && f.Queues < 2:
		return "they are for several queues: the history names one"
	case n&policy.Tenants != 0 && f.Queues < 2 && f.Users < 2:
		return "they are for several users or queues: the history names one"
	case n&policy.Recurring != 0 && 2*f.Repeats < f.Jobs:
		return "they need users and job names that come back: " + share(f.Repeats) + " jobs are such"
	case n&policy.Tiers != 0 && (f.BestEffort == 0 || f.BestEffort == f.Jobs):
		return "they are for best-effort jobs beside others: " + share(f.BestEffort) + " jobs are best-effort"
	case n&policy.Memory != 0 && f.Resident == 0:
		return "they need the GPU memory that jobs need, and what of it stays between iterations: no job states it (--gpu-mem, --gpu-mem-resident)"
	case n&policy.Divided != 0 && f.Divisible == 0:
		return "they divide GPUs: none of the cluster can be divided (MIG)"
	case n&policy.Divided != 0 && !f.Table.Slices:
		return "they need speeds on MIG instances (speed: in --perf)"
	case n&policy.Pairs != 0 && !f.Table.Pairs:
		return "they need speeds of jobs beside others (pairs: in --perf)"
	case n&policy.Stages != 0 && !f.Table.Stages && !f.Table.Pairs:
		return "they need times of the stages of iterations, or speeds of jobs beside others (stages:, pairs: in --perf)"
	case n&policy.Short != 0 && f.Jobs > mostPlanned:
		return fmt.Sprintf("they plan at every event: too slow for more than %d jobs (name one in --policies, or --limit the history)", mostPlanned)
	}
	return ""
}

// Left is a group of candidates that are not tried, with the reason.
type Left struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Candidates lists those to try on a history, and those for which it contains too little.
func Candidates(f Facts) (try []Candidate, left []Left) {
	for _, c := range candidates() {
		if why := f.lacks(c.given); why != "" {
			left = append(left, Left{c.String(), why})
			continue
		}
		try = append(try, c.Candidate)
	}
	return try, left
}
