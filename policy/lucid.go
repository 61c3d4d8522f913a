package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var lucid = Info{
	Name: "lucid",
	About: "least service first, by how long earlier jobs of the user and name ran; while jobs wait, jobs of the same size that leave much of their " +
		"GPUs idle are packed in pairs; no preemption",
	Source: "Lucid (ASPLOS'23)",
	Needs:  "speeds of pairs of jobs on one GPU (else no jobs are packed); users and names that come back, or estimates",
	Trials: []Trial{{Given: Recurring | Pairs | Short}},
	Knobs: []Knob{
		{"pack", "auto", "auto: while jobs wait; never: and the queue stops at the first job that does not fit; always"},
		{"waiting", "2", "auto: while more jobs than this wait"},
		{"check", "1m", "interval at which waiting jobs are checked; they are also checked when jobs come or end"},
		{"profile", "", "the partition in which jobs that name none run first, if its rules admit them; none: no profiling"},
		{"limit", "200s", "profile: longest time there"},
		{"grow", "", "profile: while more than 10 jobs wait for it they may go to these partitions, each larger than the one before, instead: NAME/NAME; until fewer than 5 wait"},
	},
	New: newLucid,
}

type lucidRules struct {
	pack    string
	waiting int64
	check   time.Duration
	profile string
	limit   time.Duration
	ladder  []string // profile, then the partitions of grow
}

// growAbove and shrinkBelow are the numbers of waiting jobs at which the profiling partition grows
// and shrinks (Lucid, ASPLOS'23, part 1).
const growAbove, shrinkBelow = 10, 5

func newLucid(k *Knobs) sched.Policy {
	l := &lucidRules{pack: k.choice("pack", "auto", "never", "always"), waiting: k.int("waiting", 0, math.MaxInt32),
		check: k.duration("check", time.Second), limit: k.duration("limit", time.Second)}
	if l.profile = k.text("profile"); !partitionName(l.profile) {
		k.fail("profile=%s: want the name of a partition", l.profile)
	}
	l.ladder = []string{l.profile}
	if grow := k.text("grow"); grow != "" {
		if l.profile == "" {
			k.fail("grow=%s: only with profile=NAME, which grows", grow)
		}
		for _, name := range strings.Split(grow, "/") {
			if name == "" || !partitionName(name) || slices.Contains(l.ladder, name) {
				k.fail("grow=%s: want names of partitions, other ones than %s: NAME/NAME", grow,
					l.profile)
			}
			l.ladder = append(l.ladder, name)
		}
	}
	t := sched.Traits{Predicts: true, Backfill: sched.Skip, Gated: l.profile != "", Anywhere: true}
	if l.pack == "never" {
		t.Backfill = sched.Strict
	}
	return &planner{name: k.label(), traits: t, plan: l.plan, fits: l.fits}
}

// fits returns an error for a partition that the cluster does not have: no job would ever be
// profiled.
func (l *lucidRules) fits(spec *cluster.Spec) error {
	if l.profile == "" {
		return nil
	}
	var have []string
	for i := range spec.Partitions {
		have = append(have, spec.Partitions[i].Name)
	}
	if len(have) == 0 {
		return fmt.Errorf("profile: the cluster has no partitions, so none is named %q", l.profile)
	}
	for i, name := range l.ladder {
		if !slices.Contains(have, name) {
			knob := "profile"
			if i > 0 {
				knob = "grow"
			}
			return fmt.Errorf("%s: %w", knob, cluster.Unknown("partition", name, have))
		}
	}
	return nil
}

