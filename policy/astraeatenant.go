package policy

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
	"github.com/muster-gpu/muster/quota"
)

// tenant is a user or a queue during a plan.
type tenant struct {
	record
	weight  int64
	wait    int             // of its jobs, those that the plan was shown
	held    int             // GPUs on lease
	each    int64           // what an hour of the cluster's GPUs counts for, on average, in thousandths
	w, u    float64         // quota and leases over the window and until a lease from now ends, in milli-GPU-milliseconds
	waiting []waitingLessee // a heap of those who may get something
	pools   []tenantPool    // ... and others who wait
	charged []*lessee       // who gets it
	line    []*lessee       // all who wait, where they matter
	blocked bool            // one of them keeps others waiting
	first   cameFirst
}

// record is what is remembered of a tenant: what it had and was to have over the window,
// in parts of it by the clock.
type record struct {
	key      int64
	quota    int   // GPUs
	active   int   // jobs that wait or run
	service  int64 // what is on lease: milli-GPU by the models' weights
	parts    []tenantPart
	accounts []account
}

// cameFirst is which of a tenant's jobs came first.
type cameFirst struct {
	submit cluster.Time
	id     cluster.JobID
}

// account is what each of a tenant's jobs of one size deserved since the tenant had
// such jobs, in milli-GPU-milliseconds.
type account struct {
	gpus int
	sum  int64
}

// tenantPool is a pool of a tenant's jobs of one size, with its head.
type tenantPool struct {
	sched.Pool
	head *lessee
	gone bool // nobody is left, or they ask for too much
}

// tenantPart is GPU time in a part of the window: what the quota allowed, and
// what was held.
type tenantPart struct{ number, quota, held int64 }

// inWindow is how many parts count.
const inWindow = 24

// recall reads what is remembered of a job. It returns how many of its tasks run.
func (t *tenant) recall(l *lessee) (running int) {
	running, least, most := l.j.Tasks()
	l.tasks = min(max(l.j.Spec().Tasks[0].Count, least), most) // asked, which would look again
	l.gpus = l.j.GPUs(l.tasks)
	if was := l.j.Target(); was != nil && len(was.Memo) == len(lesseeMemo{}) && was.Memo[4] == t.accountKey(l.gpus) {
		l.memo = was.Memo
		l.until, l.began = cluster.Time(l.memo[0]), cluster.Time(l.memo[1])
	} else if was != nil && len(was.Memo) == len(lesseeMemo{}) { // of an account that it no longer has: it has moved, or asks for another size
		m := lesseeMemo{was.Memo[0], was.Memo[1], was.Memo[2], t.account(l.gpus).sum, t.accountKey(l.gpus)}
		l.memo, l.until, l.began = m[:], cluster.Time(m[0]), cluster.Time(m[1])
	}
	return running
}

// deserved is the GPU time that was a job's part of its tenant's quota since it came, in
// milli-GPU-milliseconds.
func (t *tenant) deserved(l *lessee) int64 {
	if l.memo == nil {
		return 0
	}
	return l.memo[2] + max(0, t.account(l.size()).sum-l.memo[3])
}

// size is how many GPUs a job asks for.
func (l *lessee) size() int { return l.j.GPUs(asked(l.j)) }

// remember is what is remembered of a job from now on.
func (t *tenant) remember(l *lessee) []int64 {
	if l.memo != nil && l.memo[0] == int64(l.until) && l.memo[1] == int64(l.began) {
		return l.memo
	}
	size := l.size()
	m := lesseeMemo{int64(l.until), int64(l.began), t.deserved(l), t.account(size).sum, t.accountKey(size)}
	return m[:]
}

// account is that of a size.
func (t *tenant) account(gpus int) *account {
	for i := range t.accounts {
		if t.accounts[i].gpus == gpus {
			return &t.accounts[i]
		}
	}
	t.accounts = append(t.accounts, account{gpus: gpus})
	return &t.accounts[len(t.accounts)-1]
}

// accountKey tells a job whether the account is the one that it knows.
func (t *tenant) accountKey(gpus int) int64 { return t.key ^ int64(gpus) }

