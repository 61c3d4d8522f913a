package policy

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/solve"
)

// Space sharing (the paper's section 3.2 and 4): the program also has rows for two jobs on the same
// GPUs. Jobs with the same speeds, alone and beside any other job, form a class: the program and
// the rounds work on classes, and within a class the service of its jobs decides which of them
// runs. So neither grows with the square of the number of jobs.

// mostShared is the number of classes whose jobs may share GPUs, those with the most jobs: there
// are up to half as many pairs as its square, and the work of a solution grows with the third
// power. If remaining work matters, every job is a class of its own, and those with the most work
// left may share. Water filling solves a program for almost every class, so its limit is lower.
const (
	mostShared       = 64
	mostSharedFilled = 16
)

// gavelSharer is what a plan with space sharing adds to a job.
type gavelSharer struct {
	class int64 // fingerprint of what the jobs of a class have in common
	level int64 // speed that the last solution gave it, in ppm; 0: none has included it
	owed  int64 // work that it should have done at that level and has not, in ns
	mate  int   // 1 + index in the plan of the job packed with it; 0: none
	guest bool  // ... and the other one holds the GPUs
	vain  bool  // it waited in vain to be packed: it gets a turn alone
}

// gavelUse is an allocation of GPUs of a kind to a job of one class, or to two jobs of two classes.
type gavelUse struct {
	class [2]int64 // the second is 0 for a job alone
	kind  int
	x     int64 // how many should run at a time, in millionths
	owed  int64 // time owed: ns
}

func (u *gavelUse) same(o *gavelUse) bool { return u.class == o.class && u.kind == o.kind }

const useMemo = 5 // length of a use in a memo

func (p *gavelPlan) usesMemo() (memo []int64) {
	for i := range p.uses {
		u := &p.uses[i]
		memo = append(memo, u.class[0], u.class[1], int64(u.kind), u.x, u.owed)
	}
	return memo
}

// recallUses reads the uses of the last plan and books the time since.
func (p *gavelPlan) recallUses() {
	if !p.sharing {
		return
	}
	at := map[cluster.JobID]int{} // looked up only
	for i := range p.jobs {
		job := &p.jobs[i]
		t := job.j.Target()
		job.vain = p.objective != "fifo" && t != nil && t.Beside > 0 && !job.j.Running() && job.j.Waiting() >= p.round/2
		job.class = p.classOf(job)
		at[p.jobs[i].j.Spec().ID] = i
	}
	if memo := p.v.Memo(); p.since != cluster.Never {
		for m := memo[4:]; len(m) >= useMemo; m = m[useMemo:] {
			p.uses = append(p.uses, gavelUse{class: [2]int64{m[0], m[1]}, kind: int(m[2]), x: m[3], owed: m[4]})
		}
	}
	elapsed := int64(p.v.Now().Sub(p.last))
	for i := range p.uses {
		u := &p.uses[i]
		most := 2 * (int64(p.round) + u.x*(int64(p.round)/1_000_000))
		u.owed = min(u.owed+u.x*(elapsed/1_000_000), most)
	}
	for i := range p.jobs {
		job := &p.jobs[i]
		job.owed += job.level * (elapsed / 1_000_000)
		k := kindOf(p.kinds, job.j.GPU())
		if !job.j.Running() || k < 0 {
			continue
		}
		had, rate := int64(p.v.Now().Sub(max(p.last, job.j.Started()))), job.speed[k]
		use := gavelUse{class: [2]int64{job.class}, kind: k}
		if host, is := job.j.Host(); is {
			if h, ok := at[host]; ok {
				p.beside(job, &p.jobs[h], k, &rate)
			}
			job.owed -= rate * (had / 1_000_000)
			continue // counted with its host's use
		}
		if guests := job.j.Guests(); len(guests) > 0 {
			if g, ok := at[guests[0]]; ok {
				p.beside(job, &p.jobs[g], k, &rate)
				use.class = ordered(job.class, p.jobs[g].class)
			}
		}
		job.owed -= rate * (had / 1_000_000)
		if n := slices.IndexFunc(p.uses, func(u gavelUse) bool { return u.same(&use) }); n >= 0 {
			p.uses[n].owed = max(p.uses[n].owed-had, -2*int64(p.round))
		}
	}
}

