package compat

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

// flowElastic is ElasticFlow in its simulator (section 8): arrivals are admitted if all jobs have
// plans that meet their deadlines; GPUs that are free now go to the jobs for which additional GPUs
// cost most GPU time.
type flowElastic struct {
	w        *FlowWorld
	nodes    *flowNodes
	free     timeline // what the plans leave free
	declined []int
	warm     map[[2]int]bool // (first GPU, number of GPUs) of jobs that ran since the last restart
	gains    []flowGain      // gains of all known jobs, by number
	scratch  timeline
}

// flowGain is a job with its next larger size.
type flowGain struct {
	gpus int
	fit  flowFit
	gain float64 // additional GPU-seconds for each additional GPU
}

func newFlowElastic(w *FlowWorld) *flowElastic {
	w.elastic(flowElasticMost)
	return &flowElastic{w: w, nodes: newFlowNodes(w.total / slotNode), warm: map[[2]int]bool{},
		gains: make([]flowGain, len(w.jobs))}
}

// flowElasticMost is the maximum number of GPUs of a job there.
func flowElasticMost(j *flowJob) int {
	switch {
	case j.model == "deepspeech2":
		return j.batch
	case j.model == "bert" && j.batch == 64:
		return 8
	case j.model == "bert":
		return 16
	case j.model == "gpt2":
		return j.batch / 8
	case j.model == "inception3":
		return j.batch / 4
	case j.batch == 64 && (j.model == "resnet50" || j.model == "vgg16"):
		return 32
	}
	return min(j.batch, 64)
}

// next brings jobs up to the next event.
func (f *flowElastic) next() bool {
	w := f.w
	for {
		if !w.begin() {
			return false
		}
		for _, i := range w.known {
			w.advance(i, w.jobs[i].real)
			w.jobs[i].lost = 0
		}
		if len(w.known) > 0 || len(w.events[0].ends) > 0 || len(w.events[0].come) > 0 {
			break
		}
		w.events = w.events[1:] // an event without jobs
	}
	for _, i := range w.events[0].ends {
		if j := &w.jobs[i]; !j.over && j.given > 0 {
			f.nodes.release(i, j.given)
			w.finish(i, j.real)
		}
	}
	w.come, w.events = w.events[0].come, w.events[1:]
	for _, i := range w.come {
		w.arrive(i)
	}
	return true
}

// decide admits jobs, and sets the number of GPUs of all jobs until the next event.
func (f *flowElastic) decide() {
	w := f.w
	f.declined = nil
	all := append(slices.Clone(w.known), w.come...)
	if len(w.come) > 0 && !f.estimate(all) {
		f.declined = w.come // all of them, whichever one does not fit
		f.estimate(w.known)
	} else {
		w.known = all
		if len(w.come) == 0 {
			f.estimate(w.known)
		}
	}
	f.byDeadline(w.known)
	for _, i := range w.known {
		j := &w.jobs[i]
		j.want = j.plan.value(w.now)
		f.retime(i)
	}
	for _, i := range w.known {
		if j := &w.jobs[i]; !j.started && j.begins(w.now) {
			j.started = true
			w.events.end(j.end, i)
			j.moved = j.end
		}
	}
	f.spare()
	slices.SortStableFunc(w.known, func(a, b int) int { return w.jobs[b].want - w.jobs[a].want })
	w.come = nil
}

// retime moves a job's end event to its end.
func (f *flowElastic) retime(i int) {
	j := &f.w.jobs[i]
	f.w.events.move(j.moved, j.end, i)
	j.moved = j.end
}

func (f *flowElastic) byDeadline(list []int) {
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(f.w.jobs[a].deadline, f.w.jobs[b].deadline) })
}

// begins reports whether a job's plan gives it GPUs now before any later time.
func (j *flowJob) begins(now int) bool {
	for _, p := range j.plan {
		if p.n > 0 {
			return p.at == now
		}
	}
	return true
}

