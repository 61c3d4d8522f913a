package policy

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/engine/sched"
)

var miso = Info{
	Name: "miso",
	About: "first come, first served; jobs that ask for one GPU run on MIG instances: a GPU is divided so that its jobs get most done, and divided again " +
		"when jobs come or go; jobs that change their instance are stopped for it",
	Source: "MISO (SoCC'22), its optimiser and placement, without its predictor",
	Needs:  "speeds on MIG instances (else as many as they have compute slices); the GPU memory that jobs need; checkpoints, to move jobs",
	Trials: []Trial{{Given: Divided | Short}},
	Knobs: []Knob{
		{"horizon", "5m", "a job changes its instance if that gets more done within this time, less the cost of the change"},
	},
	New: newMISO,
}

type misoRules struct {
	planner
	horizon time.Duration
}

func newMISO(k *Knobs) sched.Policy {
	m := &misoRules{horizon: k.duration("horizon", time.Second)}
	m.planner = planner{name: k.label(),
		traits: sched.Traits{Divides: true, OnlyDivides: true, Gated: true, Backfill: sched.Strict}, plan: m.plan}
	return m
}

// Key is the priority: the plan covers only the instances.
func (m *misoRules) Key(_ sched.View, j sched.JobView) sched.Key {
	return sched.Key{-j.Spec().Priority}
}

const (
	mostDivided = 7  // instances of one GPU
	mostLooked  = 16 // GPUs compared for one job
	lookAgain   = 10 * time.Second
)

// misoPart is a possible instance of a GPU.
type misoPart struct {
	profile *cluster.SliceProfile
	start   int
}

// misoGPU is a GPU that can be divided, and the jobs that are to run on it.
type misoGPU struct {
	sched.Device
	jobs    []int        // indices into the plan's jobs
	layouts [][]misoPart // those that leave other jobs' instances in place
	same    bool         // its jobs are the same as at the last plan
	solved  bool         // total and parts are the best division
	total   int64
	parts   []misoPart
}

// misoPlan is a plan in the making.
type misoPlan struct {
	*misoRules
	v       sched.View
	jobs    []sched.JobView
	gpus    []misoGPU
	held    []sched.Slice // by job; without a profile it holds no instance that this plan may change
	targets []sched.Target
	layouts map[string][][]misoPart // by model; looked up only
	cpu     map[int32]cluster.Milli // free on a node; looked up only
	ram     map[int32]cluster.MiB
}

func (m *misoRules) plan(v sched.View, jobs []sched.JobView) sched.Plan {
	p := &misoPlan{misoRules: m, v: v, jobs: jobs, targets: v.Targets(len(jobs)), held: make([]sched.Slice, len(jobs)),
		layouts: map[string][][]misoPart{}, cpu: map[int32]cluster.Milli{}, ram: map[int32]cluster.MiB{}}
	devices := v.Devices()
	p.gpus = make([]misoGPU, len(devices))
	for i := range devices {
		p.gpus[i].Device = devices[i]
	}
	line := p.assigned()
	var before []int64 // the memo's last two numbers: the first waiting job and the idle GPUs at the last plan
	if m := v.Memo(); len(m) >= 2 {
		before = m[len(m)-2:]
		p.recall(m[:len(m)-2])
	}
	for i := range p.gpus {
		p.gpus[i].layouts = p.around(&p.gpus[i])
	}
	next, first := cluster.Never, [2]int64{-1}
	for len(line) > 0 {
		if i := line[0]; !p.suits(i) {
			line = line[1:] // it can run on none of the GPUs that can be divided
			continue
		} else if !p.jobs[i].Divides() {
			if first = p.starting(i); first[1] >= 0 && !slices.Equal(first[:], before) {
				next = v.Now().Add(lookAgain) // jobs behind it are tried once it has started
			}
			break
		}
		g := p.bestGPU(line[0])
		if g < 0 {
			break
		}
		p.put(line[0], g)
		line = line[1:]
	}
	for _, i := range line {
		p.targets[i].Idle = p.jobs[i].Divides() && p.suits(i)
	}
	if len(line) == 0 {
		p.spread()
	}
	var memo []int64
	for g := range p.gpus {
		d := &p.gpus[g]
		p.aim(d)
		if len(d.jobs) > 0 {
			memo = append(memo, int64(d.Node), int64(d.GPU), int64(len(d.jobs)), int64(d.Slots))
		}
	}
	return sched.Plan{Targets: p.targets, Next: next, Memo: append(memo, first[:]...)}
}

