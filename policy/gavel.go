package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/heap"
)

var gavel = Info{
	Name: "gavel",
	About: "GPUs of several models: a linear program computes the share of time that each job should have on each model, and rounds " +
		"give it that share",
	Source: "Gavel: Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads (OSDI'20)",
	Needs:  "speeds per GPU model; run times for ftf and makespan, prices for cost; checkpoints: jobs take turns",
	Trials: []Trial{{Given: Speeds | Short}},
	Knobs: []Knob{
		{"objective", "las",
			"las (the least normalised speed as high as can be), waterfill (and then the next), hierarchical (the same over queues or users), ftf (finish-time fairness), makespan, fifo, throughput, cost"},
		{"entities", "queue", "for objective=hierarchical: queue (by their weights) or user (all alike)"},
		{"inside", "fair", "for objective=hierarchical: an entity's jobs are alike (fair), or the first comes first (fifo); by queue: inside=research:fifo/prod:fair, others are fair"},
		{"weigh", "equal", "for objective=las and waterfill: by what a job's speed counts, equal, queue (the weight of its queue) or priority (its own, from 1 to 1000; less is 1, more 1000)"},
		{"round", "6m", "jobs take turns at multiples of this"},
		{"reset", "32m", "the service of jobs is counted from zero again when jobs come or go, at most once per this time"},
		{"solve", "changes",
			"when the program is solved: at changes, when jobs come or go, or at resets only (fewer programs; a job that comes between two gets what is left)"},
		{"heterogeneity", "true", "false: all models count as equally fast"},
		{"order", "", "the order in which models are filled: order=H100-80GB/T4-16GB; others come after, the fastest first"},
		{"space_sharing", "false", "true: two jobs of one size may share GPUs if they get more done so than by turns"},
		{"prices", "", "for objective=cost, per GPU-hour: prices=H100-80GB:3/T4-16GB:0.4; a model that is not listed costs 1"},
	},
	New: newGavel,
}

var gavelSolves = []string{"changes", "resets"}

var gavelObjectives = []string{"las", "waterfill", "hierarchical", "ftf", "makespan", "fifo", "throughput", "cost"}

// gavelPolicy is Gavel: the objective determines X, the shares of time; the rounds are the same for
// all.
type gavelPolicy struct {
	name, objective string
	round, reset    time.Duration
	aware           bool
	atResets        bool            // else at every change
	sharing         bool            // pairs of jobs share GPUs
	byUser, inOrder bool            // the entities are users; within an entity first come, first served
	inside          map[string]bool // ... in these queues; nil: no queue hierarchy
	weigh           string          // weights by queue or priority; "" or equal: all jobs weigh the same
	order           []string        // of the kinds
	prices          map[string]float64
}

func newGavel(k *Knobs) sched.Policy {
	g := &gavelPolicy{
		name: k.label(), objective: k.choice("objective", gavelObjectives...), round: k.turns(),
		reset: k.duration("reset", 0),
		aware: k.bool("heterogeneity"), atResets: k.choice("solve", gavelSolves...) == "resets",
		sharing: k.bool("space_sharing"),
	}
	k.check(g.hierarchy(k.text("entities"), k.text("inside")))
	k.check(g.weighs(k.text("weigh")))
	var err error
	g.order, err = parseOrder(k.text("order"))
	k.check(err)
	g.prices, err = parsePrices(k.text("prices"))
	k.check(err)
	if (g.objective == "cost") != (len(g.prices) > 0) {
		k.fail("prices=%q with objective=%s: prices and objective=cost need each other", k.text("prices"), g.objective)
	}
	return g
}

// hierarchy reads which jobs form an entity, and the order within it.
func (g *gavelPolicy) hierarchy(entities, inside string) error {
	g.byUser, g.inOrder = entities == "user", inside == "fifo"
	if strings.Contains(inside, ":") && !g.byUser {
		g.inside = map[string]bool{} // looked up only
		for _, f := range strings.Split(inside, "/") {
			queue, how, _ := strings.Cut(f, ":")
			if queue == "" || how != "fifo" && how != "fair" {
				return fmt.Errorf("inside=%q: %q is not QUEUE:fifo or QUEUE:fair", inside, f)
			}
			g.inside[queue] = how == "fifo"
		}
	}
	switch {
	case !g.byUser && entities != "queue":
		return cluster.Unknown("entities", entities, []string{"queue", "user"})
	case g.inside == nil && !g.inOrder && inside != "fair":
		return cluster.Unknown("inside", inside, []string{"fair", "fifo"})
	case g.objective != "hierarchical" && (g.byUser || inside != "fair"):
		return fmt.Errorf("entities=%s, inside=%s with objective=%s: only with hierarchical", entities, inside,
			g.objective)
	}
	return nil
}

