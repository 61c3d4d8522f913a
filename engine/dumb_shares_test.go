package engine_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/quota"
)

// multifactor is what the twin knows of Slurm's priorities: which user used how much in
// which period, which was ever in line, and the ranks as of the last comparison.
type multifactor struct {
	maxAge   time.Duration
	size     int64 // its weight
	halfLife time.Duration
	capacity int64                     // as of the last comparison
	last     cluster.Time              // holdings are counted up to here
	work     map[owner]map[int64]int64 // milli-GPU × milliseconds by period; looked up only
	owners   []owner                   // in the order in which they came into line
	ranks    map[owner]int64           // ppm; looked up only
	compared int64                     // the period of the last comparison, -1: to be done again
}

// weighted is multifactor with sizes that count and ages that soon do not.
const weighted = "multifactor:max_age=10m,size=5000"

// owner is a user in a queue.
type owner struct{ queue, user string }

const calcPeriod = 5 * time.Minute // Slurm's PriorityCalcPeriod

func newMultifactor(pol string, halfLife time.Duration) *multifactor {
	m := &multifactor{maxAge: 7 * 24 * time.Hour, halfLife: halfLife, work: map[owner]map[int64]int64{}, compared: -1}
	switch pol {
	case "multifactor":
	case weighted:
		m.maxAge, m.size = 10*time.Minute, 5000
	default:
		return nil
	}
	return m
}

func (d *dumb) ownerOf(j *dumbJob) owner {
	if len(d.queues) == 0 {
		return owner{user: j.User} // all are in one queue
	}
	return owner{j.Queue, j.User}
}

// stint is GPU time of one weight.
type stint struct{ weight, work int64 }

// service is the GPU time that a job had, by the weights of its GPUs.
func (j *dumbJob) service() (sum int64) {
	for _, s := range j.stints {
		sum += s.work * s.weight / 1000
	}
	return sum
}

// weight is what an hour of the GPUs that a job has counts for, in thousandths.
func (d *dumb) weight(j *dumbJob) int64 {
	for _, a := range j.allocs {
		if w := d.weights[d.nodes[a.Node].Model]; a.GPUs != 0 && w > 0 {
			return w
		}
	}
	return 1000
}

// used counts what users hold since the last step, which did not change in
// between, split at the ends of periods.
func (d *dumb) used() {
	m := d.mf
	if m == nil {
		return
	}
	for from := m.last; from < d.now; {
		period := int64(from) / int64(calcPeriod)
		to := min(d.now, cluster.Time((period+1)*int64(calcPeriod)))
		for _, j := range d.jobs {
			if !j.inBooks() {
				continue
			}
			if m.work[d.ownerOf(j)] == nil {
				m.work[d.ownerOf(j)] = map[int64]int64{}
			}
			m.work[d.ownerOf(j)][period] += quota.Work(d.milli(j)*d.weight(j)/1000, from, to)
		}
		from = to
	}
	m.last = d.now
}

// enters notes that a job came into line: its age begins, and an owner that was
// never seen before changes the shares of all.
func (d *dumb) enters(j *dumbJob) {
	j.eligibleSince, j.starvingSince = d.now, min(j.starvingSince, d.now)
	if !d.passing { // else it would come before the job that sent it away
		d.promote(j)
	}
	if m := d.mf; m != nil && !slices.Contains(m.owners, d.ownerOf(j)) {
		m.owners, m.compared = append(m.owners, d.ownerOf(j)), -1
	}
}

// resized: how much of the cluster a job asks for may be another.
func (d *dumb) resized() {
	d.stagesOf = nil
	if m := d.mf; m != nil && m.capacity != d.capacity() {
		m.capacity, m.compared = d.capacity(), -1
	}
}

// compare computes the ranks again, in each period once, when a user is new, and
// when there are more or fewer GPUs.
func (d *dumb) compare() {
	m, now := d.mf, int64(d.now)/int64(calcPeriod)
	if m == nil || m.compared == now || !slices.ContainsFunc(d.jobs, func(j *dumbJob) bool { return j.eligible }) {
		return
	}
	m.compared, m.ranks = now, map[owner]int64{}
	decay, err := quota.NewDecay(calcPeriod, m.halfLife)
	if err != nil {
		panic(err)
	}
	l := d.ledger(nil)
	var assocs []quota.Assoc
	for q := range l.Len() {
		assocs = append(assocs, quota.Assoc{Parent: max(0, l.Parent(q)), Shares: max(1, l.Spec(q).Shares)})
	}
	for _, o := range m.owners {
		usage := quota.Usage{}
		for p := range now + 1 { // every period from the first, one after the other
			decay.Add(&usage, m.work[o][p], cluster.Time(p*int64(calcPeriod)))
		}
		assocs = append(assocs,
			quota.Assoc{Parent: l.of(&dumbJob{Job: &cluster.Job{Queue: o.queue}}), Shares: 1, Usage: usage.Work,
				User: true})
	}
	quota.SumUsage(assocs)
	ranks, users := quota.FairTree(assocs)
	for i, o := range m.owners {
		m.ranks[o] = int64(ranks[l.Len()+i]) * 1_000_000 / int64(users)
	}
}

// among orders the jobs of one user in one queue: priority and age, which they
// keep relative to each other.
func (m *multifactor) among(j *dumbJob) [2]int64 {
	since := int64(j.eligibleSince)
	return [2]int64{1000*(since/max(1, int64(m.maxAge)/1_000_000)) - j.Priority*1_000_000, since}
}

// points is the priority in millionths: 1000 for age, as of the beginning of the
// period, 10000 for the fair share, and what the weight of sizes says.
func (d *dumb) points(j *dumbJob) int64 {
	m, period := d.mf, d.now-d.now%cluster.Time(calcPeriod)
	age := max(0, int64(period-j.eligibleSince))
	size := min(1_000_000, d.milli(j)*1_000_000/max(1, d.capacity()))
	return 1000*min(1_000_000, age/max(1, int64(m.maxAge)/1_000_000)) + 10000*m.ranks[d.ownerOf(j)] + m.size*size +
		j.Priority*1_000_000
}

// before compares the first jobs of two shapes, as the pass chooses among them.
func (d *dumb) before(a, b *dumbJob) int {
	if d.mf == nil {
		return d.order(a, b)
	}
	return cmp.Or(cmp.Compare(d.points(b), d.points(a)), cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
}
