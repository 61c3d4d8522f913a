package solve

import (
	"math"
	"slices"

	"github.com/muster-gpu/muster/internal/heap"
)

// Choice is one of the things that somebody could have: so many GPUs of a kind, at
// a cost.
type Choice struct {
	Kind, GPUs int
	Cost       float64
}

// looks bounds how many choices are looked at while menus exchange theirs in the
// end: a hundred times each where there are few, ten times where there are fifty
// thousand.
const looks = 500_000

// Choose takes one choice of each menu, so that no more GPUs of a kind are taken
// than there are and the costs add up to little, and returns their places in the
// menus. The first choice of each menu takes no GPUs. Equal ones are chosen in the
// order of the menus.
//
// It is a multiple-choice knapsack, which is not solved exactly: a price per GPU of
// each kind is found at which all choices together fit, or nearly (with one kind, the
// relaxation's dual optimum); what is left over is given away by cost saved per GPU;
// and pairs exchange while that saves anything. The same is done from nothing, without
// prices; the better one counts. A test compares it with trying all.
func Choose(menus [][]Choice, capacity []int) []int { return new(Chooser).Choose(menus, capacity) }

// Choose is the function of that name, in memory that is used again: what it returns is
// good until the next call.
func (c *Chooser) Choose(menus [][]Choice, capacity []int) []int {
	c.begin(menus, capacity)
	if c.suffices() {
		return c.at
	}
	c.improve()
	if c.simple() {
		return c.at
	}
	c.greedy = append(c.greedy[:0], c.at...)
	cost := c.cost()
	c.bargain()
	for i := range menus {
		c.move(i, 0)
	}
	for i := range menus {
		c.move(i, c.cheapest(i, true))
	}
	c.improve()
	if c.cost() < cost+worth {
		return c.at
	}
	return c.greedy
}

// simple reports whether prices come to what is there without them: with one kind, and
// one thing on each menu, who would pay most for a GPU is first both ways.
func (c *Chooser) simple() bool {
	return len(c.capacity) == 1 && !slices.ContainsFunc(c.menus, func(m []Choice) bool { return len(m) > 2 })
}

// suffices gives everybody the best there is on the menu, if there is enough for that;
// else nothing.
func (c *Chooser) suffices() bool {
	for i := range c.menus {
		c.move(i, c.cheapest(i, false))
	}
	if len(c.left) == 0 || slices.Min(c.left) >= 0 {
		return true
	}
	clear(c.at)
	copy(c.left, c.capacity)
	return false
}

// improve gives away what is left, and has pairs exchange.
func (c *Chooser) improve() {
	c.fill()
	c.trade()
}

// trade has pairs exchange.
func (c *Chooser) trade() {
	choices := 0
	for _, m := range c.menus {
		choices += len(m)
	}
	for range min(looks/max(1, choices)+1, 100) {
		if !c.exchange() {
			break
		}
	}
}

// cost is what the choices cost together.
func (c *Chooser) cost() (sum float64) {
	for i := range c.menus {
		sum += c.now(i).Cost
	}
	return sum
}

// Chooser is the memory of Choose. The zero value is ready.
type Chooser struct {
	menus    [][]Choice
	capacity []int
	left     []int // of each kind
	at       []int
	price    []float64

	greedy []int
	unsure []bracket    // of bargain
	open   []wish       // of fill
	line   []Want       // of serve
	lose   [][][2]giver // of givers
	most   int          // GPUs of any choice
}

// begin has everybody have nothing.
func (c *Chooser) begin(menus [][]Choice, capacity []int) {
	c.menus, c.capacity = menus, capacity
	c.left = append(c.left[:0], capacity...)
	c.at = append(c.at[:0], make([]int, len(menus))...)
	c.price = append(c.price[:0], make([]float64, len(capacity))...)
	c.most = 0
	for _, m := range menus {
		for n := range m {
			c.most = max(c.most, m[n].GPUs)
		}
	}
}

func (c *Chooser) now(i int) *Choice { return &c.menus[i][c.at[i]] }

// move has menu i have another choice.
func (c *Chooser) move(i, to int) {
	old, x := c.now(i), &c.menus[i][to]
	c.left[old.Kind] += old.GPUs
	c.left[x.Kind] -= x.GPUs
	c.at[i] = to
}