// estimate plans all jobs from now on, the earliest deadline first. It reports whether all meet
// their deadlines.
func (f *flowElastic) estimate(list []int) bool {
	f.free = timeline{{f.w.now, f.w.total}}
	f.byDeadline(list)
	for _, i := range list {
		f.nodes.release(i, f.w.jobs[i].want)
	}
	all := true
	for _, i := range list {
		j := &f.w.jobs[i]
		j.flowFit = f.fit(j, 0, f.free)
		f.free = j.rest
		all = all && j.real <= j.deadline
	}
	return all
}

// spare hands out the GPUs that are free now.
func (f *flowElastic) spare() {
	w := f.w
	spare := w.total
	for _, i := range w.known {
		spare -= w.jobs[i].want
		f.gains[i].gpus = -1
	}
	if spare > 0 {
		f.weighAll(spare)
	}
	for spare > 0 {
		k := slices.IndexFunc(w.known, func(i int) bool {
			more := f.gains[i].gpus - w.jobs[i].want
			return more > 0 && more <= spare
		})
		if k < 0 {
			return
		}
		i := w.known[k]
		j := &w.jobs[i]
		spare -= f.gains[i].gpus - j.want
		j.want, j.flowFit = f.gains[i].gpus, f.gains[i].fit
		f.free, j.started = j.rest, true
		f.retime(i)
		f.weighAll(spare)
	}
}

// weighAll sorts jobs by the cost of their next size, the highest first.
func (f *flowElastic) weighAll(spare int) {
	for _, i := range f.w.known {
		f.weigh(i, spare)
	}
	slices.SortStableFunc(f.w.known, func(a, b int) int { return cmp.Compare(f.gains[b].gain, f.gains[a].gain) })
}

// weigh computes the cost of a job's next size. A job at its maximum keeps its previous value.
func (f *flowElastic) weigh(i, spare int) {
	j, g := &f.w.jobs[i], &f.gains[i]
	n, first := max(1, 2*j.want), g.gpus < 0
	switch g.gpus = n; {
	case n > j.most:
		if g.gpus = j.want; first {
			g.gain = math.Inf(-1)
		}
	case n-j.want > spare:
		g.gain = math.Inf(-1)
	default:
		g.fit = f.fit(j, n, f.without(j))
		g.gain = math.Inf(1)
		if j.want > 0 {
			g.gain = float64(g.fit.gpuTime()-j.gpuTime()) / float64(n-j.want)
		}
	}
}

// without is what is free without a job's plan.
func (f *flowElastic) without(j *flowJob) timeline {
	t := append(f.scratch[:0], f.free...)
	defer func() { f.scratch = t }()
	if k, ok := t.find(j.end); !ok && k > 0 {
		t.set(j.end, t[k-1].n)
	}
	for _, p := range j.plan {
		if k, ok := t.find(p.at); !ok && k > 0 {
			t.set(p.at, t[k-1].n)
		}
	}
	at := 0 // index in the plan
	for k := range t {
		for at+1 < len(j.plan) && j.plan[at+1].at <= t[k].at {
			at++
		}
		if t[k].at >= j.end {
			break
		}
		if j.plan[at].at <= t[k].at {
			t[k].n += j.plan[at].n
		}
	}
	return t.squeeze()
}

// settle places jobs, charges them for it, and computes the next events.
func (f *flowElastic) settle() error {
	w := f.w
	for _, i := range f.declined {
		w.jobs[i].over = true
		w.reports = append(w.reports, engine.Event{Type: engine.Cancelled, Job: cluster.JobID(i)})
	}
	f.declined = nil
	scale := never // when a plan next changes
	for _, i := range w.known {
		p := w.jobs[i].plan
		if k, _ := p.find(w.now + 1); k < len(p) {
			scale = min(scale, p[k].at)
		}
	}
	f.nodes.place(w)
	cached := f.nodes.cached(w, f.warm)
	if scale < never && (len(w.events) == 0 || scale < w.events[0].at) {
		w.events.at(scale)
	}
	restart := w.restarts()
	if restart {
		clear(f.warm)
	}
	for _, i := range w.known {
		j := &w.jobs[i]
		if j.want == 0 {
			j.lost = 0
			continue
		}
		j.lost = slotStart(w.total, j.want, restart)
		if cached[i] {
			j.lost = slotKept(w.total)
		}
		j.end += j.lost
		f.retime(i)
	}
	w.events.gather(w.now)
	return w.carried()
}

