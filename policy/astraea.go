package policy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
	"github.com/muster-gpu/muster/quota"
)

var astraea = Info{
	Name: "astraea",
	About: "long-term GPU-time fairness: free GPUs are leased to the tenant that had least of its share over a day, " +
		"in it to the job that had least of what it deserved",
	Source: "C-astraea: ASTRAEA (TPDS'22)",
	Needs:  "several users or queues; no run times",
	Knobs: []Knob{
		{"lease", "30m", "how long a job keeps its GPUs before it competes for them again"},
		{"tenant", "auto", "who is to be treated fairly: queue, user, or auto (queues if there are several, else users)"},
		{"window", "24h", "over how long what a tenant had counts, in 24 parts"},
		{"starving", "4h", "a job that has waited so long comes first among its tenant's; 0s: it does not"},
		{"delay", "0s", "a job that never ran may take the place of one of its tenant's whose lease is younger than this (5m in the paper's program)"},
		{"classes", "0", "jobs are told apart by so many classes of fairness (the paper has 5); 0: by the exact ratio"},
		{"block", "false", "a job that its tenant's part is too small for keeps the tenant's others waiting, as in the paper's program"},
	},
	New: newAstraea,
}

type astraeaRules struct {
	lease, window, starving, delay time.Duration
	tenant                         string
	classes                        int
	block                          bool
}

func newAstraea(k *Knobs) (engine.Policy, error) {
	r := &astraeaRules{tenant: k.text("tenant")}
	var err error
	if r.lease, err = k.period("lease"); err == nil {
		r.window, err = k.duration("window")
	}
	if err == nil && r.window < r.lease {
		err = fmt.Errorf("window=%s: at least as long as a lease, %v", k.text("window"), r.lease)
	}
	if err == nil {
		r.starving, err = k.duration("starving")
	}
	if err == nil {
		r.delay, err = k.duration("delay")
	}
	if kinds := []string{"auto", "queue", "user"}; err == nil && !slices.Contains(kinds, r.tenant) {
		err = cluster.Unknown("tenant", r.tenant, kinds)
	}
	if err != nil {
		return nil, err
	}
	if r.classes, err = strconv.Atoi(k.text("classes")); err != nil || r.classes < 0 || r.classes > 1000 {
		return nil, fmt.Errorf("classes=%q: want a whole number up to 1000", k.text("classes"))
	}
	if r.block, err = k.bool("block"); err != nil {
		return nil, err
	}
	return &planner{name: k.label(), traits: engine.Traits{Backfill: engine.Skip, Gated: true}, plan: r.plan}, nil
}

// lessee is a job while leases are given out.
type lessee struct {
	j        engine.JobView
	tasks    int
	tenant   int
	gpus     int
	until    cluster.Time // end of its lease; 0: it has none
	began    cluster.Time // of the lease
	submit   cluster.Time
	deserved int64   // GPU time that was its part of its tenant's quota since it came, in milli-GPU-milliseconds
	f        float64 // GPU time that it had over that: its long-term fairness
	starves  bool
	memo     [3]int64
}

// tenant is a user or a queue, with what it had and was to have over the window,
// in parts of it by the clock.
type tenant struct {
	key     int64
	weight  int64
	quota   int   // GPUs
	active  int   // jobs that wait or run
	held    int   // GPUs on lease
	each    int64 // what an hour of the cluster's GPUs counts for, on average, in thousandths
	service int64 // what is on lease: milli-GPU by the models' weights
	parts   []tenantPart
	w, u    float64 // quota and leases over the window and until a lease from now ends, in milli-GPU-milliseconds
	waiting []*lessee
	next    int
	blocked bool
}

// tenantPart is GPU time in a part of the window: what the quota allowed, and
// what was held.
type tenantPart struct{ number, quota, held int64 }

// inWindow is how many parts count.
const inWindow = 24