// beside reduces a job's rate by what it loses to the other job.
func (p *gavelPlan) beside(job, other *gavelJob, kind int, rate *int64) {
	*rate = *rate * p.v.SpeedBeside(job.j, p.kinds[kind].GPU, []sched.JobView{other.j}) / 1_000_000
}

func ordered(a, b int64) [2]int64 { return [2]int64{min(a, b), max(a, b)} }

// classOf is the fingerprint of what the jobs of a class have in common; never 0.
func (p *gavelPlan) classOf(job *gavelJob) int64 {
	h, s := newFingerprint(), job.j.Spec()
	h.number(job.milli)
	h.number(int64(s.Tier))
	if job.weight != cluster.Whole {
		h.number(job.weight)
	}
	for _, v := range job.speed {
		h.number(v)
	}
	if p.mayShare(job) {
		r := &s.Tasks[0]
		h.text(s.Model)
		h.number(int64(r.Count))
		h.number(int64(r.Request.GPUs))
		h.number(r.Request.Memory)
	}
	if p.apart(job) {
		h.number(int64(s.ID))
	}
	if p.objective == "hierarchical" {
		h.number(int64(p.entity(job)))
	}
	return max(1, h.sum()&math.MaxInt64)
}

// apart reports whether a job is a class of its own, since no other job has its deadline, its
// remaining work or its place in the order.
func (p *gavelPlan) apart(job *gavelJob) bool {
	switch p.objective {
	case "ftf", "makespan", "fifo":
		return true
	case "cost":
		return p.due(job) || stays(job.j)
	case "hierarchical":
		return p.firstFirst(job) || stays(job.j)
	}
	return stays(job.j)
}

// mayShare reports whether a job may share GPUs with another one.
func (p *gavelPlan) mayShare(job *gavelJob) bool {
	return packs(job.j) && !job.j.Loses() && job.milli > 0
}

// gavelClass is the jobs of a program that are equivalent.
type gavelClass struct {
	id    int64
	jobs  []*gavelJob
	at    int // index of its first job in the program
	pairs bool
}

// share computes X for each use.
func (q *gavelProgram) share() {
	if q.objective == "fifo" {
		q.arriveShared()
		return
	}
	classes := q.classes()
	p := solve.Packing{Shares: solve.Shares{Capacity: q.problem.Capacity}}
	k := len(q.kinds)
	for _, c := range classes {
		p.GPUs, p.Jobs = append(p.GPUs, q.problem.GPUs[c.at]), append(p.Jobs, float64(len(c.jobs)))
		p.Speed = append(p.Speed, q.speed[c.at*k:(c.at+1)*k]...)
	}
	if q.v.Shared() && q.crowded() {
		p.Pairs = q.pairs(classes)
	}
	alone, together, err := q.solveShared(&p, classes)
	if err != nil {
		p.Pairs, together = nil, nil
		alone = q.isolated(&p)
	}
	before := q.uses
	q.uses = nil
	for i, c := range classes {
		for j := range k {
			q.use(gavelUse{class: [2]int64{c.id}, kind: j}, alone[i*k+j], before)
		}
	}
	for u := range p.Pairs {
		for j := range k {
			q.use(gavelUse{class: ordered(classes[p.Pairs[u].A].id, classes[p.Pairs[u].B].id), kind: j},
				together[u*k+j], before)
		}
	}
	for i, v := range p.Rates(alone, together) {
		for _, job := range classes[i].jobs {
			job.level = max(1, int64(v*1e6))
		}
	}
}

