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
	wait    int             // its jobs in the plan's list that hold nothing
	held    int             // GPUs on lease
	each    int64           // mean weight of the cluster's GPUs, in thousandths
	w, u    float64         // quota and leases, over the window and a lease from now, in milli-GPU-milliseconds
	waiting []waitingLessee // a heap of the jobs that may get something
	pools   []tenantPool    // ... and its other waiting jobs
	charged []*lessee       // jobs that get something
	line    []*lessee       // all waiting jobs; only under block or delay
	blocked bool            // a job that does not fit blocks the others
	first   cameFirst
}

// record is what is remembered of a tenant: what it had and what it was entitled to, by parts of
// the window.
type record struct {
	key      int64
	quota    int   // GPUs
	active   int   // waiting or running jobs
	service  int64 // on lease: milli-GPU weighted by model
	parts    []tenantPart
	accounts []account
}

// cameFirst identifies the tenant's job that was submitted first.
type cameFirst struct {
	submit cluster.Time
	id     cluster.JobID
}

// account is what each of a tenant's jobs of one size has deserved since the tenant has had such
// jobs, in milli-GPU-milliseconds.
type account struct {
	gpus int
	sum  int64
}

// tenantPool is a pool of a tenant's jobs of one size, with its head.
type tenantPool struct {
	sched.Pool
	head *lessee
	gone bool // empty, or its jobs ask for too much
}

// tenantPart is the GPU time in one part of the window: the quota, and what was held.
type tenantPart struct{ number, quota, held int64 }

// inWindow is the number of parts in the window.
const inWindow = 24

// recall reads what is remembered of a job. It returns the number of its running tasks.
func (t *tenant) recall(l *lessee) (running int) {
	running, least, most := l.j.Tasks()
	l.tasks = min(max(l.j.Spec().Tasks[0].Count, least), most) // the result of asked, without another lookup
	l.gpus = l.j.GPUs(l.tasks)
	if was := l.j.Target(); was != nil && len(was.Memo) == len(lesseeMemo{}) && was.Memo[4] == t.accountKey(l.gpus) {
		l.memo = was.Memo
		l.until, l.began = cluster.Time(l.memo[0]), cluster.Time(l.memo[1])
	} else if was != nil && len(was.Memo) == len(lesseeMemo{}) {
		// The memo is of another account: the job has moved, or asks for another size.
		m := lesseeMemo{was.Memo[0], was.Memo[1], was.Memo[2], t.account(l.gpus).sum, t.accountKey(l.gpus)}
		l.memo, l.until, l.began = m[:], cluster.Time(m[0]), cluster.Time(m[1])
	}
	return running
}

// deserved is a job's part of its tenant's quota since its submission, as GPU time in
// milli-GPU-milliseconds.
func (t *tenant) deserved(l *lessee) int64 {
	if l.memo == nil {
		return 0
	}
	return l.memo[2] + max(0, t.account(l.size()).sum-l.memo[3])
}

// size is the number of GPUs that a job asks for.
func (l *lessee) size() int { return l.j.GPUs(asked(l.j)) }

// remember returns the job's memo for the next plan.
func (t *tenant) remember(l *lessee) []int64 {
	if l.memo != nil && l.memo[0] == int64(l.until) && l.memo[1] == int64(l.began) {
		return l.memo
	}
	size := l.size()
	m := lesseeMemo{int64(l.until), int64(l.began), t.deserved(l), t.account(size).sum, t.accountKey(size)}
	return m[:]
}

// account returns the account of a size, which it adds if there is none.
func (t *tenant) account(gpus int) *account {
	for i := range t.accounts {
		if t.accounts[i].gpus == gpus {
			return &t.accounts[i]
		}
	}
	t.accounts = append(t.accounts, account{gpus: gpus})
	return &t.accounts[len(t.accounts)-1]
}

// accountKey identifies an account in memos.
func (t *tenant) accountKey(gpus int) int64 { return t.key ^ int64(gpus) }

// meanWeight is the mean weight of the cluster's GPUs, in thousandths.
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

// onLease adds a job to what the tenant has on lease until the next plan; a job that starts with
// this plan counts at the mean weight.
func (t *tenant) onLease(kinds []sched.Kind, l *lessee) {
	weight := t.each // right if there is one kind
	if len(kinds) > 1 {
		if k := kindOf(kinds, l.j.GPU()); k >= 0 {
			weight = kinds[k].Weight
		}
	}
	t.service += int64(l.gpus) * weight
}

// queues reports whether tenants are queues rather than users.
func (r *astraeaRules) queues(v sched.View) bool {
	leaves, tree := 0, v.Tree()
	for q := 0; r.tenant == "auto" && q < tree.Len() && leaves < 2; q++ {
		if tree.Leaf(q) {
			leaves++
		}
	}
	return r.tenant == "queue" || leaves > 1
}

