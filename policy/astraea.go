package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/internal/heap"
	"github.com/muster-gpu/muster/quota"
)

var astraea = Info{
	Name: "astraea",
	About: "long-term GPU-time fairness: free GPUs are leased to the tenant that had least of its share over a day, " +
		"in it to the job that had least of what it deserved",
	Source: "ASTRAEA (TPDS'22)",
	Needs:  "several users or queues; no run times",
	Trials: []Trial{{Given: Tenants | Short}},
	Knobs: []Knob{
		{"lease", "30m", "how long a job keeps its GPUs before it competes for them again"},
		{"tenant", "auto", "what is treated fairly: queue, user, or auto (queues if there are several, else users)"},
		{"window", "24h", "period over which the service of a tenant counts, in 24 parts"},
		{"starving", "4h", "a job that has waited this long comes first among its tenant's; 0s: never"},
		{"delay", "0s", "a job that never ran may take the place of one of its tenant's whose lease is younger than this (5m in the paper's program)"},
		{"classes", "0", "number of classes of fairness by which jobs are ordered (the paper has 5); 0: by the exact ratio"},
		{"block", "false", "true: a job that is too large for its tenant's part blocks the tenant's other jobs, as in the paper's program"},
	},
	New: newAstraea,
}

type astraeaRules struct {
	lease, window, starving, delay time.Duration
	tenant                         string
	classes                        int
	block                          bool
}

func newAstraea(k *Knobs) sched.Policy {
	r := &astraeaRules{
		tenant: k.choice("tenant", "auto", "queue", "user"), lease: k.duration("lease", time.Second),
		starving: k.duration("starving", 0), delay: k.duration("delay", 0), classes: int(k.int("classes", 0, 1000)),
		block: k.bool("block"),
	}
	r.window = k.duration("window", r.lease)
	return &drawer{
		planner: planner{name: k.label(), traits: sched.Traits{Backfill: sched.Skip, Gated: true, Anywhere: true},
			plan: r.plan},
		pool: r.pool, nothing: astraeaWaits,
	}
}

// lessee is a job during a plan.
type lessee struct {
	j       sched.JobView
	id      cluster.JobID
	tasks   int
	tenant  int
	gpus    int
	until   cluster.Time // end of its lease; 0: it has none
	began   cluster.Time // begin of the lease
	submit  cluster.Time
	f       float64 // long-term fairness: GPU time received over GPU time deserved
	starves bool
	memo    []int64 // a lesseeMemo for this tenant; nil: none
}

// lesseeMemo is what is remembered of a job: end and begin of its lease; the GPU time that it had
// deserved when this was written, in milli-GPU-milliseconds; the state of its account then; the
// account's key. It stays unchanged as long as the job's lease does.
type lesseeMemo [5]int64

// Before orders a tenant's waiting jobs: starving ones first, then by long-term fairness.
func (l *lessee) Before(o *lessee) bool {
	switch {
	case l.starves != o.starves:
		return l.starves
	case !l.starves && l.f != o.f:
		return l.f < o.f
	case l.submit != o.submit:
		return l.submit < o.submit
	}
	return l.id < o.id
}

// waitingLessee orders waiting jobs in a heap.
type waitingLessee struct{ *lessee }

// Before implements heap.Ordered.
func (w *waitingLessee) Before(o *waitingLessee) bool { return w.lessee.Before(o.lessee) }

func (r *astraeaRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	pools, room := v.Pools(), sched.Memory[astraeaRoom](v)
	list := grown(&room.list, len(jobs)+len(pools))
	list, heads := list[:len(jobs)], list[len(jobs):]
	kinds := v.Kinds()
	tenants := r.recall(v, room, kinds, jobs, list, heads, pools)
	line := inLine(room, tenants)
	free := 0
	for _, k := range kinds {
		free += k.GPUs
	}
	for i := range list {
		if l := &list[i]; l.until > 0 {
			free -= l.gpus
			tenants[l.tenant].held += l.gpus
		}
	}
	r.await(v, room, tenants, list, free, float64(meanWeight(kinds)))
	var drawn []*lessee
	if free > 0 {
		free, drawn = r.divide(v, line, free)
	}
	r.displace(v, tenants, list, max(free, 0))
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(list) + len(drawn))}
	for i := range p.Targets {
		var l *lessee
		if i < len(list) {
			l = &list[i]
		} else {
			l = drawn[i-len(list)]
		}
		t := &tenants[l.tenant]
		to := &p.Targets[i]
		to.Tasks, to.Idle, to.Memo = l.tasks, l.until == 0, t.remember(l)
		if l.until > 0 {
			p.Next = min(p.Next, l.until)
			t.onLease(kinds, l)
		}
	}
	room.memo = memoOf(room.memo[:0], v.Now(), tenants)
	p.Memo = room.memo
	return p
}

// astraeaRoom is memory reused from plan to plan.
type astraeaRoom struct {
	list     []lessee
	waiting  []waitingLessee
	tenants  []tenant
	index    []int
	line     []*tenant
	records  []record
	parts    []tenantPart
	accounts []account
	memo     []int64
}