func (r *astraeaRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	list := engine.Scratch[lessee](v, len(jobs))
	tenants := r.recall(v, jobs, list)
	free := totalGPUs(v)
	for i := range list {
		if l := &list[i]; l.until > 0 {
			free -= l.gpus
			tenants[l.tenant].held += l.gpus
		} else {
			t := &tenants[l.tenant]
			t.waiting = append(t.waiting, l)
		}
	}
	if free > 0 {
		free = r.divide(v, tenants, free)
	}
	r.displace(v, tenants, list, max(free, 0))
	onLease(v, tenants, list)
	p := engine.Plan{Next: cluster.Never, Memo: memoOf(v.Now(), tenants), Targets: v.Targets(len(list))}
	for i := range list {
		l := &list[i]
		l.memo = [3]int64{int64(l.until), int64(l.began), l.deserved}
		if p.Targets[i] = (engine.Target{Tasks: l.tasks, Idle: l.until == 0, Memo: l.memo[:]}); l.until > 0 {
			p.Next = min(p.Next, l.until)
		}
	}
	return p
}

// recall brings the accounts of jobs and tenants up to now: between two plans
// everything is as it was at the first.
func (r *astraeaRules) recall(v engine.View, jobs []engine.JobView, list []lessee) []tenant {
	then, past := tenantsOf(v.Memo())
	until := v.Now()
	if v.Planned() > then {
		until = v.Planned() // then the last job was gone
	}
	for i, j := range jobs {
		list[i].j, list[i].submit = j, j.Spec().Submit
	}
	tenants := r.tenants(v, list, past, then, until)
	weight := meanWeight(v)
	before := make([]*tenant, len(tenants)) // nil: it was none
	for i := range past {
		for k := range tenants {
			if tenants[k].key == past[i].key {
				before[k] = &past[i]
			}
		}
	}
	for i := range list {
		l := &list[i]
		l.tasks = asked(l.j)
		l.gpus = l.j.GPUs(l.tasks)
		t := l.j.Target()
		if t != nil && len(t.Memo) == 3 {
			l.until, l.began, l.deserved = cluster.Time(t.Memo[0]), cluster.Time(t.Memo[1]), t.Memo[2]
			if t := before[l.tenant]; t != nil {
				l.deserved += quota.Work(t.deserves(l.gpus), then, until)
			}
		}
		running, _, _ := l.j.Tasks()
		switch {
		case running > 0 && stays(l.j):
			l.until, l.tasks = cluster.Never, running
		case running > 0 && l.until > v.Now():
			l.tasks = running
		default:
			l.until = 0
		}
		l.gpus = l.j.GPUs(l.tasks)
		if l.until > 0 && r.delay == 0 {
			continue // nobody asks how it has been treated
		}
		l.starves = r.starving > 0 && l.j.Waiting() >= r.starving
		if l.deserved > 0 {
			l.f = float64(l.j.Service()) / (float64(l.deserved) * float64(weight) / 1000)
		}
		if r.classes > 0 {
			l.f = float64(fairnessClass(l.f, r.classes))
		}
	}
	return tenants
}

// meanWeight is what an hour of the cluster's GPUs counts for, on average, in
// thousandths.
func meanWeight(v engine.View) int64 {
	sum, gpus := int64(0), int64(0)
	for _, k := range v.Kinds() {
		sum += k.Weight * int64(k.GPUs)
		gpus += int64(k.GPUs)
	}
	if gpus == 0 {
		return cluster.Whole
	}
	return max(1, sum/gpus)
}

// onLease adds up what tenants have on lease until the next plan; what starts with
// this one counts as the mean.
func onLease(v engine.View, tenants []tenant, list []lessee) {
	kinds := v.Kinds()
	for i := range list {
		l := &list[i]
		if l.until == 0 {
			continue
		}
		weight := tenants[l.tenant].each
		if k := kindOf(kinds, l.j.GPU()); k >= 0 {
			weight = kinds[k].Weight
		}
		tenants[l.tenant].service += int64(l.gpus) * weight
	}
}