// meanWeight is what an hour of the cluster's GPUs counts for, on average, in
// thousandths.
func meanWeight(kinds []sched.Kind) int64 {
	sum, gpus := int64(0), int64(0)
	for _, k := range kinds {
		sum += k.Weight * int64(k.GPUs)
		gpus += int64(k.GPUs)
	}
	if gpus == 0 {
		return cluster.Whole
	}
	return max(1, sum/gpus)
}

// onLease adds to what a tenant has on lease until the next plan; what starts with
// this one counts as the mean.
func (t *tenant) onLease(kinds []sched.Kind, l *lessee) {
	weight := t.each // if there is one kind, that is its weight
	if len(kinds) > 1 {
		if k := kindOf(kinds, l.j.GPU()); k >= 0 {
			weight = kinds[k].Weight
		}
	}
	t.service += int64(l.gpus) * weight
}

// queues reports whether tenants are queues, not users.
func (r *astraeaRules) queues(v sched.View) bool {
	leaves, tree := 0, v.Tree()
	for q := 0; r.tenant == "auto" && q < tree.Len() && leaves < 2; q++ {
		if tree.Leaf(q) {
			leaves++
		}
	}
	return r.tenant == "queue" || leaves > 1
}

// number is that of the job's queue or user.
func (r *astraeaRules) number(v sched.View, j sched.JobView) int {
	if r.queues(v) {
		return j.Queue()
	}
	return j.User()
}

// tenants lists those who have jobs now, and those of the window.
func (r *astraeaRules) tenants(v sched.View, room *astraeaRoom, kinds []sched.Kind, list, heads []lessee, pools []sched.Pool, past []record, then, until cluster.Time) []tenant {
	tenants, weights := r.present(v, room, list, heads, pools)
	at := make(map[int64]int, len(tenants)) // looked up only
	weight, gpus := meanWeight(kinds), int64(0)
	for _, k := range kinds {
		gpus += int64(k.GPUs)
	}
	for i := range tenants {
		at[tenants[i].key] = i
		tenants[i].quota = int(gpus * tenants[i].weight / weights)
	}
	part := cluster.Time(r.window / inWindow)
	for i := range past {
		was := &past[i]
		k, ok := at[was.key]
		if !ok {
			k = len(tenants)
			tenants = withTenant(tenants, tenant{record: record{key: was.key}})
		}
		t := &tenants[k]
		t.parts, t.accounts = was.parts, was.accounts
		for a := range t.accounts {
			t.accounts[a].sum += quota.Work(was.deserves(t.accounts[a].gpus), then, until)
		}
		t.pass(int64(was.quota)*weight, was.service, then, until, part)
	}
	for i := range tenants {
		tenants[i].each = weight
		tenants[i].look(v.Now(), part, r.lease)
	}
	room.tenants = tenants
	return tenants
}

// withTenant adds a tenant, who takes over the memory of one who was in its place.
func withTenant(list []tenant, t tenant) []tenant {
	if n := len(list); n < cap(list) {
		was := &list[:n+1][n]
		t.pools, t.charged, t.line = was.pools[:0], was.charged[:0], was.line[:0]
	}
	return append(list, t)
}

// present lists those who have jobs now, with the sum of their weights.
func (r *astraeaRules) present(v sched.View, room *astraeaRoom, list, heads []lessee, pools []sched.Pool) (tenants []tenant, weights int64) {
	queues := r.queues(v)
	tenants = room.tenants[:0]
	who := zeros(&room.who, len(room.who)) // 1 + the tenant, by number of the user or queue
	of := func(j sched.JobView) int {
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
			tenants = withTenant(tenants, tenant{record: record{key: nameKey(name)}, weight: weight, first: cameFirst{cluster.Never, 0}})
			who[number] = len(tenants)
			weights += weight
		}
		return who[number] - 1
	}
	for i := range list {
		l := &list[i]
		l.tenant = of(l.j)
		tenants[l.tenant].came(l.submit, l.id, 1)
	}
	for i := range pools {
		h := &heads[i]
		j, _ := pools[i].Head()
		*h = lessee{j: j, tenant: of(j)}
		t := &tenants[h.tenant]
		t.came(h.j.Spec().Submit, h.j.Spec().ID, pools[i].Len())
		if cap(t.pools) == 0 {
			t.pools = make([]tenantPool, 0, 8)
		}
		t.pools = append(t.pools, tenantPool{Pool: pools[i], head: h})
	}
	room.who = who
	return tenants, weights
}

