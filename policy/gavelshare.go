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
	q := &gavelProgram{gavelPlan: p}
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
		x = q.arrival()
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

// normalised are the speeds relative to that with an equal part of the whole
// cluster's time, times GPUs.
func (q *gavelProgram) normalised() []float64 {
	k, part := len(q.kinds), q.who.Proportional()
	rate := make([]float64, len(q.speed))
	for i := range q.jobs {
		equal := 0.0
		for j := range k {
			equal += q.speed[i*k+j] * part[j]
		}
		for j := range k {
			rate[i*k+j] = q.who.GPUs[i] * q.speed[i*k+j] / equal
		}
	}
	return rate
}

// entities are the queues, or users, that have jobs here, in the order of their first
// ones.
func (q *gavelProgram) entities() *solve.Entities {
	e := &solve.Entities{FIFO: q.inOrder}
	known := map[int]int{} // looked up only
	for _, job := range q.jobs {
		id, weight := job.j.Queue(), 1.0
		if q.byUser {
			id = job.j.User()
		} else {
			weight = float64(max(1, q.v.Tree().Weight(id)))
		}
		at, ok := known[id]
		if !ok {
			at = len(e.Weight)
			known[id] = at
			e.Weight = append(e.Weight, weight)
		}
		e.Of = append(e.Of, at)
	}
	return e
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

// arrival gives each job in turn all of its time on the fastest kind that has room
// for it, until one finds none. One that could not run where there is room is passed
// over: what is there is of no use to it.
func (q *gavelProgram) arrival() []float64 {
	k := len(q.kinds)
	x, free := make([]float64, len(q.speed)), append([]float64(nil), q.who.Capacity...)
	for i := range q.jobs {
		best, room := -1, false
		for j := range k {
			room = room || free[j] >= q.who.GPUs[i]
			if v := q.speed[i*k+j]; v > 0 && free[j] >= q.who.GPUs[i] && (best < 0 || v > q.speed[i*k+best]) {
				best = j
			}
		}
		if !room {
			break
		}
		if best < 0 {
			continue
		}
		x[i*k+best] = 1
		free[best] -= q.who.GPUs[i]
	}
	return x
}

// cost is the most work per price, with deadlines kept; if that cannot be, without.
func (q *gavelProgram) cost() ([]float64, error) {
	k := len(q.kinds)
	value, least := make([]float64, len(q.speed)), make([]float64, len(q.jobs))
	for i, job := range q.jobs {
		for j := range k {
			price, ok := q.prices[q.kinds[j].GPU]
			if !ok {
				price = 1
			}
			value[i*k+j] = q.speed[i*k+j] / price
		}
		if spec := job.j.Spec(); spec.Deadline > q.v.Now() && spec.Estimate > 0 {
			least[i] = q.left[i] / spec.Deadline.Sub(q.v.Now()).Seconds()
		}
	}
	_, x, err := q.who.Most(value, q.speed, least)
	if err != nil {
		_, x, err = q.who.Most(value, q.speed, nil)
	}
	return x, err
}