func (q *gavelProgram) isolated(p *solve.Packing) []float64 {
	each := solve.Shares{Capacity: p.Capacity}
	for i, g := range p.GPUs {
		each.GPUs = append(each.GPUs, g*p.Jobs[i])
	}
	x := each.Isolated()
	for ij := range x {
		x[ij] *= p.Jobs[ij/len(p.Capacity)]
	}
	return x
}

// use adds a use with X = x. A use of the last solution keeps the time it is owed; a new one starts
// with a pseudo-random part of a round, so that rare uses do not all wait for long.
func (q *gavelProgram) use(u gavelUse, x float64, before []gavelUse) {
	if u.x = int64(math.Round(1e6 * x)); u.x < 100 {
		return
	}
	if n := slices.IndexFunc(before, func(o gavelUse) bool { return u.same(&o) }); n >= 0 {
		u.owed = before[n].owed
	} else {
		h := newFingerprint()
		h.number(u.class[0])
		h.number(u.class[1])
		h.number(int64(u.kind))
		h.number(int64(q.v.Now()))
		u.owed = int64(uint64(h.sum())%1000)*(int64(q.round)/1000) - int64(q.round)/2
	}
	q.uses = append(q.uses, u)
}

// classes groups the program's jobs by class, in the order of their first jobs.
func (q *gavelProgram) classes() (list []*gavelClass) {
	known := map[int64]*gavelClass{} // looked up only
	for i, job := range q.jobs {
		c := known[job.class]
		if c == nil {
			c = &gavelClass{id: job.class, at: i, pairs: q.shares(job)}
			known[job.class] = c
			list = append(list, c)
		}
		c.jobs = append(c.jobs, job)
	}
	var pairing []*gavelClass
	for _, c := range list {
		if c.pairs {
			pairing = append(pairing, c)
		}
	}
	slices.SortStableFunc(pairing, func(a, b *gavelClass) int {
		switch q.objective {
		case "ftf", "makespan":
			return cmp.Compare(q.left[b.at], q.left[a.at])
		}
		return cmp.Compare(len(b.jobs), len(a.jobs))
	})
	most := mostShared
	if q.objective == "waterfill" || q.objective == "hierarchical" {
		most = mostSharedFilled
	}
	for _, c := range pairing[min(most, len(pairing)):] {
		c.pairs = false
	}
	return list
}

// crowded reports whether the jobs do not all fit on the kinds where each is fastest.
func (q *gavelProgram) crowded() bool {
	want := make([]float64, len(q.kinds))
	for i := range q.jobs {
		best := 0
		for j := range q.kinds {
			if q.speed[i*len(q.kinds)+j] > q.speed[i*len(q.kinds)+best] {
				best = j
			}
		}
		want[best] += q.problem.GPUs[i]
	}
	for j, w := range want {
		if w > q.problem.Capacity[j] {
			return true
		}
	}
	return false
}

// pairs lists the pairs of classes that get more done together than by turns.
func (q *gavelProgram) pairs(classes []*gavelClass) (list []solve.Pair) {
	k := len(q.kinds)
	for a, one := range classes {
		for b, two := range classes[:a+1] {
			x, y := one.jobs[0], two.jobs[0]
			if !one.pairs || !two.pairs || a == b && len(one.jobs) < 2 {
				continue
			}
			u, any := solve.Pair{A: a, B: b, Speed: [2][]float64{make([]float64, k), make([]float64, k)}}, false
			for j, kind := range q.kinds {
				if !q.together(x, y, j) {
					continue
				}
				vx, vy := q.v.SpeedBeside(x.j, kind.GPU, []sched.JobView{y.j}),
					q.v.SpeedBeside(y.j, kind.GPU, []sched.JobView{x.j})
				if vx > 0 && vy > 0 && vx+vy > 1_000_000 {
					u.Speed[0][j], u.Speed[1][j] = q.speed[one.at*k+j]*float64(vx)/1e6,
						q.speed[two.at*k+j]*float64(vy)/1e6
					any = true
				}
			}
			if any {
				list = append(list, u)
			}
		}
	}
	return list
}