// cheapest is what menu i would have at the present prices, or of what is left.
func (c *Chooser) cheapest(i int, fits bool) (best int) {
	least := math.Inf(1)
	for n := range c.menus[i] {
		x := &c.menus[i][n]
		if pay := x.Cost + c.price[x.Kind]*float64(x.GPUs); pay < least && (!fits || x.GPUs <= c.left[x.Kind]) {
			best, least = n, pay
		}
	}
	return best
}

// used is how many GPUs of a kind would be taken at the present prices.
func (c *Chooser) used(k int) (sum int) {
	for i := range c.menus {
		sum += c.takes(i, c.cheapest(i, false), k)
	}
	return sum
}

// bargain finds, kind by kind, the least price at which no more is taken than there
// is. With several kinds the price of one changes what is taken of another: a few
// rounds come near.
func (c *Chooser) bargain() {
	most := 0.0 // what no GPU is worth
	for _, m := range c.menus {
		for n := range m {
			most = max(most, 2*(m[0].Cost-m[n].Cost))
		}
	}
	rounds := 1
	if len(c.capacity) > 1 {
		rounds = 4
	}
	for range rounds {
		for k := range c.capacity {
			if c.price[k] = 0; most > 0 && c.used(k) > c.capacity[k] {
				c.price[k] = c.clearing(k, most)
			}
		}
	}
}

// bracket is what a menu takes at the highest price known to be too low, and at the lowest
// that is high enough (-1: not known), and at the present one.
type bracket struct{ menu, low, high, now int }

// clearing is the price of a kind at which no more is taken than there is. What a menu
// takes at two prices it takes at each between them, since what a choice costs is linear in
// the price: whoever takes the same at both ends is not asked again.
func (c *Chooser) clearing(k int, most float64) float64 {
	low, high, sure := most*1e-12, most, 0
	c.unsure = c.unsure[:0]
	for i := range c.menus {
		c.unsure = append(c.unsure, bracket{i, -1, -1, -1})
	}
	for range 40 { // costs differ by orders of magnitude: geometrically
		c.price[k] = math.Sqrt(low * high)
		used := sure
		for i := range c.unsure {
			b := &c.unsure[i]
			b.now = c.cheapest(b.menu, false)
			used += c.takes(b.menu, b.now, k)
		}
		over := used > c.capacity[k]
		if over {
			low = c.price[k]
		} else {
			high = c.price[k]
		}
		left := c.unsure[:0]
		for _, b := range c.unsure {
			if over {
				b.low = b.now
			} else {
				b.high = b.now
			}
			if b.low == b.high {
				sure += c.takes(b.menu, b.now, k)
			} else {
				left = append(left, b)
			}
		}
		c.unsure = left
	}
	return high
}

// takes is how many GPUs of a kind menu i takes with a choice.
func (c *Chooser) takes(i, n, k int) int {
	if x := &c.menus[i][n]; x.Kind == k {
		return x.GPUs
	}
	return 0
}

// freed is how many GPUs of its kind menu i gives back with another choice.
func (c *Chooser) freed(i, to int) int {
	old, x := c.now(i), &c.menus[i][to]
	if old.Kind == x.Kind {
		return old.GPUs - x.GPUs
	}
	return old.GPUs
}

// extra is how many more GPUs of the choice's kind menu i takes with it.
func (c *Chooser) extra(i, to int) int {
	old, x := c.now(i), &c.menus[i][to]
	if old.Kind == x.Kind {
		return x.GPUs - old.GPUs
	}
	return x.GPUs
}

// wish is a change that fits, and what it saves per GPU.
type wish struct {
	job, to int
	saves   float64
}

// Before orders by what is saved, then by menu.
func (w *wish) Before(o *wish) bool {
	if w.saves > o.saves || w.saves < o.saves {
		return w.saves > o.saves
	}
	return w.job < o.job
}

// wish is the change of menu i that fits and saves most per GPU.
func (c *Chooser) wish(i int) (best wish, ok bool) {
	cost := c.now(i).Cost
	for n := range c.menus[i] {
		x := &c.menus[i][n]
		saved := cost - x.Cost
		if saved < worth {
			continue
		}
		more := c.extra(i, n)
		if x.GPUs > 0 && more > c.left[x.Kind] {
			continue
		}
		if w := (wish{i, n, saved / float64(max(1, more))}); !ok || w.saves > best.saves {
			best, ok = w, true
		}
	}
	return best, ok
}