// flowFit is a plan for a job, and what it leaves free.
type flowFit struct {
	plan, rest timeline
	end, real  int // the end of the last slot; the end of the job
}

// gpuTime is the cost of a plan in GPU-seconds: every interval counts in full, even if the job ends
// earlier, and the last one until the end.
func (r *flowFit) gpuTime() (sum int) {
	for k, p := range r.plan {
		to := r.end
		if k+1 < len(r.plan) {
			to = r.plan[k+1].at
		}
		sum += p.n * (to - p.at)
	}
	return sum
}

// value is the number at a time; 0 before the first entry.
func (l timeline) value(t int) int {
	k, ok := l.find(t)
	switch {
	case ok:
		return l[k].n
	case k > 0:
		return l[k-1].n
	}
	return 0
}

// flowFitter plans one job.
type flowFitter struct {
	flowFit
	j     *flowJob
	free  timeline // free GPUs before the plan
	total int
	now   int
	due   int // the end of its deadline's slot
	from  int // start of the planned part
	fixed int // GPUs that it has now in any case; 0: none
	left  float64
	last  int // free GPUs where the plan ends
}

// fit plans a job as small and as late as its deadline allows (8.1); with a fixed size, it has that
// size now.
func (f *flowElastic) fit(j *flowJob, fixed int, free timeline) flowFit {
	x := flowFitter{j: j, free: free, total: f.w.total, now: f.w.now, due: slotUp(f.w.now, j.deadline), from: f.w.now,
		fixed: fixed, left: j.left}
	x.rest, x.plan = append(make(timeline, 0, len(free)+3), free...), timeline{{x.now, 0}}
	if k, ok := x.rest.find(x.due); !ok && x.due >= x.now {
		x.last = x.rest[k-1].n
		x.rest.set(x.due, x.last)
	}
	if fixed > 0 && x.begin() {
		return x.flowFit.squeezed()
	}
	if p, q, k, ok := x.least(); ok {
		x.take(p, q, k)
	} else {
		x.late()
	}
	return x.flowFit.squeezed()
}

func (r flowFit) squeezed() flowFit {
	r.plan, r.rest = r.plan.squeeze(), r.rest.squeeze()
	return r
}

// within is the largest possible size of the job within a number of free GPUs.
func (x *flowFitter) within(free int) int {
	if free = min(free, x.j.most); free > 0 {
		return 1 << bits.Len(uint(free)) >> 1
	}
	return 0
}

// begin gives the job its fixed size until the next change, and reports whether it completes by
// then, in time.
func (x *flowFitter) begin() bool {
	k, until := 0, x.due
	for ; k < len(x.free); k++ {
		if x.free[k].at > x.now {
			until = x.free[k].at
			break
		}
	}
	s := x.j.rate(x.fixed)
	x.plan.set(x.now, x.fixed)
	x.real = int(math.Ceil(float64(x.now) + x.left/s))
	x.end = slotUp(x.now, x.real)
	free := x.rest.value(x.now)
	x.rest.set(x.now, free-x.fixed)
	if until >= x.end && x.j.deadline >= x.real {
		if _, ok := x.free.find(x.end); !ok {
			x.rest.set(x.end, free)
		}
		return true
	}
	x.left -= float64(float64(x.length(x.now, until)) * s)
	x.from = until
	x.plan.set(until, 0)
	return false
}

// length is the time between two changes; of the deadline's slot only the time before the deadline
// counts.
func (x *flowFitter) length(from, to int) int {
	if to == x.due {
		to = x.j.deadline
	}
	return to - from
}

// least finds the smallest size q with which the job meets its deadline if it has q from a time k
// on, and p, the next smaller size, before.
func (x *flowFitter) least() (p, q, k int, ok bool) {
	x.spread()
	first, _ := x.rest.find(x.from)
	end, _ := x.rest.find(x.due)
	for q = 1; q <= min(x.j.most, x.total); q *= 2 {
		sum, to := 0.0, x.due
		for i := end - 1; i >= first; i-- {
			at := x.rest[i].at
			g := min(q, x.within(x.rest[i].n))
			if g > 0 {
				sum += float64(float64(x.length(at, to)) * x.j.rate(g))
				if sum >= x.left {
					return p, q, at, true
				}
			}
			to = at
		}
		p = q
	}
	return 0, 0, 0, false
}