// tenants lists those who have jobs now, and those of the window.
func (r *astraeaRules) tenants(v engine.View, list []lessee, past []tenant, then, until cluster.Time) []tenant {
	queues, leaves := r.tenant == "queue", 0
	for q := range v.Tree().Len() {
		if v.Tree().Leaf(q) {
			leaves++
		}
	}
	queues = queues || r.tenant == "auto" && leaves > 1
	part := cluster.Time(r.window / inWindow)
	var tenants []tenant
	var who []int         // 1 + the tenant, by number of the user or queue
	at := map[int64]int{} // looked up only
	weights := int64(0)
	for i := range list {
		j := list[i].j
		number := j.User()
		if queues {
			number = j.Queue()
		}
		for number >= len(who) {
			who = append(who, 0)
		}
		if who[number] == 0 {
			name, weight := "user "+j.Spec().User, int64(1)
			if queues {
				name, weight = "queue "+v.Tree().Name(number), max(1, v.Tree().Weight(number))
			}
			tenants = append(tenants, tenant{key: nameKey(name), weight: weight})
			who[number] = len(tenants)
			at[tenants[len(tenants)-1].key] = len(tenants) - 1
			weights += weight
		}
		list[i].tenant = who[number] - 1
		tenants[list[i].tenant].active++
	}
	weight, gpus := meanWeight(v), int64(totalGPUs(v))
	for i := range tenants {
		tenants[i].quota = int(gpus * tenants[i].weight / weights)
	}
	for i := range past {
		k, ok := at[past[i].key]
		if !ok {
			k = len(tenants)
			tenants = append(tenants, tenant{key: past[i].key})
		}
		t := &tenants[k]
		t.parts = past[i].parts
		t.pass(int64(past[i].quota)*weight, past[i].service, then, until, part)
	}
	for i := range tenants {
		tenants[i].each = weight
		tenants[i].look(v.Now(), part, r.lease)
	}
	return tenants
}

// nameKey stands for a name in what a plan remembers.
func nameKey(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return int64(h.Sum64() >> 1)
}

// deserves is a job's part of its tenant's quota, in milli-GPU: min(g, share*Q).
func (t *tenant) deserves(gpus int) int64 {
	return min(int64(gpus)*1000, int64(t.quota)*1000/int64(max(t.active, 1)))
}

// pass counts what a tenant was to have and had from then to now, in milli-GPU by
// the models' weights, part by part.
func (t *tenant) pass(deserved, held int64, then, now, part cluster.Time) {
	then = max(then, (now/part-inWindow)*part) // what is before counts no more
	for then < now && (deserved > 0 || held > 0) {
		h := then / part
		to := min(now, (h+1)*part)
		if n := len(t.parts); n == 0 || t.parts[n-1].number != int64(h) {
			t.parts = append(t.parts, tenantPart{number: int64(h)})
		}
		b := &t.parts[len(t.parts)-1]
		b.quota += quota.Work(deserved, then, to)
		b.held += quota.Work(held, then, to)
		then = to
	}
}

// look forgets what is older than the window and adds up the rest, with the quota
// of the lease that may begin now.
func (t *tenant) look(now, part cluster.Time, lease time.Duration) {
	first := int64(now/part) - inWindow
	t.parts = slices.DeleteFunc(t.parts, func(h tenantPart) bool { return h.number <= first })
	t.w, t.u = float64(quota.Work(int64(t.quota)*t.each, 0, cluster.Time(lease))), 0
	for _, h := range t.parts {
		t.w += float64(h.quota)
		t.u += float64(h.held)
	}
}

// divide gives the free GPUs to tenants and, in each, to jobs. It returns what
// is left.
func (r *astraeaRules) divide(v engine.View, tenants []tenant, free int) int {
	for i := range tenants {
		r.order(&tenants[i], free)
	}
	parts := r.parts(tenants, free)
	for i := range tenants {
		t := &tenants[i]
		for _, l := range t.waiting {
			if g := l.gpus; g <= parts[i] {
				parts[i] -= g
				free -= r.grant(v, t, l)
			} else if r.block {
				t.blocked = true
				break
			}
		}
	}
	for i := range tenants { // what a tenant's part was too large for
		t := &tenants[i]
		for _, l := range t.waiting {
			if !t.blocked && l.until == 0 && l.gpus <= free {
				free -= r.grant(v, t, l)
			}
		}
	}
	return free
}

// order has those of a tenant's jobs that wait come in the order in which they are
// given GPUs. Who asks for more than are free matters only where that keeps others
// waiting, or where places of others can be taken.
func (r *astraeaRules) order(t *tenant, free int) {
	keys := make([]lesseeKey, 0, len(t.waiting))
	for i, l := range t.waiting {
		if l.gpus > free && !r.block && r.delay == 0 {
			continue
		}
		k := lesseeKey{1, l.f, l.submit, i, l}
		if l.starves {
			k.class, k.f = 0, 0
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b lesseeKey) int {
		if a.class != b.class {
			return cmp.Compare(a.class, b.class)
		}
		if c := cmp.Compare(a.f, b.f); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.submit, b.submit), cmp.Compare(a.at, b.at))
	})
	t.waiting = t.waiting[:len(keys)]
	for i := range keys {
		t.waiting[i] = keys[i].l
	}
}

