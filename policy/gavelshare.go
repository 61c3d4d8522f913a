package policy

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/solve"
)

// gavelProgram is the jobs and kinds that take part in a program: jobs with GPUs
// that can run somewhere.
type gavelProgram struct {
	*gavelPlan
	jobs  []*gavelJob
	who   solve.Shares
	speed []float64 // per job and kind, relative to the reference GPU
	left  []float64 // work, in seconds at the reference speed
}

// shares computes X by the objective. Where the program has no solution the jobs
// have equal parts of everything.
func (p *gavelPlan) shares() {
	q := &p.room.program
	*q = gavelProgram{gavelPlan: p, jobs: q.jobs[:0], speed: q.speed[:0], left: q.left[:0], who: solve.Shares{GPUs: q.who.GPUs[:0], Capacity: q.who.Capacity[:0]}}
	for _, k := range p.kinds {
		q.who.Capacity = append(q.who.Capacity, float64(k.GPUs))
	}
	for i := range p.jobs {
		job, usable := &p.jobs[i], false
		for k := range p.kinds {
			job.pairs[k].x = 0
			usable = usable || job.speed[k] > 0 && p.kinds[k].GPUs > 0
		}
		if !usable || job.milli == 0 {
			continue
		}
		q.jobs = append(q.jobs, job)
		q.who.GPUs = append(q.who.GPUs, float64(job.milli)/float64(cluster.Whole))
		q.left = append(q.left, max(1, workLeft(job.j))) // who should be done is almost done
		for k := range p.kinds {
			q.speed = append(q.speed, float64(job.speed[k])/1e6)
		}
	}
	if len(q.jobs) == 0 {
		return
	}
	if p.sharing {
		q.share()
		return
	}
	x, err := q.solve()
	if err != nil {
		x = q.who.Isolated()
	}
	for i, job := range q.jobs {
		for k := range p.kinds {
			if job.speed[k] > 0 {
				job.pairs[k].x = int64(math.Round(1e6 * x[i*len(p.kinds)+k]))
			}
		}
	}
}

func (q *gavelProgram) solve() (x []float64, err error) {
	switch q.objective {
	case "ftf":
		return q.finishTime()
	case "makespan":
		_, x, err = q.who.Makespan(q.speed, q.left)
	case "fifo":
		x = q.whole(q.arrival())
	case "throughput":
		_, x, err = q.who.Most(q.speed, nil, nil)
	case "cost":
		return q.cost()
	case "tickets", "trade":
		x = q.fairParts()
	case "hierarchical":
		_, x, err = q.who.Hierarchy(q.normalised(), q.entities())
	case "waterfill":
		weight := make([]float64, len(q.jobs))
		for i := range weight {
			weight[i] = 1
		}
		_, x, err = q.who.WaterFill(q.normalised(), weight)
	default:
		_, x, err = q.who.MaxMin(q.normalised())
	}
	return x, err
}

// normalised are the speeds, as relative has them.
func (q *gavelProgram) normalised() []float64 {
	k, rate := len(q.kinds), make([]float64, len(q.speed))
	for i, factor := range q.relative() {
		for j := range k {
			rate[i*k+j] = q.speed[i*k+j] * factor
		}
	}
	return rate
}

// relative is by what each job's speeds are multiplied to be relative to that with an
// equal part of the whole cluster's time, times GPUs, over the job's weight.
func (q *gavelProgram) relative() (factor []float64) {
	k, part := len(q.kinds), q.who.Proportional()
	for i := range q.jobs {
		equal := 0.0
		for j := range k {
			equal += q.speed[i*k+j] * part[j]
		}
		f := q.who.GPUs[i] / equal
		if w := q.jobs[i].weight; w != cluster.Whole {
			f *= float64(cluster.Whole) / float64(w)
		}
		factor = append(factor, f)
	}
	return factor
}