// weighs reads how jobs are weighed.
func (g *gavelPolicy) weighs(by string) error {
	g.weigh = by
	switch kinds := []string{"equal", "queue", "priority"}; {
	case !slices.Contains(kinds, by):
		return cluster.Unknown("weigh", by, kinds)
	case by != "equal" && g.objective != "las" && g.objective != "waterfill":
		return fmt.Errorf("weigh=%s with objective=%s: only with las and waterfill (hierarchical goes by the weights of queues itself)", by, g.objective)
	}
	return nil
}

// turns reads the knob "round" of a policy that lets jobs take turns or chooses sizes in rounds.
func (k *Knobs) turns() time.Duration { return k.duration("round", time.Second) }

// Fits implements sched.Fitter: a GPU model that is neither in the cluster nor known is a typing
// error.
func (g *gavelPolicy) Fits(spec *cluster.Spec) error {
	for _, knob := range []struct {
		name   string
		models []string
	}{{"order", g.order}, {"prices", slices.Sorted(maps.Keys(g.prices))}} {
		for _, name := range knob.models {
			known := func(m cluster.GPUModel) bool { return m.Name == name } // nodes of a known model may be added
			if have := modelsOf(spec); !slices.Contains(have, name) && !slices.ContainsFunc(spec.Models, known) &&
				!slices.ContainsFunc(cluster.Models(), known) {
				return fmt.Errorf("%s: %w", knob.name, cluster.Unknown("GPU model", name, have))
			}
		}
	}
	return nil
}

// modelsOf lists the GPU models of a cluster's nodes, or, if it has none, of its own models and the
// known ones.
func modelsOf(spec *cluster.Spec) (names []string) {
	for i := range spec.Nodes {
		names = append(names, spec.Nodes[i].Model)
	}
	if len(names) == 0 {
		for _, m := range append(slices.Clone(spec.Models), cluster.Models()...) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// modelNamed is a GPU model's full name as in performance tables: V100 is V100-16GB.
func modelNamed(name string) string {
	if m, ok := cluster.FindModel(name); ok {
		return m.Name
	}
	return name
}

func parseOrder(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	list := strings.Split(text, "/")
	for i, model := range list {
		list[i] = modelNamed(model)
		if model == "" || strings.ContainsAny(model, "?*:; ") || slices.Contains(list[:i], list[i]) {
			return nil, fmt.Errorf(
				"order=%q: %q is no GPU model, or there twice; want MODEL/MODEL/..., as in H100-80GB/T4-16GB", text,
				model)
		}
	}
	return list, nil
}

func parsePrices(text string) (map[string]float64, error) {
	prices := map[string]float64{}
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == '/' }) {
		model, price, _ := strings.Cut(f, ":")
		p, err := strconv.ParseFloat(price, 64)
		if err != nil || !(p > 0 && p < 1e9) || model == "" {
			return nil, fmt.Errorf("prices=%q: %q is not MODEL:PRICE with a price above 0", text, f)
		}
		prices[modelNamed(model)] = p
	}
	return prices, nil
}

func (g *gavelPolicy) Name() string { return g.name }

func (g *gavelPolicy) Traits() sched.Traits {
	return sched.Traits{Preempts: true, Backfill: sched.Skip, Round: g.round, Gated: g.objective == "fifo",
		Anywhere: true}
}

// The rank of a target is a class and a place in it: jobs preempt those of higher classes only. A
// job that was selected but not placed, since the idle GPUs are on several nodes, may preempt
// selected jobs, which find a place elsewhere.
const (
	gavelInVain   = -1
	gavelSelected = 0
	gavelLeft     = 1 // uses what is left over
	gavelPlaces   = 1 << 40
)

func (g *gavelPolicy) Key(_ sched.View, j sched.JobView) sched.Key {
	if t := j.Target(); t != nil {
		return sched.Key{t.Rank >> 40, t.Rank & (gavelPlaces - 1)}
	}
	return sched.Key{gavelLeft, gavelPlaces}
}

// gavelJob is a job during a plan.
type gavelJob struct {
	j     sched.JobView
	milli int64 // milli-GPU
	// weight is w_m, in thousandths: a job of twice the weight is to be twice as fast.
	weight int64
	speed  []int64 // ppm per kind; 0: cannot run there
	pairs  []gavelPair
	known  bool // an earlier plan has seen it
	kind   int  // selected for it; -1: none
	// For finish-time fairness, at the last solution: work left, in ms; speed with an equal part of
	// each kind, in ppm; and the run time so far with such parts, in ms.
	left, iso, alone int64
	gavelSharer
}

