package serving

import (
	"cmp"
	"slices"
	"time"
)

// portion is a part of a GPU.
type portion struct {
	gpu, size int // size: an index of sizes
	free      bool
	Gpulet
	busy   float64 // occupancy
	little float64 // occupancy with the best batch of each of its services
}

// layer lays out pieces on GPUs.
type layer struct {
	*carrier
	portions []portion
	gpus     int
	first    bool   // whether turns are tried before free room
	divided  []bool // by service: it has several gpulets
	used     []int  // the portions in use, the busiest first
}

// mostTried bounds in how many gpulets turns are tried.
const mostTried = 64

// lay lays out pieces, the largest first, on GPUs of which a number exists from the start: on the smallest free
// part that is large enough, else a part of a free GPU; else as much as a smaller free part carries; else as a
// turn in an existing gpulet; else on one more GPU.
func (c *carrier) lay(list []piece, gpus int, first bool) *layer {
	l := &layer{carrier: c, first: first, divided: make([]bool, len(c.services))}
	for range gpus {
		l.open()
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].full {
			l.divided[list[i].service] = true // even if it is the only one: there may be a remainder
		}
	}
	for i := range list {
		if !list[i].full {
			list[i].size = l.smallest(&list[i])
		}
	}
	slices.SortStableFunc(list, func(a, b piece) int { return cmp.Compare(b.size, a.size) })
	for i := range list {
		l.carry(list[i])
	}
	l.widen()
	return l
}

func (l *layer) open() {
	l.portions = append(l.portions, portion{gpu: l.gpus, size: len(l.sizes) - 1, free: true})
	l.gpus++
}

// carry finds room for a piece, in parts if necessary.
func (l *layer) carry(p piece) {
	for p.rate > 1e-9 {
		if l.first && !p.full && l.share(&p) || l.bestFit(&p) {
			return
		}
		if l.readjust(&p) {
			continue
		}
		if l.share(&p) {
			return
		}
		l.open() // where its size fits
	}
}

// smallest is the smallest size that carries a piece.
func (l *layer) smallest(p *piece) int {
	for z := range l.sizes {
		if _, ok := l.alone(p, z); ok {
			return z
		}
	}
	return len(l.sizes) - 1
}

// alone is a gpulet of a size with only this piece.
func (l *layer) alone(p *piece, z int) (Gpulet, bool) {
	if b := l.most[p.service][z]; p.full && p.size == z {
		d := l.takes[p.service][z][b-1]
		return Gpulet{Duty: d, Turns: []Turn{{Service: p.service, Rate: p.rate, Batch: b, Takes: d}}}, true
	}
	return l.fit([]Turn{{Service: p.service, Rate: p.rate}}, z, 0)
}

// bestFit puts a piece into the smallest free portion in which it fits; a whole GPU is divided for it.
func (l *layer) bestFit(p *piece) bool {
	best, whole := -1, len(l.sizes)-1
	var gpulet Gpulet
	for r := range l.portions {
		at := &l.portions[r]
		if !at.free || at.size < p.size || best >= 0 && at.size >= l.portions[best].size {
			continue
		}
		z := at.size
		if z == whole {
			z = p.size
		}
		if g, ok := l.alone(p, z); ok {
			best, gpulet = r, g
		}
	}
	if best < 0 {
		return false
	}
	if at := &l.portions[best]; at.size == whole && p.size < whole {
		rest, _ := slices.BinarySearch(l.sizes, 100-l.sizes[p.size])
		at.size = p.size
		l.portions = append(l.portions, portion{gpu: at.gpu, size: rest, free: true})
	}
	l.put(best, gpulet)
	return true
}

