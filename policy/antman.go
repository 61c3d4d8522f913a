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
		{"check", "10s", "how fast jobs are is looked at so often while somebody runs beside them"},
	},
	New: newAntman,
}

type antmanRules struct {
	planner
	floor  int64 // ppm of its speed that a job keeps
	guests int64
	check  time.Duration
}

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
			p.Targets[i].Beside = 1 + int32(jobs[h.at].Spec().ID)
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
	if r := host.Rate(); r > 0 && r*1_000_000/max(1, alone) < 2*a.floor-1_000_000 && last.Computes() {
		targets[find(jobs, last.Spec().ID)].Alone = true
	}
}

// host finds whom a best-effort job disturbs least, of those with as many GPUs and
// room in their memory; -1: all would be disturbed too much.
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
		if left := v.SpeedBeside(host, gpu, append(slices.Clone(h.guests), j)); left >= a.floor && left > most {
			best, most = k, left
		}
	}
	return best
}