// gavelPair is a job on a kind of GPU.
type gavelPair struct {
	x       int64 // share of time that it should have there, ppm
	base    int64 // service up to the last reset, less half a round: ns
	due     int64 // service that it should have had since the last reset: ns
	deficit int64 // service owed from before the last reset: ns
	had     int64 // service since the last reset, plus half a round: ns
}

// gavelPlan is a plan in the making.
type gavelPlan struct {
	*gavelPolicy
	v     sched.View
	kinds []sched.Kind
	jobs  []gavelJob
	since cluster.Time // start of the counters
	last  cluster.Time // time of the previous plan
	state int64        // fingerprint of what X depends on
	stale bool         // state has changed, but X is kept until a reset
	names int64        // fingerprint of the kinds to which memos refer
	uses  []gavelUse   // with space sharing
	room  *gavelRoom
}

// gavelRoom is memory reused from plan to plan.
type gavelRoom struct {
	jobs    []gavelJob
	speeds  []int64
	pairs   []gavelPair
	line    []gavelClaim
	sized   []uint64
	order   []int
	memos   []int64
	program gavelProgram
	parts   []float64
}

// zeros returns n zeros, in reused memory if it is large enough.
func zeros[T any](room *[]T, n int) []T {
	if cap(*room) < n {
		*room = make([]T, n+n/2)
	}
	list := (*room)[:n]
	clear(list)
	return list
}

// Plan is a round.
func (g *gavelPolicy) Plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := &gavelPlan{gavelPolicy: g, v: v, kinds: v.Kinds(), since: cluster.Never, room: sched.Memory[gavelRoom](v)}
	before := p.recall(jobs)
	p.recallUses()
	if p.state != before {
		due := p.since == cluster.Never || v.Now().Sub(p.since) >= g.reset
		if due {
			p.restart()
		}
		if due || !g.atResets {
			p.shares()
		} else {
			p.state, p.stale = before, true
		}
	}
	if p.sharing {
		p.chooseUses()
	} else {
		p.choose()
	}
	return p.plan()
}

// recall reads the memos, books the service since the last plan, and returns the state for which X
// was computed.
func (p *gavelPlan) recall(jobs []sched.JobView) (before int64) {
	h := newFingerprint()
	for _, k := range p.kinds {
		h.text(k.GPU)
	}
	p.names = h.sum()
	last := p.v.Now()
	memo := p.v.Memo()
	if len(memo) >= 4 && memo[3] == p.names {
		p.since, last, before = cluster.Time(memo[0]), cluster.Time(memo[1]), memo[2]
	}
	for _, k := range p.kinds {
		h.number(int64(k.GPUs))
	}
	if p.last = last; p.sharing && !p.v.Shared() {
		h.text("apart")
	}
	half, n := int64(p.round/2), len(p.kinds)
	speeds, pairs := zeros(&p.room.speeds, n*len(jobs)), zeros(&p.room.pairs, n*len(jobs))
	p.jobs = zeros(&p.room.jobs, len(jobs))[:0]
	for _, j := range jobs {
		job := p.job(j, speeds[:n:n], pairs[:n:n])
		speeds, pairs = speeds[n:], pairs[n:]
		h.number(int64(j.Spec().ID))
		if job.weight != cluster.Whole {
			h.number(job.weight)
		}
		if t := j.Target(); p.sharing && p.since != cluster.Never && t != nil && len(t.Memo) == 5 {
			job.known, job.left, job.iso, job.alone, job.level, job.owed = true, t.Memo[0], t.Memo[1], t.Memo[2],
				t.Memo[3], t.Memo[4]
		} else if t != nil && p.since != cluster.Never && len(t.Memo) == 3+4*len(p.kinds) {
			job.known, job.left, job.iso, job.alone = true, t.Memo[0], t.Memo[1], t.Memo[2]
			for k := range p.kinds {
				m := t.Memo[3+4*k:]
				job.pairs[k] = gavelPair{x: m[0], base: m[1], due: m[2], deficit: m[3]}
			}
		}
		for k := range p.kinds {
			served, pair := int64(j.Served(p.kinds[k].GPU)), &job.pairs[k]
			if !job.known {
				pair.base = served - half
			}
			pair.due += pair.x * (int64(p.v.Now().Sub(last)) / 1e6) // ppm of ms are ns
			pair.had = max(served-pair.base, 1)
			h.number(job.speed[k])
		}
		p.jobs = append(p.jobs, job)
	}
	p.state = h.sum()
	return before
}