// number is the number of the job's queue or user.
func (r *astraeaRules) number(v sched.View, j sched.JobView) int {
	if r.queues(v) {
		return j.Queue()
	}
	return j.User()
}

// tenants lists the tenants that have jobs now, and those that had some in the window.
func (r *astraeaRules) tenants(v sched.View, room *astraeaRoom, kinds []sched.Kind, list, heads []lessee,
	pools []sched.Pool, past []record, then, until cluster.Time) []tenant {
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
		tenants[i].startLease(v.Now(), part, r.lease)
	}
	room.tenants = tenants
	return tenants
}

// withTenant appends a tenant, which reuses the memory of the earlier one in its place.
func withTenant(list []tenant, t tenant) []tenant {
	if n := len(list); n < cap(list) {
		was := &list[:n+1][n]
		t.pools, t.charged, t.line = was.pools[:0], was.charged[:0], was.line[:0]
	}
	return append(list, t)
}

// present lists the tenants that have jobs now, and the sum of their weights.
func (r *astraeaRules) present(v sched.View, room *astraeaRoom, list, heads []lessee,
	pools []sched.Pool) (tenants []tenant, weights int64) {
	queues := r.queues(v)
	tenants = room.tenants[:0]
	index := zeros(&room.index, len(room.index)) // by number of the user or queue: 1 + index of the tenant
	of := func(j sched.JobView) int {
		number := j.User()
		if queues {
			number = j.Queue()
		}
		for number >= len(index) {
			index = append(index, 0)
		}
		if index[number] == 0 {
			name, weight := "user "+j.Spec().User, int64(1)
			if queues {
				name, weight = "queue "+v.Tree().Name(number), max(1, v.Tree().Weight(number))
			}
			tenants = withTenant(tenants,
				tenant{record: record{key: nameKey(name)}, weight: weight, first: cameFirst{cluster.Never, 0}})
			index[number] = len(tenants)
			weights += weight
		}
		return index[number] - 1
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
	room.index = index
	return tenants, weights
}

// came counts jobs, the first of which has this submission time and number.
func (t *tenant) came(submit cluster.Time, id cluster.JobID, jobs int) {
	t.active += jobs
	if submit < t.first.submit || submit == t.first.submit && id < t.first.id {
		t.first = cameFirst{submit, id}
	}
}

// inLine orders the tenants that have jobs by their first jobs.
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

// nameKey is the number that stands for a name in memos.
func nameKey(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return int64(h.Sum64() >> 1)
}

// deserves is a job's part of its tenant's quota, in milli-GPU: min(g, share*Q).
func (t *record) deserves(gpus int) int64 {
	return min(int64(gpus)*1000, int64(t.quota)*1000/int64(max(t.active, 1)))
}

// pass books what a tenant was entitled to and had from then to now, in milli-GPU weighted by
// model, part by part.
func (t *record) pass(deserved, held int64, then, now, part cluster.Time) {
	then = max(then, (now/part-inWindow)*part) // earlier times are outside the window
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

// startLease drops what is older than the window and adds up the rest, with the quota during the lease
// that may begin now.
func (t *tenant) startLease(now, part cluster.Time, lease time.Duration) {
	first := int64(now/part) - inWindow
	t.parts = slices.DeleteFunc(t.parts, func(h tenantPart) bool { return h.number <= first })
	t.w, t.u = float64(quota.Work(int64(t.quota)*t.each, 0, cluster.Time(lease))), 0
	for _, h := range t.parts {
		t.w += float64(h.quota)
		t.u += float64(h.held)
	}
}

// holds is what the tenant has on lease, including part, over its quota.
func (t *tenant) holds(part int) float64 {
	switch {
	case t.held+part == 0:
		return 0
	case t.quota == 0:
		return math.Inf(1)
	}
	return float64(t.held+part) / float64(t.quota)
}

// had is U/W: what the tenant had in the window and will have during the lease, over its quota in
// that time.
func (t *tenant) had() float64 {
	if t.w == 0 {
		return 1
	}
	return t.u / t.w
}

// memoOf appends the tenants, each followed by its accounts, which are records with a quota of -1.
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
		nParts += len(ofParts)/3 + 2 // this plan may add two
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

// readRecords calls f with the five index and the parts of each record. (Records before the first
// tenant are skipped.)
func readRecords(memo []int64, f func(at, parts []int64)) {
	for known := false; len(memo) >= 5; {
		n := 3 * min(max(0, int(memo[4])), (len(memo)-5)/3)
		if known = known || memo[1] >= 0; known {
			f(memo[:5], memo[5:5+n])
		}
		memo = memo[5+n:]
	}
}
