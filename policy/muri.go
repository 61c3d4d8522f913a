package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

var muri = Info{
	Name: "muri",
	About: "shortest or least served first, preemptive; if GPUs do not suffice, up to four jobs of one size that use different resources " +
		"at different times share them",
	Source: "Muri (SIGCOMM'22), as its released simulator decides",
	Needs:  "stages, or speeds of pairs, of jobs on one GPU (else no jobs share GPUs); cheap stops; estimates for order=s",
	Trials: []Trial{{Given: Stages | Short}},
	Knobs: []Knob{
		{"order", "l", "l: least GPU time received first; s: least GPU time left first"},
		{"group", "4", "most jobs on the same GPUs, 1 to 4"},
		{"round", "6m", "groups are formed again at multiples of this"},
		{"keep", "5", "percent by which jobs that already run together are preferred"},
	},
	New: newMuri,
}

type muriRules struct {
	least bool // order by GPU time received, not remaining
	group int
	keep  int64
	round time.Duration
	pairs func(groups [][]sched.JobView) []int // nil: by weight
}

func newMuri(k *Knobs) sched.Policy {
	m := &muriRules{least: k.choice("order", "l", "s") == "l", group: int(k.int("group", 1, mostTogether)),
		keep: k.int("keep", 0, 100), round: k.turns()}
	return &muriPolicy{planner{name: k.label(),
		traits: sched.Traits{Preempts: true, Backfill: sched.Skip, Round: m.round, Anywhere: true}, plan: m.plan}, m}
}

type muriPolicy struct {
	planner
	rules *muriRules
}

// Pair replaces the pairing of groups: the function returns the partner of each group, -1 for none.
func (p *muriPolicy) Pair(pairs func(groups [][]sched.JobView) []int) { p.rules.pairs = pairs }

// mostTogether bounds the jobs on the same GPUs, mostMatched the consecutive groups in the order
// that are paired at a time, since pairing takes the third power of their number.
const mostTogether, mostMatched = 4, 256

// muriJob is a job while groups are made.
type muriJob struct {
	at     int // index into the plan's jobs
	gpus   int
	key    int64
	class  int // of jobs that may share GPUs; -1: it shares with none
	model  uint16
	stays  bool // it cannot be stopped
	loses  bool // ... and stopping it would lose its work
	tried  bool // it takes part in grouping
	memory cluster.MiB
}

// muriGroup is jobs that are to share GPUs, by place in the order.
type muriGroup []int

// muriPlan is a plan in the making.
type muriPlan struct {
	*muriRules
	v       sched.View
	jobs    []sched.JobView
	order   []muriJob
	classes [][]int       // places in the order
	groups  [][]muriGroup // by class; the last has the jobs of no class
	memory  cluster.MiB   // of the smallest GPU; 0: unknown
	total   int           // GPUs
	need    int           // GPUs that all groups need
	known   map[[mostTogether + 1]uint16]int64
	last    [mostTogether + 1]uint16 // the last key asked for; no valid key is all 0
	gain    int64                    // ... its value
}

func (m *muriRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	// looked up only
	p := &muriPlan{muriRules: m, v: v, jobs: jobs, total: totalGPUs(v), known: map[[mostTogether + 1]uint16]int64{}}
	p.sort()
	if slices.ContainsFunc(p.order, func(o muriJob) bool { return o.memory > 0 }) { // otherwise memory does not matter
		for _, k := range v.Kinds() {
			if g, ok := cluster.FindModel(k.GPU); ok && (p.memory == 0 || g.Memory < p.memory) {
				p.memory = g.Memory
			}
		}
	}
	p.try()
	for range m.group {
		if p.need <= p.total || !p.join() {
			break
		}
	}
	return sched.Plan{Next: v.Now().Add(m.round), Targets: p.targets()}
}

