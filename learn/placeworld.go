package learn

import "slices"

// PlaceWorld is a world in which placing is learned: jobs arrive, wait in order of arrival (a job that does not
// fit is passed over), are placed worker by worker, and slow one another down where they share links.
type PlaceWorld struct {
	World
	Its []Iteration // by job: Compute, Each and Size
}

// Communicating gives the jobs of a world models of all sizes. heavy is the greatest ratio of communication time
// between racks to computing time.
func (w *World) Communicating(r *Rand, heavy float64) *PlaceWorld {
	p := &PlaceWorld{World: *w}
	for i := range w.Jobs {
		it := Iteration{Compute: 0.1 + r.Float(), Each: float64(0.05 * r.Float()),
			GPUs: float64(w.Jobs[i].Tasks * w.Jobs[i].Each)}
		if it.GPUs > 1 {
			it.Size = float64(heavy*r.Float()) * it.Compute * linkAny / (2 * (it.GPUs - 1) / it.GPUs)
		}
		p.Its = append(p.Its, it)
	}
	return p
}

// placed is a running job, with the nodes of its workers.
type placed struct {
	job   int
	nodes []int32
	left  float64 // of its work, in seconds at its best speed
	speed float64
	time  float64 // of an iteration
}

// Chooser puts a gang's workers on nodes; done is called when all are placed, with the features of an iteration,
// its time now and at best, and the relative slowdown of other jobs together.
type Chooser interface {
	Next(spots []Spot, w *Worker) int
	done(in []float64, seconds, best, others float64)
}

func (p *Placing) done([]float64, float64, float64, float64) {}

// PackRule places like best fit: all remaining workers on the fullest node that holds them, else as many as fit
// on the node that holds the most.
type PackRule struct{}

// Next implements Chooser.
func (PackRule) Next(spots []Spot, w *Worker) int {
	best, most := -1, int32(0)
	for i := range spots {
		s := &spots[i]
		if n := min(s.Room, w.Tasks-w.Placed); n > most || n > 0 && n == most && s.Free < spots[best].Free {
			best, most = i, n
		}
	}
	return best
}

func (PackRule) done([]float64, float64, float64, float64) {}

// placePlay is a running play of a world of placing.
type placePlay struct {
	*PlaceWorld
	rooms   []Room
	running []placed
	queue   []int
	crowd   []int32 // by node: gangs on several nodes that use it
	jobs    []int32 // by node
	now     float64
	out     Outcome
}

// Play lets a chooser place all jobs.
func (w *PlaceWorld) Play(c Chooser) Outcome {
	p := &placePlay{PlaceWorld: w, rooms: slices.Clone(w.Rooms), crowd: make([]int32, len(w.Rooms)),
		jobs: make([]int32, len(w.Rooms))}
	p.out.Start, p.out.End = make([]float64, len(w.Jobs)), make([]float64, len(w.Jobs))
	for next := 0; next < len(w.Jobs) || len(p.running) > 0; {
		at := -1.0
		if next < len(w.Jobs) {
			at = w.Jobs[next].Submit
		}
		for i := range p.running {
			if end := p.now + p.running[i].left/p.running[i].speed; at < 0 || end < at {
				at = end
			}
		}
		p.advance(at)
		for ; next < len(w.Jobs) && w.Jobs[next].Submit <= at; next++ {
			p.queue = append(p.queue, next)
		}
		p.queue = slices.DeleteFunc(p.queue, func(id int) bool { return p.start(id, c) })
		p.paces()
	}
	return p.out
}

// advance lets time pass and jobs end.
func (p *placePlay) advance(at float64) {
	for i := range p.running {
		p.running[i].left -= float64(p.running[i].speed * (at - p.now))
	}
	p.now = at
	p.running = slices.DeleteFunc(p.running, func(r placed) bool {
		if r.left > float64(1e-6*p.Jobs[r.job].Run) {
			return false
		}
		p.out.End[r.job] = at
		p.hold(&r, -1)
		return true
	})
}

// hold takes what a job needs of its nodes, or returns it.
func (p *placePlay) hold(r *placed, sign int32) {
	apart := spread(r.nodes)
	for i, n := range r.nodes {
		p.rooms[n].Free -= sign * p.Jobs[r.job].Each
		if slices.Contains(r.nodes[:i], n) {
			continue
		}
		p.jobs[n] += sign
		if apart {
			p.crowd[n] += sign
		}
	}
}

func spread(nodes []int32) bool {
	return slices.ContainsFunc(nodes, func(n int32) bool { return n != nodes[0] })
}