// job describes a job without its memo.
func (p *gavelPlan) job(j sched.JobView, speed []int64, pairs []gavelPair) gavelJob {
	spec := j.Spec()
	job := gavelJob{j: j, milli: spec.GPUMilli(), weight: p.weightOf(j), kind: -1, speed: speed, pairs: pairs}
	if job.milli == 0 {
		job.milli = j.Milli() // a job on slices
	}
	for k, kind := range p.kinds {
		if !j.Accepts(kind.GPU) {
			continue
		}
		if job.speed[k] = 1_000_000; p.aware {
			job.speed[k] = max(1, p.v.Speed(j, kind.GPU, asked(j)))
		}
	}
	return job
}

// mostPriority is the largest priority that counts as a weight.
const mostPriority = 1000

// weightOf is a job's weight, in thousandths.
func (p *gavelPlan) weightOf(j sched.JobView) int64 {
	switch p.weigh {
	case "queue":
		return max(1, p.v.Tree().Weight(j.Queue()))
	case "priority":
		return cluster.Whole * min(max(1, j.Spec().Priority), mostPriority)
	}
	return cluster.Whole
}

// restart resets the counters of service; what jobs are still owed is kept.
func (p *gavelPlan) restart() {
	p.since = p.v.Now()
	half := int64(p.round / 2)
	for i := range p.jobs {
		for k := range p.kinds {
			pair := &p.jobs[i].pairs[k]
			pair.deficit += pair.due - (pair.had - half)
			pair.base, pair.due, pair.had = pair.base+pair.had-half, 0, half
		}
	}
}

// before compares the claims of two jobs on a kind: by the ratio of what they should have to what
// they had, then by what they are owed.
func (a gavelPair) before(b gavelPair) int {
	hi1, lo1 := bits.Mul64(uint64(a.x), uint64(b.had))
	hi2, lo2 := bits.Mul64(uint64(b.x), uint64(a.had))
	return cmp.Or(cmp.Compare(hi2, hi1), cmp.Compare(lo2, lo1), cmp.Compare(b.deficit, a.deficit),
		cmp.Compare(b.x, a.x))
}

// choose selects the jobs of this round and their kinds: kind by kind, by claim within each. It
// goes tier by tier, as the engine does.
func (p *gavelPlan) choose() {
	free := make([]int64, len(p.kinds))
	for k := range p.kinds {
		free[k] = int64(p.kinds[k].GPUs) * cluster.Whole
	}
	for tier := cluster.Critical; tier <= cluster.BestEffort; tier++ {
		for i := range p.jobs {
			job := &p.jobs[i]
			if k := kindOf(p.kinds, job.j.GPU()); k >= 0 && stays(job.j) && job.j.Spec().Tier == tier &&
				job.j.Milli() <= free[k] {
				job.kind = k
				free[k] -= job.j.Milli()
			}
		}
		for _, k := range p.kindOrder(int(p.v.Now() / cluster.Time(p.round))) {
			p.claimed(k, tier, &free[k])
		}
	}
}

// claimed selects jobs of a tier for a kind, by claim, as long as one fits.
func (p *gavelPlan) claimed(k int, tier cluster.Tier, free *int64) {
	line := p.room.line[:0]
	least := *free + 1 // the smallest demand
	for i := range p.jobs {
		job := &p.jobs[i]
		if job.kind < 0 && job.milli > 0 && job.milli <= *free && job.speed[k] > 0 && job.j.Spec().Tier == tier &&
			(job.pairs[k].x > 0 || p.objective != "fifo") {
			pair := &job.pairs[k]
			line = append(line, gavelClaim{float64(pair.x) / float64(pair.had), pair, i})
			least = min(least, job.milli)
		}
	}
	p.room.line = line
	heap.Init(line)
	for len(line) > 0 && least <= *free {
		c := heap.Pop(&line)
		if job := &p.jobs[c.at]; job.milli <= *free {
			job.kind = k
			*free -= job.milli
		}
	}
}

// gavelClaim is a job's claim on a kind of GPU.
type gavelClaim struct {
	ratio float64 // share over service, approximate
	pair  *gavelPair
	at    int // index of the job in the plan
}

// surely is the relative difference above which the order of two ratios cannot be an effect of
// rounding, which is less than a thousandth of it.
const surely = 1e-12

// Before implements heap.Ordered.
func (a *gavelClaim) Before(b *gavelClaim) bool {
	if math.Abs(a.ratio-b.ratio) > surely*a.ratio {
		return a.ratio > b.ratio
	}
	if c := a.pair.before(*b.pair); c != 0 {
		return c < 0
	}
	return a.at < b.at
}