// lesseeKey is a lessee's place among its tenant's.
type lesseeKey struct {
	class  int
	f      float64
	submit cluster.Time
	at     int
	l      *lessee
}

// parts is the first phase: max-min over tenants. Each time the one that has
// least is charged for its next job that fits: of what it holds now over its
// quota, as long as somebody is below a fifth, else of what it had over what it
// was to have in the window.
func (r *astraeaRules) parts(tenants []tenant, free int) []int {
	parts := make([]int, len(tenants))
	for free > 0 {
		now, ever := -1, -1
		for i := range tenants {
			t := &tenants[i]
			for t.next < len(t.waiting) && t.waiting[t.next].gpus > free {
				t.next++
			}
			if t.next == len(t.waiting) {
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
		t := &tenants[i]
		g := t.waiting[t.next].gpus
		t.next++
		parts[i] += g
		free -= g
		t.u += float64(quota.Work(int64(g)*t.each, 0, cluster.Time(r.lease)))
	}
	return parts
}

// holds is what a tenant has on lease, with its part, over its quota.
func (t *tenant) holds(part int) float64 {
	switch {
	case t.held+part == 0:
		return 0
	case t.quota == 0:
		return math.Inf(1)
	}
	return float64(t.held+part) / float64(t.quota)
}

// had is U/W: what it had, and will have, over its quota in that time.
func (t *tenant) had() float64 {
	if t.w == 0 {
		return 1
	}
	return t.u / t.w
}

// grant leases a job what it asks for. It returns the GPUs.
func (r *astraeaRules) grant(v engine.View, t *tenant, l *lessee) int {
	l.began, l.until = v.Now(), leaseEnd(v.Now(), r.lease, r.lease)
	t.held += l.gpus
	return l.gpus
}

// displace lets jobs that never ran take the places of others of their tenants
// that have held theirs for a moment only, who had most first.
func (r *astraeaRules) displace(v engine.View, tenants []tenant, list []lessee, free int) {
	if r.delay == 0 {
		return
	}
	young := make([][]*lessee, len(tenants))
	for i := range list {
		l := &list[i]
		if running, _, _ := l.j.Tasks(); running > 0 && l.until > v.Now() && !stays(l.j) && v.Now().Sub(l.began) < r.delay && l.began < v.Now() {
			young[l.tenant] = append(young[l.tenant], l)
		}
	}
	for i := range tenants {
		t := &tenants[i]
		slices.SortStableFunc(young[i], func(a, b *lessee) int { return cmp.Compare(b.f, a.f) })
		for _, l := range t.waiting {
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

// fairnessClass is the class of a ratio of fairness among k (C-astraea): 0 for
// nothing, k for very much.
func fairnessClass(x float64, k int) int {
	if x <= 0 {
		return 0
	}
	ln := math.Log(x)
	f := -ln / math.Sqrt(1+ln*ln)
	return k - int(math.Floor((f+1)/2*float64(k)))
}

// memoOf writes down the tenants as they are from now on.
func memoOf(now cluster.Time, tenants []tenant) []int64 {
	memo := []int64{int64(now)}
	for i := range tenants {
		t := &tenants[i]
		if t.active == 0 && len(t.parts) == 0 {
			continue
		}
		memo = append(memo, t.key, int64(t.quota), int64(t.active), t.service, int64(len(t.parts)))
		for _, h := range t.parts {
			memo = append(memo, h.number, h.quota, h.held)
		}
	}
	return memo
}

// tenantsOf reads what memoOf wrote.
func tenantsOf(memo []int64) (then cluster.Time, list []tenant) {
	if len(memo) == 0 {
		return 0, nil
	}
	then, memo = cluster.Time(memo[0]), memo[1:]
	for len(memo) >= 5 {
		t := tenant{key: memo[0], quota: int(memo[1]), active: int(memo[2]), service: memo[3]}
		n := int(memo[4])
		t.parts = make([]tenantPart, 0, max(0, min(n, inWindow))+2)
		for memo = memo[5:]; n > 0 && len(memo) >= 3; n-- {
			t.parts = append(t.parts, tenantPart{memo[0], memo[1], memo[2]})
			memo = memo[3:]
		}
		list = append(list, t)
	}
	return then, list
}