// fits reports whether the GPU's memory suffices for the requests of both.
func fits(a, b sched.JobView, gpu string) bool {
	need := a.Spec().Tasks[0].Request.Memory + b.Spec().Tasks[0].Request.Memory
	m, ok := cluster.FindModel(gpu)
	return !ok || need <= m.Memory
}

func (q *gavelProgram) solveShared(p *solve.Packing, classes []*gavelClass) (alone, together []float64, err error) {
	of := func(perJob []float64) (list []float64) {
		for _, c := range classes {
			list = append(list, perJob[c.at])
		}
		return list
	}
	switch q.objective {
	case "ftf":
		age, own := q.ages()
		_, alone, together, err = p.FinishTime(of(q.left), of(age), of(own))
	case "makespan":
		_, alone, together, err = p.Makespan(of(q.left))
	case "throughput", "cost":
		price := q.perKind()
		alone, together, err = p.Most(price, of(q.least()))
		if err != nil { // not all deadlines can be met
			alone, together, err = p.Most(price, make([]float64, len(classes)))
		}
	case "waterfill":
		_, alone, together, err = p.WaterFill(of(q.relative()))
	case "hierarchical":
		entities, all := *q.entities(), q.entities().Of
		entities.Of = nil
		for _, c := range classes {
			entities.Of = append(entities.Of, all[c.at])
		}
		_, alone, together, err = p.Hierarchy(of(q.relative()), &entities)
	default:
		_, alone, together, err = p.MaxMin(of(q.relative()))
	}
	return alone, together, err
}

// chooseUses selects the jobs of this round, their kinds and the pairs: kind by kind, the use with
// the most time owed first; what is left goes to the jobs that are owed most, each alone.
func (p *gavelPlan) chooseUses() {
	free := make([]int64, len(p.kinds))
	for k := range p.kinds {
		free[k] = int64(p.kinds[k].GPUs) * cluster.Whole
	}
	for tier := cluster.Critical; tier <= cluster.BestEffort; tier++ {
		line := map[int64][]int{} // by class; looked up only
		for i := range p.jobs {
			job := &p.jobs[i]
			if job.j.Spec().Tier != tier || job.milli == 0 {
				continue
			}
			if k := kindOf(p.kinds, job.j.GPU()); k >= 0 && stays(job.j) && job.j.Milli() <= free[k] {
				job.kind = k
				free[k] -= job.j.Milli()
			} else if job.level > 0 && !job.vain {
				line[job.class] = append(line[job.class], i)
			}
		}
		p.chooseRest(tier, free, true)
		for _, k := range p.kindOrder(int(p.v.Now() / cluster.Time(p.round))) {
			p.chooseOn(k, line, &free[k])
		}
		if p.objective != "fifo" {
			p.chooseRest(tier, free, false)
		}
	}
}

// chooseOn selects uses of one kind: those that are owed half a round or more.
func (p *gavelPlan) chooseOn(k int, line map[int64][]int, free *int64) {
	var uses []gavelUse
	for _, u := range p.uses {
		if u.kind == k && len(line[u.class[0]]) > 0 {
			u.owed += u.x * (int64(p.round) / 1_000_000)
			uses = append(uses, u)
		}
	}
	for {
		best, chosen := -1, [2]int{-1, -1}
		for n := range uses {
			u := &uses[n]
			if u.owed < int64(p.round)/2 || best >= 0 && u.owed <= uses[best].owed {
				continue
			}
			if pair, ok := p.jobsFor(u, line); ok && p.jobs[pair[0]].milli <= *free {
				best, chosen = n, pair
			}
		}
		if best < 0 {
			break
		}
		uses[best].owed -= int64(p.round)
		*free -= p.jobs[chosen[0]].milli
		for m, i := range chosen {
			if i >= 0 {
				p.jobs[i].kind, p.jobs[i].mate = k, chosen[1-m]+1
			}
		}
		p.host(chosen)
	}
}