// put makes a portion a gpulet.
func (l *layer) put(r int, g Gpulet) {
	at := &l.portions[r]
	g.GPU, g.Percent, g.Slower = at.gpu, l.sizes[at.size], 1
	at.free, at.Gpulet = false, g
	if i := slices.Index(l.used, r); i >= 0 {
		l.used = slices.Delete(l.used, i, i+1)
	}
	at.busy, at.little = at.Busy(), 0
	for i := range at.Turns {
		at.little += at.Turns[i].Rate / l.full[at.Turns[i].Service][at.size]
	}
	i, _ := slices.BinarySearchFunc(l.used, r, func(o, r int) int {
		return cmp.Or(cmp.Compare(l.portions[r].busy, l.portions[o].busy), cmp.Compare(o, r))
	})
	l.used = slices.Insert(l.used, i, r)
}

// readjust lets the largest free portion carry as much of a piece as it can.
func (l *layer) readjust(p *piece) bool {
	best := -1
	for r := range l.portions {
		if l.portions[r].free && (best < 0 || l.portions[r].size > l.portions[best].size) {
			best = r
		}
	}
	if best < 0 {
		return false
	}
	z := l.portions[best].size
	part := piece{p.service, l.full[p.service][z], z, true}
	if part.rate == 0 || part.rate >= p.rate {
		return false // it would carry the whole piece, but not in time
	}
	l.divided[p.service] = true
	g, _ := l.alone(&part, z)
	l.put(best, g)
	p.rate, p.full = p.rate-part.rate, false
	p.size = l.smallest(p)
	return true
}

// share gives a piece a turn in an existing gpulet: the busiest in which it fits.
func (l *layer) share(p *piece) bool {
	tried := 0
	for _, r := range l.used {
		at := &l.portions[r]
		if full := l.full[p.service][at.size]; full == 0 || at.little+p.rate/full > 1+1e-9 {
			continue
		}
		if tried++; tried > mostTried {
			break
		}
		turns := slices.Clone(at.Turns)
		if i := slices.IndexFunc(turns, func(t Turn) bool { return t.Service == p.service }); i >= 0 {
			turns[i].Rate += p.rate
		} else {
			turns = append(turns, Turn{Service: p.service, Rate: p.rate})
		}
		if g, ok := l.fit(turns, at.size, at.Duty); ok {
			l.put(r, g)
			return true
		}
	}
	return false
}

// fit is a gpulet of a size in which the given services take turns, the last of which is new: with the longest
// cycle that is found in which all are computed and none is late. most bounds the cycle; 0: no bound.
func (l *layer) fit(turns []Turn, z int, most time.Duration) (g Gpulet, ok bool) {
	g.Turns = turns
	longest := most
	for i := range turns {
		k := turns[i].Service
		if len(l.takes[k][z]) == 0 {
			return g, false
		}
		if d := l.duty(k, l.takes[k][z][0]); longest == 0 || d < longest {
			longest = d
		}
	}
	if longest <= 0 {
		return g, false
	}
	if len(turns) > 1 || most > 0 {
		return g, l.walk(&g, z, longest)
	}
	// Alone, the cycle is as long as it takes to fill a batch (gpulet); where not even one request arrives in
	// time it is as long as allowed.
	k, each := turns[0].Service, float64(time.Second)/turns[0].Rate
	if each > float64(longest) {
		return g, l.walk(&g, z, longest)
	}
	for b := min(len(l.takes[k][z]), int(float64(longest)/each)); b > 0; b-- {
		if l.try(&g, z, time.Duration(float64(b)*each)) {
			return g, true
		}
	}
	return g, l.walk(&g, z, longest)
}

// walk finds the longest cycle, up to a bound, in which all promises hold, from one set of batches to the next
// that is smaller by one in one of them.
func (l *layer) walk(g *Gpulet, z int, duty time.Duration) bool {
	for duty > 0 {
		least, most, next, busy := time.Duration(0), duty, 0.0, 0.0
		for i := range g.Turns {
			t := &g.Turns[i]
			curve, each := l.takes[t.Service][z], float64(time.Second)/t.Rate
			b := min(batch(t.Rate, duty), len(curve))
			least += curve[b-1]
			most = min(most, l.duty(t.Service, curve[b-1]), time.Duration(float64(b)*each))
			next = max(next, float64(b-1)*each)
			busy += l.each[t.Service][z][b-1] / each
		}
		if least <= most && l.try(g, z, most) {
			return true
		}
		if busy > 1+1e-9 {
			return false // smaller batches leave no time for all either
		}
		duty = min(duty-1, time.Duration(next))
	}
	return false
}