// spread splits the plan wherever the free GPUs change, up to the deadline's slot.
func (x *flowFitter) spread() {
	own, k := x.plan, 0
	x.plan = make(timeline, 0, len(own)+len(x.rest)+2)
	for _, t := range x.rest {
		for k < len(own) && own[k].at < t.at {
			x.plan = append(x.plan, own[k])
			k++
		}
		if t.at < x.due && (k == len(own) || own[k].at > t.at) {
			t.n = 0
			x.plan = append(x.plan, t)
		}
	}
	x.plan = append(x.plan, own[k:]...)
}

// take plans the sizes found by least.
func (x *flowFitter) take(p, q, k int) {
	first, _ := x.rest.find(x.from)
	for i := first; i < len(x.rest) && x.rest[i].at <= x.due; i++ {
		u := x.rest[i].at
		c := min(p, x.within(x.rest[i].n))
		if u >= k {
			c = min(q, x.within(x.rest[i].n))
		}
		x.plan.set(u, c)
		x.rest[i].n -= c
		if c == 0 {
			continue
		}
		s := x.j.rate(c)
		last := u == x.due
		work := 0.0
		if !last {
			work = float64(float64(x.length(u, x.rest[i+1].at)) * s)
		}
		if last || u >= k && work >= x.left {
			r := int(math.Ceil(x.left / s))
			x.real, x.end = u+r, u+slotUp(0, r)
			break
		}
		x.left -= work
	}
	v := x.total
	if at, _ := x.free.find(x.end); at > 0 && x.free[at-1].at >= x.from {
		v = x.free[at-1].n
	}
	if _, ok := x.free.find(x.end); !ok {
		x.rest.set(x.end, v)
	}
}

// late plans a job that misses its deadline: all GPUs that it can have.
func (x *flowFitter) late() {
	most := min(x.j.most, x.total)
	first, _ := x.rest.find(x.from)
	for i := first; i+1 < len(x.rest) && x.rest[i+1].at <= x.due; i++ {
		c := min(most, x.within(x.rest[i].n))
		x.plan.set(x.rest[i].at, c)
		x.rest[i].n -= c
		if c > 0 {
			x.left -= float64(float64(x.length(x.rest[i].at, x.rest[i+1].at)) * x.j.rate(c))
		}
	}
	b := max(x.due, x.from)
	for _, next := range slices.Clone(x.rest) {
		if next.at <= x.due {
			continue
		}
		c := x.within(x.rest.value(b))
		x.plan.set(b, c)
		if c == 0 {
			b = next.at
			continue
		}
		s := x.j.rate(c)
		work := float64(float64(next.at-b) * s)
		if work >= x.left {
			x.close(b, c, int(math.Ceil(float64(b)+x.left/s)))
			return
		}
		x.left -= work
		if k, _ := x.free.find(b); k > 0 {
			x.last = x.rest.value(x.free[k-1].at)
		}
		for k := range x.rest {
			if x.rest[k].at >= b && x.rest[k].at < next.at {
				x.rest[k].n -= c
			}
		}
		b = next.at
	}
	c := most
	if x.fixed > 0 {
		c = x.fixed
	}
	x.plan.set(b, c)
	x.real = int(math.Ceil(float64(b) + x.left/x.j.rate(c)))
	x.end = slotUp(x.now, x.real)
	x.rest.set(b, x.total-c)
	x.rest.set(x.end, x.total)
}

// close ends a late job in an interval that begins at b.
func (x *flowFitter) close(b, c, real int) {
	x.real, x.end = real, slotUp(x.now, real)
	for k := range x.rest {
		y := x.rest[k].at
		if y < x.due {
			continue
		}
		if at, ok := x.free.find(y); ok && y < x.end {
			x.last = x.free[at].n
		}
		if y >= b && y < x.end {
			x.rest[k].n -= c
		}
	}
	if b != x.end {
		x.rest.set(b, x.last-c)
	}
	if _, ok := x.free.find(x.end); !ok {
		x.rest.set(x.end, x.last)
	}
}