// recall finds the unchanged GPUs: they have as many jobs as at the last plan, each on its
// instance, and the same slots taken by others.
func (p *misoPlan) recall(memo []int64) {
	for g, k := 0, 0; g < len(p.gpus) && k+3 < len(memo); {
		d := &p.gpus[g]
		switch c := cmp.Or(cmp.Compare(int64(d.Node), memo[k]), cmp.Compare(int64(d.GPU), memo[k+1])); {
		case c < 0:
			g++
		case c > 0:
			k += 4
		default:
			d.same = int64(len(d.jobs)) == memo[k+2] && int64(d.Slots) == memo[k+3] &&
				!slices.ContainsFunc(d.jobs, func(i int) bool { return p.held[i].Profile == "" })
			g, k = g+1, k+4
		}
	}
}

// assigned assigns the jobs that hold or are to get an instance to their GPUs, and returns the
// waiting jobs in order. Slots of the plan's own jobs do not count as taken by others.
func (p *misoPlan) assigned() (line []int) {
	at := make(map[[2]int32]int, len(p.gpus)) // looked up only
	for g := range p.gpus {
		at[[2]int32{p.gpus[g].Node, int32(p.gpus[g].GPU)}] = g
	}
	for i, j := range p.jobs {
		p.targets[i] = sched.Target{Rank: -j.Spec().Priority}
		s, held := j.Slice()
		if t := j.Target(); !held && t != nil && t.Slice != nil && (!j.Running() || j.Stops()) {
			s = *t.Slice
		}
		g, known := at[[2]int32{s.Node, int32(s.GPU)}]
		switch {
		case s.Profile != "" && known && j.Divides():
			d := &p.gpus[g]
			d.jobs = append(d.jobs, i)
			if profile, ok := d.Model.Profile(s.Profile); held && ok {
				p.held[i] = s
				d.Slots &^= profile.Mask(s.Start)
				d.Compute -= profile.Compute
			}
		case held:
			slice := s                  // s changes in the next iteration
			p.targets[i].Slice = &slice // its GPU takes no new jobs
		case (!j.Running() || j.Stops()) && j.Spec().GPUs() > 0:
			line = append(line, i)
		}
	}
	slices.SortFunc(line, func(a, b int) int {
		x, y := p.jobs[a].Spec(), p.jobs[b].Spec()
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.Submit, y.Submit), cmp.Compare(x.ID, y.ID))
	})
	return line
}

// suits reports whether a job can run on a GPU that can be divided.
func (p *misoPlan) suits(i int) bool {
	return slices.ContainsFunc(p.gpus, func(g misoGPU) bool { return p.jobs[i].Suits(g.Node) })
}

// starting returns a job that is not put on instances, and the number of idle GPUs if it can start
// in this step: they suffice, or it asks for parts of GPUs; else -1.
func (p *misoPlan) starting(i int) [2]int64 {
	j, idle := p.jobs[i], 0
	for g := range p.gpus {
		if d := &p.gpus[g]; !d.Busy && p.load(g) == 0 && j.Suits(d.Node) {
			idle++
		}
	}
	if r := &j.Spec().Tasks[0].Request; !r.Fractional() && r.Profile == "" && idle < j.Spec().GPUs() {
		idle = -1
	}
	return [2]int64{int64(j.Spec().ID), int64(idle)}
}

// around lists the ways to divide a GPU around the instances of others. Of the profiles with equal
// compute slices, only the one with the least memory and without media engines counts. Fixed
// instances stay as they are.
func (p *misoPlan) around(g *misoGPU) (list [][]misoPart) {
	all := [][]misoPart{nil}
	if g.Fixed != nil {
		for _, in := range g.Fixed {
			if profile, ok := g.Model.Profile(in.Profile); ok {
				all[0] = append(all[0], misoPart{profile, in.Start})
			}
		}
	} else if all = p.layouts[g.Model.Name]; all == nil {
		all = misoLayouts(g.Model)
		p.layouts[g.Model.Name] = all
	}
	if g.Slots == 0 {
		return all
	}
	for _, layout := range all {
		var left []misoPart
		compute := g.Compute
		for _, part := range layout {
			if part.profile.Mask(part.start)&g.Slots == 0 && compute+part.profile.Compute <= g.Model.Compute {
				left = append(left, part)
				compute += part.profile.Compute
			}
		}
		list = append(list, left)
	}
	return list
}