// iteration is the iteration of a job on nodes in the present state.
func (p *placePlay) iteration(job int, nodes []int32) (it Iteration, features []float64) {
	it = p.Its[job]
	it.Bandwidth, it.Share = linkNode, 1
	apart, racks, most := spread(nodes), false, int32(1)
	for _, n := range nodes {
		racks = racks || p.rooms[n].Rack != p.rooms[nodes[0]].Rack
		most = max(most, p.crowd[n])
		it.Colo = max(it.Colo, float64(p.jobs[n]-1))
	}
	if apart {
		it.Share, it.Bandwidth = 1/float64(most), linkRack
		if racks {
			it.Bandwidth = linkAny
		}
	}
	return it, it.features(one(apart), one(racks))
}

// best is the shortest possible time of a job's iteration.
func (p *placePlay) best(job int) float64 {
	it := p.Its[job]
	it.Bandwidth, it.Share = linkNode, 1
	if it.GPUs > float64(p.rooms[0].GPUs) {
		it.Bandwidth = linkRack
	}
	return it.Seconds()
}

// paces computes the present speed of every job.
func (p *placePlay) paces() {
	for i := range p.running {
		r := &p.running[i]
		it, _ := p.iteration(r.job, r.nodes)
		r.time = it.Seconds()
		r.speed = p.best(r.job) / r.time
	}
}

// start places a job, if there is room for it.
func (p *placePlay) start(id int, c Chooser) bool {
	j := &p.Jobs[id]
	room := int32(0)
	spots := make([]Spot, len(p.rooms))
	for i := range p.rooms {
		r := &p.rooms[i]
		spots[i] = Spot{GPUs: r.GPUs, Free: r.Free, Room: r.Free / j.Each, Crowd: p.crowd[i], Rack: r.Rack}
		room += spots[i].Room
	}
	if room < j.Tasks {
		return false
	}
	best := p.best(id)
	alone := func(bandwidth float64) float64 {
		it := p.Its[id]
		it.Share, it.Bandwidth = 1, bandwidth
		return 1 - best/max(it.Seconds(), best)
	}
	w := &Worker{Tasks: j.Tasks, Each: j.Each, Loss: [2]float64{alone(linkRack), alone(linkAny)}}
	r := placed{job: id, left: j.Run}
	for range j.Tasks {
		n := c.Next(spots, w)
		w.Bind(spots, n)
		r.nodes = append(r.nodes, int32(n))
	}
	p.hold(&r, 1)
	it, in := p.iteration(id, r.nodes)
	others := 0.0
	for i := range p.running {
		o := &p.running[i]
		if slices.ContainsFunc(o.nodes, func(n int32) bool { return slices.Contains(r.nodes, n) }) {
			then, _ := p.iteration(o.job, o.nodes)
			others += max(0, then.Seconds()/max(o.time, 1e-9)-1)
		}
	}
	p.running = append(p.running, r)
	p.paces()
	p.out.Start[id] = p.now
	c.done(in, it.Seconds(), best, others)
	return true
}

// apprentice places at random, and records its choices.
type apprentice struct {
	Placing
	pack    bool // it imitates PackRule
	random  *Rand
	model   *PerfModel
	bonus   float64 // reward per unit of the model's uncertainty
	choices []Choice
	drift   bool
}

// Next implements Chooser.
func (a *apprentice) Next(spots []Spot, w *Worker) int {
	a.scene.look(spots, w)
	a.agent.Judge(&a.scene.Scene, &a.look)
	row := 0
	if a.pack {
		node := int32(PackRule{}.Next(spots, w))
		for i, first := range a.scene.First { // the kind of the node
			if first <= node && same(&spots[first], &spots[node], w) {
				row = i
			}
		}
	} else {
		row = a.look.Draw(a.random)
	}
	a.choices = append(a.choices,
		Choice{Scene: a.scene.Scene.kept(), Row: row, LogProb: Log(max(a.look.Probs[row], 1e-12)),
			Worth: a.agent.Value(&a.look)})
	return int(a.scene.First[row])
}

// same reports whether the agent sees two nodes as equal.
func same(a, b *Spot, w *Worker) bool {
	x, y := *a, *b
	for _, s := range []*Spot{&x, &y} {
		s.Room, s.Crowd = min(s.Room, w.Tasks-w.Placed), min(s.Crowd, 4)
		if s.Rack = int32(one(s.Rack == w.Home)); w.Placed == 0 {
			s.Rack = 0
		}
	}
	return x == y
}

// done rewards the last choice by the prediction of the performance model, and trains the model on the
// measurement.
func (a *apprentice) done(in []float64, seconds, best, others float64) {
	predicted, unsure := seconds, 0.0
	if a.model != nil && len(a.model.seen) >= 200 {
		predicted, unsure = a.model.Predict(in)
	}
	last := &a.choices[len(a.choices)-1]
	last.Reward += within(1-predicted/best-others+float64(a.bonus*min(unsure, 1)), -5, 1)
	if a.model != nil {
		a.drift = a.model.Measure(in, float64(seconds*(1+float64(0.02*a.random.Norm())))) || a.drift
	}
}