// sort orders the jobs: those that cannot be stopped first, then by tier, then by GPU time; ties by
// number.
func (p *muriPlan) sort() {
	p.order = make([]muriJob, len(p.jobs))
	for i, j := range p.jobs {
		_, least, _ := j.Tasks()
		p.order[i] = muriJob{at: i, gpus: j.GPUs(least), key: p.key(j), stays: stays(j), loses: j.Loses(), class: -1}
	}
	slices.SortStableFunc(p.order, func(a, b muriJob) int {
		if a.stays != b.stays {
			return cmp.Compare(flag(b.stays), flag(a.stays))
		}
		return cmp.Or(cmp.Compare(p.jobs[a.at].Spec().Tier, p.jobs[b.at].Spec().Tier), cmp.Compare(a.key, b.key))
	})
	models := map[string]uint16{} // looked up only
	for pos := range p.order {
		o := &p.order[pos]
		j := p.jobs[o.at]
		if _, guest := j.Host(); !packs(j) || guest && o.stays || p.group == 1 || p.barred(j) {
			continue
		}
		id, ok := models[j.Spec().Model]
		if !ok {
			id = uint16(min(len(models), math.MaxUint16))
			models[j.Spec().Model] = id
		}
		o.model, o.memory = id, j.Spec().Tasks[0].Request.Memory
		o.class = slices.IndexFunc(p.classes, func(c []int) bool {
			return alike(j.Spec(), p.jobs[p.order[c[0]].at].Spec())
		})
		if o.class < 0 {
			o.class = len(p.classes)
			p.classes = append(p.classes, nil)
		}
		p.classes[o.class] = append(p.classes[o.class], pos)
	}
}