// grown returns n elements of reused memory, whatever they contain.
func grown[T any](room *[]T, n int) []T {
	if cap(*room) < n {
		*room = make([]T, n+n/2)
	}
	return (*room)[:n]
}

// pool keeps in pools the waiting jobs whose order is that of submission: those that starve, and
// those that never ran.
func (r *astraeaRules) pool(v sched.View, j sched.JobView) (class int64, at sched.Key, ok bool) {
	t := j.Target()
	if r.block || r.delay > 0 || t == nil || len(t.Memo) != len(lesseeMemo{}) || t.Memo[0] != 0 {
		return 0, at, false
	}
	if !r.starves(j) && (j.FirstStart() != cluster.Never || j.Service() > 0 ||
		j.Waiting() != v.Now().Sub(j.Spec().Submit)) {
		return 0, at, false
	}
	gpus := j.GPUs(asked(j))
	return int64(r.number(v, j))<<32 | int64(gpus), at, gpus > 0
}

// astraeaWaits is the target of a job that stays in its pool: its present one.
func astraeaWaits(j sched.JobView) sched.Target { return *j.Target() }

// starves reports whether a job has waited so long that it comes first.
func (r *astraeaRules) starves(j sched.JobView) bool {
	return r.starving > 0 && j.Waiting() >= r.starving
}

// recall brings the accounts of jobs and tenants up to now: between two plans they are as at the
// first.
func (r *astraeaRules) recall(v sched.View, room *astraeaRoom, kinds []sched.Kind, jobs []sched.JobView, list,
	heads []lessee, pools []sched.Pool) []tenant {
	then, past := tenantsOf(room, v.Memo())
	until := v.Now()
	if v.Planned() > then {
		until = v.Planned() // the last job left then
	}
	for i, j := range jobs {
		spec := j.Spec()
		list[i] = lessee{j: j, submit: spec.Submit, id: spec.ID}
	}
	tenants := r.tenants(v, room, kinds, list, heads, pools, past, then, until)
	for i := range list {
		l := &list[i]
		switch running := tenants[l.tenant].recall(l); {
		case running > 0 && stays(l.j):
			l.until, l.tasks = cluster.Never, running
		case running > 0 && l.until > v.Now():
			l.tasks = running
		default:
			l.until = 0
			tenants[l.tenant].wait++
			continue
		}
		l.gpus = l.j.GPUs(l.tasks)
	}
	for i := range tenants {
		t := &tenants[i]
		for k := range t.pools {
			r.drawHead(t, &t.pools[k])
		}
	}
	return tenants
}

// drawHead makes the head of a pool a lessee; p.gone: the pool is empty.
func (r *astraeaRules) drawHead(t *tenant, p *tenantPool) {
	j, ok := p.Pool.Head()
	if p.gone = !ok; ok {
		*p.head = lessee{j: j, id: j.Spec().ID, submit: j.Spec().Submit, tenant: p.head.tenant, starves: r.starves(j)}
		t.recall(p.head)
		p.head.until = 0
	}
}

// await computes the fairness of the waiting jobs that may get something now. Jobs larger than free
// matter only if they block others, or if they can displace others.
func (r *astraeaRules) await(v sched.View, room *astraeaRoom, tenants []tenant, list []lessee, free int,
	weight float64) {
	if free <= 0 && r.delay == 0 {
		return
	}
	all, waiting := r.block || r.delay > 0, 0
	for i := range tenants {
		waiting += tenants[i].wait
	}
	memory := grown(&room.waiting, waiting)
	for i := range tenants {
		t := &tenants[i]
		t.waiting, memory = memory[:0:t.wait], memory[t.wait:]
	}
	for i := range list {
		l := &list[i]
		if l.gpus > free && !all || l.until > 0 && r.delay == 0 {
			continue
		}
		l.starves = r.starves(l.j)
		t := &tenants[l.tenant]
		l.f = longTerm(l.j.Service(), t.deserved(l), weight)
		if r.classes > 0 {
			l.f = float64(fairnessClass(l.f, r.classes))
		}
		switch {
		case l.until > 0:
		case all:
			t.line = append(t.line, l)
			fallthrough
		case l.gpus > 0:
			t.waiting = append(t.waiting, waitingLessee{l})
		case free > 0: // needs no GPU
			r.grant(v, t, l)
		}
	}
	for i := range tenants {
		heap.Init(tenants[i].waiting)
	}
}

// divide gives the free GPUs to tenants and, within each tenant, to jobs. It returns the GPUs that
// are left and the jobs drawn from pools.
func (r *astraeaRules) divide(v sched.View, tenants []*tenant, free int) (left int, drawn []*lessee) {
	parts, drawn := r.parts(tenants, free)
	for i, t := range tenants {
		slices.SortFunc(t.line, func(a, b *lessee) int {
			if a.Before(b) {
				return -1
			}
			return 1
		})
		line := t.charged
		if r.block {
			line = t.line
		}
		for _, l := range line {
			if g := l.gpus; g <= parts[i] {
				parts[i] -= g
				free -= r.grant(v, t, l)
			} else {
				t.blocked = true
				break
			}
		}
	}
	for _, t := range tenants { // leftovers of tenants whose next job is blocked
		for _, l := range t.line {
			if !t.blocked && l.until == 0 && l.gpus <= free {
				free -= r.grant(v, t, l)
			}
		}
	}
	return free, drawn
}

