package engine_test

import (
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// amount is something of a node, by count: which devices is open.
type amount struct {
	gpus     int
	cpu, ram int64
}

func (a amount) minus(b amount) amount { return amount{a.gpus - b.gpus, a.cpu - b.cpu, a.ram - b.ram} }

// promise is the earliest placement of a blocked job.
type promise struct {
	job       *dumbJob
	hold      bool // nodes are held for it from now on
	at, until cluster.Time
	took      map[int]amount // by node; looked up only
	left      map[int]amount // what others may use from then on
}

// sum adds up what allocations hold on a node. A share counts as its device.
func sum(allocs []engine.Alloc, node int) (s amount) {
	for _, a := range allocs {
		if int(a.Node) == node {
			s = amount{s.gpus + bits.OnesCount64(a.GPUs), s.cpu + a.CPU, s.ram + a.RAM}
		}
	}
	return s
}

// run is how long a waiting job will hold its devices. One that was done by its
// estimate is expected to need another twentieth, at least a minute.
func (d *dumb) run(j *dumbJob) time.Duration {
	most := cluster.MaxDuration
	if j.Limit > 0 {
		most = j.Limit
	}
	if j.Estimate == 0 {
		return most
	}
	left := j.Estimate - j.done
	if left <= 0 {
		left = max(time.Minute, j.ran/20)
	}
	return min(most, left+j.Checkpoint.Restart)
}

// expect notes when a job with devices is expected to end.
func (d *dumb) expect(j *dumbJob) {
	if j.state == engine.Placed {
		j.end = d.now.Add(d.run(j))
		return
	}
	j.end = j.limitAt
	if j.Estimate > 0 {
		end := d.now.Add(time.Duration(d.remaining(j)))
		if j.end = min(j.end, end); j.end <= d.now {
			j.end = d.now.Add(max(time.Minute, j.ran/20))
		}
	}
}

// overdue jobs are expected to end a little later.
func (d *dumb) overdue() {
	for _, j := range d.jobs {
		if j.inBooks() && j.end <= d.now {
			d.expect(j)
			j.end = max(j.end, d.now+1)
		}
	}
}

// beside is the books with what a run from an instant on must leave to promises:
// the least over those that it meets. begun: those that have begun by then are in
// the books themselves.
func (d *dumb) beside(b books, j *dumbJob, from cluster.Time, begun bool) books {
	b.keep = map[int]amount{}
	for _, p := range d.promises {
		if p.at >= from.Add(d.run(j)) || p.until <= from || p.job == j || begun && p.at <= from {
			continue
		}
		for i := range d.nodes {
			left, ok := p.left[i]
			if !ok {
				continue
			}
			if k, met := b.keep[i]; met {
				left = amount{min(k.gpus, left.gpus), min(k.cpu, left.cpu), min(k.ram, left.ram)}
			}
			b.keep[i] = left
		}
	}
	return b
}

// uses takes what a job that starts now uses from what promises leave.
func (d *dumb) uses(j *dumbJob, until cluster.Time) {
	for _, p := range d.promises {
		for i := range d.nodes {
			if left, ok := p.left[i]; ok && p.at < until {
				p.left[i] = left.minus(sum(j.allocs, i))
			}
		}
	}
}

// stands reports whether a promise is for nodes for which the job competes.
func (d *dumb) stands(j *dumbJob) bool {
	return slices.ContainsFunc(d.promises, func(p *promise) bool {
		for i := range d.nodes {
			if d.competes(p.job, i) && d.competes(j, i) {
				return true
			}
		}
		return false
	})
}

// promise gives a blocked job the earliest placement that the expected ends of
// jobs and the promises so far allow, instant by instant; false: none is in sight.
func (d *dumb) promise(j *dumbJob) bool {
	b, freed := d.books(), map[int]bool{}
	held := map[*promise][]engine.Alloc{} // looked up only
	var times []cluster.Time
	for _, v := range d.jobs {
		if v.inBooks() {
			times = append(times, v.end)
		}
	}
	for _, p := range d.promises {
		times = append(times, p.at, p.until)
	}
	slices.Sort(times)
	for _, at := range slices.Compact(times) {
		if at >= d.now.Add(cluster.MaxDuration/2) && d.holdDue(j) && d.hold(j) {
			return true
		}
		for _, v := range d.jobs {
			if v.inBooks() && v.end == at {
				b.give(v.allocs)
				for _, a := range v.allocs {
					freed[int(a.Node)] = true
				}
			}
		}
		for _, p := range d.promises {
			if p.until == at {
				b.give(held[p])
			}
		}
		for _, p := range d.promises {
			if p.at == at {
				held[p] = d.stand(&b, p)
			}
		}
		then := d.beside(b, j, at, true)
		if allocs := d.planned(j, then); at == j.promisedAt && allocs != nil {
			d.promised(j, at, b, allocs)
			return true
		}
		if allocs := d.place(j, then, nil); allocs != nil {
			d.promised(j, at, b, d.spareIdle(j, then, allocs, freed))
			return true
		}
	}
	return d.holdDue(j) && d.hold(j)
}

// planned places a job where it was promised to run; nil: something is not free.
func (d *dumb) planned(j *dumbJob, b books) []engine.Alloc {
	s := site{d: d, j: j, b: b.clone()}
	for _, a := range j.plan {
		s.set, s.r = int(a.Set), &j.Tasks[a.Set].Request
		if a.Share != 0 || d.nodes[a.Node].State != cluster.Up || b.off[int(a.Node)] ||
			s.room(int(a.Node), int(a.Tasks)) < int(a.Tasks) {
			return nil
		}
		s.bind(int(a.Node), int(a.Tasks), int(a.Tasks))
	}
	return s.allocs
}

// placeNow places a job where it was promised to run, else where there is room: if it would
// wait there for jobs that leave, then where it need not, if it can and no node has to wake for it.
func (d *dumb) placeNow(j *dumbJob, b books, blocked map[kind]bool) []engine.Alloc {
	if j.promisedAt <= d.now {
		if allocs := d.planned(j, b); allocs != nil {
			return allocs
		}
	}
	allocs := d.place(j, b, blocked)
	if allocs == nil || !d.mustWait(j, allocs) {
		return allocs
	}
	now := d.place(j, d.withoutLeft(b), blocked)
	if now == nil || d.mustWait(j, now) || d.wakes(now) && !d.wakes(allocs) {
		return allocs
	}
	return now
}

func (d *dumb) wakes(allocs []engine.Alloc) bool {
	return slices.ContainsFunc(allocs, func(a engine.Alloc) bool { return d.nodes[a.Node].Asleep > 0 })
}

// mustWait reports whether a job would wait for leavers on these devices.
func (d *dumb) mustWait(j *dumbJob, allocs []engine.Alloc) bool {
	was := *j
	defer func() { *j = was }()
	j.state, j.allocs = engine.Placed, allocs
	d.waitForLeavers(j)
	return len(j.waits) > 0
}

// stand puts devices into the books for a promise that begins, as many as are free.
func (d *dumb) stand(b *books, p *promise) (allocs []engine.Alloc) {
	for i := range d.nodes {
		if took, ok := p.took[i]; ok {
			a := engine.Alloc{Node: int32(i), CPU: took.cpu, RAM: took.ram}
			a.GPUs = b.pickWhole(i, min(took.gpus, bits.OnesCount64(b.free(i))))
			allocs = append(allocs, a)
		}
	}
	b.take(allocs)
	return allocs
}

// spareIdle moves a placement off nodes that are idle already, as far as it can:
// it uses as few of them as suffice, the first ones.
func (d *dumb) spareIdle(j *dumbJob, b books, allocs []engine.Alloc, freed map[int]bool) []engine.Alloc {
	if !slices.ContainsFunc(allocs, func(a engine.Alloc) bool { return !freed[int(a.Node)] }) {
		return allocs
	}
	b.off = map[int]bool{}
	var idle []int
	for i, n := range d.nodes {
		if n.State == cluster.Up && !freed[i] && (b.free(i) != 0 || n.GPUs == 0) && d.competes(j, i) {
			idle, b.off[i] = append(idle, i), true
		}
	}
	for _, i := range idle {
		if fewer := d.place(j, b, nil); fewer != nil {
			return fewer
		}
		b.off[i] = false
	}
	return d.place(j, b, nil)
}

// promised notes a promise. It uses up what was left beside those that begin
// while it runs.
func (d *dumb) promised(j *dumbJob, at cluster.Time, b books, allocs []engine.Alloc) {
	if j.promisedAt = at; d.mode == engine.Conservative {
		j.plan = allocs
	}
	p := &promise{job: j, at: at, until: at.Add(max(1, d.run(j))), took: map[int]amount{}, left: map[int]amount{}}
	b.take(allocs)
	for i := range d.nodes {
		if slices.ContainsFunc(allocs, func(a engine.Alloc) bool { return int(a.Node) == i }) {
			p.took[i] = sum(allocs, i)
			p.left[i] = amount{bits.OnesCount64(b.free(i)), b.cpu(i), b.ram(i)}
		}
	}
	for _, o := range d.promises {
		for i := range d.nodes {
			if left, ok := o.left[i]; ok && p.at < o.at && o.at < p.until {
				o.left[i] = left.minus(p.took[i])
			}
		}
	}
	d.promises = append(d.promises, p)
}
