package learn

import (
	"cmp"
	"slices"
)

// Job is a job of a world in which an agent learns.
type Job struct {
	Tasks, Each int32
	Submit, Run float64    // in seconds; Run is the run time on one node
	Loss        [2]float64 // as Gang.Loss
	Unknown     bool       // its run time is unknown
}

// World is a simple model of a cluster: jobs arrive, start and end, and are slower where their tasks are far
// apart. Its rules for what Sched2 does are those of the simulator (a test compares them).
type World struct {
	Rooms []Room
	Jobs  []Job   // by time of submission
	Check float64 // decide again this long after a start; 0: only at the next event
}

// Trim removes jobs that can never run, because they do not fit the empty nodes.
func (w *World) Trim() {
	f := Floor{Rooms: slices.Clone(w.Rooms)}
	f.Begin()
	w.Jobs = slices.DeleteFunc(w.Jobs, func(j Job) bool {
		return !f.fits(&Gang{Tasks: j.Tasks, Each: j.Each, Classes: AllClasses}).ok[Anywhere]
	})
}

// Outcome is the result of a play.
type Outcome struct {
	Start, End []float64
	area       []float64 // number of jobs integrated over time, until times[i]
	times      []float64
}

// MeanJCT is the mean time from submission to end, in seconds.
func (o *Outcome) MeanJCT(jobs []Job) float64 {
	sum := 0.0
	for i := range jobs {
		sum += o.End[i] - jobs[i].Submit
	}
	return sum / max(float64(len(jobs)), 1)
}

// until is the number of jobs integrated over time up to t (job-seconds).
func (o *Outcome) until(t float64) float64 {
	i, _ := slices.BinarySearch(o.times, t)
	switch {
	case len(o.times) == 0 || i == 0:
		return 0
	case i == len(o.times):
		return o.area[i-1]
	}
	part := (t - o.times[i-1]) / (o.times[i] - o.times[i-1])
	return o.area[i-1] + float64(part*(o.area[i]-o.area[i-1]))
}

// Decider takes the decisions of a world.
type Decider interface {
	// Next takes one decision at a moment, as Sched2.Next.
	Next(m *Moment) (p Pick, ok bool)
}

// alike identifies jobs of which the shorter one always goes first.
type alike struct{ tasks, each int32 }

type pool struct {
	alike
	jobs []int // the shortest first, then by arrival
}

// play is a running play of a world.
type play struct {
	*World
	m       Moment
	now     float64
	waiting []pool
	running []runs
	order   []int // pools by the arrival of their first jobs
	from    []int // by slot: the pool
	out     Outcome
	in      int // number of jobs present
	next    int // the next job to arrive
}

type runs struct {
	job   int
	end   float64
	nodes []int32
}

// Play lets a decider decide until all jobs are done. It panics if that never happens: a decider must not wait
// while nothing runs, which Moment's mask ensures.
func (w *World) Play(d Decider, each func(now, area float64)) Outcome {
	p := &play{World: w}
	p.out.Start, p.out.End = make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs))
	p.m.Rooms = append([]Room(nil), w.Rooms...)
	for wake := -1.0; ; {
		at, any := p.soonest(wake)
		if !any {
			if p.in > 0 {
				panic("learn: jobs wait, and nothing will ever happen")
			}
			return p.out
		}
		p.advance(at)
		wake = -1
		if each != nil {
			each(at, p.out.area[len(p.out.area)-1])
		}
		if p.round(d) && w.Check > 0 && p.m.Waiting > 0 {
			wake = at + w.Check
		}
	}
}

// soonest is the time of the next event.
func (p *play) soonest(wake float64) (at float64, any bool) {
	note := func(t float64) {
		if !any || t < at {
			at, any = t, true
		}
	}
	if p.next < len(p.Jobs) {
		note(p.Jobs[p.next].Submit)
	}
	for i := range p.running {
		note(p.running[i].end)
	}
	if wake >= 0 {
		note(wake)
	}
	return at, any
}

// advance lets time pass, and jobs end and arrive.
func (p *play) advance(at float64) {
	last, sum := p.now, 0.0
	if n := len(p.out.area); n > 0 {
		sum = p.out.area[n-1]
	}
	p.out.times, p.out.area = append(p.out.times, at), append(p.out.area, sum+float64(float64(p.in)*(at-last)))
	p.now = at
	p.running = slices.DeleteFunc(p.running, func(r runs) bool {
		if r.end > at {
			return false
		}
		for _, n := range r.nodes {
			p.m.Rooms[n].Free += p.Jobs[r.job].Each
		}
		p.out.End[r.job] = r.end
		p.in--
		return true
	})
	for ; p.next < len(p.Jobs) && p.Jobs[p.next].Submit <= at; p.next++ {
		p.join(p.next)
		p.in++
	}
}

