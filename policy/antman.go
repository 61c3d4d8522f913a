package policy

import (
	"math"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var antman = Info{
	Name: "antman",
	About: "best-effort jobs run on idle GPUs, and as guests of jobs that hardly notice them; standard and critical jobs run in the order of " +
		"their submission, one on each GPU, and never share one",
	Source: "AntMan (OSDI'20), its global scheduler",
	Needs:  "tiers; speeds of pairs of jobs on one GPU, or progress reports, to judge how much a job is slowed down",
	Trials: []Trial{{Given: Tiers | Pairs | Short}},
	Knobs: []Knob{
		{"eps", "0.05", "part of its speed that a job may lose to its guests"},
		{"guests", "4", "most guests of one job"},
		{"throttle", "false",
			"true: also as guests of jobs that would be slowed down more; the guests are throttled so that these lose no more than eps"},
		{"memory", "stated",
			"stated: guests may have the GPU memory that a job does not request; measured: what it is measured not to use"},
		{"headroom", "1024", "MiB of each GPU's memory that stay free under memory=measured"},
		{"check", "10s", "interval at which speeds are checked while guests run"},
	},
	New: newAntman,
}

type antmanRules struct {
	planner
	floor  int64 // share of its speed that a host keeps, ppm
	guests int64
	check  time.Duration

	throttle bool
	measured bool // memory is measured, not stated
	headroom cluster.MiB
}

// leastAntman is the least share of its speed, in ppm, for which a throttled best-effort job is
// packed with a host: with less it would hold memory for next to nothing.
const leastAntman = 100_000

func newAntman(k *Knobs) sched.Policy {
	eps := k.float("eps", 0, 1)
	if eps == 0 || eps == 1 {
		k.fail("eps=%q: want a number between 0 and 1", k.text("eps"))
	}
	a := &antmanRules{
		floor: 1_000_000 - int64(eps*1_000_000), guests: k.int("guests", 0, math.MaxInt32),
		throttle: k.bool("throttle"), check: k.duration("check", time.Second),
		measured: k.choice("memory", "stated", "measured") == "measured",
		headroom: k.int("headroom", 0, math.MaxInt32),
	}
	a.planner = planner{name: k.label(),
		traits: sched.Traits{Backfill: sched.Strict, Memory: a.measured, Anywhere: true}, plan: a.plan}
	return a
}

// Key is the priority: the plan covers only packing.
func (a *antmanRules) Key(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{-j.Spec().Priority}
}

// Chooses implements sched.Chooser: only best-effort jobs are chosen; others can only be hosts,
// once they run.
func (a *antmanRules) Chooses(spec *cluster.Job) bool { return spec.Tier == cluster.BestEffort }

// antHost is a running job whose GPUs can take guests.
type antHost struct {
	at     int
	gpus   int
	gpu    string
	kind   int32
	memory cluster.MiB     // free on each of its GPUs
	guests []sched.JobView // those that stay, and those placed by this plan
	kinds  []int32         // ... their kinds
	joined bool            // this plan has given it a guest
}

// antKind is what determines how jobs slow others down and are slowed down.
type antKind struct {
	model string
	shape int32
	tier  cluster.Tier
}

// antCase is a job of one kind packed with a host of another and up to antFew guests.
type antCase struct {
	gpu       string
	host, job int32
	guests    [antFew]int32 // 1 + their kinds
}

const antFew = 4

// antPlan is a plan in the making. Results for one job hold for all of its kind.
type antPlan struct {
	*antmanRules
	v     sched.View
	jobs  []sched.JobView
	hosts []antHost
	kinds map[antKind]int32 // looked up only
	known map[antCase]int64 // looked up only
	taken []int             // hosts that were given a guest, in order
	vain  []int             // by kind: 1 + length of taken when a job of this kind last found no host; 0: none failed
}

// kind numbers the job's kind.
func (p *antPlan) kind(j sched.JobView) int32 {
	k := antKind{j.Spec().Model, j.Shape(), j.Spec().Tier}
	id, ok := p.kinds[k]
	if !ok {
		id = int32(len(p.vain))
		p.kinds[k], p.vain = id, append(p.vain, 0)
	}
	return id
}

func (a *antmanRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := sched.Plan{Next: cluster.Never, Targets: v.Targets(len(jobs))}
	b, line := a.board(v, jobs, p.Targets)
	for k := range b.hosts {
		if len(b.hosts[k].guests) > 0 {
			p.Next = v.Now().Add(a.check)
		}
	}
	if a.measured && len(line) > 0 && len(b.hosts) > 0 {
		p.Next = v.Now().Add(a.check) // what they leave may be known by then
	}
	for _, i := range line {
		if k := b.host(i); k >= 0 {
			h := &b.hosts[k]
			h.joined = true
			b.join(h, jobs[i])
			b.taken = append(b.taken, k)
			p.Targets[i].Beside, p.Targets[i].Yield = 1+int32(jobs[h.at].Spec().ID), a.yield(jobs[h.at])
		}
	}
	return p
}

// board lists the hosts with the guests that stay, and the waiting best-effort jobs in order.
func (a *antmanRules) board(v sched.View, jobs []sched.JobView, targets []sched.Target) (b *antPlan, line []int) {
	// looked up only
	b = &antPlan{antmanRules: a, v: v, jobs: jobs, kinds: map[antKind]int32{}, known: map[antCase]int64{}}
	for i, j := range jobs {
		_, guest := j.Host()
		switch {
		case !packs(j) || guest:
		case j.Running():
			b.hosts = append(b.hosts,
				antHost{at: i, gpus: j.Spec().GPUs(), gpu: j.GPU(), kind: b.kind(j), memory: a.leaves(v, j)})
		case j.Spec().Tier == cluster.BestEffort:
			line = append(line, i)
		}
	}
	for k := range b.hosts {
		b.keep(targets, &b.hosts[k])
	}
	inOrder(jobs, line)
	return b, line
}

// join adds a job to the host's guests.
func (p *antPlan) join(h *antHost, j sched.JobView) {
	h.guests, h.kinds = append(h.guests, j), append(h.kinds, p.kind(j))
	h.memory -= p.needs(j)
}

// keep checks the guests of a host: the last to come is stopped if the host reports more than twice
// the permitted loss of speed.
func (p *antPlan) keep(targets []sched.Target, h *antHost) {
	host := p.jobs[h.at]
	for _, id := range host.Guests() {
		if i := find(p.jobs, id); i >= 0 {
			targets[i].Yield = p.yield(host)
			p.join(h, p.jobs[i])
		}
	}
	if len(h.guests) > 0 && p.measured && h.memory < 0 { // the host needs the memory itself
		targets[find(p.jobs, h.guests[len(h.guests)-1].Spec().ID)].Alone = true
		return
	}
	if len(h.guests) == 0 || host.Spec().Tier == cluster.BestEffort {
		return
	}
	now, _, _ := host.Tasks()
	alone := p.v.Speed(host, h.gpu, now)
	last := h.guests[len(h.guests)-1]
	if r := host.Rate(); r > 0 && r*1_000_000/max(1, alone) < 2*p.floor-1_000_000 && last.Computes() &&
		!(p.throttle && p.v.Now().Sub(last.Started()) < 2*p.check) {
		targets[find(p.jobs, last.Spec().ID)].Alone = true
	}
}

// leaves is how much memory a job leaves free on each of its GPUs: what it does not request, or
// what it was measured not to use less the headroom. Until it has been measured, only its request
// counts; without a request it leaves nothing.
func (a *antmanRules) leaves(v sched.View, j sched.JobView) cluster.MiB {
	total, stated, peak := j.DeviceMemory(), j.Spec().Tasks[0].Request.Memory, j.PeakMemory()
	switch {
	case !a.measured:
		return total - stated
	case peak > 0 && v.Now().Sub(j.Started()) >= a.check:
		return memoryLimit(total, peak, a.headroom)
	case stated > 0:
		return memoryLimit(total, max(stated, peak), a.headroom)
	}
	return 0
}

// memoryLimit is the GPU memory that guests may have beside a job that has used at most peak
// (AntMan, OSDI'20).
func memoryLimit(total, peak, headroom cluster.MiB) cluster.MiB { return max(0, total-peak-headroom) }

// needs is the memory that a best-effort job needs on each GPU: its request, or its measured peak
// if that is larger.
func (a *antmanRules) needs(j sched.JobView) cluster.MiB {
	if !a.measured {
		return j.Spec().Tasks[0].Request.Memory
	}
	return max(j.Spec().Tasks[0].Request.Memory, j.PeakMemory())
}

// hasRoom reports whether the host's free memory suffices for one more guest. Where memory is
// measured, guests come one at a time and must have a known need, since usage may rise.
func (a *antmanRules) hasRoom(v sched.View, h *antHost, j sched.JobView) bool {
	need := a.needs(j)
	if !a.measured {
		return h.memory >= need
	}
	if n := len(h.guests); h.joined || n > 0 && v.Now().Sub(h.guests[n-1].Started()) < a.check {
		return false
	}
	return need > 0 && h.memory >= need
}

// yield is the share of its speed, in ppm, that a host keeps by throttling its guests; 0 for
// best-effort hosts, which have no precedence.
func (a *antmanRules) yield(host sched.JobView) int64 {
	if host.Spec().Tier == cluster.BestEffort {
		return 0
	}
	return a.floor
}

// host finds the host that a best-effort job slows down least, among those with as many GPUs and
// enough free memory. If all would be slowed down too much and guests may be throttled, it is the
// one where the job runs fastest; -1: none.
func (p *antPlan) host(i int) int {
	best, most := -1, int64(0)
	j := p.jobs[i]
	kind, gpus := p.kind(j), j.Spec().GPUs()
	consider := func(k int) {
		h := &p.hosts[k]
		if h.gpus != gpus || int64(len(h.guests)) >= p.guests || !p.hasRoom(p.v, h, j) {
			return
		}
		if left := p.beside(h, j, kind); left != forbidden && (best < 0 || left > most || left == most && k < best) {
			best, most = k, left
		}
	}
	// one of its kind has failed: only hosts with a new guest may have changed
	if since := p.vain[kind]; since > 0 && !p.measured {
		for _, k := range p.taken[since-1:] {
			consider(k)
		}
	} else {
		for k := range p.hosts {
			consider(k)
		}
	}
	if best < 0 {
		p.vain[kind] = 1 + len(p.taken)
	}
	return best
}

// forbidden marks a host that a job must not run beside.
const forbidden = math.MinInt64

// beside rates how well a job runs beside a host: higher is better.
func (p *antPlan) beside(h *antHost, j sched.JobView, kind int32) int64 {
	if len(h.kinds) > antFew {
		return p.judge(h, j)
	}
	c := antCase{gpu: h.gpu, host: h.kind, job: kind}
	for n, k := range h.kinds {
		c.guests[n] = 1 + k
	}
	left, ok := p.known[c]
	if !ok {
		left = p.judge(h, j)
		p.known[c] = left
	}
	return left
}

// judge computes the rating that beside caches.
func (p *antPlan) judge(h *antHost, j sched.JobView) int64 {
	host := p.jobs[h.at]
	if !j.Accepts(h.gpu) {
		return forbidden
	}
	left := p.v.SpeedBeside(host, h.gpu, append(slices.Clone(h.guests), j))
	if left < p.floor {
		if left = p.heldBack(p.v, host, h.guests, j, left); left < leastAntman {
			return forbidden
		}
		left -= 1_000_000 // ranks below all hosts that need no throttling
	}
	return left
}

// heldBack is the speed of a throttled guest, in ppm: it runs for so much of the time that its
// host, which would otherwise keep the share left of its speed, keeps the floor. 0: guests are not
// throttled.
func (a *antmanRules) heldBack(v sched.View, host sched.JobView, guests []sched.JobView, j sched.JobView,
	left int64) int64 {
	yield := a.yield(host)
	if !a.throttle || yield == 0 {
		return 0
	}
	own := v.SpeedBeside(j, host.GPU(), append(slices.Clone(guests), host))
	return own * (1_000_000 - yield) / (1_000_000 - left)
}