func partitionName(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// sharer is a job that may be packed: the GPUs of a model that it has or asks for, the memory it
// needs on each (0: unknown), its sharing score, and its place in the order.
type sharer struct {
	at       int // index of the job in the plan
	gpus     int
	memory   cluster.MiB
	score    int
	priority int64
	queue    int
	device   cluster.MiB // a GPU's memory
	gpu      string      // its model
}

// needs is what determines with which jobs a waiting job may be packed, except for its place in the
// order.
type needs struct {
	shape int32
	queue int
	model string
}

func (r *sharer) needs(jobs []sched.JobView) needs {
	return needs{jobs[r.at].Shape(), r.queue, jobs[r.at].Spec().Model}
}

// maxScores bounds the sum of the sharing scores of two packed jobs.
const maxScores = 2

// suits reports whether a waiting job may be packed with a running one that has its GPUs to itself
// (Lucid, ASPLOS'23, partner).
func (r *sharer) suits(j *sharer) bool {
	return j.gpus == r.gpus && j.queue == r.queue && r.memory+j.memory < r.device &&
		r.score+j.score <= maxScores && j.priority <= 2*r.priority
}

func (l *lucidRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(jobs))}
	line, running := sched.Scratch[sharer](v, len(jobs))[:0], []sharer(nil)
	level := l.level(v, jobs, &p)
	for i, j := range jobs {
		if l.profile != "" && l.profiles(v, j, &p, i, level) {
			continue
		}
		s := sharer{at: i, gpus: j.Spec().GPUs(), queue: j.Queue(),
			priority: quasiService(j.Spec().GPUMilli(), j.Predicted(), j.Spec().Estimate, 1000)}
		p.Targets[i] = sched.Target{Rank: s.priority}
		if !packs(j) {
			continue
		}
		s.memory = j.Spec().Tasks[0].Request.Memory
		_, guest := j.Host()
		switch {
		case !j.Running():
			line = append(line, s)
		case !guest && len(j.Guests()) == 0:
			s.device = j.DeviceMemory()
			running = append(running, s)
		}
	}
	if l.pack == "never" || l.pack == "auto" && int64(len(line)) <= l.waiting {
		return p
	}
	p.Next = min(p.Next, v.Now().Add(l.check))
	if scores := newScores(v, jobs); 2*scores.least() <= maxScores {
		packing{v, jobs, scores, p.Targets}.fill(line, running)
	}
	return p
}

// level is the number of steps by which the profiling partition has grown. It grows when many jobs
// wait for it, and shrinks when few do and no job is on the part to be given up; by at most one
// step per check.
func (l *lucidRules) level(v sched.View, jobs []sched.JobView, p *sched.Plan) int {
	if len(l.ladder) == 1 {
		return 0
	}
	level, since := 0, cluster.Time(0)
	if memo := v.Memo(); len(memo) == 2 {
		level, since = min(int(memo[0]), len(l.ladder)-1), cluster.Time(memo[1])
	}
	wait, used := 0, false
	for _, j := range jobs {
		if l.waits(j) {
			wait++
		} else if level > 0 && l.profiled(j) {
			used = used || !j.Within(l.ladder[level-1])
		}
	}
	to := level
	switch {
	case wait > growAbove:
		to = min(level+1, len(l.ladder)-1)
	case wait < shrinkBelow && !used:
		to = max(level-1, 0)
	}
	if next := since.Add(l.check); to != level && level+to > 1 && v.Now() < next { // the first step needs no delay
		p.Next = next
	} else if to != level {
		level, since = to, v.Now()
	}
	p.Memo = []int64{int64(level), int64(since)}
	return level
}

// waits reports whether a job waits to be profiled: it names no partition, can be requeued and
// packed, and has never run.
func (l *lucidRules) waits(j sched.JobView) bool {
	s := j.Spec()
	return len(s.Partitions) == 0 && !s.NoRequeue && s.Kind != cluster.Interactive && packs(j) && !j.Running() &&
		j.FirstStart() == cluster.Never && j.MayEnter(l.profile)
}

// leaving is when the next plan is made after one that tells a job to leave the profiling partition.
const leaving = time.Second

// profiled reports whether a job is being profiled.
func (l *lucidRules) profiled(j sched.JobView) bool {
	t := j.Target()
	return j.Running() && t != nil && slices.Contains(l.ladder, t.Partition) && j.Within(t.Partition)
}

