package policy

import "github.com/muster-gpu/muster/engine/sched"

// packsWell is the throughput of two jobs on the same GPUs, in ppm of one alone, above which they
// are packed under objective fifo (Gavel's value).
const packsWell = 1_500_000

// arrival gives each job in turn all of its time on the fastest kind that has room for it, until
// there is no room for one on any kind; that job and all later ones get -1. A job that cannot run
// on the kinds that have room is skipped.
func (q *gavelProgram) arrival() (kind []int) {
	k, free := len(q.kinds), append([]float64(nil), q.problem.Capacity...)
	done := false
	for i := range q.jobs {
		best, room := -1, false
		for j := range k {
			room = room || free[j] >= q.problem.GPUs[i]
			if v := q.speed[i*k+j]; v > 0 && free[j] >= q.problem.GPUs[i] && (best < 0 || v > q.speed[i*k+best]) {
				best = j
			}
		}
		if done = done || !room; done {
			best = -1
		}
		if best >= 0 {
			free[best] -= q.problem.GPUs[i]
		}
		kind = append(kind, best)
	}
	return kind
}

// whole returns the shares of jobs that spend all of their time on a kind.
func (q *gavelProgram) whole(kind []int) []float64 {
	x := make([]float64, len(q.speed))
	for i, k := range kind {
		if k >= 0 {
			x[i*len(q.kinds)+k] = 1
		}
	}
	return x
}

// arriveShared is arrival with space sharing: the jobs that are left are packed, in turn, each with
// the job that has its GPUs to itself for the highest throughput, until none is good enough for
// one.
func (q *gavelProgram) arriveShared() {
	kind := q.arrival()
	mate := make([]int, len(kind)) // by job: 1 + number of the job packed with it
	if q.v.Shared() {
		for i, k := range kind {
			if k >= 0 {
				continue
			}
			host := q.bestHost(i, kind, mate)
			if host < 0 {
				break
			}
			mate[host] = i + 1
		}
	}
	before := q.uses
	q.uses = nil
	for i, k := range kind {
		if k < 0 {
			continue
		}
		job := q.jobs[i]
		use := gavelUse{class: [2]int64{job.class}, kind: k}
		job.level = job.speed[k]
		if m := mate[i]; m > 0 {
			other := q.jobs[m-1]
			use.class, other.level = ordered(job.class, other.class), other.speed[k]
			q.beside(job, other, k, &job.level)
			q.beside(other, job, k, &other.level)
		}
		q.use(use, 1, before)
	}
}

// bestHost is the job with which job i has the highest throughput on the same GPUs, or -1.
func (q *gavelProgram) bestHost(i int, kind, mate []int) int {
	job, best, most := q.jobs[i], -1, int64(packsWell)
	for h, k := range kind {
		if k < 0 || mate[h] > 0 || !q.together(job, q.jobs[h], k) {
			continue
		}
		if v := q.v.SpeedBeside(job.j, q.kinds[k].GPU, []sched.JobView{q.jobs[h].j}) +
			q.v.SpeedBeside(q.jobs[h].j, q.kinds[k].GPU, []sched.JobView{job.j}); v > most {
			best, most = h, v
		}
	}
	return best
}

// together reports whether two jobs may run on the same GPUs of a kind.
func (q *gavelProgram) together(a, b *gavelJob, k int) bool {
	return q.shares(a) && q.shares(b) && alike(a.j.Spec(), b.j.Spec()) && a.speed[k] > 0 && b.speed[k] > 0 &&
		fits(a.j, b.j, q.kinds[k].GPU)
}

// shares reports whether a job may be packed in this plan.
func (q *gavelProgram) shares(job *gavelJob) bool { return q.mayShare(job) && !stays(job.j) }