// join puts a job in its pool.
func (p *play) join(id int) {
	j := &p.Jobs[id]
	like := alike{j.Tasks, j.Each}
	k := slices.IndexFunc(p.waiting, func(l pool) bool { return l.alike == like })
	if k < 0 {
		k = len(p.waiting)
		p.waiting = append(p.waiting, pool{alike: like})
	}
	at, _ := slices.BinarySearchFunc(p.waiting[k].jobs, id, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.believed(a), p.believed(b)), cmp.Compare(p.Jobs[a].Submit, p.Jobs[b].Submit),
			cmp.Compare(a, b))
	})
	p.waiting[k].jobs = slices.Insert(p.waiting[k].jobs, at, id)
}

func (p *play) believed(id int) float64 {
	if p.Jobs[id].Unknown {
		return 0
	}
	return p.Jobs[id].Run
}

// round lets the decider decide until it waits or nothing fits, and reports whether it
// started anything.
func (p *play) round(d Decider) (started bool) {
	m := &p.m
	m.Running, m.Width = m.Running[:0], m.Width[:0]
	for i := range p.running {
		r := &p.running[i]
		left := r.end - p.now
		if p.Jobs[r.job].Unknown {
			left = -1
		}
		m.Running, m.Width = append(m.Running, left), append(m.Width, p.Jobs[r.job].Tasks*p.Jobs[r.job].Each)
	}
	m.Begin()
	p.order = p.order[:0]
	for k := range p.waiting {
		if len(p.waiting[k].jobs) > 0 {
			p.order = append(p.order, k)
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { // jobs arrive in order of their numbers
		return cmp.Compare(p.waiting[a].jobs[0], p.waiting[b].jobs[0])
	})
	for {
		p.line()
		pick, ok := d.Next(m)
		if !ok || pick.Wait {
			return started
		}
		started = true
		p.start(pick)
	}
}

// line fills the moment's line with the heads of the pools.
func (p *play) line() {
	m := &p.m
	m.Line, m.Waiting, p.from = m.Line[:0], 0, p.from[:0]
	for _, k := range p.order {
		l := &p.waiting[k]
		if len(l.jobs) == 0 {
			continue
		}
		m.Waiting += len(l.jobs)
		j := &p.Jobs[l.jobs[0]]
		m.Line = append(m.Line,
			Gang{Tasks: j.Tasks, Each: j.Each, Classes: AllClasses, Length: p.believed(l.jobs[0]),
				Age: p.now - j.Submit, Loss: j.Loss, Behind: len(l.jobs) - 1})
		p.from = append(p.from, k)
	}
	m.Shorten(func(i, k int) { p.from[i] = p.from[k] })
}

// start starts the job of the slot that was picked; its room is already taken in the moment.
func (p *play) start(pick Pick) {
	l := &p.waiting[p.from[pick.Slot]]
	id := l.jobs[0]
	l.jobs = l.jobs[1:]
	j := &p.Jobs[id]
	nodes := slices.Clone(p.m.taken)
	p.out.Start[id] = p.now
	p.running = append(p.running, runs{id, p.now + j.Run/p.m.speed(nodes, j.Loss), nodes})
}

// speed is a gang's speed on some nodes, relative to one node.
func (f *Floor) speed(nodes []int32, loss [2]float64) float64 {
	apart, racks := false, false
	for _, n := range nodes {
		apart = apart || n != nodes[0]
		racks = racks || f.Rooms[n].Rack != f.Rooms[nodes[0]].Rack
	}
	switch {
	case racks:
		return 1 - loss[1]
	case apart:
		return 1 - loss[0]
	}
	return 1
}

// Shorten keeps the Slots jobs of the line that matter most: those that fit, and of these the ones with the
// least service. move reports that slot k has become slot i.
func (m *Moment) Shorten(move func(i, k int)) {
	if len(m.Line) <= Slots {
		return
	}
	type place struct {
		at      int
		fits    bool
		service float64
	}
	list := make([]place, len(m.Line))
	for i := range m.Line {
		g := &m.Line[i]
		list[i] = place{i, m.room(g), float64(g.Length * float64(g.gpus()))}
	}
	slices.SortStableFunc(list, func(a, b place) int {
		if a.fits != b.fits {
			return int(one(b.fits)) - int(one(a.fits))
		}
		return cmp.Compare(a.service, b.service)
	})
	list = list[:Slots]
	slices.SortFunc(list, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	for i, p := range list {
		m.Line[i] = m.Line[p.at]
		move(i, p.at)
	}
	m.Line = m.Line[:Slots]
}