// barred reports whether a job has waited in vain to join a group: its nodes lack CPU or RAM for
// both, or it may not run there. Until the next plan it forms a group alone.
func (p *muriPlan) barred(j sched.JobView) bool {
	t := j.Target()
	return t != nil && t.Move && !j.Running() && j.Waiting() >= p.round/2
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// key is a job's GPU time received or remaining, in GPU-nanoseconds, as if it never shared GPUs.
func (p *muriPlan) key(j sched.JobView) int64 {
	gpus := max(1, j.Spec().GPUMilli()/1000)
	times := func(d time.Duration) int64 { return min(int64(d), (math.MaxInt64-1)/gpus) * gpus }
	if p.least {
		if _, least, most := j.Tasks(); least < most {
			return min(j.Attained(), (math.MaxInt64-1)/1000) * 1000 // its size has varied
		}
		return times(j.Ran())
	}
	e := j.Spec().Estimate
	if e <= 0 {
		return math.MaxInt64
	}
	return times(max(e-j.Done(), 0))
}

// alike reports whether the requests of two jobs let them share GPUs.
func alike(a, b *cluster.Job) bool {
	x, y := &a.Tasks[0], &b.Tasks[0]
	return x.Count == y.Count && x.Request.GPUs == y.Request.GPUs && a.Tier == b.Tier &&
		slices.Equal(a.GPUTypes, b.GPUTypes)
}

// try chooses the jobs to group: each job that would run alone, and the next ones of its class in
// the order, up to the size of a group.
func (p *muriPlan) try() {
	p.groups = make([][]muriGroup, len(p.classes)+1)
	next := make([]int, len(p.classes))
	free := p.total
	for pos := range p.order {
		o := &p.order[pos]
		if o.tried || o.gpus > free && !o.stays {
			continue
		}
		free -= o.gpus
		if o.class < 0 {
			o.tried = true
			p.need += o.gpus
			p.groups[len(p.classes)] = append(p.groups[len(p.classes)], muriGroup{pos})
			continue
		}
		class, from := p.classes[o.class], next[o.class]
		next[o.class] = min(from+p.group, len(class))
		for _, k := range class[from:next[o.class]] {
			p.order[k].tried = true
			p.need += o.gpus
			p.groups[o.class] = append(p.groups[o.class], muriGroup{k})
		}
	}
}

// join pairs the groups of each class and merges pairs until all groups have GPUs. It reports
// whether it merged any.
func (p *muriPlan) join() (joined bool) {
	for c := range p.classes {
		var out []muriGroup
		for groups := range slices.Chunk(p.groups[c], mostMatched) {
			had := len(out)
			out = p.match(out, c, groups)
			joined = joined || len(out)-had < len(groups)
		}
		p.groups[c] = out
	}
	return joined
}

// match appends the groups of a class to out, merging pairs as far as needed.
func (p *muriPlan) match(out []muriGroup, class int, groups []muriGroup) []muriGroup {
	if p.need <= p.total {
		return append(out, groups...)
	}
	for u, v := range p.pair(class, groups) {
		switch {
		case v > u: // handled with its partner
		case v < 0:
			out = append(out, groups[u])
		case p.need > p.total:
			out = append(out, slices.Concat(groups[v], groups[u]))
			p.need -= p.order[groups[u][0]].gpus
		default:
			out = append(out, groups[v], groups[u])
		}
	}
	return out
}

// pair finds partners for the groups of a class.
func (p *muriPlan) pair(class int, groups []muriGroup) []int {
	if p.pairs == nil {
		return solve.Match(len(groups), func(a, b int) int64 { return p.weight(class, groups[a], groups[b]) })
	}
	lists := make([][]sched.JobView, len(groups))
	for i, g := range groups {
		for _, pos := range g {
			lists[i] = append(lists[i], p.jobs[p.order[pos].at])
		}
	}
	return p.pairs(lists)
}

// weight is the throughput of two groups on the same GPUs, in ppm of one job alone; 0: they may not
// share GPUs, or get no more done than by turns. A job alone keeps one resource busy at any time,
// so this is Muri's interleaving efficiency times the number of resources.
func (p *muriPlan) weight(class int, a, b muriGroup) int64 {
	if len(a)+len(b) > p.group {
		return 0
	}
	key := [mostTogether + 1]uint16{uint16(class)}
	memory, losing, n := cluster.MiB(0), 0, 0
	var list [mostTogether]int
	for _, g := range [2]muriGroup{a, b} {
		for _, pos := range g {
			o := &p.order[pos]
			memory += o.memory
			losing += flag(o.loses)
			list[n] = pos
			n++
			key[n] = o.model + 1
		}
	}
	if p.memory > 0 && memory > p.memory || losing > 1 {
		return 0
	}
	slices.Sort(key[1 : 1+n])
	if key != p.last { // consecutive keys are usually equal
		w, ok := p.known[key]
		if !ok {
			w = p.together(list[:n])
			p.known[key] = w
		}
		p.last, p.gain = key, w
	}
	w := p.gain
	if w <= 1_000_000 {
		return 0
	}
	if p.keep > 0 && p.neighbours(a, b) {
		w += w / 100 * p.keep
	}
	return w
}

// together is the sum of the speeds of jobs that share GPUs.
func (p *muriPlan) together(list []int) (sum int64) {
	first := p.jobs[p.order[list[0]].at]
	gpu := first.GPU()
	for _, k := range p.v.Kinds() {
		if gpu == "" && first.Accepts(k.GPU) {
			gpu = k.GPU
		}
	}
	others := make([]sched.JobView, 0, mostTogether)
	for i, pos := range list {
		others = others[:0]
		for k, other := range list {
			if k != i {
				others = append(others, p.jobs[p.order[other].at])
			}
		}
		sum += p.v.SpeedBeside(p.jobs[p.order[pos].at], gpu, others)
	}
	return sum
}

// neighbours reports whether two groups already share GPUs.
func (p *muriPlan) neighbours(a, b muriGroup) bool {
	for _, x := range a {
		for _, y := range b {
			i, j := p.jobs[p.order[x].at], p.jobs[p.order[y].at]
			if i.Running() && j.Running() && place(i) == place(j) {
				return true
			}
		}
	}
	return false
}

// place is the job that holds the GPUs on which a running job is.
func place(j sched.JobView) cluster.JobID {
	if host, guest := j.Host(); guest {
		return host
	}
	return j.Spec().ID
}

// targets runs the groups that have GPUs, in the order of their first members; all other jobs come
// after them.
func (p *muriPlan) targets() []sched.Target {
	targets := p.v.Targets(len(p.jobs))
	n := int64(len(p.order))
	for pos := range p.order {
		o := &p.order[pos]
		_, guest := p.jobs[o.at].Host()
		targets[o.at] = sched.Target{Rank: 2*n + int64(pos), Alone: guest && !o.stays}
	}
	groups := slices.Concat(p.groups...)
	slices.SortStableFunc(groups, func(a, b muriGroup) int { return cmp.Compare(slices.Min(a), slices.Min(b)) })
	free := p.total
	for _, g := range groups {
		if o := &p.order[g[0]]; o.gpus > free && !o.stays {
			continue
		}
		free -= p.order[g[0]].gpus
		host := p.host(g)
		targets[p.order[host].at].Rank = int64(slices.Min(g))
		id := p.jobs[p.order[host].at].Spec().ID
		for _, pos := range g {
			if pos != host {
				t := &targets[p.order[pos].at]
				t.Rank, t.Beside, t.Move = n+int64(pos), 1+int32(id), true
			}
		}
	}
	return targets
}

// host is the member of a group whose GPUs the others are to use: one whose work would be lost by
// stopping, else the running one with most of the others as guests, else the first in the order.
func (p *muriPlan) host(g muriGroup) int {
	best, most := -1, -1
	for _, pos := range slices.Sorted(slices.Values(g)) {
		j := p.jobs[p.order[pos].at]
		score := 0
		if _, guest := j.Host(); j.Running() && !guest {
			score = 1
			for _, other := range g {
				if host, is := p.jobs[p.order[other].at].Host(); is && host == j.Spec().ID {
					score++
				}
			}
		}
		if p.order[pos].loses {
			score = mostTogether + 1
		}
		if score > most {
			best, most = pos, score
		}
	}
	return best
}