// came counts jobs, of which one came first.
func (t *tenant) came(submit cluster.Time, id cluster.JobID, jobs int) {
	t.active += jobs
	if submit < t.first.submit || submit == t.first.submit && id < t.first.id {
		t.first = cameFirst{submit, id}
	}
}

// inLine has the tenants who have jobs come in the order of their first ones.
func inLine(room *astraeaRoom, tenants []tenant) []*tenant {
	line := room.line[:0]
	for i := range tenants {
		if t := &tenants[i]; t.active > 0 {
			line = append(line, t)
		}
	}
	slices.SortFunc(line, func(a, b *tenant) int {
		return cmp.Or(cmp.Compare(a.first.submit, b.first.submit), cmp.Compare(a.first.id, b.first.id))
	})
	room.line = line
	return line
}

// nameKey stands for a name in what a plan remembers.
func nameKey(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return int64(h.Sum64() >> 1)
}

// deserves is a job's part of its tenant's quota, in milli-GPU: min(g, share*Q).
func (t *record) deserves(gpus int) int64 {
	return min(int64(gpus)*1000, int64(t.quota)*1000/int64(max(t.active, 1)))
}

// pass counts what a tenant was to have and had from then to now, in milli-GPU by
// the models' weights, part by part.
func (t *record) pass(deserved, held int64, then, now, part cluster.Time) {
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

// memoOf writes down the tenants as they are from now on, each with its accounts as
// records of a size instead of a quota.
func memoOf(memo []int64, now cluster.Time, tenants []tenant) []int64 {
	memo = append(memo, int64(now))
	for i := range tenants {
		t := &tenants[i]
		if t.active == 0 && len(t.parts) == 0 {
			continue
		}
		memo = append(memo, t.key, int64(t.quota), int64(t.active), t.service, int64(len(t.parts)))
		for _, h := range t.parts {
			memo = append(memo, h.number, h.quota, h.held)
		}
		for _, a := range t.accounts {
			memo = append(memo, t.key, -1, int64(a.gpus), a.sum, 0)
		}
	}
	return memo
}

// tenantsOf reads what memoOf wrote.
func tenantsOf(room *astraeaRoom, memo []int64) (then cluster.Time, list []record) {
	if len(memo) == 0 {
		return 0, nil
	}
	then, memo = cluster.Time(memo[0]), memo[1:]
	n, nParts, nAccounts := 0, 0, 0
	readRecords(memo, func(at []int64, ofParts []int64) {
		if at[1] < 0 {
			nAccounts++
			return
		}
		n++
		nParts += len(ofParts)/3 + 2 // which may come in this plan
	})
	list = grown(&room.records, n)[:0]
	parts, accounts := grown(&room.parts, nParts), grown(&room.accounts, nAccounts)[:0]
	readRecords(memo, func(at []int64, ofParts []int64) {
		if at[1] < 0 {
			t := &list[len(list)-1]
			first := len(accounts) - len(t.accounts)
			accounts = append(accounts, account{gpus: int(at[2]), sum: at[3]})
			t.accounts = accounts[first:len(accounts):len(accounts)]
			return
		}
		t := record{key: at[0], quota: int(at[1]), active: int(at[2]), service: at[3]}
		t.parts, parts = parts[:0:len(ofParts)/3+2], parts[len(ofParts)/3+2:]
		for ; len(ofParts) > 0; ofParts = ofParts[3:] {
			t.parts = append(t.parts, tenantPart{ofParts[0], ofParts[1], ofParts[2]})
		}
		list = append(list, t)
	})
	return then, list
}

// readRecords calls f with the five numbers and the parts of each record.
func readRecords(memo []int64, f func(at, parts []int64)) {
	for known := false; len(memo) >= 5; {
		n := 3 * min(max(0, int(memo[4])), (len(memo)-5)/3)
		if known = known || memo[1] >= 0; known {
			f(memo[:5], memo[5:5+n])
		}
		memo = memo[5+n:]
	}
}