// parts is the first phase: max-min over tenants. In each step the tenant with the least is charged
// for its next job that fits. The measure is what it holds now over its quota while some tenant is
// below a fifth, else what it had in the window over what it was entitled to. The job charged
// leaves the heap or pool and gets the GPUs, unless an earlier job of the tenant blocks it.
func (r *astraeaRules) parts(tenants []*tenant, free int) (parts []int, drawn []*lessee) {
	parts = make([]int, len(tenants))
	for free > 0 {
		now, ever := -1, -1
		for i, t := range tenants {
			if !t.fits(free) {
				continue
			}
			if now < 0 || t.holds(parts[i]) < tenants[now].holds(parts[now]) {
				now = i
			}
			if ever < 0 || t.had() < tenants[ever].had() {
				ever = i
			}
		}
		if now < 0 {
			break
		}
		i := ever
		if tenants[now].holds(parts[now]) < 0.2 {
			i = now
		}
		t := tenants[i]
		l, pooled := r.next(t)
		if t.charged = append(t.charged, l); pooled {
			drawn = append(drawn, l)
		}
		parts[i] += l.gpus
		free -= l.gpus
		t.u += float64(quota.Work(int64(l.gpus)*t.each, 0, cluster.Time(r.lease)))
	}
	return parts, drawn
}

// fits reports whether a job of the tenant asks for no more GPUs than are free. Jobs that ask for
// more are dropped.
func (t *tenant) fits(free int) bool {
	for len(t.waiting) > 0 && t.waiting[0].gpus > free {
		heap.Pop(&t.waiting)
	}
	left := len(t.waiting) > 0
	for i := range t.pools {
		p := &t.pools[i]
		p.gone = p.gone || p.head.gpus > free
		left = left || !p.gone
	}
	return left
}

// next takes the tenant's next job, which must exist, and reports whether it came from a pool.
func (r *astraeaRules) next(t *tenant) (l *lessee, pooled bool) {
	var from *tenantPool
	if len(t.waiting) > 0 {
		l = t.waiting[0].lessee
	}
	for i := range t.pools {
		if p := &t.pools[i]; !p.gone && (l == nil || p.head.Before(l)) {
			l, from = p.head, p
		}
	}
	if from == nil {
		heap.Pop(&t.waiting)
		return l, false
	}
	head := *from.head
	from.Draw()
	r.drawHead(t, from)
	return &head, true
}

// grant leases a job the GPUs that it asks for and returns their number.
func (r *astraeaRules) grant(v sched.View, t *tenant, l *lessee) int {
	l.began, l.until = v.Now(), leaseEnd(v.Now(), r.lease, r.lease)
	t.held += l.gpus
	return l.gpus
}

// displace gives jobs that never ran the GPUs of jobs of the same tenant whose lease has just
// begun, those with the highest fairness first.
func (r *astraeaRules) displace(v sched.View, tenants []tenant, list []lessee, free int) {
	if r.delay == 0 {
		return
	}
	young := make([][]*lessee, len(tenants))
	for i := range list {
		l := &list[i]
		if running, _, _ := l.j.Tasks(); running > 0 && l.until > v.Now() && !stays(l.j) &&
			v.Now().Sub(l.began) < r.delay && l.began < v.Now() {
			young[l.tenant] = append(young[l.tenant], l)
		}
	}
	for i := range tenants {
		t := &tenants[i]
		slices.SortStableFunc(young[i], func(a, b *lessee) int { return cmp.Compare(b.f, a.f) })
		for _, l := range t.line {
			if t.blocked || l.until > 0 || l.j.FirstStart() != cluster.Never {
				continue
			}
			have, n := free, 0
			for n < len(young[i]) && have < l.gpus && young[i][n].f > l.f {
				have += young[i][n].gpus
				n++
			}
			if have < l.gpus {
				continue
			}
			for _, o := range young[i][:n] {
				o.until = 0
				t.held -= o.gpus
			}
			young[i] = young[i][n:]
			free = have - r.grant(v, t, l)
		}
	}
}

// longTerm is a job's long-term fairness F = U / D (Astraea, TPDS'22): the GPU time it received,
// weighted by model, over what it deserved, at the mean weight (in thousandths); 0 while it has
// deserved nothing.
func longTerm(service, deserved int64, weight float64) float64 {
	if deserved <= 0 {
		return 0
	}
	return float64(service) / (float64(deserved) * weight / 1000)
}

// fairnessClass puts a fairness ratio into one of the classes 0 (nothing received) to k (far more
// than deserved) (Astraea, TPDS'22).
func fairnessClass(x float64, k int) int {
	if x <= 0 {
		return 0
	}
	ln := math.Log(x)
	f := -ln / math.Sqrt(1+ln*ln)
	return k - int(math.Floor((f+1)/2*float64(k)))
}