// chooseRest gives what is left to the jobs that are owed most, alone, on the fastest kind that has
// room. With vain set it runs before the other choices, for jobs that waited in vain to be packed
// because their nodes lack CPU or RAM for two.
func (p *gavelPlan) chooseRest(tier cluster.Tier, free []int64, vain bool) {
	var rest []*gavelJob
	for i := range p.jobs {
		if job := &p.jobs[i]; job.kind < 0 && job.milli > 0 && job.j.Spec().Tier == tier && (job.vain || !vain) {
			rest = append(rest, job)
		}
	}
	slices.SortStableFunc(rest, func(a, b *gavelJob) int { return cmp.Compare(b.owed, a.owed) })
	for _, job := range rest {
		for k, v := range job.speed {
			if v > 0 && job.milli <= free[k] && (job.kind < 0 || v > job.speed[job.kind]) {
				job.kind = k
			}
		}
		if job.kind >= 0 {
			free[job.kind] -= job.milli
		}
	}
}

// jobsFor returns the jobs whose turn a use is; -1: the use is for one job alone. The job that is
// owed most comes first; one that already runs like this counts as owed one round more, so that
// jobs do not move in every round.
func (p *gavelPlan) jobsFor(u *gavelUse, line map[int64][]int) (pair [2]int, ok bool) {
	pair = [2]int{-1, -1}
	for m, class := range u.class {
		most := int64(math.MinInt64)
		for _, i := range line[class] {
			job := &p.jobs[i]
			if job.kind >= 0 || i == pair[0] || job.speed[u.kind] == 0 {
				continue
			}
			owed := job.owed
			if p.with(job, u, pair[0]) {
				owed += job.level * (int64(p.round) / 1_000_000)
			}
			if owed > most {
				pair[m], most = i, owed
			}
		}
		if pair[m] < 0 && (m == 0 || class != 0) {
			return pair, false
		}
	}
	return pair, true
}

// with reports whether a job already runs as a use demands: on its kind, and alone or with another
// job; with the given one if first is not -1.
func (p *gavelPlan) with(job *gavelJob, u *gavelUse, first int) bool {
	if job.j.GPU() != p.kinds[u.kind].GPU {
		return false
	}
	mate := cluster.NoJob
	if host, is := job.j.Host(); is {
		mate = host
	} else if g := job.j.Guests(); len(g) > 0 {
		mate = g[0]
	}
	switch {
	case u.class[1] == 0:
		return mate == cluster.NoJob
	case first >= 0:
		return mate == p.jobs[first].j.Spec().ID
	}
	return mate != cluster.NoJob
}

// host decides which of two jobs holds the GPUs: the one that already holds some there, preferably
// with the other as its guest.
func (p *gavelPlan) host(pair [2]int) {
	if pair[1] < 0 {
		return
	}
	var score [2]int
	for m, i := range pair {
		job, other := &p.jobs[i], &p.jobs[pair[1-m]]
		if _, is := job.j.Host(); job.j.Running() && !is && job.j.GPU() == p.kinds[job.kind].GPU {
			score[m] = 1
			if slices.Contains(job.j.Guests(), other.j.Spec().ID) {
				score[m] = 2
			}
		}
	}
	p.jobs[pair[0]].guest, p.jobs[pair[1]].guest = score[1] > score[0], score[1] <= score[0]
}

// aside makes the target of a guest, and separates jobs that are no longer to be together: the
// guest leaves unless its host does.
func (p *gavelPlan) aside(i int, t *sched.Target) {
	job := &p.jobs[i]
	host, is := job.j.Host()
	if job.guest {
		id := p.jobs[job.mate-1].j.Spec().ID
		t.Beside, t.Move, t.Idle, t.Alone = 1+int32(id), true, true, is
		t.Rank = gavelLeft*gavelPlaces + t.Rank&(gavelPlaces-1)
		return
	}
	t.Alone = is && slices.ContainsFunc(p.jobs, func(o gavelJob) bool {
		return o.j.Spec().ID == host && !o.guest && o.kind == kindOf(p.kinds, o.j.GPU())
	})
}