// entities are the queues that have jobs here, and those that they are parts of, or the
// users.
func (q *gavelProgram) entities() *solve.Entities {
	e := &solve.Entities{}
	known := map[int]int{} // looked up only
	find := func(id, parent int, weight float64, fifo bool) int {
		at, ok := known[id]
		if !ok {
			at = len(e.Weight)
			known[id] = at
			e.Weight, e.Parent, e.FIFO = append(e.Weight, weight), append(e.Parent, parent), append(e.FIFO, fifo)
		}
		return at
	}
	tree := q.v.Tree()
	for _, job := range q.jobs {
		at := -1
		if q.byUser {
			at = find(job.j.User(), at, 1, q.inOrder)
		} else {
			for _, id := range tree.Path(job.j.Queue())[1:] {
				at = find(id, at, float64(max(1, tree.Weight(id))), q.firstFirst(job))
			}
		}
		e.Of = append(e.Of, at)
	}
	return e
}

// entity is a number of the job's entity.
func (p *gavelPlan) entity(job *gavelJob) int {
	if p.byUser {
		return job.j.User()
	}
	return job.j.Queue()
}

// firstFirst reports whether in a job's entity the first comes first.
func (p *gavelPlan) firstFirst(job *gavelJob) bool {
	if p.inside == nil {
		return p.inOrder
	}
	return p.inside[p.v.Tree().Name(job.j.Queue())]
}

// finishTime counts, from solution to solution, how long each job would have
// taken with an equal part of each kind.
func (q *gavelProgram) finishTime() ([]float64, error) {
	age, alone := q.ages()
	_, x, err := q.who.FinishTime(q.speed, q.left, age, alone)
	return x, err
}

// ages are how long each job has been there, and how long it would take with an
// equal part of each kind, in seconds.
func (q *gavelProgram) ages() (age, alone []float64) {
	k, equal := len(q.kinds), q.who.Isolated()
	age, alone = make([]float64, len(q.jobs)), make([]float64, len(q.jobs))
	for i, job := range q.jobs {
		iso := 0.0
		for j := range k {
			iso += q.speed[i*k+j] * equal[i*k+j]
		}
		left := int64(q.left[i] * 1e3)
		if job.iso > 0 {
			job.alone += int64(float64(max(0, job.left-left)) * 1e6 / float64(job.iso))
		}
		job.left, job.iso = left, max(1, int64(iso*1e6))
		age[i] = q.v.Now().Sub(job.j.Spec().Submit).Seconds()
		alone[i] = float64(job.alone)/1e3 + q.left[i]/iso
	}
	return age, alone
}

// cost is the most work per price, with deadlines kept; if that cannot be, without.
func (q *gavelProgram) cost() ([]float64, error) {
	k, price, least := len(q.kinds), q.perKind(), q.least()
	value := make([]float64, len(q.speed))
	for ij, v := range q.speed {
		value[ij] = v / price[ij%k]
	}
	_, x, err := q.who.Most(value, q.speed, least)
	if err != nil {
		_, x, err = q.who.Most(value, q.speed, nil)
	}
	return x, err
}

// perKind are the prices of the kinds; without any all are 1.
func (q *gavelProgram) perKind() (price []float64) {
	for _, kind := range q.kinds {
		p, ok := q.prices[kind.GPU]
		if !ok {
			p = 1
		}
		price = append(price, p)
	}
	return price
}

// least is how fast each job has to be on average to meet its deadline; 0: any speed.
func (q *gavelProgram) least() []float64 {
	least := make([]float64, len(q.jobs))
	for i, job := range q.jobs {
		if spec := job.j.Spec(); q.due(job) {
			least[i] = q.left[i] / spec.Deadline.Sub(q.v.Now()).Seconds()
		}
	}
	return least
}

// due reports whether a job's deadline counts.
func (p *gavelPlan) due(job *gavelJob) bool {
	spec := job.j.Spec()
	return p.objective == "cost" && spec.Deadline > p.v.Now() && spec.Estimate > 0
}