// worth is the least saving for which anything changes.
const worth = 1e-9

// fill gives away what is left.
func (c *Chooser) fill() {
	if c.simple() {
		c.serve()
		return
	}
	c.open = c.open[:0]
	for i := range c.menus {
		if w, ok := c.wish(i); ok {
			c.open = append(c.open, w)
		}
	}
	heap.Init(c.open)
	for len(c.open) > 0 {
		w := heap.Pop(&c.open)
		again, ok := c.wish(w.job)
		if ok && again == w {
			c.move(w.job, w.to)
			if slices.Max(c.left) <= 0 {
				c.giveUp()
			}
			again, ok = c.wish(w.job)
		}
		if ok {
			heap.Push(&c.open, again)
		}
	}
}

// serve is fill for simple menus of which nobody has anything yet: a wish that does not fit once
// never does, and none follows one that came true.
func (c *Chooser) serve() {
	c.line = c.line[:0]
	for i, m := range c.menus {
		if len(m) < 2 {
			continue
		}
		if saved := m[0].Cost - m[1].Cost; saved >= worth {
			c.line = append(c.line, Want{Worth: saved / float64(max(1, m[1].GPUs)), At: int32(i), GPUs: int32(m[1].GPUs)})
		}
	}
	served, _ := Serve(c.line, max(0, c.left[0]))
	for _, w := range c.line[:served] {
		c.move(int(w.At), 1)
	}
}

// giveUp forgets the wishes that cannot come true, now that nothing is left: most.
func (c *Chooser) giveUp() {
	open := c.open[:0]
	for _, w := range c.open {
		if again, ok := c.wish(w.job); ok {
			open = append(open, again)
		}
	}
	c.open = open
	heap.Init(c.open)
}

// giver is a menu that could give GPUs back by another choice, and what it loses.
type giver struct {
	job, to int
	loss    float64
}

// givers lists, for each kind and number of GPUs, the two menus that lose least by
// giving back so many or more.
func (c *Chooser) givers() [][][2]giver {
	none := giver{job: -1, loss: math.Inf(1)}
	c.lose = slices.Grow(c.lose[:0], len(c.capacity))[:len(c.capacity)]
	list := c.lose
	for k := range list {
		list[k] = list[k][:0]
		for range c.most + 1 {
			list[k] = append(list[k], [2]giver{none, none})
		}
	}
	for i := range c.menus {
		old := c.now(i)
		if old.GPUs == 0 {
			continue // it has nothing to give
		}
		for n := range c.menus[i] {
			x := &c.menus[i][n]
			if freed := c.freed(i, n); freed > 0 && (x.Kind == old.Kind || x.GPUs <= c.left[x.Kind]) {
				note(&list[old.Kind][freed], giver{i, n, x.Cost - old.Cost})
			}
		}
	}
	for k := range list {
		for g := len(list[k]) - 2; g > 0; g-- {
			for _, who := range list[k][g+1] {
				note(&list[k][g], who)
			}
		}
	}
	return list
}

// note keeps the best of two menus.
func note(best *[2]giver, g giver) {
	switch {
	case g.job < 0:
	case g.job == best[0].job:
		if g.loss < best[0].loss {
			best[0] = g
		}
	case g.loss < best[0].loss:
		best[0], best[1] = g, best[0]
	case g.loss < best[1].loss:
		best[1] = g
	}
}

// exchange makes the one change that saves most, if there is any: one menu has
// something better, another, if need be, gives back what is missing.
func (c *Chooser) exchange() bool {
	givers := c.givers()
	job, to, from, most := -1, 0, giver{job: -1}, worth
	for i := range c.menus {
		cost := c.now(i).Cost
		for n := range c.menus[i] {
			x := &c.menus[i][n]
			saved := cost - x.Cost
			if saved <= most {
				continue
			}
			who := giver{job: -1}
			if missing := c.extra(i, n) - c.left[x.Kind]; x.GPUs > 0 && missing > 0 {
				if who = givers[x.Kind][missing][0]; who.job == i {
					who = givers[x.Kind][missing][1]
				}
				if who.job < 0 {
					continue
				}
			}
			if saved-who.loss > most {
				job, to, from, most = i, n, who, saved-who.loss
			}
		}
	}
	if job < 0 {
		return false
	}
	if from.job >= 0 {
		c.move(from.job, from.to)
	}
	c.move(job, to)
	return true
}