func misoLayouts(m *cluster.GPUModel) (list [][]misoPart) {
	for _, layout := range m.FullLayouts(m.Sizes()) {
		var parts []misoPart
		for _, in := range layout {
			profile, _ := m.Profile(in.Profile)
			parts = append(parts, misoPart{profile, in.Start})
		}
		list = append(list, parts)
	}
	return list
}

// value is the work that a job does on an instance within the horizon, in ppm of that on the whole
// GPU; 0: it cannot run there.
func (p *misoPlan) value(i int, g *misoGPU, part misoPart) int64 {
	j := p.jobs[i]
	if part.profile.Memory < j.Spec().Tasks[0].Request.Memory {
		return 0
	}
	speed := p.v.SpeedOn(j, g.Model, part.profile)
	v := speed * 1_000_000 / max(1, p.v.Speed(j, g.Model.Name, 1))
	switch h := &p.held[i]; {
	case h.Profile == "":
		if !inTime(j, speed) {
			return 0
		}
	case *h == (sched.Slice{Node: g.Node, GPU: g.GPU, Profile: part.profile.Name, Start: part.start}):
		v++ // prefer the present instance among equals
	default:
		if j.Loses() || !inTime(j, speed) {
			return 0
		}
		c := &j.Spec().Checkpoint
		v = v / 1000 * int64(max(0, p.horizon-c.Cost-c.Restart)*1000/p.horizon)
	}
	return max(1, v)
}

// inTime reports whether a job that starts on an instance with that speed (ppm) ends within its
// time limit. A job of unknown length is assumed to need its whole limit.
func inTime(j sched.JobView, speed int64) bool {
	s := j.Spec()
	if s.Limit == 0 || speed >= 1_000_000 {
		return true
	}
	left := s.Limit
	if s.Estimate > 0 {
		left = j.Remaining()
	}
	// An eighth is for checkpoints and starts.
	return int64(left)+int64(left)/8 <= int64(s.Limit-s.Checkpoint.Restart)/1000*speed/1000
}

// best assigns instances of a GPU to jobs so that the sum of their values is largest; the first of
// equal ways. 0: they do not all fit.
func (p *misoPlan) best(g *misoGPU, jobs []int) (total int64, parts []misoPart) {
	if k := len(jobs); k == 0 || k > mostDivided {
		return 0, nil
	}
	for _, layout := range g.layouts {
		if len(layout) < len(jobs) {
			continue
		}
		if sum, with := p.assign(g, jobs, layout); sum > total {
			total, parts = sum, with
		}
	}
	return total, parts
}

// now is the best division of a GPU among its present jobs.
func (p *misoPlan) now(g *misoGPU) (total int64, parts []misoPart) {
	if !g.solved {
		g.total, g.parts = p.best(g, g.jobs)
		g.solved = true
	}
	return g.total, g.parts
}

// assign is the best assignment of jobs to the instances of one layout.
func (p *misoPlan) assign(g *misoGPU, jobs []int, layout []misoPart) (total int64, parts []misoPart) {
	values := make([][]int64, len(layout))
	for n, part := range layout {
		for _, i := range jobs {
			values[n] = append(values[n], p.value(i, g, part))
		}
	}
	total, at := assignParts(values, len(jobs))
	for _, n := range at {
		parts = append(parts, layout[n])
	}
	return total, parts
}

// assignParts assigns each of up to seven jobs an instance of its own so that the sum of
// values[instance][job] is largest; value 0: the job cannot run there. It goes through the
// instances and keeps the best sum for each set of jobs.
func assignParts(values [][]int64, jobs int) (total int64, at []int) {
	var sums [1 << mostDivided]int64
	// By instance and set of jobs: 1 + job on the instance in the best assignment.
	took := make([][1 << mostDivided]int8, len(values))
	all := 1<<jobs - 1
	for n := range values {
		for s := all; s > 0; s-- { // descending: smaller sets do not include this instance yet
			for m := s; m != 0; m &= m - 1 {
				b := bits.TrailingZeros(uint(m))
				rest := s &^ (1 << b)
				if v := values[n][b]; v > 0 && (rest == 0 || sums[rest] > 0) && sums[rest]+v > sums[s] {
					sums[s], took[n][s] = sums[rest]+v, int8(b)+1
				}
			}
		}
	}
	if total = sums[all]; total == 0 {
		return 0, nil
	}
	at = make([]int, jobs)
	for n, s := len(values)-1, all; n >= 0; n-- {
		if b := int(took[n][s]) - 1; b >= 0 {
			at[b], s = n, s&^(1<<b)
		}
	}
	return total, at
}