// profiles reports whether a job is or is to be profiled, and makes its target: the smallest jobs
// go first, for at most the limit; a job that does not end within it then waits with the others. A
// job that has run, however briefly, counts as profiled.
func (l *lucidRules) profiles(v sched.View, j sched.JobView, p *sched.Plan, at, level int) bool {
	switch {
	case l.profiled(j):
		over := j.Started().Add(l.limit)
		p.Targets[at] = sched.Target{Partition: j.Target().Partition, Idle: v.Now() >= over}
		if v.Now() >= over {
			over = v.Now().Add(leaving) // it waits with the others then, whether or not another comes or ends
		}
		p.Next = min(p.Next, over)
		return true
	case !l.waits(j):
		return false
	}
	for ; level > 0 && !j.MayEnter(l.ladder[level]); level-- {
	}
	p.Next = min(p.Next, v.Now().Add(l.limit)) // in case it starts now
	p.Targets[at] = sched.Target{Rank: int64(j.Spec().GPUs()), Partition: l.ladder[level]}
	return true
}

// packing is the part of a plan that packs waiting jobs with running ones.
type packing struct {
	v       sched.View
	jobs    []sched.JobView
	scores  *scores
	targets []sched.Target
}

// fill packs each waiting job, in order, with the first running one that suits it and has no guest
// yet.
func (p packing) fill(line, running []sharer) {
	for i := range running {
		r := &running[i]
		r.gpu = p.jobs[r.at].GPU()
		r.score = p.scores.of(p.jobs[r.at], r.gpu)
	}
	alike := map[needs]bool{} // whether any job suits these needs, whatever the place in the order; looked up only
	line = slices.DeleteFunc(line, func(s sharer) bool {
		like := s.needs(p.jobs)
		suited, known := alike[like]
		if !known {
			suited = p.partner(running, s, math.MinInt64) >= 0
			alike[like] = suited
		}
		return !suited
	})
	slices.SortFunc(line, func(a, b sharer) int {
		x, y := p.jobs[a.at].Spec(), p.jobs[b.at].Spec()
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(x.Submit, y.Submit), cmp.Compare(x.ID, y.ID))
	})
	for _, s := range line {
		like := s.needs(p.jobs)
		if !alike[like] {
			continue // then none suits a later one either
		}
		k := p.partner(running, s, s.priority)
		if k < 0 {
			alike[like] = false
			continue
		}
		p.targets[s.at].Beside = 1 + int32(p.jobs[running[k].at].Spec().ID)
		running = slices.Delete(running, k, k+1)
	}
}

// partner is the first running job that suits a waiting one at the given priority; -1: none.
func (p packing) partner(running []sharer, s sharer, priority int64) int {
	s.priority = priority
	return slices.IndexFunc(running, func(r sharer) bool {
		if r.gpus != s.gpus || !p.jobs[s.at].Accepts(r.gpu) {
			return false // saves computing the score
		}
		s.score = p.scores.of(p.jobs[s.at], r.gpu)
		return r.suits(&s)
	})
}

// scores are the sharing scores of jobs: by their mean speed beside one job of each model.
type scores struct {
	v      sched.View
	models []sched.JobView // one job of each
	known  []known         // searched linearly: there are few
}

type known struct {
	model, gpu string
	score      int
}

func newScores(v sched.View, jobs []sched.JobView) *scores {
	s, seen := &scores{v: v}, map[string]bool{} // looked up only
	last := ""
	for _, j := range jobs {
		if m := j.Spec().Model; (len(s.models) == 0 || m != last) && !seen[m] && packs(j) {
			seen[m], last = true, m
			s.models = append(s.models, j)
		}
	}
	return s
}

// least is the lowest score of all.
func (s *scores) least() int {
	least := 2
	for _, k := range s.v.Kinds() {
		for _, j := range s.models {
			least = min(least, s.of(j, k.GPU))
		}
	}
	return least
}

// of is 0 for a job that is hardly slowed down by others, 1, or 2 for one that needs its GPUs to
// itself.
func (s *scores) of(j sched.JobView, gpu string) int {
	for i := range s.known {
		if k := &s.known[i]; k.model == j.Spec().Model && k.gpu == gpu {
			return k.score
		}
	}
	sum := int64(0)
	for i := range s.models {
		sum += s.v.SpeedBeside(j, gpu, s.models[i:i+1])
	}
	score := 2
	switch mean := sum / int64(len(s.models)); {
	case mean >= 950_000:
		score = 0
	case mean >= 850_000:
		score = 1
	}
	s.known = append(s.known, known{j.Spec().Model, gpu, score})
	return score
}
