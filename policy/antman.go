package policy

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine"
)

var antman = Info{
	Name: "antman",
	About: "best-effort jobs run on idle GPUs, and beside others that hardly notice them; standard and critical jobs come in the order of " +
		"their submission, one on each GPU, and never run beside one another",
	Source: "A-antman: AntMan (OSDI'20), its global scheduler",
	Needs:  "tiers; speeds of pairs of jobs on one GPU, or progress reports, to judge by how much a job is disturbed",
	Knobs: []Knob{
		{"eps", "0.05", "part of its speed that a job may lose to those beside it"},
		{"guests", "4", "most best-effort jobs beside one job"},
		{"throttle", "false", "true: also beside jobs that would be disturbed more, held back so far that they lose no more than eps"},
		{"check", "10s", "how fast jobs are is looked at so often while somebody runs beside them"},
	},
	New: newAntman,
}

type antmanRules struct {
	planner
	floor  int64 // ppm of its speed that a job keeps
	guests int64
	check  time.Duration

	throttle bool
}

// leastAntman is the least part of its speed for which a best-effort job is put beside
// another that is disturbed unless it is held back, in ppm: with less it would hold memory
// for next to nothing.
const leastAntman = 100_000

func newAntman(k *Knobs) (engine.Policy, error) {
	eps, err := strconv.ParseFloat(k.text("eps"), 64)
	if err != nil || !(eps > 0 && eps < 1) {
		return nil, fmt.Errorf("eps=%q: want a number between 0 and 1", k.text("eps"))
	}
	a := &antmanRules{floor: 1_000_000 - int64(eps*1_000_000)}
	if a.guests, err = k.int("guests"); err == nil && a.guests < 0 {
		err = fmt.Errorf("guests=%d: want 0 or more", a.guests)
	}
	if err != nil {
		return nil, err
	}
	if a.throttle, err = k.bool("throttle"); err != nil {
		return nil, err
	}
	a.check, err = k.period("check")
	a.planner = planner{name: k.label(), traits: engine.Traits{Backfill: engine.Strict}, plan: a.plan}
	return a, err
}

// Key is the priority: only who runs beside whom is planned.
func (a *antmanRules) Key(_ engine.View, j engine.JobView) engine.Key {
	return engine.Key{-j.Spec().Priority}
}

// Chooses implements engine.Chooser: others can only be hosts, once they run.
func (a *antmanRules) Chooses(spec *cluster.Job) bool { return spec.Tier == cluster.BestEffort }

// antHost is a job beside which others may run.
type antHost struct {
	at     int
	gpus   int
	memory cluster.MiB      // of each of its GPUs, that nobody has stated
	guests []engine.JobView // those that stay
}

func (a *antmanRules) plan(v engine.View, jobs []engine.JobView) engine.Plan {
	p := engine.Plan{Next: cluster.Never, Targets: v.Targets(len(jobs))}
	var hosts []antHost
	var line []int
	for i, j := range jobs {
		p.Targets[i] = engine.Target{}
		_, guest := j.Beside()
		switch {
		case !packs(j) || guest:
		case j.Running():
			hosts = append(hosts, antHost{at: i, gpus: j.Spec().GPUs(), memory: j.DeviceMemory() - j.Spec().Tasks[0].Request.Memory})
		case j.Spec().Tier == cluster.BestEffort:
			line = append(line, i)
		}
	}
	for k := range hosts {
		a.keep(v, jobs, p.Targets, &hosts[k])
		if len(hosts[k].guests) > 0 {
			p.Next = v.Now().Add(a.check)
		}
	}
	inOrder(jobs, line)
	for _, i := range line {
		if k := a.host(v, jobs, hosts, i); k >= 0 {
			h := &hosts[k]
			h.guests = append(h.guests, jobs[i])
			h.memory -= jobs[i].Spec().Tasks[0].Request.Memory
			p.Targets[i].Beside, p.Targets[i].Yield = 1+int32(jobs[h.at].Spec().ID), a.yield(jobs[h.at])
		}
	}
	return p
}

// keep looks at who runs beside a job: the last that came is stopped, if the job
// reports that it has lost more than twice as much of its speed as it may.
func (a *antmanRules) keep(v engine.View, jobs []engine.JobView, targets []engine.Target, h *antHost) {
	host := jobs[h.at]
	for _, id := range host.Guests() {
		if i := find(jobs, id); i >= 0 {
			targets[i].Yield = a.yield(host)
			h.guests = append(h.guests, jobs[i])
			h.memory -= jobs[i].Spec().Tasks[0].Request.Memory
		}
	}
	if len(h.guests) == 0 || host.Spec().Tier == cluster.BestEffort {
		return
	}
	now, _, _ := host.Tasks()
	alone := v.Speed(host, host.GPU(), now)
	last := h.guests[len(h.guests)-1]
	if r := host.Rate(); r > 0 && r*1_000_000/max(1, alone) < 2*a.floor-1_000_000 && last.Computes() && !(a.throttle && v.Now().Sub(last.Started()) < 2*a.check) {
		targets[find(jobs, last.Spec().ID)].Alone = true
	}
}

// yield is how much of its speed a job is to keep beside guests that are held back for
// it; a best-effort one is as any of them.
func (a *antmanRules) yield(host engine.JobView) int64 {
	if host.Spec().Tier == cluster.BestEffort {
		return 0
	}
	return a.floor
}

// host finds whom a best-effort job disturbs least, of those with as many GPUs and
// room in their memory; where all would be disturbed too much, and guests may be held
// back, beside whom it is fastest then; -1: nobody.
func (a *antmanRules) host(v engine.View, jobs []engine.JobView, hosts []antHost, i int) int {
	best, most := -1, int64(0)
	j := jobs[i]
	for k := range hosts {
		h := &hosts[k]
		host := jobs[h.at]
		gpu := host.GPU()
		if h.gpus != j.Spec().GPUs() || int64(len(h.guests)) >= a.guests || !j.Accepts(gpu) || h.memory < j.Spec().Tasks[0].Request.Memory {
			continue
		}
		left := v.SpeedBeside(host, gpu, append(slices.Clone(h.guests), j))
		if left < a.floor {
			if left = a.heldBack(v, host, h.guests, j, left); left < leastAntman {
				continue
			}
			left -= 1_000_000 // after all who need not be
		}
		if best < 0 || left > most {
			best, most = k, left
		}
	}
	return best
}

// heldBack is the speed of a guest that runs so seldom that whom it is beside, who would
// otherwise keep the part left of its speed, keeps the floor: so much of the time as the
// host's loss may be of what it would be. In ppm; 0: guests are not held back.
func (a *antmanRules) heldBack(v engine.View, host engine.JobView, guests []engine.JobView, j engine.JobView, left int64) int64 {
	yield := a.yield(host)
	if !a.throttle || yield == 0 {
		return 0
	}
	own := v.SpeedBeside(j, host.GPU(), append(slices.Clone(guests), host))
	return own * (1_000_000 - yield) / (1_000_000 - left)
}