// bestGPU is where a waiting job adds most value: an idle GPU if there is one, else one of the GPUs
// with the fewest jobs; -1: nowhere.
func (p *misoPlan) bestGPU(i int) int {
	var list []int
	r := &p.jobs[i].Spec().Tasks[0].Request
	for g := range p.gpus {
		d := &p.gpus[g]
		if d.Busy || !p.jobs[i].Suits(d.Node) || len(d.jobs) >= mostDivided {
			continue
		}
		if cpu, ram := p.host(d.Node); cpu >= r.CPU && ram >= r.RAM {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(p.load(a), p.load(b)) })
	found, most, looked := -1, int64(0), 0
	for _, g := range list {
		d := &p.gpus[g]
		with, _ := p.best(d, append(slices.Clone(d.jobs), i))
		if with == 0 {
			continue
		}
		alone, _ := p.now(d)
		if found < 0 || with-alone > most {
			found, most = g, with-alone
		}
		if looked++; looked == mostLooked || p.load(g) == 0 {
			break
		}
	}
	return found
}

// load is the number of jobs on a GPU; all jobs outside the plan count as one.
func (p *misoPlan) load(g int) int {
	n := len(p.gpus[g].jobs)
	if p.gpus[g].Slots != 0 {
		n++
	}
	return n
}

// host is the CPU and RAM of a node that is free and not yet given away by this plan.
func (p *misoPlan) host(node int32) (cluster.Milli, cluster.MiB) {
	if _, known := p.cpu[node]; !known {
		p.cpu[node], p.ram[node] = p.v.Host(node)
	}
	return p.cpu[node], p.ram[node]
}

// put assigns a job to a GPU.
func (p *misoPlan) put(i, g int) {
	d := &p.gpus[g]
	d.jobs, d.same, d.solved = append(d.jobs, i), false, false
	p.host(d.Node)
	r := &p.jobs[i].Spec().Tasks[0].Request
	p.cpu[d.Node] -= r.CPU
	p.ram[d.Node] -= r.RAM
}

// spread moves jobs to GPUs that would be idle while no job waits, as long as that increases the
// total value.
func (p *misoPlan) spread() {
	for to := range p.gpus {
		d := &p.gpus[to]
		if d.Busy || p.load(to) > 0 {
			continue
		}
		from, which, most := -1, 0, int64(0)
		looked := 0
		for g := range p.gpus {
			o := &p.gpus[g]
			if len(o.jobs) < 2 || looked >= mostLooked {
				continue
			}
			looked++
			now, _ := p.now(o)
			for k, i := range o.jobs {
				r := &p.jobs[i].Spec().Tasks[0].Request
				if cpu, ram := p.host(d.Node); p.held[i].Profile == "" || !p.jobs[i].Suits(d.Node) || cpu < r.CPU ||
					ram < r.RAM {
					continue
				}
				there, _ := p.best(d, []int{i})
				here, _ := p.best(o, slices.Delete(slices.Clone(o.jobs), k, k+1))
				if there > 0 && here > 0 && there+here-now > most {
					from, which, most = g, k, there+here-now
				}
			}
		}
		if from < 0 {
			return
		}
		o := &p.gpus[from]
		i := o.jobs[which]
		o.jobs, o.same, o.solved = slices.Delete(o.jobs, which, which+1), false, false
		p.put(i, to)
	}
}

// aim makes the targets of a GPU's jobs. On unchanged GPUs jobs keep their instances. If the jobs
// no longer fit together, those with an instance keep it and the others wait.
func (p *misoPlan) aim(g *misoGPU) {
	var total int64
	var parts []misoPart
	if !g.same {
		total, parts = p.now(g)
	}
	for k, i := range g.jobs {
		switch h := p.held[i]; {
		case total > 0:
			p.targets[i].Slice = &sched.Slice{Node: g.Node, GPU: g.GPU, Profile: parts[k].profile.Name,
				Start: parts[k].start}
		case h.Profile != "":
			p.targets[i].Slice = &h
		default:
			p.targets[i].Idle = true
		}
	}
}
