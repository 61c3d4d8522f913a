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
func Choose(menus [][]Choice, capacity []int) []int {
	c := &chooser{menus: menus, capacity: capacity, left: slices.Clone(capacity), at: make([]int, len(menus)), price: make([]float64, len(capacity))}
	c.improve()
	greedy, cost := slices.Clone(c.at), c.cost()
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
	return greedy
}

// improve gives away what is left, and has pairs exchange.
func (c *chooser) improve() {
	c.fill()
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
func (c *chooser) cost() (sum float64) {
	for i := range c.menus {
		sum += c.now(i).Cost
	}
	return sum
}

type chooser struct {
	menus    [][]Choice
	capacity []int
	left     []int // of each kind
	at       []int
	price    []float64
}

func (c *chooser) now(i int) *Choice { return &c.menus[i][c.at[i]] }

// move has menu i have another choice.
func (c *chooser) move(i, to int) {
	old, x := c.now(i), &c.menus[i][to]
	c.left[old.Kind] += old.GPUs
	c.left[x.Kind] -= x.GPUs
	c.at[i] = to
}

// cheapest is what menu i would have at the present prices, or of what is left.
func (c *chooser) cheapest(i int, fits bool) (best int) {
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
func (c *chooser) used(k int) (sum int) {
	for i := range c.menus {
		if x := &c.menus[i][c.cheapest(i, false)]; x.Kind == k {
			sum += x.GPUs
		}
	}
	return sum
}

// bargain finds, kind by kind, the least price at which no more is taken than there
// is. With several kinds the price of one changes what is taken of another: a few
// rounds come near.
func (c *chooser) bargain() {
	most := 0.0 // what no GPU is worth
	for _, m := range c.menus {
		for _, x := range m {
			most = max(most, 2*(m[0].Cost-x.Cost))
		}
	}
	rounds := 1
	if len(c.capacity) > 1 {
		rounds = 4
	}
	for range rounds {
		for k := range c.capacity {
			if c.price[k] = 0; most == 0 || c.used(k) <= c.capacity[k] {
				continue
			}
			low, high := most*1e-12, most
			for range 40 { // costs differ by orders of magnitude: geometrically
				c.price[k] = math.Sqrt(low * high)
				if c.used(k) > c.capacity[k] {
					low = c.price[k]
				} else {
					high = c.price[k]
				}
			}
			c.price[k] = high
		}
	}
}

// freed is how many GPUs of its kind menu i gives back with another choice.
func (c *chooser) freed(i, to int) int {
	old, x := c.now(i), &c.menus[i][to]
	if old.Kind == x.Kind {
		return old.GPUs - x.GPUs
	}
	return old.GPUs
}

// extra is how many more GPUs of the choice's kind menu i takes with it.
func (c *chooser) extra(i, to int) int {
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
func (c *chooser) wish(i int) (best wish, ok bool) {
	for n, x := range c.menus[i] {
		more, saved := c.extra(i, n), c.now(i).Cost-x.Cost
		if saved < worth || x.GPUs > 0 && more > c.left[x.Kind] {
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
func (c *chooser) fill() {
	var open []wish
	for i := range c.menus {
		if w, ok := c.wish(i); ok {
			heap.Push(&open, w)
		}
	}
	for len(open) > 0 {
		w := heap.Pop(&open)
		again, ok := c.wish(w.job)
		if ok && again == w {
			c.move(w.job, w.to)
			again, ok = c.wish(w.job)
		}
		if ok {
			heap.Push(&open, again)
		}
	}
}

// giver is a menu that could give GPUs back by another choice, and what it loses.
type giver struct {
	job, to int
	loss    float64
}

// givers lists, for each kind and number of GPUs, the two menus that lose least by
// giving back so many or more.
func (c *chooser) givers() [][][2]giver {
	most := 0
	for _, m := range c.menus {
		for _, x := range m {
			most = max(most, x.GPUs)
		}
	}
	none := giver{job: -1, loss: math.Inf(1)}
	list := make([][][2]giver, len(c.capacity))
	for k := range list {
		list[k] = slices.Repeat([][2]giver{{none, none}}, most+1)
	}
	for i := range c.menus {
		old := c.now(i)
		for n, x := range c.menus[i] {
			if freed := c.freed(i, n); freed > 0 && (x.Kind == old.Kind || x.GPUs <= c.left[x.Kind]) {
				note(&list[old.Kind][freed], giver{i, n, x.Cost - old.Cost})
			}
		}
	}
	for k := range list {
		for g := most - 1; g > 0; g-- {
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
func (c *chooser) exchange() bool {
	givers := c.givers()
	job, to, from, most := -1, 0, giver{job: -1}, worth
	for i := range c.menus {
		for n, x := range c.menus[i] {
			saved := c.now(i).Cost - x.Cost
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
