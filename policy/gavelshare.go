package policy

import (
	"math"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/solve"
)

// gavelProgram is the input of a linear program: jobs with GPUs that can run somewhere, and kinds.
type gavelProgram struct {
	*gavelPlan
	jobs    []*gavelJob
	problem solve.Shares
	speed   []float64 // per job and kind, relative to the reference GPU
	left    []float64 // work, in seconds at the reference speed
}

// shares computes X by the objective. If the program has no solution, the jobs get equal parts of
// everything.
func (p *gavelPlan) shares() {
	q := &p.room.program
	*q = gavelProgram{gavelPlan: p, jobs: q.jobs[:0], speed: q.speed[:0], left: q.left[:0],
		problem: solve.Shares{GPUs: q.problem.GPUs[:0], Capacity: q.problem.Capacity[:0]}}
	for _, k := range p.kinds {
		q.problem.Capacity = append(q.problem.Capacity, float64(k.GPUs))
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
		q.problem.GPUs = append(q.problem.GPUs, float64(job.milli)/float64(cluster.Whole))
		q.left = append(q.left, max(1, workLeft(job.j))) // a job past its estimate is taken as almost done
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
		x = q.problem.Isolated()
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
		_, x, err = q.problem.Makespan(q.speed, q.left)
	case "fifo":
		x = q.whole(q.arrival())
	case "throughput":
		_, x, err = q.problem.Most(q.speed, nil, nil)
	case "cost":
		return q.cost()
	case "tickets", "trade":
		x = q.fairParts()
	case "hierarchical":
		_, x, err = q.problem.Hierarchy(q.normalised(), q.entities())
	case "waterfill":
		weight := make([]float64, len(q.jobs))
		for i := range weight {
			weight[i] = 1
		}
		_, x, err = q.problem.WaterFill(q.normalised(), weight)
	default:
		_, x, err = q.problem.MaxMin(q.normalised())
	}
	return x, err
}

// normalised returns the speeds multiplied by the factors of relative.
func (q *gavelProgram) normalised() []float64 {
	k, rate := len(q.kinds), make([]float64, len(q.speed))
	for i, factor := range q.relative() {
		for j := range k {
			rate[i*k+j] = q.speed[i*k+j] * factor
		}
	}
	return rate
}

// relative returns, for each job, GPUs over its speed with an equal share of the whole cluster's
// time and over its weight.
func (q *gavelProgram) relative() (factor []float64) {
	k, part := len(q.kinds), q.problem.Proportional()
	for i := range q.jobs {
		equal := 0.0
		for j := range k {
			equal += q.speed[i*k+j] * part[j]
		}
		f := q.problem.GPUs[i] / equal
		if w := q.jobs[i].weight; w != cluster.Whole {
			f *= float64(cluster.Whole) / float64(w)
		}
		factor = append(factor, f)
	}
	return factor
}

// entities returns the queues of the jobs and their ancestors, or the users.
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

// entity is the number of the job's entity.
func (p *gavelPlan) entity(job *gavelJob) int {
	if p.byUser {
		return job.j.User()
	}
	return job.j.Queue()
}

// firstFirst reports whether the job's entity serves its jobs in order of submission.
func (p *gavelPlan) firstFirst(job *gavelJob) bool {
	if p.inside == nil {
		return p.inOrder
	}
	return p.inside[p.v.Tree().Name(job.j.Queue())]
}

// finishTime minimises finish-time fairness; see ages for what it keeps from solution to solution.
func (q *gavelProgram) finishTime() ([]float64, error) {
	age, alone := q.ages()
	_, x, err := q.problem.FinishTime(q.speed, q.left, age, alone)
	return x, err
}

// ages returns the age of each job, and the run time that it would need in all with an equal part
// of each kind, in seconds. It books the time since the last solution.
func (q *gavelProgram) ages() (age, alone []float64) {
	k, equal := len(q.kinds), q.problem.Isolated()
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

// cost maximises work per price while all deadlines are met; if that is impossible, it ignores
// them.
func (q *gavelProgram) cost() ([]float64, error) {
	k, price, least := len(q.kinds), q.perKind(), q.least()
	value := make([]float64, len(q.speed))
	for ij, v := range q.speed {
		value[ij] = v / price[ij%k]
	}
	_, x, err := q.problem.Most(value, q.speed, least)
	if err != nil {
		_, x, err = q.problem.Most(value, q.speed, nil)
	}
	return x, err
}

// perKind returns the prices of the kinds, 1 if none is given.
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

// least returns the average speed that each job needs to meet its deadline; 0: any speed.
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