// batch is the greatest number of requests that arrive in a cycle.
func batch(rate float64, duty time.Duration) int {
	return max(1, int(rate*1e-9*float64(duty)+1-1e-6))
}

// duty is the longest cycle in which a service can have batches that take this long: a request waits for at most
// a cycle and is computed in the next. A service's gpulets share one line, so a request that waited for the
// longest cycle may get the longest batch. Not above 0: there is none.
func (l *layer) duty(k int, takes time.Duration) time.Duration {
	if !l.divided[k] {
		return l.services[k].Latency - takes
	}
	if takes > l.longest[k] {
		return 0
	}
	return l.services[k].Latency - l.longest[k]
}

// try sets a gpulet's cycle, and reports whether all promises hold with it.
func (l *layer) try(g *Gpulet, z int, duty time.Duration) bool {
	left := duty
	for i := range g.Turns {
		t := &g.Turns[i]
		b := batch(t.Rate, duty)
		if b > len(l.takes[t.Service][z]) {
			return false
		}
		takes := l.takes[t.Service][z][b-1]
		if left -= takes; left < 0 || duty > l.duty(t.Service, takes) {
			return false
		}
		t.Batch, t.Takes = b, takes
	}
	g.Duty = duty
	return true
}

// widen gives the only gpulet of a GPU the whole GPU, where that does not slow it down.
func (l *layer) widen() {
	whole := len(l.sizes) - 1
	used := make([]int, l.gpus)
	for r := range l.portions {
		if !l.portions[r].free {
			used[l.portions[r].gpu]++
		}
	}
	for r := range l.portions {
		at := &l.portions[r]
		if at.free || used[at.gpu] > 1 || at.size == whole {
			continue
		}
		if g, ok := l.fit(slices.Clone(at.Turns), whole, at.Duty); ok {
			at.size = whole
			l.put(r, g)
		}
	}
}

// plan is the finished layout, on the GPUs in use.
func (l *layer) plan(ignored []float64) *SharePlan {
	p := &SharePlan{Capacity: make([]float64, len(l.services)), Ignored: ignored}
	var list []int
	sum := make([]int, l.gpus) // per cent in use
	for r := range l.portions {
		if !l.portions[r].free {
			list = append(list, r)
			sum[l.portions[r].gpu] += l.sizes[l.portions[r].size]
		}
	}
	// Full GPUs first: starting the gpulets in this order on the smallest room that suffices puts those together
	// that are together here.
	slices.SortStableFunc(list, func(a, b int) int {
		g, h := &l.portions[a], &l.portions[b]
		return cmp.Or(cmp.Compare(sum[h.gpu], sum[g.gpu]), cmp.Compare(g.gpu, h.gpu), cmp.Compare(h.size, g.size))
	})
	last := -1
	for _, r := range list {
		at := &l.portions[r]
		if at.gpu != last {
			last = at.gpu
			p.GPUs++
		}
		g := at.Gpulet
		g.GPU, g.Turns = p.GPUs-1, slices.Clone(g.Turns)
		for i := range g.Turns { // without interference
			t := &g.Turns[i]
			t.curve = l.solo[t.Service][at.size][:t.Batch]
			t.Takes = t.curve[t.Batch-1]
		}
		p.Gpulets = append(p.Gpulets, g)
	}
	p.count()
	return p
}

// count sums up the capacities.
func (p *SharePlan) count() {
	clear(p.Capacity)
	for i := range p.Gpulets {
		g := &p.Gpulets[i]
		for t := range g.Turns {
			p.Capacity[g.Turns[t].Service] += g.Capacity(&g.Turns[t])
		}
	}
}