// kindOrder starts with the order that is set; then the fastest kind comes first, by the sum of all
// jobs' speeds, each relative to the job's mean over the kinds, so that the reference GPU does not
// matter. If speeds do not count, the order rotates by one each round.
func (p *gavelPlan) kindOrder(round int) []int {
	order, sum := make([]int, len(p.kinds)), make([]int64, len(p.kinds))
	for k := range order {
		order[k] = k
		if !p.aware {
			order[k] = (k + round) % len(p.kinds)
		}
	}
	for i := range p.jobs {
		total := int64(0)
		for _, v := range p.jobs[i].speed {
			total += v
		}
		for k, v := range p.jobs[i].speed {
			if p.aware && total > 0 {
				sum[k] += v * 1_000_000 / total
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.asked(a), p.asked(b)), cmp.Compare(sum[b], sum[a]))
	})
	return order
}

// asked is a kind's place in the order that is set.
func (p *gavelPlan) asked(kind int) int {
	if at := slices.Index(p.order, p.kinds[kind].GPU); at >= 0 {
		return at
	}
	return len(p.order)
}

// plan makes targets of the choice: selected jobs first, larger before smaller, since they are
// harder to place.
func (p *gavelPlan) plan() sched.Plan {
	out := sched.Plan{Next: cluster.Never, Targets: p.v.Targets(len(p.jobs)),
		Memo: append([]int64{int64(p.since), int64(p.v.Now()), p.state, p.names}, p.usesMemo()...)}
	moves, memory := p.moves(), zeros(&p.room.memos, (5+4*len(p.kinds))*len(p.jobs))[:0]
	for place, i := range p.largestFirst() {
		job, t := &p.jobs[i], &out.Targets[i]
		class := int64(gavelSelected)
		switch {
		case job.milli == 0: // needs no GPU
		case job.kind < 0:
			class, t.Idle = gavelLeft, p.objective == "fifo" || moves && !job.j.Running()
		default:
			t.GPU = p.kinds[job.kind].GPU
			if old := job.j.Target(); stays(job.j) || old != nil && old.Rank < gavelPlaces && !job.j.Running() {
				class = gavelInVain
			}
		}
		t.Rank = class*gavelPlaces + int64(place)
		first := len(memory)
		if memory = append(memory, job.left, job.iso, job.alone); p.sharing {
			memory = append(memory, job.level, job.owed)
			p.aside(i, t)
		} else {
			for _, pair := range job.pairs {
				memory = append(memory, pair.x, pair.base, pair.due, pair.deficit)
			}
		}
		t.Memo = memory[first:len(memory):len(memory)]
		if job.milli > 0 && (job.kind < 0 || job.mate > 0 || job.speed[job.kind] < slices.Max(job.speed)) {
			out.Next = p.v.Now().Add(p.round) // a job waits for a turn, or for another partner
		}
	}
	if p.stale {
		out.Next = min(out.Next, p.since.Add(p.reset))
	}
	return out
}

// largestFirst orders the plan's jobs by decreasing size.
func (p *gavelPlan) largestFirst() []int {
	list, order := zeros(&p.room.sized, len(p.jobs)), zeros(&p.room.order, len(p.jobs))
	for i := range p.jobs { // sorting numbers is faster than sorting with a comparison
		list[i] = uint64(mostMilli-p.jobs[i].milli)<<24 | uint64(i)
	}
	slices.Sort(list)
	for i, n := range list {
		order[i] = int(n & (1<<24 - 1))
	}
	return order
}

// mostMilli exceeds what any job asks for, in milli-GPU. (A plan has fewer than 2^24 jobs.)
const mostMilli = 1<<39 - 1

// moves reports whether a running job changes its kind in this round. Its new GPUs may be idle
// before it has left the old ones: no other job may start on them.
func (p *gavelPlan) moves() bool {
	for i := range p.jobs {
		if job := &p.jobs[i]; job.kind >= 0 && len(p.kinds) > 1 && job.j.Running() &&
			job.j.GPU() != p.kinds[job.kind].GPU {
			return true
		}
	}
	return false
}

// fingerprint is FNV-1a of 64 bits.
type fingerprint uint64

func newFingerprint() fingerprint { return 14695981039346656037 }

func (f *fingerprint) number(n int64) {
	for s := 0; s < 64; s += 8 {
		*f = (*f ^ fingerprint(byte(n>>s))) * 1099511628211
	}
}

func (f *fingerprint) text(s string) {
	for i := range len(s) {
		f.number(int64(s[i]))
	}
	f.number(-1)
}

func (f fingerprint) sum() int64 { return int64(f) }
