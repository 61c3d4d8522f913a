package solve

import (
	"math"
	"slices"

	"github.com/muster-gpu/muster/internal/heap"
)

// Choice is one option on a menu: a number of GPUs of a kind, at a cost.
type Choice struct {
	Kind, GPUs int
	Cost       float64
}

// looks bounds the number of choices that are examined in the final exchanges: a hundred per menu
// when there are few, ten when there are fifty thousand.
const looks = 500_000

// Choose takes one choice of each menu, within the capacity of each kind and at a low total cost,
// and returns their indices in the menus. The first choice of each menu takes no GPUs. Ties go to
// the earlier menu.
//
// It is a heuristic for the multiple-choice knapsack: a price per GPU of each kind is found at
// which all choices together fit, or nearly (with one kind, the relaxation's dual optimum); the
// remaining GPUs are handed out by cost saved per GPU; then pairs of menus exchange while that
// saves cost. The same is done from scratch without prices; the better result counts. A test
// compares it with exhaustive search.
//
// Memory is reused: the result is valid until the next call.
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

// simple reports whether prices change nothing: with one kind and one option per menu, the menu
// that would pay most per GPU is first either way.
func (c *Chooser) simple() bool {
	return len(c.capacity) == 1 && !slices.ContainsFunc(c.menus, func(m []Choice) bool { return len(m) > 2 })
}

// suffices gives every menu its cheapest choice if the capacity allows all of them; otherwise it
// changes nothing.
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

// improve hands out the remaining GPUs and then exchanges between pairs.
func (c *Chooser) improve() {
	c.fill()
	c.trade()
}

// trade exchanges between pairs.
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

// cost is the total cost of the choices.
func (c *Chooser) cost() (sum float64) {
	for i := range c.menus {
		sum += c.now(i).Cost
	}
	return sum
}

// Chooser holds the memory of Choose. The zero value is ready for use.
type Chooser struct {
	menus    [][]Choice
	capacity []int
	left     []int // unused GPUs of each kind
	at       []int
	price    []float64

	greedy []int
	unsure []bracket    // used by bargain
	open   []wish       // used by fill
	line   []Want       // used by serve
	lose   [][][2]giver // used by givers
	most   int          // most GPUs of any choice
}

// begin resets all menus to their first choice.
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

// move changes the choice of menu i.
func (c *Chooser) move(i, to int) {
	old, x := c.now(i), &c.menus[i][to]
	c.left[old.Kind] += old.GPUs
	c.left[x.Kind] -= x.GPUs
	c.at[i] = to
}

// cheapest is the best choice of menu i at the present prices, limited to unused GPUs if fits.
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

// used is the number of GPUs of a kind that would be taken at the present prices.
func (c *Chooser) used(k int) (sum int) {
	for i := range c.menus {
		sum += c.takes(i, c.cheapest(i, false), k)
	}
	return sum
}

// bargain finds, kind by kind, the lowest price at which the demand is within the capacity. With
// several kinds the price of one changes the demand for another: a few rounds come close.
func (c *Chooser) bargain() {
	most := 0.0 // no GPU is worth more
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

// bracket holds a menu's choice at the highest price known to be too low, at the lowest known to be
// high enough (-1: unknown), and at the present price.
type bracket struct{ menu, low, high, now int }

// clearing is the price of a kind at which the demand is within the capacity. A choice that is best
// at two prices is best at every price in between, since its cost is linear in the price: menus
// with equal choices at both ends are not evaluated again.
func (c *Chooser) clearing(k int, most float64) float64 {
	low, high, sure := most*1e-12, most, 0
	c.unsure = c.unsure[:0]
	for i := range c.menus {
		c.unsure = append(c.unsure, bracket{i, -1, -1, -1})
	}
	for range 40 { // costs differ by orders of magnitude: bisect geometrically
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

// takes is the number of GPUs of kind k that menu i takes with choice n.
func (c *Chooser) takes(i, n, k int) int {
	if x := &c.menus[i][n]; x.Kind == k {
		return x.GPUs
	}
	return 0
}

// freed is the number of GPUs of its kind that menu i frees with another choice.
func (c *Chooser) freed(i, to int) int {
	old, x := c.now(i), &c.menus[i][to]
	if old.Kind == x.Kind {
		return old.GPUs - x.GPUs
	}
	return old.GPUs
}

// extra is the number of additional GPUs of the choice's kind that menu i takes with it.
func (c *Chooser) extra(i, to int) int {
	old, x := c.now(i), &c.menus[i][to]
	if old.Kind == x.Kind {
		return x.GPUs - old.GPUs
	}
	return x.GPUs
}

// wish is a change that fits, with its saving per GPU.
type wish struct {
	job, to int
	saves   float64
}

// Before orders by saving, then by menu.
func (w *wish) Before(o *wish) bool {
	if w.saves > o.saves || w.saves < o.saves {
		return w.saves > o.saves
	}
	return w.job < o.job
}

// wish returns the change of menu i that fits and saves most per GPU.
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

// worth is the smallest saving that justifies a change.
const worth = 1e-9

// fill hands out the unused GPUs.
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

// serve is fill for simple menus that hold nothing yet: a wish that does not fit once never fits
// later, and a menu has no second wish.
func (c *Chooser) serve() {
	c.line = c.line[:0]
	for i, m := range c.menus {
		if len(m) < 2 {
			continue
		}
		if saved := m[0].Cost - m[1].Cost; saved >= worth {
			c.line = append(c.line,
				Want{Worth: saved / float64(max(1, m[1].GPUs)), At: int32(i), GPUs: int32(m[1].GPUs)})
		}
	}
	served, _ := Serve(c.line, max(0, c.left[0]))
	for _, w := range c.line[:served] {
		c.move(int(w.At), 1)
	}
}

// giveUp drops the wishes, most of them, that cannot fit now that nothing is left.
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

// giver is a menu that could free GPUs by another choice, and the cost of that.
type giver struct {
	job, to int
	loss    float64
}

// givers lists, for each kind and number of GPUs, the two menus that lose least by freeing at least
// that many.
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
			continue // it holds nothing
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
			for _, donor := range list[k][g+1] {
				note(&list[k][g], donor)
			}
		}
	}
	return list
}

// note keeps the best two menus.
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

// exchange makes the one change that saves most, if there is any: a menu gets a better choice, and
// another one frees the missing GPUs if necessary.
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
			donor := giver{job: -1}
			if missing := c.extra(i, n) - c.left[x.Kind]; x.GPUs > 0 && missing > 0 {
				if donor = givers[x.Kind][missing][0]; donor.job == i {
					donor = givers[x.Kind][missing][1]
				}
				if donor.job < 0 {
					continue
				}
			}
			if saved-donor.loss > most {
				job, to, from, most = i, n, donor, saved-donor.loss
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
